//! Whether this process takes part in the consumer group: it joins, drains and leaves, and joins again, as it is asked to.
//!
//! Owner of [`Membership`]: the poll thread, which lets it follow [`Drain`] before each poll. [`Drain`] and [`Stop`] are asked by
//! anyone.
//!
//! ```text
//!            subscribed                     asked to drain
//!   AWAY -----------------> MEMBER -------------------------------> DRAINING
//!    ^                        ^ asked to resume: partitions begin     |
//!    |                        `---------anew where they are committed-'
//!    |   every partition is gone                                      | nothing is in flight, or it took too long: unsubscribed
//!    `----------------------------- LEAVING <-------------------------'
//! ```
//!
//! Why it unsubscribes: with the classic protocol librdkafka 2.12 makes any member leave the group by that, a static one too (it sends
//! `LeaveGroup` with the member's id), so that others have its partitions after the next rebalance. Closing the client makes a static
//! member leave neither at once nor at all: its partitions stay its own until the session times out (45 s). With the new protocol
//! (KIP-848) an unsubscribed static member is kept like a closed one (member epoch -2), and its partitions move when the session has
//! timed out.
//!
//! Limits: a drain waits for blocks in flight for the time that leaving may take ([`crate::Limits::leave_wait`]); then they are given
//! up, and the next owner inserts them again under their tokens.

use crate::{assignment::Remaining, consumer::Error, rebalancing::Rebalancing};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How often it is said what a drain waits for.
const SAY_INTERVAL: Duration = Duration::from_secs(5);

/// Asks the poll thread to end, by a deadline. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<OnceLock<Instant>>);

impl Stop {
    /// Asks, once: what is asked later changes nothing.
    pub fn request(&self, within: Duration) {
        if self.0.set(Instant::now() + within).is_err() {
            // It ends by the deadline that was asked for first.
        }
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.get().is_some()
    }

    /// By when it is to have ended; `None` while nobody asks.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    /// Whether that moment has passed.
    pub fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Asks the poll thread to leave the group and to stay up, or to join again; both any number of times, and in the middle of each
/// other. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// Asks to leave the group.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Asks to take part.
    pub fn resume(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether the group is to be left, or was.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether this process takes part in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does not, and holds nothing of it.
    Away = 0,
    /// It does.
    Member = 1,
    /// It reads nothing more, and waits for what it has read.
    Draining = 2,
    /// It has said that it leaves, and gives its partitions back.
    Leaving = 3,
}

impl Phase {
    pub(crate) fn of(number: u8) -> Self {
        match number {
            1 => Self::Member,
            2 => Self::Draining,
            3 => Self::Leaving,
            _ => Self::Away,
        }
    }
}

/// The course of a membership.
pub(crate) struct Membership {
    phase: Phase,
    drain_wait: Duration,
    /// When the phase began.
    since: Instant,
    said: Instant,
}

impl Membership {
    /// Not a member yet. A drain waits for `drain_wait` at the most.
    pub fn new(drain_wait: Duration) -> Self {
        let now = Instant::now();
        Self { phase: Phase::Away, drain_wait, since: now, said: now }
    }

    /// Goes on, to where it is asked to. To be called between two polls, when nothing is about to begin.
    pub fn follow(
        &mut self,
        drain: &Drain,
        client: &BaseConsumer<Rebalancing>,
        topics: &[String],
    ) -> Result<(), Error> {
        let left = client.context().assignment().left();
        let next = self.next(drain.is_requested(), &left);
        if next == self.phase {
            self.say_again(&left);
            return Ok(());
        }
        match (self.phase, next) {
            (Phase::Away, _) => {
                client.context().assignment().resume();
                subscribe(client, topics)?;
                tracing::info!(topics = topics.join(","), "joining the consumer group");
            }
            (_, Phase::Member) => {
                client.context().assignment().resume();
                tracing::info!(
                    partitions = left.partitions,
                    "drain canceled: partitions restart at their committed offsets"
                );
            }
            (_, Phase::Draining) => {
                client.context().assignment().drain();
                say(&left, "draining: reading has stopped");
            }
            (_, Phase::Leaving) => {
                say(&left, "leaving the consumer group");
                client.context().assignment().has_waited = true;
                client.unsubscribe();
            }
            (_, Phase::Away) => tracing::info!("left the consumer group"),
        }
        self.enter(next, client);
        Ok(())
    }

