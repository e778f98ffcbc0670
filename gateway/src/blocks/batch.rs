//! The maximum age of an open block. Its maximum size follows from its range: [`sluice_ranges`].
//!
//! A block closes `maxInterval` after its first message, or later if many blocks are open. Each block has one range of one partition and
//! becomes its own insert. Each insert creates a part of the table, which ClickHouse must merge. So a gateway closes at most
//! [`INSERTS_PER_SECOND`] blocks a second by their age, and [`AT_ONCE`] of them at once: a burst is in the table as soon as the interval
//! allows, and low traffic makes few parts. A block waits no longer than it takes to insert all open blocks at that rate:
//!
//! | open blocks all the time | age with maxInterval 1s | inserts a second |
//! | --- | --- | --- |
//! | 1 | 1 s | 1 |
//! | 2 | 1 s | 2 |
//! | 8 | 4 s | 2 |
//! | 96 | 48 s | 2 |
//!
//! Full blocks close earlier, regardless of their age, and are not counted. There are at most as many open blocks as row buffers
//! (`partitionsActiveMax`). More partitions take turns. While a partition finds no row buffer, blocks close at the interval; otherwise
//! they would keep the row buffers from the partitions whose turn it is, and these would never catch up. If this is not fresh enough, a
//! second gateway halves the age: each has its own two inserts a second.
//!
//! Measured with ten spans a second in each partition (`cargo faults --only low-traffic`, two busy cores): 8 partitions make 2.0 inserts a
//! second, and 99 rows of 100 are in the table within 4.2 s; 96 partitions, eight at a time, make 6.2 inserts, and it takes 24 s.
//!
//! Ranges of several partitions do not share an insert. The next owner of a partition sends a range in doubt again, alone and under its own
//! token. If two ranges had shared an insert, their next owners could only find out together whether it was stored.
//!
//! While blocks of a shard wait on the queue volume, a new block is not inserted before them, so closing it early makes nothing fresher. It
//! would only make more inserts, and more cuts that must be planned. So it may become [`AGE_BEHIND`] old, and is due at once when they are
//! stored. With `delivery.commit: AfterEnqueue` its offsets wait for its end, so it becomes [`AGE_BEHIND_ENQUEUED`] old.
//!
//! While [merges are behind](crate::table::parts_watch) in a shard's table, its blocks become [`AGE_FACTOR_MERGES`] times as old, up to
//! [`AGE_BEHIND`]: fewer and larger blocks make fewer parts. Only the ends of blocks that are not planned yet change. A full block closes as
//! before, because the place where a range is full must stay a pure function of the log: the next owner of the partition looks for the same.
//!
//! | open blocks all the time | age with maxInterval 1s | the same while merges are behind | inserts a second then |
//! | --- | --- | --- | --- |
//! | 1 | 1 s | 8 s | 0.125 |
//! | 8 | 4 s | 32 s | 0.25 |
//! | 96 | 48 s | 60 s | 1.6 |
//!
//! While a gateway with `source.otlp` drains, its logs are read to their end, and the drain waits for the last blocks. They are due after
//! [`AGE_DRAINING`], whatever else holds: nothing more comes that would fill them. With Kafka, a drain takes the partitions back, and workers seal at once.
//!
//! While another worker waits for memory, a worker seals blocks that hold some once they are a second old, whatever their shard's age is
//! (`reading/worker/room.rs`).
//!
//! Owner: the workers, which share the number of open blocks and of recently closed ones.

use crate::ground::shard_flags::ShardFlags;
use sluice_gateway_config::{Commit, Insert};
use sluice_kafka::Drain;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Maximum inserts a second of one gateway while blocks close by their age. Specified: few enough parts for a table that many gateways
/// write to, and rows of eight partitions within five seconds.
pub const INSERTS_PER_SECOND: u32 = 2;

/// Blocks that may close at once by their age after a time without any. Chosen: the number of partitions that a gateway reads at a time by
/// default.
pub const AT_ONCE: u32 = 8;

/// The time that one insert uses up.
const SPACING_MS: u64 = 1_000 / INSERTS_PER_SECOND as u64;

/// How much time overdue blocks that close at once may use up in advance. Chosen: the blocks of a hundred partitions at once.
const DEBT_MAX_MS: u64 = 100 * SPACING_MS;

/// The age of an open block while blocks wait on the queue volume, and the largest while merges are behind, unless the config's is longer.
/// Chosen: the 256 cuts of a plan then last for four hours.
const AGE_BEHIND: Duration = Duration::from_mins(1);

