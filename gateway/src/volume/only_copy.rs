//! Decides which blocks on a queue volume are the only copy of their rows, when their partition may belong to another gateway.
//!
//! Place in the flow: `sluice-gateway drain` asks for every block of a volume, a gateway for those that an earlier run has left.
//! Pure: Kafka's answers come in as [`Log`].
//!
//! | the range of the block | meaning | the block is |
//! | --- | --- | --- |
//! | lies below the committed offset | it was settled before the commit | dropped |
//! | the same, and overlaps a [gap](sluice_ranges::gaps) | no process has read those messages or will read them | inserted |
//! | the same, with `delivery.commit: AfterEnqueue` | it was committed because it was on the volume | inserted |
//! | starts at or above it, and Kafka has all of it | the partition's owner reads it | dropped |
//! | starts at or above it, and Kafka no longer has all of it | no process can read all of it again | inserted |
//! | contains the committed offset | an earlier owner has cut other ranges; the part below is settled | treated like the part above |
//!
//! Kafka has a block's messages only if they came from the same cluster; another cluster's offsets mean nothing. If one of the two clusters
//! has no id, they may be the same. Then all rows of the block may be elsewhere. If the group has committed
//! nothing and starts at the end (`initialOffset: Latest`), no process reads the messages before the end.
//!
//! A block that its partition takes over is none of these, whatever Kafka has: the partition inserts all of it as its range, under its token
//! ([`sluice_ranges::Committed::taken_over`]), and reads nothing of it.
//!
//! If a block is inserted, its messages below the committed offset are already in the table, and the owner reads those that Kafka still
//! has, in other ranges. The server drops neither, so their rows are duplicated. [`OnlyCopy::alone`] has the offsets without duplicates.
//!
//! The volume records that a block is an only copy when that is found ([`judge`]), and the result stays. A process that commits beyond a
//! gap writes it into the partition's plan, so that later questions find it; but only [`gaps::GAPS_MAX`](sluice_ranges::gaps::GAPS_MAX)
//! gaps fit. Another volume may have had the block too, and may have inserted it since. To avoid such a question, the answer is
//! determined for all other blocks of a partition on the volume before the partition starts with a gap ([`sluice_kafka::BeforeBegin`]).
//!
//! Limitation: a block does not record which incarnation of its topic it was read from. A recreated topic that has grown beyond the block's
//! offsets looks like the old one.

mod fits;
mod judge;
mod logs;
mod sender;

pub use fits::{Fits, Tables, Unsendable};
pub use judge::{Finding, Judged, judge};
pub use logs::{Logs, partition_of};
pub use sender::{OnlyCopyBlock, OnlyCopySender};

use sluice_ranges::OffsetRange;

/// Kafka's answers about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log<'a> {
    /// The cluster's id.
    pub cluster: &'a str,
    /// The offsets in the log; `None` if there is no such topic or partition.
    pub bounds: Option<OffsetRange>,
    /// The group's committed offset.
    pub committed: Option<i64>,
    /// Ranges below it that no process has read: ascending and disjoint.
    pub gaps: &'a [OffsetRange],
    /// Whether a group without a committed offset starts at the oldest message.
    pub begins_at_oldest: bool,
}

/// Where the rows of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLocation {
    /// Its rows are in the table.
    Settled,
    /// The partition's owner reads its messages.
    InKafka,
    /// The block is the only copy of its rows.
    OnlyCopy(OnlyCopy),
}

/// A block that is the only copy of all or some of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyCopy {
    /// The offsets whose rows are only in this block. Its other rows are in the table, or the owner reads their messages.
    pub alone: OffsetRange,
    /// Whether an owner of the partition has committed beyond these offsets since. Then another volume that had the block too may have
    /// inserted it long ago.
    pub is_late: bool,
}

impl OnlyCopy {
    fn of(alone: OffsetRange) -> Self {
        Self { alone, is_late: false }
    }
}

/// The facts about a block that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFacts<'a> {
    /// Its offsets.
    pub range: OffsetRange,
    /// The cluster that it was read from; `None` if unknown.
    pub cluster: Option<&'a str>,
    /// Whether its offsets may be committed while it is on the volume.
    pub is_enqueued: bool,
}

