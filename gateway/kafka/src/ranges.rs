//! Planned ranges: which offsets of a partition are inserted together, so that whoever inserts them again inserts the same.
//!
//! The effect of exactly-once rests on this: a range of a partition is one INSERT under one [`Token`], and the server drops
//! a token that it has. So **no two different ranges that overlap may ever be sent**, by whomever: an owner, the next one, or
//! one that lost the partition and does not know yet. Three things see to it:
//!
//! - Where a range ends is a pure function of the log ([`Rule`]), or is written to the metadata of an offset commit
//!   ([`Plan`]) before the range is sent. The group refuses commits of a member that was left behind.
//! - How far the function was used without a commit is in the metadata too: the [horizon].
//! - A new owner makes the cuts that it finds again and cuts nowhere else below the horizon ([`Cutter`]).
//!
//! ```text
//!  worker thread                 poll thread                                       delivery
//!  -------------                 -----------                                       --------
//!                                Ranges::assigned(committed offset, metadata)
//!  Cutter <----------------------  |  gives both halves
//!    | offer, take, flush, ...     v
//!    |--- Closed ------------->  Ranges::closed --> commit --> (coordinator) --> committed
//!    |                             |                                                 |
//!    |                             |  release <--------------------------------------'
//!    |                             |--- Release ----------------------------------> INSERT
//!    |                           Ranges::settled <-------------------------------- stored
//!    '<-- begins anew under it -- committed
//! ```
//!
//! Owner: [`Ranges`] the poll thread, [`Cutter`] the worker. No clock, no client: time, committed metadata and what happened
//! come as arguments. One value of each lives as long as one generation of a partition.
//!
//! A range whose block the server refuses goes in [parts] of its rows, each under a token of its own. That it does, and which of
//! them were refused, is in the plan before any of them is sent: [`Ranges::part`], [`Ranges::parted`], [`Release::parts`].
//!
//! Relied on: the coordinator applies commits of one member in the order in which they were begun, one at a time, and none of
//! a member whose generation is over.
//!
//! What Kafka no longer had is in every plan from then on: [gaps].
//!
//! Limits: [`CUTS_MAX`], [`METADATA_BYTES_MAX`], [`PROOF_AGE_MAX`], [`horizon::HORIZON_SECONDS`].

mod commit;
mod cut;
mod destination;
mod flight;
mod found;
pub mod gaps;
pub mod horizon;
mod in_force;
mod kept;
mod parting;
pub mod parts;
mod plan;
mod release;
mod rule;
mod token;
mod wait;

pub use commit::{Commit, CommitOutcome, Urgency};
pub use cut::{Closed, Cut, Cutter, Offer, Overtaken};
pub use destination::Destination;
pub use found::{Committed, Found, Fresh, Halt, Log};
pub use kept::Kept;
pub use parts::{Parted, Parts};
pub use plan::{CUTS_MAX, METADATA_BYTES_MAX, Newer, Plan, TopicId, Unread};
pub use release::Release;
pub use rule::{Fill, Rule, Version};
pub use token::{Content, Digest, Token};
pub use wait::Wait;

use crate::partition::{Generation, OffsetRange, Verdict};
use commit::{Pending, Worker};
use flight::{Flight, InFlight, Progress, Standing};
use gaps::Gaps;
use horizon::Pace;
use in_force::InForce;
use parting::Partings;
use release::Inherited;
use std::time::Duration;

/// How old the last proof of membership, a stored commit, may be when a range is first sent. Chosen: commits are a second
/// apart while ranges are made, so that it is never noticed; and far below any deduplication window, so that a member that
/// lost the partition without noticing stops sending while the tokens of the next owner are still known.
pub const PROOF_AGE_MAX: Duration = Duration::from_secs(30);

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since any fixed moment, by a clock that never goes back and counts while the machine sleeps.
    pub steady: Duration,
    /// Seconds since 1970, for the plan's t0, which another machine may read.
    pub unix_seconds: u64,
}

/// What this process wants of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The size rule.
    pub rule: Rule,
    /// Which shard rows go to.
    pub routing_epoch: u32,
    /// The servers and the table of that shard, where they are known.
    pub destination: Option<Destination>,
    /// The topic's id, where the client can tell.
    pub topic_id: TopicId,
    /// This process: a random number.
    pub instance: u64,
}

