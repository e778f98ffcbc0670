//! Kafka's answers about the partitions of blocks: requested once for all of them, without joining their group.
//!
//! Owner: one thread, which blocks while it waits for brokers. The committed offsets are requested first. A commit after that can only
//! make a block whose rows are in the table look like one whose messages are read again.

use super::{BlockFacts, Log, OnlyCopy, RowLocation, row_location};
use crate::volume::spool::{LeftBlock, Missing};
use sluice_gateway_config::{InitialOffset, Kafka};
use sluice_kafka::{Beginning, CommittedOffset, ReadError, TopicReader, UNNAMED_CLUSTER};
use sluice_ranges::{OffsetRange, PartitionId, Plan, RefusedParts, gaps::is_torn};
use sluice_spool::Coordinates;
use std::collections::{BTreeMap, BTreeSet};

/// The partition of a record that cannot be read.
pub fn partition_of(covers: &Coordinates) -> PartitionId {
    PartitionId { topic: covers.partition.topic.clone(), partition: covers.partition.partition }
}

#[derive(Debug, Clone, Default)]
struct OfPartition {
    bounds: Option<OffsetRange>,
    committed: Option<i64>,
    plan: Option<Plan>,
}

/// Kafka's answers.
#[derive(Debug, Clone)]
pub struct Logs {
    cluster: String,
    begins_at_oldest: bool,
    of: BTreeMap<PartitionId, OfPartition>,
}

impl Logs {
    /// Asks about these partitions.
    pub fn ask(
        reader: &TopicReader,
        kafka: &Kafka,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<Self, ReadError> {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for id in partitions {
            topics.entry(&id.topic).or_default().push(id.partition);
        }
        let Some(any) = topics.keys().next() else {
            return Ok(Self { cluster: String::new(), begins_at_oldest: false, of: BTreeMap::new() });
        };
        let cluster = reader.cluster(any)?;
        let mut of = BTreeMap::new();
        for (topic, partitions) in topics {
            let mut committed = reader.committed_plans(topic, &partitions)?;
            for partition in partitions {
                let bounds = match reader.bounds(topic, partition) {
                    Ok(bounds) => Some(bounds),
                    Err(ReadError::Missing { .. }) => None,
                    Err(error) => return Err(error),
                };
                let id = PartitionId { topic: topic.into(), partition };
                of.insert(id, OfPartition::new(bounds, committed.remove(&partition)));
            }
        }
        let begins_at_oldest = kafka.initial_offset == InitialOffset::Earliest;
        Ok(Self { cluster, begins_at_oldest, of })
    }

    /// The answers for a partition that is about to start.
    pub fn of_beginning(initial: InitialOffset, id: &PartitionId, beginning: &Beginning) -> Self {
        let Beginning { commit, log, cluster, .. } = beginning;
        let commit = commit.clone().map(|(offset, metadata)| CommittedOffset { offset, metadata });
        let of = OfPartition::new(Some(OffsetRange { first: log.start, next: log.end }), commit);
        Self {
            cluster: cluster.to_string(),
            begins_at_oldest: beginning.begins_at_oldest(initial),
            of: BTreeMap::from([(id.clone(), of)]),
        }
    }

    /// The answers about a partition.
    pub fn log(&self, id: &PartitionId) -> Log<'_> {
        let of = self.of.get(id);
        Log {
            cluster: &self.cluster,
            bounds: of.and_then(|of| of.bounds),
            committed: of.and_then(|of| of.committed),
            gaps: of.and_then(|of| of.plan.as_ref()).map_or(&[], |plan| &plan.gaps),
            begins_at_oldest: self.begins_at_oldest,
        }
    }

    /// Where the rows of a block are.
    pub fn row_location(&self, block: &LeftBlock) -> RowLocation {
        row_location(block.subject(), &self.log(&block.partition()))
    }

    /// Where the rows of an unreadable block are; `None` if its offsets are unknown. `enqueues`: offsets are committed once their rows
    /// are on the volume.
    pub fn whereabouts_of_missing(&self, missing: &Missing, enqueues: bool) -> Option<RowLocation> {
        let covers = missing.covers.as_ref()?;
        let range = OffsetRange { first: covers.first, next: covers.next };
        if missing.is_only_copy {
            return Some(RowLocation::OnlyCopy(OnlyCopy::of(range)));
        }
        // Its cluster was in its body, which cannot be read.
        let subject = BlockFacts { range, cluster: None, is_enqueued: missing.is_enqueued(enqueues) };
        Some(row_location(subject, &self.log(&partition_of(covers))))
    }

