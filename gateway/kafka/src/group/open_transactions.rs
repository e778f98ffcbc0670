//! Partitions whose messages wait behind an open transaction, and since when.
//!
//! A consumer that reads committed messages stops at the last stable offset, where the first open transaction begins. Lag stops there
//! too. A hanging transaction, which its producer never ends and its coordinator does not abort, therefore blocks everything behind it at
//! lag 0, until Kafka's retention deletes it. Each fetch answer contains the end of the log and the last stable offset.
//!
//! Pure. Place in the flow: [`crate::group::inspection`] calls [`OpenTransactions::look`] after librdkafka's statistics; the result goes to
//! metrics and the log. Owner: the poll thread. Limits: an entry per assigned partition with an open transaction. The age counts from
//! when this process first saw the last stable offset: it starts again after a restart and when the partition moves.

use crate::group::stats::PartitionStats;
use sluice_ranges::PartitionId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A transaction that is open for longer counts as hanging. Specified: a coordinator aborts a transaction after its producer's
/// `transaction.timeout.ms` (a minute by default), which is at most the brokers' `transaction.max.timeout.ms` (15 minutes by default). It
/// looks for such transactions every 10 s. A minute is added for that and for a broker that restarts.
pub const OPEN_MAX: Duration = Duration::from_mins(16);

/// The messages of a partition that wait behind an open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The start of the transaction: the last stable offset.
    pub first_offset: i64,
    /// Offsets from there to the end of the log: messages of this and other transactions, and messages outside of transactions.
    pub messages: u64,
    /// How long the last stable offset has not moved.
    pub age: Duration,
}

/// Remembers since when transactions are open.
#[derive(Debug, Default)]
pub struct OpenTransactions {
    /// The last stable offset, and since when it has this value.
    partitions: BTreeMap<PartitionId, (i64, Instant)>,
    /// Partitions whose hanging transaction was logged.
    said: BTreeSet<PartitionId>,
}

impl OpenTransactions {
    /// Takes the numbers of every assigned partition. Forgets all other partitions.
    pub fn look(
        &mut self,
        now: Instant,
        numbers: impl IntoIterator<Item = (PartitionId, PartitionStats)>,
    ) -> BTreeMap<PartitionId, OpenTransaction> {
        let before = std::mem::take(&mut self.partitions);
        let mut open = BTreeMap::new();
        for (id, numbers) in numbers {
            let Some((first_offset, messages)) = numbers.behind_open_transaction() else { continue };
            let stands = before.get(&id).filter(|(before, _)| *before == first_offset);
            let since = stands.map_or(now, |(_, since)| *since);
            let age = now.saturating_duration_since(since);
            self.partitions.insert(id.clone(), (first_offset, since));
            open.insert(id, OpenTransaction { first_offset, messages, age });
        }
        self.say(&open);
        open
    }

    /// Logs each hanging transaction once, until it has ended.
    fn say(&mut self, open: &BTreeMap<PartitionId, OpenTransaction>) {
        let hangs = |id: &PartitionId| open.get(id).is_some_and(|open| open.age > OPEN_MAX);
        self.said.retain(|id| hangs(id));
        for (id, open) in open.iter().filter(|(id, _)| hangs(id)) {
            if self.said.insert(id.clone()) {
                let PartitionId { topic, partition } = id;
                let OpenTransaction { first_offset, messages, age } = open;
                tracing::warn!(
                    partition = %id,
                    first_offset,
                    messages,
                    seconds = age.as_secs(),
                    "an open transaction hangs and blocks reading; kafka-transactions.sh describe-producers --topic {topic} --partition {partition} \
                     finds its producer; if that is gone, run kafka-transactions.sh abort --topic {topic} --partition {partition} --start-offset {first_offset}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn numbers(stable: i64, high: i64) -> PartitionStats {
        PartitionStats { end_offset: Some(stable), high_watermark: Some(high), ..PartitionStats::default() }
    }

    #[test]
    fn a_transaction_is_open_since_the_last_stable_offset_stands_in_front_of_the_end() {
        let (mut transactions, start) = (OpenTransactions::default(), Instant::now());
        // When it is looked at in minutes, where the log is stable and where it ends, and what is said of it.
        for (minute, stable, high, expected) in [
            (0, 5, 5, None),
            (10, 5, 8, Some((5, 3, 0))),
            (11, 5, 9, Some((5, 4, 1))),
            (12, 9, 9, None),
            (13, 9, 12, Some((9, 3, 0))),
            // The one behind it is open, too.
            (14, 11, 12, Some((11, 1, 0))),
            (30, 11, 20, Some((11, 9, 16))),
            // The end is of the last fetch; the leader was asked since.
            (31, 25, 20, None),
        ] {
            let now = start + Duration::from_mins(minute);
            let open = transactions.look(now, [(id(3), numbers(stable, high))]);
            let found =
                open.get(&id(3)).map(|open| (open.first_offset, open.messages, open.age.as_secs() / 60));
            assert_eq!(found, expected, "{minute}");
        }
    }

    #[test]
    fn a_partition_that_has_gone_begins_anew() {
        let (mut transactions, start) = (OpenTransactions::default(), Instant::now());
        let later = start + Duration::from_hours(1);
        let both = || [(id(0), numbers(5, 6)), (id(1), numbers(5, 6))];
        transactions.look(start, both());
        transactions.look(later, [(id(0), numbers(5, 6)), (id(1), PartitionStats::default())]);
        let open = transactions.look(later, both());
        assert_eq!([0, 1].map(|partition| open[&id(partition)].age.as_secs()), [3_600, 0]);
    }

    #[test]
    fn a_transaction_that_hangs_is_said_once_until_it_has_ended() {
        let (mut transactions, start) = (OpenTransactions::default(), Instant::now());
        for (minutes, high, is_said) in [(0, 6, false), (16, 6, false), (17, 6, true), (18, 5, false)] {
            transactions.look(start + Duration::from_mins(minutes), [(id(0), numbers(5, high))]);
            assert_eq!(transactions.said.contains(&id(0)), is_said, "{minutes}");
        }
    }
}
