//! Membership in the consumer group: the process joins, drains, leaves, and rejoins on request.
//!
//! Owner of [`Membership`]: the poll thread, which updates it from [`Drain`] before each poll. Any thread may use [`Drain`] and [`Stop`].
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
//! Why it unsubscribes: with the classic protocol, librdkafka 2.12 then leaves the group, also as a static member (it sends `LeaveGroup`
//! with the member's id). Others get its partitions in the next rebalance. If the client is only closed, a static member keeps its
//! partitions until the session times out (45 s). With the new protocol (KIP-848), an unsubscribed static member is treated like a closed
//! one (member epoch -2): its partitions move when the session has timed out. So a gateway is a dynamic member there.
//!
//! A process that gets a signal to end while it is asked to drain leaves the group as well ([`Membership::leave_for_good`]), in every phase:
//! its pod is on its way out, and each partition of a static member that has ended waits for the end of its session. So does every rebalance,
//! and with it partitions that other gateways gave back.
//!
//! Limits: a drain waits for blocks in flight for at most [`crate::Limits::leave_wait`]. Blocks that are left then are given up; the next
//! owner inserts them again under their tokens. A process that ends waits [`LEAVE_WAIT`] at most until librdkafka has made `LeaveGroup`.
//! Closing the client sends it, and waits five seconds at most for the answer.

use crate::group::{assignment::Remaining, consumer::Error, member_id::is_member, rebalancing::Rebalancing};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How often the log says what a drain waits for.
const SAY_INTERVAL: Duration = Duration::from_secs(5);

/// How long a process that ends may take until librdkafka has made `LeaveGroup`. Before that, librdkafka only stops fetching, which takes a
/// few milliseconds. Less than the main thread waits for the poll thread after the deadline (3 s). Chosen.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// How long one poll may take meanwhile.
const LEAVE_POLL: Duration = Duration::from_millis(10);

/// Asks the poll thread to end by a deadline. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<OnceLock<Instant>>);

impl Stop {
    /// Requests the end. Only the first request counts.
    pub fn request(&self, within: Duration) {
        if self.0.set(Instant::now() + within).is_err() {
            // The first deadline stays in force.
        }
    }

    /// Whether the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.get().is_some()
    }

    /// The deadline of the request; `None` if there is none.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Asks the poll thread to leave the group and keep running, or to join again. Both may be requested any number of times, and while the
/// other is in progress. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// Asks to leave the group.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Asks to take part in the group.
    pub fn resume(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether leaving was requested last.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether this process takes part in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is not a member, and holds no partitions.
    Away = 0,
    Member = 1,
    /// It reads no more messages, and waits for blocks in flight.
    Draining = 2,
    /// It has unsubscribed, and gives its partitions back.
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

/// The state of the membership.
pub(crate) struct Membership {
    phase: Phase,
    drain_wait: Duration,
    /// When the phase began.
    since: Instant,
    said: Instant,
}

impl Membership {
    /// Not a member yet. A drain waits at most `drain_wait`.
    pub fn new(drain_wait: Duration) -> Self {
        let now = Instant::now();
        Self { phase: Phase::Away, drain_wait, since: now, said: now }
    }

    /// Moves to the next phase if it is due. Must be called between two polls, when no partition is about to start.
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

    /// Leaves the group before the client is closed, which a static member needs: closing it does not. All partitions must have been let go.
    pub fn leave_for_good(&mut self, client: &BaseConsumer<Rebalancing>) {
        if !is_member(client.client()) {
            return;
        }
        if matches!(self.phase, Phase::Member | Phase::Draining) {
            client.context().assignment().has_waited = true;
            client.unsubscribe();
            self.enter(Phase::Leaving, client);
        }
        let until = Instant::now() + LEAVE_WAIT;
        while is_member(client.client()) {
            if Instant::now() >= until {
                tracing::warn!(
                    "could not leave the consumer group: no other gateway reads the partitions until the session is over"
                );
                return;
            }
            // The callback that gives the partitions back runs in here. Nothing is read any more.
            if let Some(Err(error)) = client.poll(LEAVE_POLL) {
                tracing::debug!(%error, "the consumer reports a problem while it leaves");
            }
        }
        tracing::info!("asked the coordinator to leave the consumer group: the process ends while it drains");
    }

    /// The phase to be in now; the current one while there is something to wait for.
    fn next(&self, drains: bool, left: &Remaining) -> Phase {
        match self.phase {
            Phase::Away | Phase::Draining if !drains => Phase::Member,
            Phase::Member if drains => Phase::Draining,
            Phase::Draining if self.is_done(left) => Phase::Leaving,
            // A resume takes effect only after leaving is complete: librdkafka is already giving the partitions back.
            Phase::Leaving if left.partitions == 0 => Phase::Away,
            phase => phase,
        }
    }

    /// Whether nothing is in flight, or the time is over.
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
