//! Partitions that stand still though there is something to do: noticed, named with a reason, recovered, or said to be stuck.
//!
//! Pure: offsets, flags and time come as arguments. Place in the flow: the poll thread calls [`Watchdog::check`] after librdkafka's
//! statistics ([`crate::inspection`]), does what [`Check::resume`] asks for, and publishes [`Check::still`]; readiness reads that.
//!
//! A message passes three stages, each with an offset in front and one behind:
//!
//! ```text
//!  committed ──────> settled ──────> position ──────> end
//!             commit          sink             reading
//! ```
//!
//! A stage stands still when there is something between its two offsets and the lower one does not move. So does the plan, when a
//! range waits for a commit before it may be sent. For how long that may be is [`STILL_MAX`]; then its reason is named, and where resuming may help it is asked for, once a [`RECOVERY_WAIT`]. A stage that
//! stands still for [`RECOVERY_WAIT`] longer is stuck, and the pod is not ready: nothing halts in silence.
//!
//! A sink that takes nothing is not a halt: readiness does not depend on ClickHouse, and what waits for it is where it should be.
//! Reading that waited for it has its time anew once it does not, so that a sink that comes back leaves nobody stuck either.
//!
//! Limits: an entry per owned partition.

use sluice_ranges::PartitionId;
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// How long a stage may stand still before it is looked into. Chosen: twelve of librdkafka's statistics, and longer than a
/// partition's leader takes to move, or a broker to come back.
pub const STILL_MAX: Duration = Duration::from_mins(1);

/// How long recovering may take before the partition is called stuck, and how often it is tried. Chosen: resuming helps within a
/// fetch or never.
pub const RECOVERY_WAIT: Duration = Duration::from_mins(1);

/// Why a partition stands still. A closed set: it is a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It has its turn, and is paused.
    PausedThoughActive,
    /// It was assigned and never fetched from.
    NeverRead,
    /// It has its turn and is not paused, and nothing is fetched of it.
    NoFetch,
    /// Others have had more than a round of turns.
    NoTurn,
    /// Its worker has no memory for a message, and no block is in flight that would give some back.
    Buffers,
    /// A batch that cannot be read is next.
    StoppedByMessage,
    /// A message that cannot be read is next, and its dead letter is not delivered.
    DeadLetter,
    /// Rows are refused, and someone must act on their dead letters or on the table.
    RefusedRows,
    /// A range may not be sent before its plan is committed, and it is not.
    Plan,
    /// Rows are inserted, and their offsets are not committed.
    Commit,
    /// Rows wait for the sink.
    Sink,
    /// Where it ends is not known.
    EndUnknown,
    /// Where it begins is not known.
    BeginningUnknown,
    /// Its plan is of a newer version, so that this program must not read it.
    NewerPlan,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::PausedThoughActive,
        Self::NeverRead,
        Self::NoFetch,
        Self::NoTurn,
        Self::Buffers,
        Self::StoppedByMessage,
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
            Self::StoppedByMessage => "stopped_by_message",
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
            // A partition without a turn must not be resumed: there is no memory for it. Those that have not begun cannot be. Of the
            // others, nobody waits for messages.
            Self::NoTurn
            | Self::Buffers
            | Self::StoppedByMessage
            | Self::DeadLetter
            | Self::RefusedRows
            | Self::Plan
            | Self::Commit
            | Self::Sink
            | Self::BeginningUnknown
            | Self::NewerPlan => false,
        }
    }

    /// Whether the pod is not ready when it lasts.
    pub fn is_halt(self) -> bool {
        self != Self::Sink
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PausedThoughActive => "it is paused although it has its turn",
            Self::NeverRead => "it was assigned but never fetched",
            Self::NoFetch => "no message is fetched from it",
            Self::NoTurn => "it does not get its turn to be read",
            Self::Buffers => "its worker has no free memory, although no block is in flight",
            Self::StoppedByMessage => "its next record batch cannot be read",
            Self::DeadLetter => "its next message is malformed, and the dead letter is not delivered",
            Self::RefusedRows => "ClickHouse refuses rows of it; fix the table or the dead-letter topic",
            Self::Plan => "its rows wait until Kafka stores the commit with their plan",
            Self::Commit => "the offsets of inserted rows are not committed",
            Self::Sink => "its rows wait for ClickHouse",
            Self::EndUnknown => "the end of its log is unknown",
            Self::BeginningUnknown => "its start offset is unknown",
            Self::NewerPlan => "a newer version planned its ranges; roll forward to that version",
        })
    }
}

/// What is seen of a partition that is assigned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The offset that the group has confirmed last.
    pub committed: Option<i64>,
    /// Up to where every row is settled: what would be committed.
    pub settled: Option<i64>,
    /// Where the first range begins that waits for a commit before it may be sent. `None` when none does.
    pub unplanned: Option<i64>,
    /// The next offset that the worker gets; [`crate::PartitionStats::position`]. `None` before the first fetch.
    pub position: Option<i64>,
    /// The offset behind the last message; [`crate::PartitionStats::end_offset`].
    pub end: Option<i64>,
    /// It has its turn.
    pub active: bool,
    /// It was paused last, rather than resumed.
    pub paused: bool,
    /// How its worker is doing with it.
    pub worker: AtWorker,
    /// A block of it waits for someone to act on rows that are refused.
    pub halted: bool,
}

