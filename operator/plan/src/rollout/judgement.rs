//! Whether a gateway of the newest revision is healthy: by its pod's status, and by its own counters compared with those of the others.

use crate::observed::{GatewaySeen, WorkloadSeen};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// The gateway's exit code for a config that cannot be right (sysexits' `EX_USAGE`): another start ends the same way.
const EXIT_CONFIG: i32 = 64;
/// Ends of a container that are a loop: the first may be a server that was away for a moment, and between the second and the
/// third Kubernetes waits 20 s. Chosen.
const ENDS_MAX: u32 = 3;
/// An image that cannot be pulled for this many seconds does not exist or may not be pulled. Kubernetes tries five times by then.
const PULL_SECONDS: i64 = 120;

/// Waiting reasons that will not pass.
const NEVER: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
/// Waiting reasons that may pass.
const PULLING: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// How well a gateway is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It does not have the newest revision yet.
    Waits(String),
    /// It is ready.
    Well {
        /// Since when.
        since: Timestamp,
    },
    /// It is not ready yet, or has trouble.
    Unwell(String),
    /// It is not ready, and the operator has not heard yet why.
    Unheard,
    /// It will not be ready without a change.
    Failed(String),
}

impl Judgement {
    /// The worse one of two.
    pub(super) fn worse(self, other: Self) -> Self {
        let weight = |of: &Self| match of {
            Self::Failed(_) => 3,
            // With equal weights, the message names the first of two gateways.
            Self::Unwell(_) | Self::Unheard => 2,
            Self::Waits(text) => u8::from(!text.is_empty()),
            Self::Well { .. } => 0,
        };
        if weight(&other) > weight(&self) { other } else { self }
    }
}

/// Judges the gateway with this ordinal.
pub(super) fn judge(workload: &WorkloadSeen, ordinal: u32, now: Timestamp) -> Judgement {
    let found = workload.gateways.iter().find(|gateway| gateway.ordinal == ordinal);
    let is_new = |gateway: &&GatewaySeen| {
        let is_newest = gateway.revision.is_some() && gateway.revision == workload.update_revision;
        workload.is_observed && is_newest && !gateway.is_leaving
    };
    match found.filter(is_new) {
        None => Judgement::Waits(format!("gateway {ordinal} is about to be replaced")),
        Some(gateway) => of_new(gateway, now),
    }
}

fn of_new(gateway: &GatewaySeen, now: Timestamp) -> Judgement {
    if let Some(since) = gateway.ready_since {
        return Judgement::Well { since };
    }
    let trouble = gateway.trouble.as_deref().or(gateway.says.as_deref());
    let words = format!("{}: {}", gateway.name, trouble.unwrap_or("is not ready"));
    let waits_for = |words: &[&str]| gateway.waiting.as_deref().is_some_and(|word| words.contains(&word));
    let age_seconds = gateway.created.map_or(0, |made| seconds_between(made, now));
    let is_hopeless = gateway.exit_code == Some(EXIT_CONFIG)
        || gateway.ends >= ENDS_MAX
        || waits_for(&NEVER)
        || (waits_for(&PULLING) && age_seconds >= PULL_SECONDS);
    match trouble {
        _ if is_hopeless => Judgement::Failed(words),
        None if gateway.is_unheard => Judgement::Unheard,
        _ => Judgement::Unwell(words),
    }
}

/// Seconds from one moment to another; below zero when the clocks disagree.
pub(super) fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// Percentage of unreadable messages from which on the gateway is at fault, if the other gateways have fewer. Chosen: one bad producer among
/// many is below it, and a gateway that cannot read what the others can is far above it.
const REJECTED_PERCENT: u64 = 10;

/// Messages that cannot be read below which nothing is said of a gateway: their share means little. Chosen.
const REJECTED_MIN: u64 = 3;

/// What a gateway has counted since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Inserts that failed, and dead letters that were refused.
    pub failures: u64,
    /// Messages that cannot be read.
    pub rejected: u64,
    /// Messages that were read.
    pub read: u64,
}

/// What gateways have counted, by ordinal.
pub type Counts = BTreeMap<u32, Counted>;

/// What gateways said at three looks.
#[derive(Debug, Clone, Copy)]
pub struct Looks<'a> {
    /// When the first gateway began to be tried. A share of messages takes many of them.
    pub first: &'a Counts,
    /// At the last look.
    pub last: &'a Counts,
    pub now: &'a Counts,
}

impl Counted {
    /// What was counted since `before`. A gateway that restarted counts from 0.
    fn since(self, before: Self) -> Self {
        let is_anew =
            self.failures < before.failures || self.rejected < before.rejected || self.read < before.read;
        let Self { failures, rejected, read } = if is_anew { Self::default() } else { before };
        Self {
            failures: self.failures - failures,
            rejected: self.rejected - rejected,
            read: self.read - read,
        }
    }

    fn rejects_many(self) -> bool {
        let all = self.read.saturating_add(self.rejected);
        let is_share = self.rejected.saturating_mul(100) >= all.saturating_mul(REJECTED_PERCENT);
        self.rejected >= REJECTED_MIN && is_share
    }
}

