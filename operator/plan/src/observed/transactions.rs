//! Transactions that keep gateways from reading partitions, as gateways report them and the operator remembers. Pure.

use crate::ground::moment::Moment;
use std::collections::BTreeMap;

/// A transaction that is open for more seconds hangs. Specified: a coordinator aborts one after the brokers' `transaction.max.timeout.ms`
/// at the latest, 15 minutes by default, and a minute is added for it to do so. Gateways and the alert `SluiceTransactionHangs` have the
/// same number.
pub const OPEN_SECONDS_MAX: u64 = 16 * 60;

/// A transaction that no gateway names any more is reported as open for this many seconds. Chosen: longer than a gateway takes to be
/// replaced, or a partition to move.
const REPORTED_SECONDS: u64 = 2 * 60;

/// The age of a transaction that no gateway names is kept for this many seconds, in an entry for each partition. Gateways may be away for
/// longer than [`REPORTED_SECONDS`]. One that then names the same first offset means the same transaction, because a second cannot begin
/// there. Chosen: longer than an outage takes.
const KEPT_SECONDS: u64 = 24 * 3_600;

/// What waits in a partition behind an open transaction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenTransaction {
    pub topic: String,
    pub partition: u32,
    /// Where the first open transaction begins: the last stable offset.
    pub first_offset: u64,
    /// Messages from there on.
    pub messages: u64,
    /// For how long it has begun there.
    pub seconds: u64,
}

/// What gateways have reported of open transactions. A gateway that is new to a partition counts the age of its transaction from 0. Here the
/// age continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenTransactions(BTreeMap<(String, u32), (Moment, OpenTransaction)>);

impl OpenTransactions {
    /// Takes what gateways say at this time, and gives what is open then.
    pub fn look(
        &mut self,
        now: Moment,
        said: impl IntoIterator<Item = OpenTransaction>,
    ) -> Vec<OpenTransaction> {
        for open in said {
            let at = (open.topic.clone(), open.partition);
            let before = self.0.get(&at).filter(|(_, before)| before.first_offset == open.first_offset);
            let older = before.map_or(0, |before| seconds_at(before, now));
            let seconds = open.seconds.max(older);
            self.0.insert(at, (now, OpenTransaction { seconds, ..open }));
        }
        // A clock that went back by far must not keep one for ever.
        let is_within = |said: Moment, seconds: u64| said.0.abs_diff(now.0) <= seconds * 1_000;
        self.0.retain(|_, (said, _)| is_within(*said, KEPT_SECONDS));
        let reported = self.0.values().filter(|(said, _)| is_within(*said, REPORTED_SECONDS));
        let open = |known: &(Moment, OpenTransaction)| OpenTransaction {
            seconds: seconds_at(known, now),
            ..known.1.clone()
        };
        reported.map(open).collect()
    }
}

fn seconds_at((said, open): &(Moment, OpenTransaction), now: Moment) -> u64 {
    open.seconds.saturating_add(now.0.saturating_sub(said.0) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(first_offset: u64, seconds: u64) -> OpenTransaction {
        OpenTransaction { topic: "spans".into(), partition: 3, first_offset, messages: 7, seconds }
    }

    #[test]
    fn a_gateway_that_is_new_to_a_partition_makes_its_transaction_no_younger() {
        let mut known = OpenTransactions::default();
        // When it is looked at, in seconds; what a gateway says; where the transaction begins, and how old it is.
        for (second, said, expected) in [
            (0, None, None),
            (10, Some(open(120, 5)), Some((120, 5))),
            (1_000, Some(open(120, 995)), Some((120, 995))),
            // The gateway is replaced.
            (1_060, None, Some((120, 1_055))),
            (1_090, Some(open(120, 2)), Some((120, 1_085))),
            (1_100, Some(open(120, 12)), Some((120, 1_095))),
            // It was ended, and another one is open.
            (1_110, Some(open(200, 3)), Some((200, 3))),
            (1_230, None, Some((200, 123))),
            (1_231, None, None),
            // Gateways were away for long, and the transaction is the same.
            (5_110, Some(open(200, 1)), Some((200, 4_003))),
            (5_120, Some(open(300, 1)), Some((300, 1))),
            // After more than a day it is not known whether the partition is that of the same topic.
            (91_521, None, None),
            (91_522, Some(open(300, 1)), Some((300, 1))),
            // The clock goes back.
            (0, None, None),
        ] {
            let found = known.look(Moment(second * 1_000), said);
            assert!(found.len() <= 1, "{found:?}");
            let found = found.first().map(|open| (open.first_offset, open.seconds));
            assert_eq!(found, expected, "{second}");
        }
    }
}