/// The age of an open block while blocks wait on the queue volume, with `delivery.commit: AfterEnqueue`, unless the config's is longer. Its
/// offsets are committed only once it is on the volume, and until then Kafka has the only durable copy. Chosen: a quarter of a minute, so that
/// there are at most four times as many blocks.
const AGE_BEHIND_ENQUEUED: Duration = Duration::from_secs(15);

/// How many times as old blocks become while merges are behind. Chosen: an eighth of the parts, while rows of eight partitions are in
/// the table within half a minute.
const AGE_FACTOR_MERGES: u32 = 8;

/// How long blocks close at the interval after a partition has found no row buffer. Chosen: longer than the turn of a partition.
const CROWDED_MS: u64 = 5_000;

/// The age of an open block while the gateway drains, unless the config's is shorter. Chosen: messages that are read in this time still share a block.
const AGE_DRAINING: Duration = Duration::from_secs(1);

/// The maximum age of open blocks. Clones share the counts of open and closed blocks.
#[derive(Debug, Clone)]
pub struct BlockAge {
    interval: Duration,
    /// The age while blocks wait on the queue volume.
    behind_age: Duration,
    shared: Arc<Shared>,
    behind: ShardFlags,
    merges: ShardFlags,
    drain: Drain,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    open: AtomicU32,
    /// The time up to which blocks close at the interval, in ms since the start.
    crowded_up_to_ms: AtomicU64,
    /// The time that closed blocks have used up, in ms since the start.
    used_up_to_ms: AtomicU64,
}

/// Counts an open block until it is dropped.
#[derive(Debug)]
pub struct OpenCount(Arc<Shared>);

impl BlockAge {
    /// With `sink.clickhouse.insert.maxInterval`, and no open block.
    pub fn of(insert: &Insert) -> Self {
        let shared = Shared {
            started: Instant::now(),
            open: AtomicU32::new(0),
            crowded_up_to_ms: AtomicU64::new(0),
            used_up_to_ms: AtomicU64::new(0),
        };
        let (interval, shared) = (insert.max_interval.to_std(), Arc::new(shared));
        let (behind, merges) = (ShardFlags::default(), ShardFlags::default());
        Self { interval, behind_age: AGE_BEHIND, shared, behind, merges, drain: Drain::default() }
    }

    /// With `delivery.commit`.
    #[must_use]
    pub fn committing(self, commit: Commit) -> Self {
        let behind_age = match commit {
            Commit::AfterInsert => AGE_BEHIND,
            Commit::AfterEnqueue => AGE_BEHIND_ENQUEUED,
        };
        Self { behind_age, ..self }
    }

    /// With flags for this number of shards.
    #[must_use]
    pub fn for_shards(self, shards: usize) -> Self {
        Self { behind: ShardFlags::of(shards), merges: ShardFlags::of(shards), ..self }
    }

    /// With the flag that the process drains.
    #[must_use]
    pub fn draining_with(self, drain: Drain) -> Self {
        Self { drain, ..self }
    }

    /// The shards with blocks on the queue volume. Delivery sets them.
    pub fn behind(&self) -> ShardFlags {
        self.behind.clone()
    }

    /// The shards in whose table merges are behind. The watch of parts sets them.
    pub fn merges(&self) -> ShardFlags {
        self.merges.clone()
    }

    /// Counts a block that was opened.
    pub fn open(&self) -> OpenCount {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        OpenCount(self.shared.clone())
    }

    /// Records that a partition finds no row buffer for a block.
    pub fn crowd(&self, now: Instant) {
        self.shared.crowded_up_to_ms.fetch_max(self.millis(now) + CROWDED_MS, Ordering::Relaxed);
    }

