//! Planned ranges: which offsets of a partition are inserted together, so that every owner inserts the same.
//!
//! Exactly-once rests on this: a range of a partition is one INSERT under one [`Token`], and the server drops a token that it has. So
//! **no two different ranges that overlap may ever be sent**, by any owner: the current one, the next one, or one that lost the partition
//! and does not know yet. Three rules ensure this:
//!
//! - The end of a range is a pure function of the log ([`Rule`]), or is in the metadata of an offset commit ([`Plan`]) before the range
//!   is sent. The group refuses commits of a member that was left behind.
//! - The metadata also contains how far the function was used without a commit: the [horizon].
//! - A new owner repeats the cuts of the found plan, and cuts nowhere else below the horizon ([`Cutter`]).
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
//! Owner: [`Ranges`] the poll thread, [`Cutter`] the worker. No clock, no client: time, committed metadata and events are arguments. One
//! value of each lives as long as one generation of a partition.
//!
//! If the server refuses the block of a range, its rows are sent in [parts], each under a token of its own. The plan names the range and
//! the refused parts before any part is sent: [`Ranges::part`], [`Ranges::parted`], [`Release::parts`].
//!
//! Assumption: the coordinator applies commits of one member in the order in which they were started, one at a time, and none of a member
//! whose generation is over.
//!
//! Offsets that Kafka no longer had stay in every later plan: [gaps].
//!
//! Limits: [`CUTS_MAX`], [`METADATA_BYTES_MAX`], [`PROOF_AGE_MAX`], [`horizon::HORIZON_SECONDS`].

mod cluster;
mod commit;
mod cut;
mod destination;
mod flight;
mod found;
pub mod gaps;
pub mod horizon;
mod in_force;
mod parting;
mod partition;
pub mod parts;
mod plan;
mod release;
mod rule;
mod short_hash;
mod spooled_range;
mod token;
mod wait;

pub use cluster::ClusterNumber;
pub use commit::{Commit, CommitOutcome, Urgency};
pub use cut::{Closed, Cut, Cutter, Offer, Overtaken};
pub use destination::Destination;
pub use found::{Committed, Found, Fresh, Halt, Log, Renamed};
pub use partition::{Generation, OffsetRange, PartitionId, Verdict};
pub use parts::{Parted, RefusedParts};
pub use plan::{CUTS_MAX, METADATA_BYTES_MAX, Newer, Plan, TopicId, Unread};
pub use release::Release;
pub use rule::{Fill, Rule, Version};
pub use spooled_range::SpooledRange;
pub use token::{Content, Digest, Token};
pub use wait::Wait;

use commit::{Pending, Worker};
use flight::{Flight, InFlight, PlanState, Progress};
use gaps::Gaps;
use horizon::Pace;
use in_force::InForce;
use parting::Partings;
use release::Inherited;
use spooled_range::TakenOver;
use std::time::Duration;

/// Maximum age of the last proof of membership, a stored commit, when a range is first sent. Chosen: commits are a second apart while
/// ranges are made, so that it has no effect normally. It is far below any deduplication window: a member that lost the partition without
/// noticing stops sending while the next owner's tokens are still known.
pub const PROOF_AGE_MAX: Duration = Duration::from_secs(30);

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time since a fixed moment, by a clock that never goes back and counts while the machine sleeps.
    pub steady: Duration,
    /// Seconds since 1970, for the plan's t0, which another machine may read.
    pub unix_seconds: u64,
}

/// The settings of this process for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The size rule.
    pub rule: Rule,
    /// The shard that rows go to, as a number.
    pub routing_epoch: u32,
    /// The servers and the table of that shard, if they are known.
    pub destination: Option<Destination>,
    /// The topic's id, if the brokers report one.
    pub topic_id: TopicId,
    /// The cluster by whose id tokens are made, if it is known.
    pub cluster: Option<ClusterNumber>,
}

