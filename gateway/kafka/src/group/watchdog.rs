//! Detects partitions that make no progress although there is work, names the reason, tries to recover them, and reports them as stuck.
//!
//! Pure: offsets, flags and time are arguments. Place in the flow: the poll thread calls [`Watchdog::check`] after librdkafka's
//! statistics ([`crate::group::inspection`]), resumes [`Check::resume`], and publishes [`Check::still`] for readiness.
//!
//! A message passes three stages, each with an offset before and after it:
//!
//! ```text
//!  committed ──────> settled ──────> position ──────> end
//!             commit          sink             reading
//! ```
//!
//! A stage makes no progress if its two offsets differ and the lower one does not move. The same holds for the plan if a range waits for
//! a commit before it may be sent. After [`STILL_MAX`] the watchdog names the reason. If resuming may help, it asks for that, once per
//! [`RECOVERY_WAIT`]. After [`RECOVERY_WAIT`] more, the stage is stuck and the pod is not ready: nothing halts in silence.
//!
//! Resuming does not help a partition whose next batch cannot be read, and it still counts as stuck only after both times. A change of the
//! config needs a first gateway that stays ready for `rollout.canary.duration` (1 minute by default). If a gateway were not ready from the
//! first such batch on, a limit that is raised but too small for the next batch would be rolled back, and so would any other change.
//!
//! Waiting for ClickHouse is not a halt: readiness does not depend on ClickHouse, and the waiting rows are safe. Once it accepts rows
//! again, reading that waited for it gets its full time again, so that no partition counts as stuck.
//!
//! Limits: an entry per owned partition.

use crate::group::{batch_remedy::BatchRemedy, unfetched::Due};
use sluice_ranges::PartitionId;
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// How long a stage may make no progress before the watchdog acts. Chosen: twelve of librdkafka's statistics, and longer than a
/// partition's leader takes to move, or a broker to restart.
pub const STILL_MAX: Duration = Duration::from_mins(1);

/// How long recovery may take before the partition counts as stuck, and how often it is tried. Chosen: resuming helps within a fetch or
/// never.
pub const RECOVERY_WAIT: Duration = Duration::from_mins(1);

