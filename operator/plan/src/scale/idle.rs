//! Rest of an idle topic: no gateways while no messages arrive, if the user asks for it (`scaling.idle`).
//!
//! ```text
//!  runs --no messages for `after`, all committed, gateways hold nothing--> rests: gateways drain, then there are none
//!    ^                                                                        |
//!    `---- a message arrives; or no gateway was there for `refresh` ----------'
//! ```
//!
//! Kafka deletes the committed offsets of a classic group that has had no members for the brokers' `offsets.retention.minutes`. So a rest
//! ends after `refresh`: a gateway joins the group, and the time begins anew with its leave. A rest begins only if a gateway that
//! starts later would read on exactly where the last one ended, whatever arrives meanwhile.
//!
//! What Kafka does not tell changes nothing: gateways that are there stay, and a rest goes on until the fallback.

use super::{Decision, Situation, gate, numbers, steps};
use crate::{
    ground::{
        moment::Moment,
        words::{form, plural},
    },
    pipeline::policy::{InitialOffset, Policy, Rests},
    scale::{
        gate::Hold,
        sample::{PartitionSample, Sample},
        state::State,
    },
};
use serde::{Deserialize, Serialize};

/// Since when no message has arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quiet {
    /// Since when.
    pub since: Moment,
    /// The ends of all partitions together.
    pub ends: u64,
}

/// A rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rest {
    /// Since when no gateway is wanted.
    pub since: Moment,
    /// Whether the group had committed offsets then.
    pub has_committed: bool,
}

/// The offsets of all partitions.
struct Offsets {
    ends: u64,
    /// Messages that a gateway would read.
    lag: u64,
    /// Whether a gateway that starts now would read every message that arrives from now on, and none that was read.
    is_certain: bool,
    has_committed: bool,
}

/// The decision of a pipeline that rests, begins to, or ends it; `None` if its gateways go by their load.
pub(super) fn decide(at: &Situation<'_>, next: &mut State) -> Option<Decision> {
    let Some(terms) = at.policy.rests_at(at.now) else {
        (next.quiet, next.rest) = (None, None);
        return None;
    };
    let last = at.samples.history.last();
    let last = last.filter(|last| at.now.seconds_since(last.at) <= gate::FRESH_SECONDS);
    let offsets = last.and_then(|last| Offsets::of(at.policy, last));
    if at.current == 0 {
        return Some(resting(at, terms, offsets.as_ref(), next));
    }
    next.rest = None;
    let (last, offsets) = (last?, offsets?);
    // No gap between decisions begins it anew: ends that are the same after one have been so all the time.
    let quiet = next.quiet.filter(|quiet| quiet.ends == offsets.ends);
    let quiet = quiet.unwrap_or(Quiet { since: at.now, ends: offsets.ends });
    next.quiet = Some(quiet);
    let is_over = at.now.seconds_since(quiet.since) >= f64::from(terms.after_seconds);
    if !(is_over && offsets.lag == 0 && offsets.is_certain && holds_nothing(at, last)) {
        return None;
    }
    next.rest = Some(Rest { since: at.now, has_committed: offsets.has_committed });
    next.quiet = None;
    next.forget_windows();
    let reason =
        format!("from {} to 0: no message has arrived for {}", at.current, time(terms.after_seconds));
    Some(Situation::plain(0, reason, next.clone()))
}

/// No gateway is wanted; some may still be on their way out.
fn resting(at: &Situation<'_>, terms: Rests, offsets: Option<&Offsets>, next: &mut State) -> Decision {
    let rest = *next.rest.get_or_insert(Rest { since: at.now, has_committed: false });
    next.forget_windows();
    let Some(offsets) = offsets else {
        let is_stale = next.valid_at.is_none_or(|valid| at.now.seconds_since(valid) > gate::STALE_SECONDS);
        let fallback =
            at.policy.fallback_replicas.filter(|_| is_stale).map_or(0, |least| at.bounds.clamp(least));
        let reason = format!("{}: {}", number(fallback), Hold::MetricsUnavailable.words(at.policy.load));
        return Decision {
            hold: Some(Hold::MetricsUnavailable),
            ..Situation::plain(fallback, reason, next.clone())
        };
    };
    next.valid_at = Some(at.now);
    if let Some(rest) = &mut next.rest {
        rest.has_committed |= offsets.has_committed;
    }
    let is_due = at.now.seconds_since(rest.since) >= f64::from(terms.refresh_seconds);
    let (replicas, reason) = if offsets.lag > 0 {
        let wanted = wanted(at, offsets, next);
        let (messages, wait) = (plural(offsets.lag, "message"), form(offsets.lag, "waits", "wait"));
        (wanted, format!("{}: {messages} {wait}", number(wanted)))
    } else if !offsets.is_certain {
        (
            at.bounds.min,
            format!(
                "{}: the consumer group has no committed offset for each partition",
                number(at.bounds.min)
            ),
        )
    } else if is_due {
        let why = "so that Kafka keeps the committed offsets of the consumer group";
        (
            at.bounds.min,
            format!(
                "{}: no gateway was in the consumer group for {}; one starts {why}",
                number(at.bounds.min),
                time(terms.refresh_seconds)
            ),
        )
    } else {
        (0, "stays at 0: the topics are idle; gateways start when messages arrive".to_owned())
    };
    if replicas > 0 {
        // With its gateways the time without messages begins anew.
        next.quiet = None;
    }
    Situation::plain(replicas, reason, next.clone())
}