/// How a worker is doing with a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AtWorker {
    /// It takes what comes.
    #[default]
    Reads,
    /// It waits for memory, or to hand over a block.
    NoRoom,
    /// It stands in front of a batch that cannot be read.
    Stopped,
    /// It stands in front of a message that cannot be read, whose dead letter is not delivered.
    Lettering,
    /// It has let it go, and what it has read is not settled: the partition begins anew afterwards.
    Settling,
    /// It has let it go, and what it has read is settled: the partition begins anew once that is committed.
    Renewing,
    /// No worker has it yet: where it begins is not known.
    Arriving,
    /// No worker gets it: its plan is of a newer version.
    Halted,
}

/// What is the same for all partitions.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    /// Now.
    pub now: Instant,
    /// How long a round of turns takes at the most; zero when every owned partition is active.
    pub round: Duration,
    /// Blocks of this process that wait for an insert or are being inserted.
    pub blocks_in_flight: u64,
}

/// A partition that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Still {
    /// Which one.
    pub id: PartitionId,
    /// Why.
    pub reason: Reason,
    /// For how long.
    pub since: Duration,
    /// Recovering did not help, and this is why the pod is not ready.
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

/// What a look at all partitions gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// To be resumed in librdkafka now. Resuming one that is not paused changes nothing; pausing it before makes librdkafka
    /// fetch anew.
    pub resume: Vec<PartitionId>,
    /// Every partition that stands still for longer than it may, in the order of partitions.
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
    /// All of them, the one nearest to Kafka's log first, since it is what the others wait for.
    const ALL: [Self; 4] = [Self::Reading, Self::Plan, Self::Commit, Self::Sink];
}

/// A stage that has something to do.
#[derive(Debug, Clone, Copy)]
struct StallState {
    /// The offset that should move; `None` while there is none.
    at: Option<i64>,
    /// Since when it does not.
    since: Instant,
}

#[derive(Debug, Default)]
struct Entry {
    reading: Option<StallState>,
    plan: Option<StallState>,
    commit: Option<StallState>,
    sink: Option<StallState>,
    resumed: Option<Instant>,
    /// When reading was last seen to wait for the sink.
    waited: Option<Instant>,
}

/// Remembers since when partitions stand still.
#[derive(Debug, Default)]
pub struct Watchdog {
    partitions: BTreeMap<PartitionId, Entry>,
}

impl Watchdog {
    /// Looks at every partition that is assigned. One that is not among them is forgotten, and begins anew when it comes back.
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
}

impl Entry {
    fn observe(&mut self, seen: &Seen, common: Common) {
        let now = common.now;
        // Without an end there is something to find out.
        let to_read = seen.end.is_none() || is_behind(seen.position, seen.end);
        observe(&mut self.reading, to_read, seen.position, now);
        // What stands between two ranges and is no message (the end of a transaction) is never settled.
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

    /// The first stage that has stood still for too long, and one that is a halt rather than one that waits for the sink.
    fn stands(&self, seen: &Seen, common: Common) -> Option<(Reason, Duration)> {
        let still = |stage| {
            let (reason, standing) = match stage {
                Stage::Reading => (reading_reason(seen, common), self.reading?),
                Stage::Plan => (Reason::Plan, self.plan?),
                Stage::Commit => (Reason::Commit, self.commit?),
                Stage::Sink if seen.halted => (Reason::RefusedRows, self.sink?),
                Stage::Sink => (Reason::Sink, self.sink?),
            };
            // What the sink has held up before is not held against reading.
            let waited = self.waited.filter(|_| stage == Stage::Reading && reason.is_halt());
            let since = common.now.saturating_duration_since(waited.max(Some(standing.since))?);
            (since > bound(reason, common)).then_some((reason, since))
        };
        let mut all = Stage::ALL.into_iter().filter_map(still).peekable();
        let first = all.peek().copied();
        all.find(|(reason, _)| reason.is_halt()).or(first)
    }

    fn may_resume(&self, now: Instant) -> bool {
        self.resumed.is_none_or(|last| now.saturating_duration_since(last) >= RECOVERY_WAIT)
    }
}

/// For how long a stage may stand still for this reason.
fn bound(reason: Reason, common: Common) -> Duration {
    match reason {
        // A turn comes once a round, and reading begins with it.
        Reason::NoTurn | Reason::NeverRead | Reason::EndUnknown => STILL_MAX.saturating_add(common.round),
        _ => STILL_MAX,
    }
}

/// Whether there is something between the two offsets. One that is not known yet is below all.
fn is_behind(lower: Option<i64>, upper: Option<i64>) -> bool {
    upper.is_some_and(|upper| lower.is_none_or(|lower| lower < upper))
}

fn observe(standing: &mut Option<StallState>, has_work: bool, at: Option<i64>, now: Instant) {
    match standing {
        Some(standing) if has_work && standing.at == at => {}
        _ => *standing = has_work.then_some(StallState { at, since: now }),
    }
}

/// Why nothing is read, most certain first.
fn reading_reason(seen: &Seen, common: Common) -> Reason {
    match seen.worker {
        AtWorker::Stopped => return Reason::StoppedByMessage,
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