/// Why a partition makes no progress. A closed set: it is a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It has its turn but is paused.
    PausedThoughActive,
    /// It was assigned but never fetched.
    NeverRead,
    /// It has its turn and is not paused, but no message is fetched.
    NoFetch,
    /// It has waited longer than a round of turns.
    NoTurn,
    /// Its worker has no memory for a message, although no block is in flight that would free some.
    Buffers,
    /// The next record batch cannot be read; this helps.
    StoppedByMessage(BatchRemedy),
    /// The next message is malformed, and its dead letter is not delivered.
    DeadLetter,
    /// ClickHouse refuses rows; the dead-letter topic or the table needs manual action.
    RefusedRows,
    /// A range waits for the commit with its plan before it may be sent.
    Plan,
    /// Rows are inserted, but their offsets are not committed.
    Commit,
    /// Rows wait for ClickHouse.
    Sink,
    /// The end of its log is unknown.
    EndUnknown,
    /// Its start offset is unknown.
    BeginningUnknown,
    /// A newer version wrote its plan, so that this version must not read it.
    NewerPlan,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 14] = [
        Self::PausedThoughActive,
        Self::NeverRead,
        Self::NoFetch,
        Self::NoTurn,
        Self::Buffers,
        Self::StoppedByMessage(BatchRemedy::Unknown),
        Self::DeadLetter,
        Self::RefusedRows,
        Self::Plan,
        Self::Commit,
        Self::Sink,
        Self::EndUnknown,
        Self::BeginningUnknown,
        Self::NewerPlan,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::PausedThoughActive => "paused_though_active",
            Self::NeverRead => "never_read",
            Self::NoFetch => "no_fetch",
            Self::NoTurn => "no_turn",
            Self::Buffers => "buffers",
            Self::StoppedByMessage(_) => "stopped_by_message",
            Self::DeadLetter => "dead_letter",
            Self::RefusedRows => "refused_rows",
            Self::Plan => "plan",
            Self::Commit => "commit",
            Self::Sink => "sink",
            Self::EndUnknown => "end_unknown",
            Self::BeginningUnknown => "beginning_unknown",
            Self::NewerPlan => "newer_plan",
        }
    }

    /// Whether resuming the partition may help.
    pub fn is_resumed(self) -> bool {
        match self {
            Self::PausedThoughActive | Self::NeverRead | Self::NoFetch | Self::EndUnknown => true,
            // A partition without its turn must not be resumed: there is no memory for it. A partition that has not started cannot be
            // resumed. In the other cases nothing waits for messages.
            Self::NoTurn
            | Self::Buffers
            | Self::StoppedByMessage(_)
            | Self::DeadLetter
            | Self::RefusedRows
            | Self::Plan
            | Self::Commit
            | Self::Sink
            | Self::BeginningUnknown
            | Self::NewerPlan => false,
        }
    }

    /// Whether it makes the pod not ready if it lasts.
    pub fn is_halt(self) -> bool {
        self != Self::Sink
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::PausedThoughActive => "it is paused although it has its turn",
            Self::NeverRead => "it was assigned but never fetched",
            Self::NoFetch => "no message is fetched from it",
            Self::NoTurn => "it does not get its turn to be read",
            Self::Buffers => "its worker has no free memory, although no block is in flight",
            Self::StoppedByMessage(remedy) => {
                return write!(f, "its next record batch cannot be read; {remedy}");
            }
            Self::DeadLetter => "its next message is malformed, and the dead letter is not delivered",
            Self::RefusedRows => "ClickHouse refuses rows of it; fix the table or the dead-letter topic",
            Self::Plan => "its rows wait until Kafka stores the commit with their plan",
            Self::Commit => "the offsets of inserted rows are not committed",
            Self::Sink => "its rows wait for ClickHouse",
            Self::EndUnknown => "the end of its log is unknown",
            Self::BeginningUnknown => "its start offset is unknown",
            Self::NewerPlan => "a newer version planned its ranges; roll forward to that version",
        };
        f.write_str(words)
    }
}

/// The observed state of an assigned partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The offset of the last confirmed commit.
    pub committed: Option<i64>,
    /// The offset up to which every row is settled: the next commit.
    pub settled: Option<i64>,
    /// The start of the first range that waits for a commit before it may be sent. `None` if none waits.
    pub unplanned: Option<i64>,
    /// The worker's next offset; [`crate::PartitionStats::position`]. `None` before the first fetch.
    pub position: Option<i64>,
    /// The offset behind the last message; [`crate::PartitionStats::end_offset`].
    pub end: Option<i64>,
    /// Whether it has its turn.
    pub active: bool,
    /// Whether the last call for it was a pause rather than a resume.
    pub paused: bool,
    /// The partition's state at its worker.
    pub worker: AtWorker,
    /// Whether a block of it has refused rows and needs manual action.
    pub halted: bool,
}

/// The state of a partition at its worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AtWorker {
    /// The worker takes messages as they come.
    #[default]
    Reads,
    /// The worker waits for memory, or to hand over a block.
    NoRoom,
    /// The next batch cannot be read; this helps.
    Stopped(BatchRemedy),
    /// The next message is malformed, and its dead letter is not delivered.
    Lettering,
    /// The worker has released it, and ranges are not settled. It restarts afterwards.
    Settling,
    /// The worker has released it, and all ranges are settled. It restarts once they are committed.
    Renewing,
    /// It is with no worker yet: its start offset is unknown.
    Arriving,
    /// No worker gets it: its plan is of a newer version.
    Halted,
}

/// Facts that all partitions share.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub now: Instant,
    /// The longest duration of a round of turns; zero if every owned partition is active.
    pub round: Duration,
    /// Blocks of this process that wait for an insert or are being inserted.
    pub blocks_in_flight: u64,
}