/// The ranges of one partition in one generation.
#[derive(Debug)]
pub struct Ranges {
    generation: Generation,
    settings: Settings,
    in_force: InForce,
    inherited: Inherited,
    /// Cuts of that plan which the worker has not reached.
    ahead: Vec<i64>,
    flight: Flight,
    /// Those of them that go in parts, and those that the plan which was found names.
    partings: Partings,
    /// What Kafka no longer had, as every plan says.
    gaps: Gaps,
    /// Where the first one begins.
    begun: i64,
    /// Where the last range ends.
    tail: i64,
    log_end: i64,
    /// Whether a stored plan is ours to act on.
    is_planned: bool,
    /// Of the stored plan.
    horizon: i64,
    /// Of the stored plan.
    committed: Option<i64>,
    /// What the coordinator is known to have: as above, until it has forgotten that.
    kept: Option<i64>,
    pending: Option<Pending>,
    /// When the last stored commit was begun, or the partition assigned.
    proof: Duration,
    pace: Pace,
    worker: Worker,
    /// Nothing new is released: the partition goes.
    is_leaving: bool,
    /// It has gone.
    has_ended: bool,
}

impl Ranges {
    /// The id of the topic that the partition was assigned of.
    pub fn topic_id(&self) -> TopicId {
        self.settings.topic_id
    }