    /// The phase that follows now; the same one while there is something to wait for.
    fn next(&self, drains: bool, left: &Remaining) -> Phase {
        match self.phase {
            Phase::Away | Phase::Draining if !drains => Phase::Member,
            Phase::Member if drains => Phase::Draining,
            Phase::Draining if self.is_done(left) => Phase::Leaving,
            // Whoever is to take part again first leaves to the end: librdkafka gives the partitions back by itself.
            Phase::Leaving if left.partitions == 0 => Phase::Away,
            phase => phase,
        }
    }

    /// Whether nothing is in flight, or it took too long.
    fn is_done(&self, left: &Remaining) -> bool {
        (left.ranges == 0 && left.reading == 0) || self.since.elapsed() >= self.drain_wait
    }

    fn enter(&mut self, phase: Phase, client: &BaseConsumer<Rebalancing>) {
        let stats = client.context().stats();
        if phase == Phase::Away {
            stats.joined.store(false, Ordering::Release);
        }
        stats.enter(phase);
        (self.phase, self.since, self.said) = (phase, Instant::now(), Instant::now());
    }

    fn say_again(&mut self, left: &Remaining) {
        if matches!(self.phase, Phase::Draining | Phase::Leaving) && self.said.elapsed() >= SAY_INTERVAL {
            self.said = Instant::now();
            say(left, "still waiting to leave the consumer group");
        }
    }
}

fn subscribe(client: &BaseConsumer<Rebalancing>, topics: &[String]) -> Result<(), Error> {
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    client.subscribe(&names).map_err(|source| Error::Subscribe { topics: topics.join(", "), source })
}

fn say(left: &Remaining, what: &'static str) {
    let Remaining { partitions, reading, ranges, uncommitted } = *left;
    tracing::info!(partitions, reading, ranges, uncommitted, "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Remaining = Remaining { partitions: 0, reading: 0, ranges: 0, uncommitted: 0 };

    fn at(phase: Phase, drain_wait: Duration) -> Membership {
        Membership { phase, ..Membership::new(drain_wait) }
    }

    #[test]
    fn a_phase_ends_when_it_is_asked_to_and_nothing_is_left() {
        let hour = Duration::from_hours(1);
        let owned = Remaining { partitions: 2, ..NOTHING };
        let busy = Remaining { ranges: 1, ..owned };
        let read = Remaining { reading: 1, ..owned };
        for (phase, drains, left, next) in [
            (Phase::Away, false, NOTHING, Phase::Member),
            (Phase::Away, true, NOTHING, Phase::Away),
            (Phase::Member, false, busy, Phase::Member),
            (Phase::Member, true, busy, Phase::Draining),
            (Phase::Draining, true, busy, Phase::Draining),
            (Phase::Draining, true, read, Phase::Draining),
            (Phase::Draining, true, owned, Phase::Leaving),
            (Phase::Draining, false, busy, Phase::Member),
            (Phase::Leaving, true, owned, Phase::Leaving),
            (Phase::Leaving, false, owned, Phase::Leaving),
            (Phase::Leaving, true, NOTHING, Phase::Away),
            (Phase::Leaving, false, NOTHING, Phase::Away),
        ] {
            assert_eq!(at(phase, hour).next(drains, &left), next, "{phase:?}, drains: {drains}, {left:?}");
        }
        assert_eq!(at(Phase::Draining, Duration::ZERO).next(true, &busy), Phase::Leaving, "it took too long");
    }

    #[test]
    fn a_phase_is_kept_as_a_number() {
        for phase in [Phase::Away, Phase::Member, Phase::Draining, Phase::Leaving] {
            assert_eq!(Phase::of(phase as u8), phase);
        }
    }

    #[test]
    fn a_deadline_is_set_once() {
        let stop = Stop::default();
        assert!(!stop.is_requested() && !stop.is_over());
        stop.request(Duration::ZERO);
        stop.request(Duration::from_hours(1));
        assert!(stop.is_over());
    }
}
