//! What one gateway says of open transactions that keep it from reading partitions.

use sluice_gateway_config::GatewaySample;
use sluice_plan::observed::OpenTransaction;

/// Takes it from a sample.
pub fn read(sample: &GatewaySample) -> Vec<OpenTransaction> {
    let partitions = sample
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (&topic.name, partition)));
    let open = partitions.filter_map(|(topic, partition)| {
        let open = partition.open_transaction?;
        Some(OpenTransaction {
            topic: topic.clone(),
            partition: partition.partition,
            first_offset: open.first_offset,
            messages: open.messages,
            seconds: open.seconds,
        })
    });
    open.collect()
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::exported, *};

    #[test]
    fn what_a_gateway_says_is_read() {
        let expected = OpenTransaction {
            topic: "spans".into(),
            partition: 5,
            first_offset: 17,
            messages: 4,
            seconds: 961,
        };
        assert_eq!(read(&exported()), [expected]);
        assert_eq!(read(&GatewaySample::default()), []);
    }
}
