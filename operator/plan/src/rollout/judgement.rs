//! Whether a gateway of the newest revision is well: by what Kubernetes says of its pod, and by what it says of itself beside the
//! others.

use crate::WorkloadSeen;
use crate::observed::GatewaySeen;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// The gateway's exit code for a config that cannot be right (sysexits' `EX_USAGE`): another start ends the same way.
const EXIT_CONFIG: i32 = 64;
/// Ends of a container that are a loop: the first may be a server that was away for a moment, and between the second and the
/// third Kubernetes waits 20 s. Chosen.
const ENDS_MAX: u32 = 3;
/// An image that cannot be pulled for so many seconds is not there, or nobody may have it. Kubernetes tries five times by then.
const PULL_SECONDS: i64 = 120;

/// What a gateway waits for that no time will mend.
const NEVER: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
/// What it waits for that time may mend.
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
    /// It will not be ready by itself.
    Failed(String),
}

impl Judgement {
    /// The worse one of two.
    pub(super) fn worse(self, other: Self) -> Self {
        let weight = |of: &Self| match of {
            Self::Failed(_) => 3,
            Self::Unwell(_) => 2,
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
    let trouble = gateway.trouble.as_deref().or(gateway.says.as_deref()).unwrap_or("is not ready");
    let words = format!("{}: {trouble}", gateway.name);
    let waits_for = |words: &[&str]| gateway.waiting.as_deref().is_some_and(|word| words.contains(&word));
    let age_seconds = gateway.created.map_or(0, |made| seconds_between(made, now));
    let is_hopeless = gateway.exit_code == Some(EXIT_CONFIG)
        || gateway.ends >= ENDS_MAX
        || waits_for(&NEVER)
        || (waits_for(&PULLING) && age_seconds >= PULL_SECONDS);
    if is_hopeless { Judgement::Failed(words) } else { Judgement::Unwell(words) }
}

/// Seconds from one moment to another; below zero when the clocks disagree.
pub(super) fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// How often each gateway failed to deliver something, by ordinal: inserts, and messages that went to the dead letters.
pub type Failures = BTreeMap<u32, u64>;

/// What the gateway with this ordinal has trouble with, and no other one: failures since the last look. A slow server or a bad message
/// fails wherever it is; `None` when there is nothing to compare with.
pub fn trouble_of(ordinal: u32, before: &Failures, now: &Failures) -> Option<String> {
    let grown = |of: u32| {
        let (before, now) = (before.get(&of)?, now.get(&of)?);
        // One that began anew counts from nothing.
        Some(if now >= before { now - before } else { *now })
    };
    grown(ordinal).filter(|failures| *failures > 0)?;
    let mut others =
        now.keys().filter(|other| **other != ordinal).filter_map(|other| grown(*other)).peekable();
    others.peek()?;
    others.all(|failures| failures == 0).then(|| {
        format!("gateway {ordinal} fails to deliver (inserts, or messages that go to the dead letters), and no other one does")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_on_one_alone_is_its_trouble() {
        let of = |failures: [u64; 3]| (0..3).zip(failures).collect::<Failures>();
        for (before, now, is_trouble) in [
            ([0, 0, 0], [0, 0, 2], true),
            ([5, 5, 5], [5, 5, 5], false),
            ([0, 0, 0], [0, 1, 2], false),
            ([0, 0, 9], [0, 0, 1], true),
            ([0, 0, 9], [0, 1, 0], false),
        ] {
            assert_eq!(trouble_of(2, &of(before), &of(now)).is_some(), is_trouble, "{before:?} {now:?}");
        }
        let alone = |failures| [(2, failures)].into();
        assert_eq!(trouble_of(2, &alone(0), &alone(2)), None, "nobody to compare with");
        assert_eq!(trouble_of(2, &Failures::new(), &of([0, 0, 2])), None, "nothing to compare with");
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