    /// Begins a generation as [`Self::assigned`] does, and takes over ranges that an earlier run has kept, in the order of the log: those
    /// that are given back. They count as closed, and reading begins behind them.
    pub fn assigned_with<'k>(
        generation: Generation,
        committed: &Committed<'_>,
        settings: Settings,
        now: Now,
        kept: &'k [Kept],
    ) -> Result<(Self, Cutter, Found, &'k [Kept]), Halt> {
        let offset = committed.commit.map(|(offset, _)| offset);
        let kept = kept::not_committed(offset, kept);
        // Behind the end of the log, offsets are of other messages than those that were kept.
        let kept = &kept[..kept.partition_point(|kept| kept.range.next <= committed.log.end)];
        // What is kept need not be in Kafka any more.
        let first = kept.first().map(|kept| kept.range.first).filter(|first| Some(*first) == offset);
        let start = first.map_or(committed.log.start, |first| first.min(committed.log.start));
        let log = Log { start, ..committed.log };
        let beginning = Committed { log, ..*committed }.start(&settings)?;
        let taken = if beginning.plan.is_some() && !beginning.replaced {
            &kept[..kept::taken_over(&beginning.beginning, kept)]
        } else {
            &[]
        };
        if taken.is_empty() {
            let (ranges, cutter, found) = Self::assigned(generation, committed, settings, now)?;
            return Ok((ranges, cutter, found, taken));
        }
        let (mut ranges, mut cutter, mut found) =
            Self::assigned(generation, &Committed { log, ..*committed }, settings, now)?;
        for kept in taken {
            ranges.closed(generation, &kept.closed(&beginning.beginning));
            cutter.skip(kept.range.next);
        }
        if let Some(overtaken) = cutter.overtaken(committed.log.start) {
            ranges.overtaken(generation, &overtaken);
            found.overtaken = Some(overtaken);
        }
        Ok((ranges, cutter, found, taken))
    }

    /// Begins a generation: what was committed is read, and both halves are made.
    pub fn assigned(
        generation: Generation,
        committed: &Committed<'_>,
        settings: Settings,
        now: Now,
    ) -> Result<(Self, Cutter, Found), Halt> {
        let start = committed.start(&settings)?;
        let beginning = start.beginning;
        let plan = start.plan.as_ref();
        let mut gaps = Gaps::found(plan.map_or(&[], |plan| &plan.gaps));
        if let Some(overtaken) = start.found.overtaken {
            gaps.add(overtaken.lost);
        }
        let ranges = Self {
            generation,
            settings,
            in_force: plan
                .filter(|_| !start.replaced)
                .map_or_else(|| InForce::wanted(&settings), |plan| InForce::planned(plan, &settings)),
            inherited: Inherited { horizon: beginning.horizon, t0: plan.map(|plan| plan.t0) },
            ahead: beginning.planned.clone(),
            flight: Flight::default(),
            partings: Partings::found(plan.map_or(&[], |plan| &plan.parted), beginning.first),
            gaps,
            begun: beginning.first,
            tail: beginning.first,
            log_end: committed.log.end,
            is_planned: !start.replaced,
            horizon: beginning.horizon,
            committed: plan.map(|plan| plan.offset),
            kept: plan.map(|plan| plan.offset),
            pending: None,
            proof: now.steady,
            pace: Pace::new(beginning.first, now.steady),
            worker: Worker::Reads,
            is_leaving: false,
            has_ended: false,
        };
        Ok((ranges, Cutter::new(beginning), start.found))
    }

    /// Takes down a range that the worker has ended.
    ///
    /// # Panics
    /// When it overlaps the one before.
    pub fn closed(&mut self, generation: Generation, closed: &Closed) -> Verdict {
        if !self.is_current(generation) {
            return Verdict::Stale;
        }
        let range = closed.range;
        assert!(range.first >= self.tail && range.next > range.first, "ranges follow each other");
        let mut in_flight = InFlight::new(range, closed.cut.is_derivable());
        in_flight.listed = closed.cut == Cut::Planned;
        in_flight.decided = closed.decided;
        self.ahead.retain(|cut| *cut > range.next);
        self.flight.push(in_flight);
        self.tail = range.next;
        Verdict::Recorded
    }

    /// Takes down that the log begins above where the worker was.
    pub fn overtaken(&mut self, generation: Generation, overtaken: &Overtaken) -> Verdict {
        if !self.is_current(generation) {
            return Verdict::Stale;
        }
        self.tail = self.tail.max(overtaken.first);
        self.gaps.add(overtaken.lost);
        Verdict::Recorded
    }

    /// Takes down where the log ends.
    pub fn log_ends(&mut self, offset: i64) {
        self.log_end = self.log_end.max(offset);
    }

    /// Begins a commit. `None` when there is nothing to commit, or one is in flight.
    pub fn commit(&mut self, now: Now) -> Option<Commit> {
        if self.urgency(now) == Urgency::None {
            return None;
        }
        let switches = self.can_switch();
        let InForce { rule, routing_epoch, destination } =
            if switches { InForce::wanted(&self.settings) } else { self.in_force };
        let offset = self.offset();
        let covered = self.flight.cover(self.ahead.len()).unwrap_or(self.horizon);
        self.partings.cover(offset);
        let horizon = if self.worker == Worker::Stands {
            self.horizon_least()
        } else {
            self.horizon.max(covered).max(self.horizon_ahead(switches, now)).max(offset)
        };
        // Lower the horizon before it is committed.
        self.horizon = self.horizon.min(horizon);
        let plan = Plan {
            offset,
            rule,
            routing_epoch,
            destination,
            horizon,
            topic_id: self.settings.topic_id,
            instance: self.settings.instance,
            t0: self.t0(now),
            cuts: self.flight.listed().chain(self.ahead.iter().copied()).collect(),
            parted: self.partings.listed(),
            gaps: self.gaps.listed(),
        };
        self.pending = Some(Pending { offset, horizon, begun: now.steady, switches });
        Some(Commit { offset, metadata: plan.encode() })
    }

    /// Takes down what became of the commit in flight. Where it has brought another rule into force, the partition begins anew under it
    /// ([`crate::Renew::Rule`]).
    pub fn committed(&mut self, generation: Generation, outcome: CommitOutcome) {
        if !self.is_current(generation) {
            return;
        }
        let Some(pending) = self.pending.take() else { return };
        self.flight.uncover(outcome == CommitOutcome::Stored);
        self.partings.uncover(outcome == CommitOutcome::Stored);
        match outcome {
            CommitOutcome::Unknown => {}
            CommitOutcome::Fenced => self.lost(),
            CommitOutcome::Stored => {
                let Pending { offset, horizon, begun, switches } = pending;
                self.is_planned = true;
                (self.committed, self.kept) = (Some(offset), Some(offset));
                self.horizon = horizon;
                self.proof = begun;
                self.flight.forget_settled();
                if switches {
                    self.in_force = InForce::wanted(&self.settings);
                }
            }
        }
    }

    /// The ranges that may be sent from now on, in order. Each is named once.
    pub fn release(&mut self, now: Now) -> Vec<Release> {
        let mut released = Vec::new();
        if !self.is_planned || self.is_leaving || self.has_ended || self.is_unproved(now) {
            return released;
        }
        for range in self.flight.iter_mut() {
            // Behind a cut that is not planned no range is derivable, so that the order matters.
            if !range.is_planned(self.horizon) {
                break;
            }
            range.standing = Standing::Planned;
            if range.progress == Progress::Cut {
                range.progress = Progress::Sent;
                range.since = self.inherited.first_sent(range.range.first, now);
                released.push(Release {
                    range: range.range,
                    first_sent: range.since,
                    is_inherited: self.inherited.covers(range.range.first),
                    parts: self.partings.of(range.range),
                    routing_epoch: self.in_force.routing_epoch,
                    destination: self.in_force.destination,
                });
            }
        }
        self.flight.forget_settled();
        released
    }

    /// Takes down that every row of a range is in, or accounted for otherwise.
    pub fn settled(&mut self, generation: Generation, range: OffsetRange) -> Verdict {
        let verdict = self.mark(generation, range, Progress::Settled);
        self.flight.forget_settled();
        verdict
    }

    /// Has it written down that the block of a range that was sent goes in parts, and how far it is. [`Ranges::parted`] says when it is.
    pub fn part(&mut self, generation: Generation, range: OffsetRange, parts: Parts) -> Verdict {
        if !self.is_current(generation) || self.flight.find(range).is_none() {
            return Verdict::Stale;
        }
        self.partings.ask(range, parts);
        Verdict::Recorded
    }

    /// The ranges of which a stored plan says since the last question what was to be [written down](Ranges::part).
    pub fn parted(&mut self) -> Vec<OffsetRange> {
        self.partings.told()
    }

    /// Whether the worker has not read up to the horizon of an owner before: nothing ends by time there.
    pub fn is_replaying(&self) -> bool {
        self.inherited.t0.is_some() && self.tail < self.inherited.horizon.min(self.log_end)
    }

    /// Releases no more ranges: the partition goes to another owner.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether no range is on its way.
    pub fn is_drained(&self) -> bool {
        !self.flight.iter().any(|range| range.progress == Progress::Sent)
    }

    /// Whether every range that the worker has ended is settled, and the broker knows.
    pub fn is_at_rest(&self) -> bool {
        self.is_planned
            && self.pending.is_none()
            && self.flight.is_empty()
            && self.committed == Some(self.tail)
            && !self.can_switch()
    }

    /// Ranges that were ended and are not settled.
    pub fn unsettled(&self) -> usize {
        self.flight.iter().filter(|range| range.progress != Progress::Settled).count()
    }

    /// Ends the generation: nothing is committed, nothing released any more.
    pub fn lost(&mut self) {
        self.has_ended = true;
        self.pending = None;
    }

    /// Where the group goes on when this member is gone: everything below is settled.
    pub fn offset(&self) -> i64 {
        self.flight.first().unwrap_or(self.tail)
    }

    /// Up to where the broker has confirmed a commit that has our plan.
    pub fn committed_offset(&self) -> Option<i64> {
        self.committed
    }

    /// Offsets of ranges that have ended and are not committed.
    pub fn uncommitted(&self) -> u64 {
        self.not_committed(self.tail)
    }

    /// Those of them that could be: everything below is settled.
    pub fn committable(&self) -> u64 {
        self.not_committed(self.offset())
    }

    /// Before the first commit of this generation is stored, nothing of it is committed.
    fn not_committed(&self, up_to: i64) -> u64 {
        let from = self.committed.unwrap_or(self.begun);
        u64::try_from(up_to.saturating_sub(from)).unwrap_or(0)
    }

    /// When the last stored commit was begun, or the partition assigned, by the clock of [`Now`].
    pub fn proof(&self) -> Duration {
        self.proof
    }

    /// Where the last range ends.
    pub fn tail(&self) -> i64 {
        self.tail
    }

    fn mark(&mut self, generation: Generation, range: OffsetRange, progress: Progress) -> Verdict {
        if !self.is_current(generation) {
            return Verdict::Stale;
        }
        let Some(range) = self.flight.find(range) else { return Verdict::Stale };
        if range.progress != Progress::Settled {
            range.progress = progress;
        }
        Verdict::Recorded
    }

    fn is_current(&self, generation: Generation) -> bool {
        generation == self.generation && !self.has_ended
    }

    fn is_unproved(&self, now: Now) -> bool {
        now.steady.saturating_sub(self.proof) > PROOF_AGE_MAX
    }

    /// Whether another rule, routing or destination is wanted than is in force.
    fn switches(&self) -> bool {
        self.in_force != InForce::wanted(&self.settings)
    }

    /// Whether it may come into force with the next commit: what was made by the old one is settled.
    fn can_switch(&self) -> bool {
        self.switches() && self.flight.is_empty() && self.tail >= self.inherited.horizon
    }

    /// Up to where ranges by size are promised. While another rule is to come, nothing more is promised by the old one.
    fn horizon_ahead(&mut self, switches: bool, now: Now) -> i64 {
        if self.switches() && !switches {
            return self.horizon;
        }
        let ahead = self.pace.offsets_ahead(self.tail, now.steady);
        self.tail.saturating_add(ahead).min(self.log_end)
    }

    /// Before which moment no range from the committed offset on was sent.
    fn t0(&self, now: Now) -> u64 {
        let sent = self.flight.iter().filter(|range| range.since > 0).map(|range| range.since);
        let own = sent.min().unwrap_or(now.unix_seconds);
        own.min(self.inherited.first_sent(self.offset(), now))
    }
}

#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