/// A partition that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Still {
    /// Which one.
    pub id: PartitionId,
    /// Why.
    pub reason: Reason,
    /// How long.
    pub since: Duration,
    /// Whether recovery did not help, so that the pod is not ready.
    pub is_stuck: bool,
}

impl fmt::Display for Still {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "partition {} has made no progress for {} s: {}",
            self.id,
            self.since.as_secs(),
            self.reason
        )
    }
}

/// The result of a check of all partitions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Partitions to resume in librdkafka now. Resuming a partition that is not paused changes nothing; a pause before it makes
    /// librdkafka fetch again.
    pub resume: Vec<PartitionId>,
    /// Every partition without progress for longer than allowed, in the order of partitions.
    pub still: Vec<Still>,
}

/// The stages of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Reading,
    Plan,
    Commit,
    Sink,
}

impl Stage {
    /// All stages, nearest to Kafka's log first, since the others wait for it.
    const ALL: [Self; 4] = [Self::Reading, Self::Plan, Self::Commit, Self::Sink];
}

/// A stage with work to do.
#[derive(Debug, Clone, Copy)]
struct StallState {
    /// The offset that should move; `None` if there is none.
    at: Option<i64>,
    /// Since when it has not moved.
    since: Instant,
}

#[derive(Debug, Default)]
struct Entry {
    reading: Option<StallState>,
    plan: Option<StallState>,
    commit: Option<StallState>,
    sink: Option<StallState>,
    resumed: Option<Instant>,
    /// When reading last waited for ClickHouse.
    waited: Option<Instant>,
}

/// Remembers since when partitions make no progress.
#[derive(Debug, Default)]
pub struct Watchdog {
    partitions: BTreeMap<PartitionId, Entry>,
}

impl Watchdog {
    /// Checks every assigned partition. Forgets all others: they start fresh when they return.
    pub fn check(&mut self, common: Common, seen: &BTreeMap<PartitionId, Seen>) -> Check {
        self.partitions.retain(|id, _| seen.contains_key(id));
        let mut check = Check::default();
        for (id, seen) in seen {
            let entry = self.partitions.entry(id.clone()).or_default();
            entry.observe(seen, common);
            let Some((reason, since)) = entry.stands(seen, common) else { continue };
            let is_stuck = reason.is_halt() && since > bound(reason, common) + RECOVERY_WAIT;
            check.still.push(Still { id: id.clone(), reason, since, is_stuck });
            if reason.is_resumed() && entry.may_resume(common.now) {
                entry.resumed = Some(common.now);
                check.resume.push(id.clone());
            }
        }
        check
    }

    /// Partitions that are due to be fetched and are not, after a [check](Self::check) of the same.
    pub fn due(&self, common: Common, seen: &BTreeMap<PartitionId, Seen>) -> BTreeMap<PartitionId, Due> {
        let due = |(id, seen): (&PartitionId, &Seen)| {
            let due = self.partitions.get(id)?.due(seen, common)?;
            Some((id.clone(), due))
        };
        seen.iter().filter_map(due).collect()
    }
}

impl Entry {
    fn observe(&mut self, seen: &Seen, common: Common) {
        let now = common.now;
        // If the end is unknown, it has to be found.
        let to_read = seen.end.is_none() || is_behind(seen.position, seen.end);
        observe(&mut self.reading, to_read, seen.position, now);
        // Offsets between two ranges that are not messages (the end of a transaction) are never settled.
        let durable = seen.settled.or(seen.committed);
        observe(
            &mut self.sink,
            common.blocks_in_flight > 0 && is_behind(durable, seen.position),
            durable,
            now,
        );
        observe(&mut self.plan, seen.unplanned.is_some(), seen.unplanned, now);
        observe(&mut self.commit, is_behind(seen.committed, seen.settled), seen.committed, now);
        if reading_reason(seen, common) == Reason::Sink {
            self.waited = Some(now);
        }
        if self.reading.is_none_or(|reading| reading.since == now) {
            self.resumed = None;
        }
    }

