//! One gateway of the plant: what it reads, holds and inserts in a turn, and the metrics that it exports.
//!
//! Its metrics count as those of the real gateway. Open blocks are held until their age is reached, and no worker waits for them. Sealed
//! blocks that are not inserted yet wait in memory, and then on the queue volume if there is one; the gateway reads on while there is room.
//! While blocks wait, a worker without work does not count as waiting for messages (`gateway/src/reading/worker/wait.rs`).

use clap::ValueEnum;
use sluice_plan::{Moment, scale::PodSample};

use super::{
    super::{
        chance::Chance,
        numbers::{count, whole},
    },
    TURN_SECONDS, Turn,
};

/// Messages a second that one gateway can read.
pub const CAPACITY: f64 = 10_000.0;
/// Messages a second of sealed blocks that one gateway can insert. They are not decoded again. Measured: 6.8 times as many as it can read
/// (`gateway/DELIVERY.md`).
const INSERTS: f64 = 68_000.0;
/// Seconds until an open block is sealed.
const AGE_SECONDS: f64 = 1.0;
/// Messages in blocks for which a gateway has memory: five seconds of work.
const MEMORY_MESSAGES: f64 = 50_000.0;
/// Messages in blocks for which a volume has room: 10 GiB at 200 compressed bytes each.
const VOLUME_MESSAGES: f64 = 53_687_091.0;
const BLOCK_MESSAGES: f64 = 5_000.0;
/// Seconds that blocks wait before a gateway reports it.
const BEHIND_SECONDS: f64 = 2.0;
/// Fewer waiting messages than this count as none: a remainder of divisions.
const NOTHING: f64 = 1.0;
/// Share of turns in which an insert times out while `ClickHouse` is slow.
const FAILS_SLOW: f64 = 0.1;
/// Share of turns in which an insert fails at any other time: one every hour and a half.
const FAILS: f64 = 0.001;
/// Extra time per message of an idle gateway, because its blocks are small.
const IDLE_COST: f64 = 0.08;
const MESSAGE_BYTES: f64 = 900.0;
/// Memory of a gateway without partitions: 100 MiB.
const BASE_BYTES: f64 = 104_857_600.0;
/// Memory for each partition that it reads: 512 KiB.
const PARTITION_BYTES: f64 = 524_288.0;
/// Memory limit of a gateway: 512 MiB.
pub const LIMIT_BYTES: f64 = 536_870_912.0;
/// Partitions that it reads at the same time.
const PARTITIONS_ACTIVE: u32 = 8;

/// Whether gateways have a queue volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Queue {
    /// Blocks that cannot be inserted yet go to a volume.
    #[default]
    Spill,
    /// Blocks wait in memory; once memory is full, the gateway stops reading.
    Disabled,
}

