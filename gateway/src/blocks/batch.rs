//! How old an open block becomes. By size, a range says where it ends: [`sluice_ranges`].
//!
//! A block closes `maxInterval` after its first message, or later, where many are open: each becomes an insert of its own, since it
//! holds one range of one partition, and each insert makes a part of the table, which ClickHouse has to merge. Blocks that close by their
//! age are [`INSERTS_PER_SECOND`] of a gateway, [`AT_ONCE`] of them at once: a burst is in the table as soon as the interval allows,
//! and a trickle makes few parts. A block waits for its turn no longer than it takes to have all that are open in at that rate:
//!
//! | open blocks all the time | age with maxInterval 1s | inserts a second |
//! | --- | --- | --- |
//! | 1 | 1 s | 1 |
//! | 2 | 1 s | 2 |
//! | 8 | 4 s | 2 |
//! | 96 | 48 s | 2 |
//!
//! Blocks that are full close earlier, whatever their age, and are not counted. There are no more open blocks than row buffers
//! (`partitionsActiveMax`). Partitions beyond take turns, and while one finds no row buffer, blocks close at the interval: one that stayed
//! open would keep it from those whose turn it is, and they would never catch up. Where this is not fresh enough, another gateway halves
//! it: each has its own two inserts a second.
//!
//! Measured with ten spans a second in each partition (`cargo faults --only low-traffic`, two busy cores): 8 partitions make 2.0 inserts a
//! second, and 99 rows of 100 are in the table within 4.2 s; 96 partitions, eight at a time, make 6.2, and that takes 24 s.
//!
//! Why ranges of several partitions do not share one insert: a range in doubt is sent again by whoever has its partition then, alone and
//! under its own token. Once two of them had shared an insert, their next owners could only find out together whether it was stored.
//!
//! While blocks of its shard wait on the queue volume, a new one is not inserted before them, and ending it early makes nothing fresher:
//! it only makes more inserts, and more cuts that must be planned. So it may become [`AGE_BEHIND`] old, and is due at once when they are in.
//!
//! Owner: the workers, which share how many blocks are open and how many were closed of late.

use sluice_gateway_config::Insert;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Inserts a second of one gateway, at the most, while blocks close by their age. Specified: few enough parts for a table that many
/// gateways write to, and rows of eight partitions within five seconds.
pub const INSERTS_PER_SECOND: u32 = 2;

/// Blocks that may close at once by their age, when none did for a while. Chosen: the partitions that a gateway reads at a time where
/// nothing else is said.
pub const AT_ONCE: u32 = 8;

/// The time that an insert stands for.
const SPACING_MS: u64 = 1_000 / INSERTS_PER_SECOND as u64;

/// For how long blocks that close because their time is over are made up for by those that could close earlier. Chosen: blocks of a
/// hundred partitions, all at once.
const DEBT_MAX_MS: u64 = 100 * SPACING_MS;

/// The age of an open block while blocks wait on the queue volume, unless the config's is longer. Chosen: the 256 cuts of a plan last
/// for four hours then.
const AGE_BEHIND: Duration = Duration::from_mins(1);
/// For how long blocks close at the interval after a partition has found no row buffer. Chosen: over the turn of a partition.
const CROWDED_MS: u64 = 5_000;

/// The age at which an open block is to be sealed. Clones share what is open and what was closed.
#[derive(Debug, Clone)]
pub struct BlockAge {
    interval: Duration,
    shared: Arc<Shared>,
    behind: Behind,
}

/// Of which shards blocks wait on the queue volume. Delivery says so, by a shard's place in the config.
#[derive(Debug, Clone, Default)]
pub struct Behind(Arc<[AtomicBool]>);

impl Behind {
    /// Of none of so many.
    pub fn of(shards: usize) -> Self {
        Self((0..shards).map(|_| AtomicBool::new(false)).collect())
    }

    /// Says it of one.
    pub fn say(&self, shard: usize, is_behind: bool) {
        if let Some(said) = self.0.get(shard) {
            said.store(is_behind, Ordering::Relaxed);
        }
    }

    fn is(&self, shard: usize) -> bool {
        self.0.get(shard).is_some_and(|said| said.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    open: AtomicU32,
    /// Up to when blocks close at the interval, in ms since the start.
    crowded_up_to_ms: AtomicU64,
    /// Up to when what was closed has used up the inserts, in ms since the start.
    used_up_to_ms: AtomicU64,
}

/// Stands for a block that is open; dropped with it.
#[derive(Debug)]
pub struct OpenCount(Arc<Shared>);

impl BlockAge {
    /// `sink.clickhouse.insert.maxInterval`, with no block open.
    pub fn of(insert: &Insert) -> Self {
        let shared = Shared {
            started: Instant::now(),
            open: AtomicU32::new(0),
            crowded_up_to_ms: AtomicU64::new(0),
            used_up_to_ms: AtomicU64::new(0),
        };
        Self { interval: insert.max_interval.to_std(), shared: Arc::new(shared), behind: Behind::default() }
    }

    /// The same where this says of which shards blocks wait on the queue volume.
    #[must_use]
    pub fn with(self, behind: Behind) -> Self {
        Self { behind, ..self }
    }

    /// Takes down that a block was opened.
    pub fn open(&self) -> OpenCount {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        OpenCount(self.shared.clone())
    }

    /// Takes down that a partition finds no row buffer for a block.
    pub fn crowd(&self, now: Instant) {
        self.shared.crowded_up_to_ms.fetch_max(self.millis(now) + CROWDED_MS, Ordering::Relaxed);
    }

    /// Takes down that a block was closed by its age.
    pub fn closed(&self, now: Instant) {
        let now = self.millis(now);
        let most = now + DEBT_MAX_MS;
        let used = |before: u64| Some((before.max(now) + SPACING_MS).min(most));
        if self.shared.used_up_to_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, used).is_err() {
            // There is always a new value.
        }
    }

    /// How old a block of a shard may become as things are now, unless it is full before.
    pub fn most(&self, shard: usize, now: Instant) -> Duration {
        if self.is_crowded(now) {
            return self.interval;
        }
        let turn = if self.behind.is(shard) { AGE_BEHIND } else { self.in_turn() };
        self.interval.max(turn)
    }

    /// The longest of all shards' [most](Self::most).
    pub fn most_of_all(&self, now: Instant) -> Duration {
        (0..self.behind.0.len().max(1)).map(|shard| self.most(shard, now)).max().unwrap_or(self.interval)
    }

    /// How much longer a block of a shard may stay open that is so old; zero when it is due.
    pub fn time_left(&self, (shard, age): (usize, Duration), now: Instant) -> Duration {
        let most = self.most(shard, now).saturating_sub(age);
        if self.is_crowded(now) || self.behind.is(shard) {
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

    /// How long it takes to have all in that are open.
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
        let behind = Behind::of(2);
        let (age_max, now) = (BlockAge::of(&Insert::default()).with(behind.clone()), Instant::now());
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

    /// `count` partitions with a message every 100 ms each, for two minutes: blocks closed a second, and the oldest of them.
    fn trickle(count: usize) -> (f64, Duration) {
        let age_max = BlockAge::of(&Insert::default());
        let begun = age_max.shared.started;
        let mut open: Vec<Option<(Instant, OpenCount)>> = (0..count).map(|_| None).collect();
        let (mut closed, mut oldest) = (0_u32, Duration::ZERO);
        for step in 0..1_200_u32 {
            let now = begun + step * Duration::from_millis(100);
            for block in &mut open {
                let opened = block.get_or_insert_with(|| (now, age_max.open())).0;
                // What was banked at the start is gone by then.
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