/// Decides where the rows of a block are.
pub fn row_location(subject: BlockFacts<'_>, log: &Log<'_>) -> RowLocation {
    let BlockFacts { range, cluster, is_enqueued } = subject;
    if cluster.is_some_and(|cluster| cluster != log.cluster) {
        return RowLocation::OnlyCopy(OnlyCopy::of(range));
    }
    match (by_commit(range, is_enqueued, log), in_gap(range, log)) {
        (only @ RowLocation::OnlyCopy(_), _) => only,
        (_, Some(alone)) => RowLocation::OnlyCopy(OnlyCopy { alone, is_late: true }),
        (elsewhere, None) => elsewhere,
    }
}

/// The largest part of it below the committed offset that no process has read.
fn in_gap(range: OffsetRange, log: &Log<'_>) -> Option<OffsetRange> {
    let committed = log.committed?;
    let within = log.gaps.iter().map(|gap| OffsetRange {
        first: gap.first.max(range.first),
        next: gap.next.min(range.next).min(committed),
    });
    within.filter(|within| within.first < within.next).max_by_key(|within| within.next - within.first)
}

/// Decides by the committed offset and the log.
fn by_commit(range: OffsetRange, is_enqueued: bool, log: &Log<'_>) -> RowLocation {
    let OffsetRange { first, next } = range;
    if log.committed.is_some_and(|committed| next <= committed) {
        return if is_enqueued { RowLocation::OnlyCopy(OnlyCopy::of(range)) } else { RowLocation::Settled };
    }
    let from = log.committed.map_or(first, |committed| committed.max(first));
    let is_read = log.committed.is_some() || log.begins_at_oldest;
    let Some(bounds) = log.bounds.filter(|bounds| is_read && next <= bounds.next) else {
        return RowLocation::OnlyCopy(OnlyCopy::of(OffsetRange { first: from, next }));
    };
    if bounds.first <= from {
        return RowLocation::InKafka;
    }
    RowLocation::OnlyCopy(OnlyCopy::of(OffsetRange { first: from, next: next.min(bounds.first) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn range(first: i64, next: i64) -> OffsetRange {
        OffsetRange { first, next }
    }

    const LOG: Log<'_> = Log {
        cluster: "c",
        bounds: Some(range(100, 200)),
        committed: Some(150),
        gaps: &[],
        begins_at_oldest: true,
    };

    fn of(first: i64, next: i64, log: &Log<'_>) -> RowLocation {
        row_location(BlockFacts { range: range(first, next), cluster: Some("c"), is_enqueued: false }, log)
    }

    fn only(first: i64, next: i64) -> RowLocation {
        RowLocation::OnlyCopy(OnlyCopy::of(range(first, next)))
    }

    fn late(first: i64, next: i64) -> RowLocation {
        RowLocation::OnlyCopy(OnlyCopy { alone: range(first, next), is_late: true })
    }

    #[test]
    fn what_is_settled_or_read_again_is_dropped() {
        assert_eq!(of(140, 150, &LOG), RowLocation::Settled);
        assert_eq!(of(10, 20, &LOG), RowLocation::Settled, "whatever Kafka has");
        assert_eq!(of(150, 160, &LOG), RowLocation::InKafka);
        assert_eq!(of(190, 200, &LOG), RowLocation::InKafka);
        assert_eq!(of(140, 160, &LOG), RowLocation::InKafka, "an owner before has cut at 150");
        let none = Log { committed: None, ..LOG };
        assert_eq!(of(100, 120, &none), RowLocation::InKafka);
    }

    #[test]
    fn what_kafka_no_longer_has_is_an_only_copy() {
        let passed = Log { bounds: Some(range(170, 200)), ..LOG };
        assert_eq!(of(150, 160, &passed), only(150, 160));
        assert_eq!(of(150, 170, &passed), only(150, 170));
        assert_eq!(of(160, 180, &passed), only(160, 170), "its owner reads the rest");
        assert_eq!(of(140, 180, &passed), only(150, 170), "and has settled what is below");
        assert_eq!(of(170, 180, &passed), RowLocation::InKafka);
        let gone = Log { bounds: None, ..LOG };
        assert_eq!(of(150, 160, &gone), only(150, 160));
        assert_eq!(of(140, 150, &gone), RowLocation::Settled);
    }

    #[test]
    fn what_an_owner_has_committed_behind_a_gap_is_an_only_copy() {
        let passed = Log { gaps: &[range(20, 40), range(60, 120)], ..LOG };
        assert_eq!(of(20, 30, &passed), late(20, 30));
        assert_eq!(of(100, 110, &passed), late(100, 110), "Kafka has had it again, or another log");
        assert_eq!(of(30, 50, &passed), late(30, 40), "what is above it was read");
        assert_eq!(of(30, 65, &passed), late(30, 40), "or in the other gap, which has fewer of it");
        assert_eq!(of(40, 60, &passed), RowLocation::Settled);
        assert_eq!(of(110, 160, &passed), late(110, 120), "its owner reads the rest");
        let ahead = Log { gaps: &[range(150, 160)], ..LOG };
        assert_eq!(of(150, 160, &ahead), RowLocation::InKafka, "nobody has committed behind it");
        let enqueued = BlockFacts { range: range(20, 30), cluster: Some("c"), is_enqueued: true };
        assert_eq!(
            row_location(enqueued, &passed),
            only(20, 30),
            "its plan names no block that is on a volume"
        );
    }

    #[test]
    fn a_log_that_ends_before_the_block_is_another_one() {
        assert_eq!(of(190, 201, &LOG), only(190, 201));
        let other = BlockFacts { range: range(150, 160), cluster: Some("other"), is_enqueued: false };
        assert_eq!(row_location(other, &LOG), only(150, 160));
        let below = BlockFacts { range: range(10, 20), ..other };
        assert_eq!(row_location(below, &LOG), only(10, 20), "its offsets say nothing");
        assert_eq!(row_location(BlockFacts { cluster: None, ..other }, &LOG), RowLocation::InKafka);
    }

    #[test]
    fn what_is_committed_because_it_is_on_the_volume_is_an_only_copy() {
        let enqueued =
            |first, next| BlockFacts { range: range(first, next), cluster: Some("c"), is_enqueued: true };
        assert_eq!(row_location(enqueued(140, 150), &LOG), only(140, 150), "whatever Kafka has");
        assert_eq!(row_location(enqueued(10, 20), &LOG), only(10, 20));
        assert_eq!(row_location(enqueued(150, 160), &LOG), RowLocation::InKafka, "its commit was not stored");
    }

    #[test]
    fn a_group_that_begins_at_the_end_reads_nothing_in_front_of_it() {
        let latest = Log { committed: None, begins_at_oldest: false, ..LOG };
        assert_eq!(of(150, 160, &latest), only(150, 160));
        let committed = Log { begins_at_oldest: false, ..LOG };
        assert_eq!(of(150, 160, &committed), RowLocation::InKafka);
    }

    proptest! {
        /// For each offset: it is below the commit and in no gap, or Kafka has the message and it is read, or its block is inserted.
        #[test]
        fn no_offset_is_nowhere(
            (first, len) in (0_i64..60, 1_i64..20),
            bounds in prop::option::of((0_i64..60, 0_i64..60)),
            committed in prop::option::of(0_i64..80),
            gap in prop::option::of((0_i64..60, 1_i64..20)),
            begins_at_oldest: bool,
        ) {
            let bounds = bounds.map(|(start, len)| range(start, start + len));
            let gaps: Vec<_> = gap.map(|(first, len)| range(first, first + len)).into_iter().collect();
            let log = Log { cluster: "c", bounds, committed, gaps: &gaps, begins_at_oldest };
            let found = of(first, first + len, &log);
            for offset in first..first + len {
                let is_in_gap = gaps.iter().any(|gap| gap.first <= offset && offset < gap.next);
                let is_settled = committed.is_some_and(|committed| offset < committed) && !is_in_gap;
                let has = bounds.is_some_and(|bounds| bounds.first <= offset && offset < bounds.next);
                let is_read = has && (committed.is_some() || begins_at_oldest);
                let is_alone = matches!(found, RowLocation::OnlyCopy(only)
                    if only.alone.first <= offset && offset < only.alone.next);
                let is_inserted = matches!(found, RowLocation::OnlyCopy(_));
                prop_assert!(is_settled || is_read || is_inserted, "{offset} of {found:?}");
                prop_assert!(!(is_settled && is_alone), "{offset} of {found:?} is in the table");
            }
        }
    }
}