    /// Records that a block was closed because of its age.
    pub fn closed(&self, now: Instant) {
        let now = self.millis(now);
        let most = now + DEBT_MAX_MS;
        let used = |before: u64| Some((before.max(now) + SPACING_MS).min(most));
        if self.shared.used_up_to_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, used).is_err() {
            // The update never fails.
        }
    }

    /// The current maximum age of a shard's blocks that are not full.
    pub fn most(&self, shard: usize, now: Instant) -> Duration {
        if self.drain.is_requested() {
            return self.interval.min(AGE_DRAINING);
        }
        if self.is_crowded(now) {
            return self.interval;
        }
        if self.behind.is(shard) {
            return self.interval.max(self.behind_age);
        }
        let age = self.interval.max(self.in_turn());
        if self.merges.is(shard) { age.max((age * AGE_FACTOR_MERGES).min(AGE_BEHIND)) } else { age }
    }

    /// The longest of all shards' [most](Self::most).
    pub fn most_of_all(&self, now: Instant) -> Duration {
        (0..self.behind.shards().max(1)).map(|shard| self.most(shard, now)).max().unwrap_or(self.interval)
    }

    /// How much longer a shard's block of this age may stay open; zero when it is due.
    pub fn time_left(&self, (shard, age): (usize, Duration), now: Instant) -> Duration {
        let most = self.most(shard, now).saturating_sub(age);
        if self.drain.is_requested() || self.is_crowded(now) || self.behind.is(shard) || self.merges.is(shard)
        {
            return most;
        }
        let free_from = self.shared.used_up_to_ms.load(Ordering::Relaxed);
        let ahead = u64::from(AT_ONCE - 1) * SPACING_MS;
        let until_free = free_from.saturating_sub(self.millis(now) + ahead);
        let soonest = self.interval.saturating_sub(age).max(Duration::from_millis(until_free));
        soonest.min(most)
    }

    fn is_crowded(&self, now: Instant) -> bool {
        self.millis(now) < self.shared.crowded_up_to_ms.load(Ordering::Relaxed)
    }

    /// How long it takes to insert all open blocks in turn.
    fn in_turn(&self) -> Duration {
        Duration::from_secs(1) * self.shared.open.load(Ordering::Relaxed) / INSERTS_PER_SECOND
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.shared.started).as_millis()).unwrap_or(u64::MAX / 2)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_of_age() {
        let (age_max, now) = (BlockAge::of(&Insert::default()), Instant::now());
        assert_eq!(age_max.time_left((0, Duration::from_millis(400)), now), Duration::from_millis(600));
        assert_eq!(age_max.time_left((0, Duration::from_secs(2)), now), Duration::ZERO);
    }

    #[test]
    fn a_block_that_is_not_inserted_before_others_may_become_older() {
        let (age_max, now) = (BlockAge::of(&Insert::default()).for_shards(2), Instant::now());
        let behind = age_max.behind();
        let left = |shard, now| age_max.time_left((shard, Duration::from_secs(20)), now);
        behind.say(1, true);
        assert_eq!((left(0, now), left(1, now)), (Duration::ZERO, Duration::from_secs(40)));
        age_max.crowd(now);
        assert_eq!(left(1, now), Duration::ZERO, "others wait for its row buffer");
        let later = now + Duration::from_mins(1);
        assert_eq!(left(1, later), Duration::from_secs(40));
        assert_eq!(age_max.most_of_all(later), Duration::from_mins(1));
        behind.say(1, false);
        assert_eq!(left(1, later), Duration::ZERO);
        let _open: Vec<OpenCount> = (0..96).map(|_| age_max.open()).collect();
        assert_eq!(age_max.most_of_all(later), Duration::from_secs(48));
        age_max.crowd(later);
        assert_eq!(age_max.most_of_all(later), Duration::from_secs(1));
    }

    #[test]
    fn a_block_whose_offsets_wait_for_the_volume_stays_open_for_a_quarter_of_a_minute() {
        let behind_others = |insert: &Insert, commit| {
            let age_max = BlockAge::of(insert).for_shards(1).committing(commit);
            age_max.behind().say(0, true);
            age_max.most(0, Instant::now())
        };
        let usual = Insert::default();
        assert_eq!(behind_others(&usual, Commit::AfterInsert), Duration::from_mins(1));
        assert_eq!(behind_others(&usual, Commit::AfterEnqueue), Duration::from_secs(15));
        let rare = Insert { max_interval: "30s".parse().unwrap(), ..usual };
        assert_eq!(behind_others(&rare, Commit::AfterEnqueue), Duration::from_secs(30));
    }

    #[test]
    fn while_merges_are_behind_blocks_become_older_up_to_a_minute() {
        let (age_max, now) = (BlockAge::of(&Insert::default()).for_shards(2), Instant::now());
        let left = |shard, seconds| age_max.time_left((shard, Duration::from_secs(seconds)), now);
        assert_eq!((age_max.most(0, now), left(0, 2)), (Duration::from_secs(1), Duration::ZERO));
        age_max.merges().say(0, true);
        assert_eq!((age_max.most(0, now), left(0, 2)), (Duration::from_secs(8), Duration::from_secs(6)));
        assert_eq!((left(0, 8), left(1, 1)), (Duration::ZERO, Duration::ZERO), "the other shard is well");
        let open: Vec<OpenCount> = (0..8).map(|_| age_max.open()).collect();
        assert_eq!(
            (age_max.most(0, now), age_max.most(1, now)),
            (Duration::from_secs(32), Duration::from_secs(4))
        );
        let more: Vec<OpenCount> = (0..88).map(|_| age_max.open()).collect();
        assert_eq!(age_max.most(0, now), Duration::from_mins(1));
        let most: Vec<OpenCount> = (0..48).map(|_| age_max.open()).collect();
        assert_eq!(age_max.most(0, now), Duration::from_secs(72), "never younger than without");
        age_max.crowd(now);
        assert_eq!(age_max.most(0, now), Duration::from_secs(1), "others wait for its row buffer");
        drop((open, more, most));
        let later = now + Duration::from_mins(1);
        age_max.merges().say(0, false);
        assert_eq!(age_max.most(0, later), Duration::from_secs(1));
    }

    #[test]
    fn a_drain_waits_a_second_for_a_block_whatever_else_holds() {
        let drain = Drain::default();
        let insert = Insert { max_interval: sluice_gateway_config::Duration::secs(5), ..Insert::default() };
        let age_max = BlockAge::of(&insert).for_shards(2).draining_with(drain.clone());
        let now = age_max.shared.started + Duration::from_mins(1);
        age_max.merges().say(0, true);
        let _open: Vec<OpenCount> = (0..96).map(|_| age_max.open()).collect();
        (0..100).for_each(|_| age_max.closed(now));
        let left = |shard| age_max.time_left((shard, Duration::from_secs(1)), now);
        assert_eq!((left(0), left(1)), (Duration::from_secs(59), Duration::from_millis(46_500)));
        drain.request();
        assert_eq!((left(0), left(1)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(age_max.most_of_all(now), Duration::from_secs(1));
        drain.resume();
        assert_eq!(left(0), Duration::from_secs(59));
        let short = Insert { max_interval: sluice_gateway_config::Duration::millis(100), ..insert };
        let short = BlockAge::of(&short).draining_with(drain.clone());
        drain.request();
        assert_eq!(short.most(0, now), Duration::from_millis(100));
    }

    /// Runs `count` partitions with a message every 100 ms each for two minutes: blocks closed a second, and the age of the oldest.
    fn trickle(count: usize) -> (f64, Duration) {
        let age_max = BlockAge::of(&Insert::default());
        let begun = age_max.shared.started;
        let mut open: Vec<Option<(Instant, OpenCount)>> = (0..count).map(|_| None).collect();
        let (mut closed, mut oldest) = (0_u32, Duration::ZERO);
        for step in 0..1_200_u32 {
            let now = begun + step * Duration::from_millis(100);
            for block in &mut open {
                let opened = block.get_or_insert_with(|| (now, age_max.open())).0;
                // The blocks that may close at once are used up by then.
                let counts = step >= 600;
                if age_max.time_left((0, now - opened), now).is_zero() {
                    *block = None;
                    age_max.closed(now);
                    closed += u32::from(counts);
                    oldest = oldest.max(if counts { now - opened } else { Duration::ZERO });
                }
            }
        }
        (f64::from(closed) / 60.0, oldest)
    }

    #[test]
    fn a_trickle_makes_two_inserts_a_second_and_is_as_fresh_as_that_allows() {
        for (partitions, age_max_ms) in [(1, 1_100), (2, 1_100), (8, 4_100), (96, 48_100)] {
            let (inserts, oldest) = trickle(partitions);
            assert!(inserts <= 2.1, "{partitions} partitions: {inserts} inserts a second");
            assert!(oldest <= Duration::from_millis(age_max_ms), "{partitions} partitions: {oldest:?}");
        }
    }

    #[test]
    fn blocks_that_others_wait_for_close_at_the_interval() {
        let age_max = BlockAge::of(&Insert::default());
        let now = age_max.shared.started + Duration::from_mins(1);
        let _open: Vec<OpenCount> = (0..8).map(|_| age_max.open()).collect();
        (0..100).for_each(|_| age_max.closed(now));
        assert_eq!(age_max.time_left((0, Duration::from_secs(1)), now), Duration::from_secs(3));
        age_max.crowd(now);
        assert_eq!(age_max.time_left((0, Duration::from_secs(1)), now), Duration::ZERO);
        let later = now + Duration::from_secs(5);
        assert_eq!(age_max.time_left((0, Duration::from_secs(1)), later), Duration::from_secs(3));
    }

    #[test]
    fn a_burst_is_closed_at_the_interval() {
        let age_max = BlockAge::of(&Insert::default());
        let open: Vec<OpenCount> = (0..AT_ONCE).map(|_| age_max.open()).collect();
        let now = age_max.shared.started + Duration::from_mins(1);
        for count in open {
            assert_eq!(age_max.time_left((0, Duration::from_secs(1)), now), Duration::ZERO);
            drop(count);
            age_max.closed(now);
        }
        let _again: Vec<OpenCount> = (0..AT_ONCE).map(|_| age_max.open()).collect();
        assert_eq!(age_max.time_left((0, Duration::from_secs(1)), now), Duration::from_millis(500));
    }
}