fn number(replicas: u32) -> String {
    if replicas == 0 { "stays at 0".to_owned() } else { format!("from 0 to {replicas}") }
}

/// Gateways for this backlog and what has arrived since the sample before, by what is known of one gateway; else the fewest. Load decides from
/// then on.
fn wanted(at: &Situation<'_>, offsets: &Offsets, next: &State) -> u32 {
    let capacity = next.capacity.or(at.policy.capacity_hint).filter(|capacity| *capacity > 0.0);
    let needed = capacity.map_or(1, |capacity| {
        let backlog = numbers::count(offsets.lag) / (capacity * at.policy.catch_up_seconds.max(1.0));
        numbers::ceil(backlog + arrival(at, offsets) / (capacity * at.policy.utilization))
    });
    let useful = steps(next.partitions, 1, at.policy.alignment, at.bounds);
    at.bounds.clamp(steps::at_least(&useful, needed.max(1)))
}

/// Messages a second since the sample before; 0 without one.
fn arrival(at: &Situation<'_>, offsets: &Offsets) -> f64 {
    let history = &at.samples.history;
    let (Some(last), Some(before)) = (history.last(), history.before(1)) else { return 0.0 };
    let seconds = last.at.seconds_since(before.at);
    match Offsets::of(at.policy, before) {
        Some(older) if seconds > 0.0 => numbers::count(offsets.ends.saturating_sub(older.ends)) / seconds,
        Some(_) | None => 0.0,
    }
}

/// Whether every gateway answers, and none holds a row.
fn holds_nothing(at: &Situation<'_>, last: &Sample) -> bool {
    let workload = &at.samples.workload;
    let is_whole = u32::try_from(last.pods.len()).is_ok_and(|pods| pods >= workload.desired);
    let is_empty =
        last.pods.iter().all(|pod| pod.rows_in_flight == 0 && pod.spool_blocks == 0 && !pod.sink_behind);
    is_whole && is_empty && last.silent == 0 && last.group_stable && !workload.rolling
}

impl Offsets {
    /// `None` if Kafka did not tell them all.
    fn of(policy: &Policy, sample: &Sample) -> Option<Self> {
        if sample.partitions.is_empty() {
            return None;
        }
        let mut all = Self { ends: 0, lag: 0, is_certain: true, has_committed: false };
        for partition in &sample.partitions {
            let partition = (*partition)?;
            all.ends = all.ends.saturating_add(partition.end);
            all.lag = all.lag.saturating_add(lag(partition));
            all.is_certain &= is_certain(policy.initial_offset, partition);
            all.has_committed |= partition.committed.is_some();
        }
        Some(all)
    }
}

/// Messages from where a gateway would begin. Also those that it would leave out by `initialOffset: Latest`: with them, the partition is not idle.
fn lag(partition: PartitionSample) -> u64 {
    let PartitionSample { log_start, end, committed, .. } = partition;
    match committed {
        Some(committed) if committed <= end => end.saturating_sub(committed.max(log_start)),
        // It is another topic of that name.
        Some(_) | None => end.saturating_sub(log_start),
    }
}

/// Whether a gateway would begin where the last one ended. Without a committed offset it begins at the oldest message, or behind the newest,
/// which would leave out what arrives until then.
fn is_certain(initial: InitialOffset, partition: PartitionSample) -> bool {
    match partition.committed {
        Some(committed) => committed <= partition.end,
        None => initial == InitialOffset::Earliest,
    }
}

/// `30 min`, `24 h`.
fn time(seconds: u32) -> String {
    match seconds {
        hours if hours >= 7_200 && hours.is_multiple_of(3_600) => format!("{} h", hours / 3_600),
        minutes if minutes >= 60 && minutes.is_multiple_of(60) => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}