/// The ranges of one partition in one generation.
#[derive(Debug)]
pub struct Ranges {
    generation: Generation,
    settings: Settings,
    /// The rule, routing epoch and destination by which ranges are made now.
    in_force: InForce,
    inherited: Inherited,
    /// Cuts of that plan which the worker has not reached.
    ahead: Vec<i64>,
    flight: Flight,
    /// Those of them that are sent in parts, and those that the found plan names.
    partings: Partings,
    /// Offsets that Kafka no longer had, as in every plan.
    gaps: Gaps,
    /// Ranges that begin below it are doubtful, as in every plan.
    doubtful_up_to: i64,
    /// The start of the first range.
    begun: i64,
    /// The end of the last range.
    tail: i64,
    log_end: i64,
    /// Whether the stored plan allows sending ranges: it was found valid, with the same id of the cluster, or this generation committed it.
    is_planned: bool,
    /// The horizon of the stored plan.
    horizon: i64,
    /// The offset of the stored plan.
    committed: Option<i64>,
    /// The offset that the coordinator is known to have: as above, until it may have deleted it.
    kept: Option<i64>,
    pending: Option<Pending>,
    /// When the last stored commit was started, or when the partition was assigned.
    proof: Duration,
    pace: Pace,
    worker: Worker,
    /// Whether no more ranges are released, because the partition leaves.
    is_leaving: bool,
    /// Whether the generation is over.
    has_ended: bool,
}

impl Ranges {
    /// The id of the topic when the partition was assigned.
    pub fn topic_id(&self) -> TopicId {
        self.settings.topic_id
    }