    /// The first stage without progress for too long; preferably one that is a halt rather than waiting for ClickHouse.
    fn stands(&self, seen: &Seen, common: Common) -> Option<(Reason, Duration)> {
        let still = |stage| {
            let (reason, standing) = match stage {
                Stage::Reading => (reading_reason(seen, common), self.reading?),
                Stage::Plan => (Reason::Plan, self.plan?),
                Stage::Commit => (Reason::Commit, self.commit?),
                Stage::Sink if seen.halted => (Reason::RefusedRows, self.sink?),
                Stage::Sink => (Reason::Sink, self.sink?),
            };
            // Time during which ClickHouse delayed reading does not count against reading.
            let waited = self.waited.filter(|_| stage == Stage::Reading && reason.is_halt());
            let since = common.now.saturating_duration_since(waited.max(Some(standing.since))?);
            (since > bound(reason, common)).then_some((reason, since))
        };
        let mut all = Stage::ALL.into_iter().filter_map(still).peekable();
        let first = all.peek().copied();
        all.find(|(reason, _)| reason.is_halt()).or(first)
    }

    /// `None` while nothing waits, or its fetches wait for something else than Kafka.
    fn due(&self, seen: &Seen, common: Common) -> Option<Due> {
        let reason = reading_reason(seen, common);
        let is_due = matches!(
            reason,
            Reason::NeverRead | Reason::NoFetch | Reason::EndUnknown | Reason::BeginningUnknown
        );
        let since = self.waited.max(Some(self.reading.filter(|_| is_due)?.since))?;
        // The look that resumes it comes before the fetch that follows.
        let was_resumed = self.resumed.is_some_and(|resumed| resumed < common.now);
        let is_helpless = was_resumed && matches!(reason, Reason::NeverRead | Reason::NoFetch);
        Some(Due { time: common.now.saturating_duration_since(since), is_helpless })
    }

    fn may_resume(&self, now: Instant) -> bool {
        self.resumed.is_none_or(|last| now.saturating_duration_since(last) >= RECOVERY_WAIT)
    }
}

/// How long a stage may make no progress for this reason.
fn bound(reason: Reason, common: Common) -> Duration {
    match reason {
        // A turn comes once a round, and reading starts with it.
        Reason::NoTurn | Reason::NeverRead | Reason::EndUnknown => STILL_MAX.saturating_add(common.round),
        _ => STILL_MAX,
    }
}

/// Whether the two offsets differ. An unknown offset is below all others.
fn is_behind(lower: Option<i64>, upper: Option<i64>) -> bool {
    upper.is_some_and(|upper| lower.is_none_or(|lower| lower < upper))
}

fn observe(standing: &mut Option<StallState>, has_work: bool, at: Option<i64>, now: Instant) {
    match standing {
        Some(standing) if has_work && standing.at == at => {}
        _ => *standing = has_work.then_some(StallState { at, since: now }),
    }
}

/// Why nothing is read, most certain reason first.
fn reading_reason(seen: &Seen, common: Common) -> Reason {
    match seen.worker {
        AtWorker::Stopped(remedy) => return Reason::StoppedByMessage(remedy),
        AtWorker::Lettering => return Reason::DeadLetter,
        AtWorker::NoRoom if common.blocks_in_flight > 0 => return Reason::Sink,
        AtWorker::NoRoom => return Reason::Buffers,
        AtWorker::Settling => return Reason::Sink,
        AtWorker::Renewing => return Reason::Commit,
        AtWorker::Arriving => return Reason::BeginningUnknown,
        AtWorker::Halted => return Reason::NewerPlan,
        AtWorker::Reads => {}
    }
    if !seen.active {
        Reason::NoTurn
    } else if seen.paused {
        Reason::PausedThoughActive
    } else if seen.end.is_none() {
        Reason::EndUnknown
    } else if seen.position.is_none() {
        Reason::NeverRead
    } else {
        Reason::NoFetch
    }
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
