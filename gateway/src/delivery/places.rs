//! Only copies that wait for their turn to be sent, and those that are sent, by shard.
//!
//! Place in the flow: a gateway's [orphans](crate::delivery::orphans) and `sluice-gateway drain` put in what no partition goes on with.
//! Owner: the delivery task, or the command's. Limits: of each shard so many at a time as [`Places::new`] is told; those of a shard that is
//! away keep their own places and nobody else's. What waits is on the volume, and has a header each here.

use super::shipment::End;
use std::{collections::VecDeque, future::Future};
use tokio::task::JoinSet;

/// What waits and what is sent; a `T` is a block and where it goes.
pub struct Places<T> {
    /// By the shard's place in the config.
    of: Vec<OfShard<T>>,
    /// Of a shard, at a time.
    sending_max: usize,
    shipments: JoinSet<(usize, End)>,
}

/// Of one shard.
struct OfShard<T> {
    waiting: VecDeque<T>,
    sending: usize,
}

impl<T> Places<T> {
    /// Nothing waits. Of each shard `sending_max` are sent at a time.
    pub fn new(sending_max: usize) -> Self {
        Self { of: Vec::new(), sending_max, shipments: JoinSet::new() }
    }

    /// Takes one in, of the shard with this place in the config.
    pub fn add(&mut self, place: usize, waits: T) {
        if self.of.len() <= place {
            self.of.resize_with(place + 1, || OfShard { waiting: VecDeque::new(), sending: 0 });
        }
        self.of[place].waiting.push_back(waits);
    }

    /// Sends what may be sent.
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

    /// How one has ended that nobody has heard of yet.
    pub fn try_ended(&mut self) -> Option<End> {
        let ended = self.shipments.try_join_next()?;
        Some(self.end(ended.expect("a panic ends the process")))
    }

    /// Waits until the next one has ended. `None` when none is sent.
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

    /// A block of the shard with this place, as the partition's number; it never ends where the shard is away.
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