    /// Starts a generation like [`Self::assigned`], and takes over ranges that an earlier run left on the queue volume, in the order of
    /// the log. Returns those that are taken over. They count as closed, and reading starts behind them.
    pub fn assigned_with<'k>(
        generation: Generation,
        committed: &Committed<'_>,
        settings: Settings,
        now: Now,
        kept: &'k [SpooledRange],
    ) -> Result<(Self, Cutter, Found, &'k [SpooledRange]), Halt> {
        let TakenOver { ranges: taken, log, beginning } = committed.take_over(&settings, kept)?;
        let (mut ranges, mut cutter, mut found) =
            Self::assigned(generation, &Committed { log, ..*committed }, settings, now)?;
        for kept in taken {
            ranges.closed(generation, &kept.closed(&beginning));
            cutter.skip(kept.range.next);
        }
        if let Some(overtaken) = cutter.overtaken(committed.log.start) {
            ranges.overtaken(generation, &overtaken);
            found.overtaken = Some(overtaken);
        }
        Ok((ranges, cutter, found, taken))
    }

    /// Starts a generation: reads the committed offset and metadata, and creates both halves.
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
            doubtful_up_to: beginning.doubtful_up_to,
            begun: beginning.first,
            tail: beginning.first,
            log_end: committed.log.end,
            is_planned: !start.replaced && start.found.renamed.is_none(),
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

    /// Records a range that the worker has ended.
    ///
    /// # Panics
    /// If it overlaps the previous one.
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
        self.partings.cut(range);
        self.doubtful_up_to = self.doubtful_up_to.max(closed.doubtful_up_to);
        self.flight.push(in_flight);
        self.tail = range.next;
        Verdict::Recorded
    }

    /// Records that the log starts above the worker's position.
    pub fn overtaken(&mut self, generation: Generation, overtaken: &Overtaken) -> Verdict {
        if !self.is_current(generation) {
            return Verdict::Stale;
        }
        self.tail = self.tail.max(overtaken.first);
        self.gaps.add(overtaken.lost);
        if overtaken.doubtful.first < overtaken.doubtful.next {
            self.doubtful_up_to = self.doubtful_up_to.max(overtaken.doubtful.next);
        }
        Verdict::Recorded
    }

    /// Records where the log ends.
    pub fn log_ends(&mut self, offset: i64) {
        self.log_end = self.log_end.max(offset);
    }

    /// Starts a commit. `None` if there is nothing to commit, or one is in flight.
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
        let horizon = if self.promises_nothing() {
            self.horizon_least()
        } else {
            self.horizon.max(covered).max(self.horizon_ahead(switches, now)).max(offset)
        };
        // The horizon is lowered before the commit with the lower value is sent.
        self.horizon = self.horizon.min(horizon);
        let plan = Plan {
            offset,
            rule,
            routing_epoch,
            destination,
            horizon,
            topic_id: self.settings.topic_id,
            cluster: self.settings.cluster,
            t0: self.t0(now),
            cuts: self.flight.listed().chain(self.ahead.iter().copied()).collect(),
            parted: self.partings.listed(),
            gaps: self.gaps.listed(),
            doubtful_up_to: if self.doubtful_up_to > offset { self.doubtful_up_to } else { 0 },
        };
        self.pending = Some(Pending { offset, horizon, begun: now.steady, switches });
        Some(Commit { offset, metadata: plan.encode() })
    }

    /// Records the outcome of the commit in flight. If it has brought another rule into force, the partition restarts with that rule
    /// (`Renew::Rule` of `sluice-kafka`).
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

    /// The ranges that may be sent from now on, in order. Each is returned once.
    pub fn release(&mut self, now: Now) -> Vec<Release> {
        let mut released = Vec::new();
        if !self.is_planned || self.is_leaving || self.has_ended || self.is_unproved(now) {
            return released;
        }
        for range in self.flight.iter_mut() {
            // No range behind an unplanned cut is derivable, so the order matters.
            if !range.is_planned(self.horizon) {
                break;
            }
            range.standing = PlanState::Planned;
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

    /// Records that every row of a range is in ClickHouse, or accounted for otherwise.
    pub fn settled(&mut self, generation: Generation, range: OffsetRange) -> Verdict {
        let verdict = self.mark(generation, range, Progress::Settled);
        self.flight.forget_settled();
        verdict
    }

    /// Records for the next plan that a sent range goes in parts, and its refused parts. [`Ranges::parted`] reports when the plan is
    /// stored.
    pub fn part(&mut self, generation: Generation, range: OffsetRange, parts: RefusedParts) -> Verdict {
        if !self.is_current(generation) || self.flight.find(range).is_none() {
            return Verdict::Stale;
        }
        self.partings.ask(range, parts);
        Verdict::Recorded
    }

    /// The ranges whose [parts](Ranges::part) became part of a stored plan since the last call.
    pub fn parted(&mut self) -> Vec<OffsetRange> {
        self.partings.told()
    }

    /// Whether the worker has not read up to an earlier owner's horizon: no range ends by time there.
    pub fn is_replaying(&self) -> bool {
        self.inherited.t0.is_some() && self.tail < self.inherited.horizon.min(self.log_end)
    }

    /// Releases no more ranges: the partition moves to another owner.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether no range is in flight.
    pub fn is_drained(&self) -> bool {
        !self.flight.iter().any(|range| range.progress == Progress::Sent)
    }

    /// Whether every ended range is settled and committed.
    pub fn is_at_rest(&self) -> bool {
        self.is_planned
            && self.pending.is_none()
            && self.flight.is_empty()
            && self.committed == Some(self.tail)
            && !self.can_switch()
    }

    /// Ranges that have ended and are not settled.
    pub fn unsettled(&self) -> usize {
        self.flight.iter().filter(|range| range.progress != Progress::Settled).count()
    }

    /// Ends the generation: no more commits, no more releases.
    pub fn lost(&mut self) {
        self.has_ended = true;
        self.pending = None;
    }

    /// The offset to commit, where the group continues without this member: everything below is settled.
    pub fn offset(&self) -> i64 {
        self.flight.first().unwrap_or(self.tail)
    }

    /// The last offset that the broker has confirmed together with a valid plan.
    pub fn committed_offset(&self) -> Option<i64> {
        self.committed
    }

    /// When the last stored commit was started, or the partition assigned, by the clock of [`Now`].
    pub fn proof(&self) -> Duration {
        self.proof
    }

    /// The end of the last range.
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

    /// Whether it can take effect with the next commit: all ranges of the old rule are settled.
    fn can_switch(&self) -> bool {
        self.switches() && self.flight.is_empty() && self.tail >= self.inherited.horizon
    }

    /// The offset up to which ranges by size are promised. Before a rule change, no further offsets are promised.
    fn horizon_ahead(&mut self, switches: bool, now: Now) -> i64 {
        if self.switches() && !switches {
            return self.horizon;
        }
        let ahead = self.pace.offsets_ahead(self.tail, now.steady);
        self.tail.saturating_add(ahead).min(self.log_end)
    }

    /// The time before which no range from the committed offset on was sent.
    fn t0(&self, now: Now) -> u64 {
        let sent = self.flight.iter().filter(|range| range.since > 0).map(|range| range.since);
        let own = sent.min().unwrap_or(now.unix_seconds);
        own.min(self.inherited.first_sent(self.offset(), now))
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod spooled_range_tests;
#[cfg(test)]
mod tests;
