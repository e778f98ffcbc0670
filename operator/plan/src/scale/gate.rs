//! Whether samples are good for a decision. Missing metrics never remove a gateway.

use super::{sample::Samples, state::State};
use crate::{ground::moment::Moment, pipeline::policy::Load};
use serde::{Deserialize, Serialize};

/// A sample counts for so many seconds: three polls.
pub const FRESH_SECONDS: f64 = 45.0;
/// After so many seconds without a good sample the fallback holds.
pub const STALE_SECONDS: f64 = 300.0;
/// Pods that are not ready after so many seconds are not on their way.
pub const PROGRESS_SECONDS: f64 = 600.0;

/// Why nothing is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Kafka or the gateways did not answer, or not wholly, or not lately.
    MetricsUnavailable,
    /// The group is giving out its partitions.
    Rebalancing,
    /// Pods are on their way.
    RolloutInProgress,
    /// The pods with the highest numbers are not on their way, because no node takes them.
    Unschedulable,
}

impl Hold {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::MetricsUnavailable, Self::Rebalancing, Self::RolloutInProgress, Self::Unschedulable];

    /// The one of a word in a status; `None` for a word of another version.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hold| hold.word() == word)
    }

    /// Its word in a status.
    pub fn word(self) -> &'static str {
        match self {
            Self::MetricsUnavailable => "MetricsUnavailable",
            Self::Rebalancing => "Rebalancing",
            Self::RolloutInProgress => "RolloutInProgress",
            Self::Unschedulable => "Unschedulable",
        }
    }

    pub fn words(self, load: Load) -> &'static str {
        match (self, load) {
            (Self::MetricsUnavailable, Load::Partitions) => "Kafka or a gateway did not answer within 45 s",
            (Self::MetricsUnavailable, Load::Requests) => "a gateway did not answer within 45 s",
            (Self::Rebalancing, _) => "the consumer group is rebalancing",
            (Self::RolloutInProgress, _) => "gateways are starting or being replaced",
            (Self::Unschedulable, _) => "some gateways are unschedulable",
        }
    }
}

/// Checks the newest sample and the workload, and records in `state` since when pods are not ready.
pub fn check(now: Moment, samples: &Samples, state: &mut State) -> Result<(), Hold> {
    let workload = &samples.workload;
    let (ready, hopeless) = look_at(now, samples, state);
    let last = samples.history.last().filter(|last| now.seconds_since(last.at) <= FRESH_SECONDS);
    let last = last.ok_or(Hold::MetricsUnavailable)?;
    let answered = !last.partitions.is_empty() && last.partitions.iter().all(Option::is_some);
    if !answered {
        // Who has which partition is not known either, and nothing is learned of it.
        return Err(Hold::MetricsUnavailable);
    }
    state.see_group(now, last.group_stable);
    // Pods that are killed for their memory do not become ready by waiting. Nor do their partitions become anybody's, or those of
    // a pod that is being replaced: members are static. More gateways may follow all the same; fewer do not.
    let killed = state.killed_at.is_some_and(|at| now.seconds_since(at) < super::KILL_SECONDS);
    let excused = workload.rolling || killed;
    let pods = u32::try_from(last.pods.len()).unwrap_or(u32::MAX);
    let silent = last.silent > 0 || pods < workload.ready;
    if !last.group_stable && !excused {
        Err(Hold::Rebalancing)
    } else if workload.ready > workload.desired || (!ready && !excused) {
        Err(if hopeless { Hold::Unschedulable } else { Hold::RolloutInProgress })
    } else if silent {
        Err(Hold::MetricsUnavailable)
    } else {
        state.valid_at = Some(now);
        if last.group_stable {
            state.settled_since.get_or_insert(now);
        }
        Ok(())
    }
}

/// Whether all are ready that can be, and whether the last ones found no node for so long that they never will.
///
/// A gateway that is not ready for that long for another reason is not counted as starting: its node is away, it crashes again and again,
/// or one of its partitions has stopped. Gateways may still be added, by the samples of those that answer; none are removed.
///
/// A gateway in the middle that is unschedulable, because its volume is on a node that is gone, is not removed: all gateways with higher
/// numbers would go, too. After the same time it is not counted any more, in the same way.
fn look_at(now: Moment, samples: &Samples, state: &mut State) -> (bool, bool) {
    let workload = &samples.workload;
    state.given_up = state.given_up.min(workload.unschedulable);
    let late = Late::of(now, samples);
    state.absent = late.absent;
    let there = workload.ready + late.present + late.absent;
    if there + state.given_up >= workload.desired {
        state.unready_since = None;
        return (true, false);
    }
    let since = *state.unready_since.get_or_insert(now);
    let waited_in_vain = workload.unschedulable > 0 && now.seconds_since(since) > PROGRESS_SECONDS;
    let others_are_there = there + workload.unschedulable >= workload.desired;
    if waited_in_vain && workload.unschedulable_last == 0 && others_are_there {
        state.given_up = workload.unschedulable;
        state.unready_since = None;
        return (true, false);
    }
    (false, waited_in_vain && workload.unschedulable_last > 0)
}

/// Pods with a node that are not on their way any more.
struct Late {
    /// That answer, and so may be at work.
    present: u32,
    /// That do not. Only those with a number below one that answers: where the last ones never come up, more would not either.
    absent: u32,
}

impl Late {
    fn of(now: Moment, samples: &Samples) -> Self {
        let pods = samples.history.last().map_or(&[][..], |last| &last.pods);
        let answers = |ordinal| pods.iter().any(|pod| pod.ordinal == ordinal);
        let last = pods.iter().map(|pod| pod.ordinal).max();
        let is_late = |since: Moment| now.seconds_since(since) > PROGRESS_SECONDS;
        let late = samples.workload.unready_since.iter().filter(|(_, since)| is_late(**since));
        let (present, absent): (Vec<_>, Vec<_>) = late.partition(|(ordinal, _)| answers(**ordinal));
        let absent = absent.iter().filter(|(ordinal, _)| Some(**ordinal) < last).count();
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { present: count(present.len()), absent: count(absent) }
    }
}
