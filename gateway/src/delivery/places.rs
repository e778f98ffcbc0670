//! Only copies that wait to be sent, and those that are being sent, by shard.
//!
//! Place in the flow: a gateway's [orphans](crate::delivery::orphans) and `sluice-gateway drain` add blocks that no partition has taken
//! over. Owner: the delivery task, or the command. Limits: [`Places::new`] sets how many blocks of each shard are sent at a time. A shard
//! that is away uses only its own places. Waiting blocks are on the volume and have one header each in memory.

use super::shipment::End;
use std::{collections::VecDeque, future::Future};
use tokio::task::JoinSet;

/// Waiting and sent blocks; a `T` is a block and its destination.
pub struct Places<T> {
    /// By the shard's position in the config.
    of: Vec<OfShard<T>>,
    /// Blocks of a shard that are sent at a time.
    sending_max: usize,
    shipments: JoinSet<(usize, End)>,
}

/// The blocks of one shard.
struct OfShard<T> {
    waiting: VecDeque<T>,
    sending: usize,
}

impl<T> Places<T> {
    /// Empty. `sending_max` blocks of each shard are sent at a time.
    pub fn new(sending_max: usize) -> Self {
        Self { of: Vec::new(), sending_max, shipments: JoinSet::new() }
    }

    /// Adds a block of the shard with this position in the config.
    pub fn add(&mut self, place: usize, waits: T) {
        if self.of.len() <= place {
            self.of.resize_with(place + 1, || OfShard { waiting: VecDeque::new(), sending: 0 });
        }
        self.of[place].waiting.push_back(waits);
    }

    /// Starts sending the blocks that have a place.
    pub fn send<F: Future<Output = End> + Send + 'static>(&mut self, ship: impl Fn(T) -> F) {
        for (place, of) in self.of.iter_mut().enumerate() {
            while of.sending < self.sending_max
                && let Some(waits) = of.waiting.pop_front()
            {
                of.sending += 1;
                let shipment = ship(waits);
                self.shipments.spawn(async move { (place, shipment.await) });
            }
        }
    }

    /// The result of a shipment that has ended, if there is one.
    pub fn try_ended(&mut self) -> Option<End> {
        let ended = self.shipments.try_join_next()?;
        Some(self.end(ended.expect("a panic ends the process")))
    }

    /// Waits until a shipment has ended. `None` when none is running.
    pub async fn ended(&mut self) -> Option<End> {
        let ended = self.shipments.join_next().await?;
        Some(self.end(ended.expect("a panic ends the process")))
    }

    fn end(&mut self, (place, end): (usize, End)) -> End {
        self.of[place].sending -= 1;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_ranges::PartitionId;

    const SENDING_MAX: usize = 2;

    /// A block of the shard with this position, given as the partition's number; it never ends while the shard is away.
    async fn ship((place, is_away): (i32, bool)) -> End {
        if is_away {
            std::future::pending::<()>().await;
        }
        End { id: PartitionId { topic: "spans".into(), partition: place }, is_given_up: false }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn blocks_of_a_shard_that_is_away_keep_no_others_from_being_sent() {
        let mut places = Places::new(SENDING_MAX);
        for _ in 0..10 {
            places.add(1, (1, true));
        }
        for _ in 0..10 {
            places.add(0, (0, false));
        }
        places.send(ship);
        let mut ended = 0;
        while ended < 10 {
            assert!(places.shipments.len() <= 2 * SENDING_MAX);
            let end = places.ended().await.expect("some are sent");
            assert_eq!((end.id.partition, end.is_given_up), (0, false));
            ended += 1;
            places.send(ship);
        }
        assert!(places.try_ended().is_none());
        assert_eq!((places.of[1].sending, places.of[1].waiting.len()), (SENDING_MAX, 8));
        assert_eq!((places.of[0].sending, places.of[0].waiting.len()), (0, 0));
    }
}