impl Queue {
    /// Messages that a gateway can hold.
    fn room(self) -> f64 {
        match self {
            Self::Spill => MEMORY_MESSAGES + VOLUME_MESSAGES,
            Self::Disabled => MEMORY_MESSAGES,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Gateway {
    busy: f64,
    source: f64,
    messages: f64,
    /// Messages in open blocks.
    filling: f64,
    /// Messages in sealed blocks that are not inserted yet.
    pub waiting: f64,
    behind_seconds: f64,
    failures: u64,
    pub leaked: f64,
    pub back_at: Option<f64>,
    pub old: Option<PodSample>,
}

impl Gateway {
    /// Messages that it could insert in a turn, if it read `possible` messages.
    pub fn offers(&self, possible: f64) -> f64 {
        (self.filling + self.waiting + possible).min(INSERTS * TURN_SECONDS)
    }

    /// Reads as many messages as possible and as there is room for, and inserts its share of what it offers. Returns the messages read, and
    /// the inserted share of all messages that it held.
    pub fn work(
        &mut self,
        possible: f64,
        sent: f64,
        (queue, chance): (Queue, &mut Chance),
        done: &mut Turn,
    ) -> (f64, f64) {
        if self.back_at.is_some() {
            return (0.0, 0.0);
        }
        let taken = self.offers(possible) * sent;
        let held = self.filling + self.waiting;
        let read = possible.min(queue.room() - held + taken).max(0.0);
        let all = held + read;
        self.filling = read * AGE_SECONDS / TURN_SECONDS;
        let sealed = all - self.filling;
        let inserted = if sealed - taken < NOTHING { sealed } else { taken };
        self.waiting = sealed - inserted;
        self.behind_seconds = if self.waiting > 0.0 { self.behind_seconds + TURN_SECONDS } else { 0.0 };
        let fails = if sent < 1.0 { FAILS_SLOW } else { FAILS };
        self.failures += u64::from(chance.share() < fails);
        self.messages += read;
        let share = read / (CAPACITY * TURN_SECONDS);
        let busy = (share * (1.0 + IDLE_COST * (1.0 - share))).min(1.0);
        self.busy += busy * TURN_SECONDS;
        let blocked = read < possible * 0.999;
        done.blocked |= blocked;
        done.busy += share;
        done.processed += inserted / TURN_SECONDS;
        if !blocked && !self.is_behind() {
            self.source += (1.0 - busy) * TURN_SECONDS;
        }
        (read, inserted / all.max(1e-9))
    }

    /// Does nothing for a turn, while the group assigns its partitions.
    pub fn pause(&mut self) {
        self.source += TURN_SECONDS;
    }

    /// Drops its blocks; other gateways read their messages again.
    pub fn give_up(&mut self) {
        (self.filling, self.waiting, self.behind_seconds) = (0.0, 0.0, 0.0);
    }

    fn is_behind(&self) -> bool {
        self.behind_seconds >= BEHIND_SECONDS
    }

    /// Its metrics now. No counter has the time of waiting for `ClickHouse`: it is the rest of the time.
    pub fn answer(&self, ordinal: usize, at: Moment, partitions: Vec<u32>, queue: Queue) -> PodSample {
        let each = count(partitions.len() as u64);
        let on_volume = if queue == Queue::Spill { self.waiting } else { 0.0 };
        PodSample {
            ordinal: u32::try_from(ordinal).unwrap_or(u32::MAX),
            at,
            workers: 1,
            busy_seconds: self.busy,
            source_seconds: self.source,
            messages: whole(self.messages),
            message_bytes: whole(self.messages * MESSAGE_BYTES),
            insert_failures: self.failures,
            requests_refused: 0,
            memory_bytes: whole(memory(self.leaked, each)),
            memory_limit_bytes: whole(LIMIT_BYTES),
            // One row per message: the number of rows affects no decision.
            rows_in_flight: whole(self.filling + self.waiting),
            spool_blocks: whole((on_volume / BLOCK_MESSAGES).ceil()),
            sink_behind: self.is_behind(),
            merges: None,
            partitions,
            still: Vec::new(),
            partitions_active: PARTITIONS_ACTIVE,
            logs: None,
        }
    }
}

/// Memory of a gateway with so many partitions, bytes.
pub fn memory(leaked: f64, partitions: f64) -> f64 {
    BASE_BYTES + PARTITION_BYTES * partitions + leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(queue: Queue, possible: f64, sent: f64, turns: u32) -> (Gateway, PodSample) {
        let (mut gateway, mut chance) = (Gateway::default(), Chance::new(1));
        for _ in 0..turns {
            gateway.work(possible, sent, (queue, &mut chance), &mut Turn::default());
        }
        let answer = gateway.answer(0, Moment(0), vec![0], queue);
        (gateway, answer)
    }

    #[test]
    fn blocks_that_fill_are_held_and_wait_for_nothing() {
        let (gateway, answer) = turns(Queue::Spill, 25_000.0, 1.0, 10);
        assert_eq!((answer.rows_in_flight, answer.spool_blocks, answer.sink_behind), (5_000, 0, false));
        assert!(gateway.waiting < 1e-9 && answer.source_seconds > 20.0, "{answer:?}");
    }

    #[test]
    fn a_slow_sink_stops_reading_only_where_there_is_no_volume() {
        let (_, spills) = turns(Queue::Spill, 25_000.0, 0.1, 40);
        let (_, stops) = turns(Queue::Disabled, 25_000.0, 0.1, 40);
        assert_eq!(spills.messages, 1_000_000);
        assert!(stops.messages < spills.messages / 2 && stops.rows_in_flight <= 50_000, "{stops:?}");
        assert!(spills.spool_blocks > 20 && stops.spool_blocks == 0, "{spills:?}");
        for answer in [spills, stops] {
            assert!(answer.sink_behind && answer.insert_failures > 0, "{answer:?}");
            assert!(answer.source_seconds < 1e-9, "no worker waits for messages while blocks wait");
        }
    }
}