    /// The progress of an owner of the partition that has sent the block of a range in parts.
    pub fn parts(&self, id: &PartitionId, range: OffsetRange) -> Option<RefusedParts> {
        let plan = self.of.get(id)?.plan.as_ref()?;
        plan.parted.iter().find(|parted| parted.range == range).map(|parted| parted.parts.clone())
    }

    /// Whether an owner of the partition may have sent messages of this range in another one: in one without those that Kafka did not have
    /// any more, or in a longer one whose beginning Kafka did not have any more.
    pub fn is_doubtful(&self, id: &PartitionId, range: OffsetRange) -> bool {
        let plan = self.of.get(id).and_then(|of| of.plan.as_ref());
        plan.is_some_and(|plan| is_torn(range, &plan.gaps) || range.first < plan.doubtful_up_to)
    }

    /// Whether a block of another cluster may be one of this cluster: one of the two has no id, and a cluster may lose or get one. Then the
    /// partition's owner may read its messages again.
    pub fn may_be_renamed(&self, block: &LeftBlock) -> bool {
        block.cluster().is_some_and(|then| {
            then != self.cluster && (then == UNNAMED_CLUSTER || self.cluster == UNNAMED_CLUSTER)
        })
    }

    /// Whether every owner of a partition ends a range at this offset.
    pub fn is_cut(&self, id: &PartitionId, offset: i64) -> bool {
        self.of.get(id).and_then(|of| of.plan.as_ref()).is_some_and(|plan| plan.cuts.contains(&offset))
    }
}

impl OfPartition {
    fn new(bounds: Option<OffsetRange>, committed: Option<CommittedOffset>) -> Self {
        let plan = committed.as_ref().and_then(|c| Plan::decode(c.offset, &c.metadata).ok());
        Self { bounds, committed: committed.map(|committed| committed.offset), plan }
    }
}

#[cfg(test)]
impl Logs {
    /// Answers about one partition of the cluster `c`.
    pub(crate) fn of_one(id: PartitionId, bounds: OffsetRange, committed: i64) -> Self {
        let of = OfPartition { bounds: Some(bounds), committed: Some(committed), plan: None };
        Self { cluster: "c".to_owned(), begins_at_oldest: true, of: BTreeMap::from([(id, of)]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_spool::{BlockId, PartitionName};

    #[test]
    fn a_record_that_was_not_written_to_its_end_is_the_only_copy_of_nothing_that_is_committed() {
        let id = PartitionId { topic: "spans".into(), partition: 3 };
        let logs = Logs::of_one(id, OffsetRange { first: 0, next: 100 }, 50);
        let torn = |first| {
            let partition = PartitionName { topic: "spans".into(), partition: 3 };
            let covers = Coordinates { partition: partition.into(), first, next: first + 10, rows: 7 };
            Missing { record: None, covers: Some(covers), is_only_copy: false, is_enqueued: Some(false) }
        };
        let damaged = |first| Missing {
            record: Some(BlockId { segment: 1, ordinal: 0 }),
            is_enqueued: None,
            ..torn(first)
        };
        // Another owner has read and inserted its messages by then.
        assert_eq!(logs.whereabouts_of_missing(&torn(40), true), Some(RowLocation::Settled));
        assert_eq!(logs.whereabouts_of_missing(&torn(50), true), Some(RowLocation::InKafka));
        let alone = OffsetRange { first: 40, next: 50 };
        let lost = Some(RowLocation::OnlyCopy(OnlyCopy::of(alone)));
        assert_eq!(logs.whereabouts_of_missing(&damaged(40), true), lost);
        assert_eq!(logs.whereabouts_of_missing(&damaged(40), false), Some(RowLocation::Settled));
        assert_eq!(logs.whereabouts_of_missing(&Missing { covers: None, ..torn(40) }, true), None);
        let of_those_days = Missing { is_enqueued: Some(true), ..damaged(40) };
        assert_eq!(
            logs.whereabouts_of_missing(&of_those_days, false),
            lost,
            "whatever is committed after now"
        );
        let was_only_copy = Missing { is_only_copy: true, ..damaged(40) };
        assert_eq!(
            logs.whereabouts_of_missing(&was_only_copy, false),
            lost,
            "whoever has committed behind it"
        );
    }
}
