//! What one gateway says at `/metrics` of open transactions that keep it from reading partitions.

use super::exposition::{Line, lines};
use sluice_plan::observed::OpenTransaction;
use std::collections::BTreeMap;

/// Messages behind the last stable offset of a partition.
pub const MESSAGES: &str = "sluice_gateway_open_transaction_messages";
/// For how long that has not moved.
pub const SECONDS: &str = "sluice_gateway_open_transaction_seconds";
/// Where it is.
pub const FIRST_OFFSET: &str = "sluice_gateway_open_transaction_first_offset";

/// Reads an answer. Empty for a gateway of an older version, which does not say it.
pub fn read(text: &str) -> Vec<OpenTransaction> {
    let mut found = BTreeMap::<(String, u32), [Option<u64>; 3]>::new();
    for line in lines(text) {
        let Some(number) = [MESSAGES, SECONDS, FIRST_OFFSET].iter().position(|name| *name == line.name)
        else {
            continue;
        };
        if let Some(at) = place(&line) {
            found.entry(at).or_default()[number] = line.whole();
        }
    }
    let open =
        |((topic, partition), [messages, seconds, first_offset]): ((String, u32), [Option<u64>; 3])| {
            Some(OpenTransaction {
                topic,
                partition,
                first_offset: first_offset?,
                messages: messages?,
                seconds: seconds?,
            })
        };
    found.into_iter().filter_map(open).collect()
}

fn place(line: &Line<'_>) -> Option<(String, u32)> {
    Some((line.label("topic")?.into_owned(), line.label("partition")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../../../tests/gateway-metrics.txt");

    #[test]
    fn what_a_gateway_exports_is_read() {
        let expected = OpenTransaction {
            topic: "spans".into(),
            partition: 5,
            first_offset: 17,
            messages: 4,
            seconds: 961,
        };
        assert_eq!(read(EXPORTED), [expected]);
    }

    #[test]
    fn what_is_not_said_whole_is_not_known() {
        assert_eq!(read(""), []);
        let less = EXPORTED.lines().filter(|line| !line.starts_with(FIRST_OFFSET));
        assert_eq!(read(&less.collect::<Vec<_>>().join("\n")), []);
    }
}
