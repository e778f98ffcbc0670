//! What a worker does when the pool has no free chunk for the current message.

use super::{
    Taken, Worker,
    partition::{Owned, Reading, State},
};
use crate::blocks::block::OpenBlock;
use sluice_kafka::Renew;
use sluice_ranges::{Generation, PartitionId};
use std::time::{Duration, Instant};

/// The age from which on a block is sealed whose chunks another worker waits for, however old it may become otherwise. Chosen: the default of
/// `maxInterval`. Blocks become a minute old while merges are behind, and an idle worker would keep the memory for so long.
const HELD_MAX: Duration = Duration::from_secs(1);

impl Worker {
    /// Encodes the messages that waited for room, once there is room. `false` while there is none.
    pub(super) fn redo(&mut self) -> bool {
        self.seal_all();
        self.give_up_replays();
        if !self.parts.pool.claim_redo(self.replays.is_some()) {
            return false;
        }
        self.out_of_room = false;
        let mut partitions = std::mem::take(&mut self.partitions);
        for Owned { reading, .. } in partitions.iter_mut().filter(|owned| owned.is_pending()) {
            let State::Pending(message) = std::mem::replace(&mut reading.state, State::Polling) else {
                continue;
            };
            match self.take(reading, &message) {
                Taken::Yes => {}
                Taken::NoRoomForLetter => self.keep_for_letter(reading, || message),
                Taken::NoRoom => {
                    reading.state = State::Pending(message);
                    self.out_of_room = true;
                }
            }
        }
        self.partitions = partitions;
        self.parts.pool.release_redo();
        true
    }

    /// Tells the other workers while this one waits for room, and frees some when another one waits.
    pub(super) fn share_room(&mut self) {
        if !self.out_of_room {
            self.waiting = None;
        } else if self.waiting.is_none() {
            self.waiting = Some(self.parts.pool.wait());
        }
        if !self.out_of_room && self.parts.pool.is_waited_for() {
            self.give_up_replays();
        }
    }

    /// Whether another worker waits for memory that this block has held for long enough. A block without chunks keeps no memory from others.
    pub(super) fn holds_room(&self, block: &OpenBlock, now: Instant) -> bool {
        let (_, age) = block.age(now);
        age >= HELD_MAX && !block.chunks.is_empty() && self.parts.pool.is_waited_for()
    }

    fn give_up_replays(&mut self) {
        let partitions = std::mem::take(&mut self.partitions);
        let leaving = self.beyond_share(partitions.iter().map(|owned| &owned.reading));
        self.partitions = partitions;
        self.renew(leaving);
    }

    /// Partitions, by ascending index, whose blocks must not be ended here and would leave no room to fill any block. One such block may be
    /// filled completely.
    pub(super) fn beyond_share<'a>(
        &mut self,
        readings: impl Iterator<Item = &'a Reading>,
    ) -> Vec<(usize, Renew)> {
        let share = self.parts.pool.replay_share(self.parts.workers);
        let mut kept = 0;
        let mut leaving = Vec::new();
        for (index, reading) in readings.enumerate() {
            let Some(block) = reading.block.as_ref().filter(|_| reading.cutter.is_replaying()) else {
                continue;
            };
            let is_ours = |(id, generation): &(PartitionId, Generation)| reading.is(id, *generation);
            if self.replays.as_ref().is_some_and(is_ours) {
                continue;
            }
            if self.replays.is_none() && self.parts.pool.claim_replay() {
                self.replays = Some((reading.place.id.clone(), reading.place.generation));
                continue;
            }
            kept += block.chunks.len();
            if kept > share && reading.closing.is_none() {
                kept -= block.chunks.len();
                leaving.push((index, Renew::Memory));
            }
        }
        leaving
    }

    /// Releases the right to fill the pool if this partition holds the right, so that others can fill their blocks.
    pub(super) fn yield_replay(&mut self, reading: &Reading) {
        if self.replays.take_if(|(id, generation)| reading.is(id, *generation)).is_some() {
            self.parts.pool.release_replay();
        }
    }
}