/// What the gateway with this ordinal has trouble with, and no other one: inserts that failed since the last look, or messages that it has not
/// been able to read since the first. A slow server or bad messages fail wherever they are; `None` when there is nothing to compare with.
pub fn trouble_of(ordinal: u32, looks: Looks<'_>) -> Option<String> {
    let is_trouble = |of: u32| {
        let now = *looks.now.get(&of)?;
        let [first, last] = [looks.first, looks.last].map(|counts| counts.get(&of).copied());
        Some(now.since(last?).failures > 0 || first.is_some_and(|first| now.since(first).rejects_many()))
    };
    is_trouble(ordinal).filter(|trouble| *trouble)?;
    let others = looks.now.keys().filter(|other| **other != ordinal);
    let mut others = others.filter_map(|other| is_trouble(*other)).peekable();
    others.peek()?;
    others.all(|trouble| !trouble).then(|| {
        format!(
            "gateway {ordinal} fails to deliver (its inserts fail, or it rejects {REJECTED_PERCENT} % of messages or more), and no other \
             gateway does"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_on_one_alone_is_its_trouble() {
        let of = |failures: [u64; 3]| {
            let counted = failures.map(|failures| Counted { failures, ..Counted::default() });
            (0..3).zip(counted).collect::<Counts>()
        };
        let trouble = |last: &Counts, now: &Counts| trouble_of(2, Looks { first: last, last, now });
        for (last, now, is_trouble) in [
            ([0, 0, 0], [0, 0, 2], true),
            ([5, 5, 5], [5, 5, 5], false),
            ([0, 0, 0], [0, 1, 2], false),
            ([0, 0, 9], [0, 0, 1], true),
            ([0, 0, 9], [0, 1, 0], false),
        ] {
            assert_eq!(trouble(&of(last), &of(now)).is_some(), is_trouble, "{last:?} {now:?}");
        }
        let alone = |failures| Counts::from([(2, Counted { failures, ..Counted::default() })]);
        assert_eq!(trouble(&alone(0), &alone(2)), None, "nobody to compare with");
        assert_eq!(trouble(&Counts::new(), &of([0, 0, 2])), None, "nothing to compare with");
        // One that failed in the look before and not in this one.
        let looks = Looks { first: &of([0, 0, 0]), last: &of([0, 0, 2]), now: &of([0, 0, 2]) };
        assert_eq!(trouble_of(2, looks), None);
    }

    #[test]
    fn some_bad_messages_are_no_trouble_of_the_gateway_that_reads_them() {
        let of = |counted: [(u64, u64); 2]| {
            let counted = counted.map(|(rejected, read)| Counted { rejected, read, failures: 0 });
            (0..2).zip(counted).collect::<Counts>()
        };
        let first = of([(7, 7), (7, 7)]);
        for (now, is_trouble) in [
            ([(7, 1_007), (9, 1_007)], false),
            ([(7, 1_007), (117, 1_007)], false),
            ([(7, 1_007), (119, 1_007)], true),
            ([(118, 1_007), (1_007, 7)], true),
            ([(119, 1_007), (1_007, 7)], false),
            // The first messages of all.
            ([(7, 9), (9, 7)], false),
            ([(7, 9), (10, 7)], true),
        ] {
            // A bad message of one look is not weighed against those of that look alone.
            let looks = Looks { first: &first, last: &of(now), now: &of(now) };
            assert_eq!(trouble_of(1, looks).is_some(), is_trouble, "{now:?}");
        }
    }

    #[test]
    fn what_no_time_will_mend_has_failed() {
        let made = Timestamp::UNIX_EPOCH;
        let gateway = |change: fn(&mut GatewaySeen)| {
            let mut gateway =
                GatewaySeen { name: "a-2".into(), created: Some(made), ..GatewaySeen::default() };
            change(&mut gateway);
            gateway
        };
        let waits = |word: &str| GatewaySeen { waiting: Some(word.into()), ..gateway(|_| {}) };
        for (gateway, after_seconds, fails) in [
            (gateway(|_| {}), 1_000, false),
            (gateway(|one| one.exit_code = Some(64)), 1, true),
            (gateway(|one| (one.exit_code, one.ends) = (Some(69), 1)), 1, false),
            (gateway(|one| (one.exit_code, one.ends) = (Some(69), 3)), 1, true),
            (gateway(|one| (one.exit_code, one.ends) = (Some(137), 2)), 1, false),
            (waits("ImagePullBackOff"), 119, false),
            (waits("ImagePullBackOff"), 120, true),
            (waits("ErrImagePull"), 120, true),
            (waits("ErrImageNeverPull"), 0, true),
            (waits("ContainerCreating"), 1_000, false),
        ] {
            let now = Timestamp::from_second(after_seconds).unwrap();
            let judged = of_new(&gateway, now);
            assert_eq!(matches!(judged, Judgement::Failed(_)), fails, "{gateway:?} {judged:?}");
        }
    }
}
