//! The scaling status. Numbers are rounded, and a learned number replaces the written one only when it differs noticeably. So a steady
//! pipeline causes no writes.

use crate::{
    facts::ScalingSeen,
    scale::{Decision, Figures},
};
use sluice_crds::{DrainStatus, ScalingMode, ScalingStatus, TracePipelineStatus};

/// The scaling status; `None` where nothing is decided and no gateway drains. `resized` describes memory that gateways got in place.
pub(super) fn scaling(
    mode: ScalingMode,
    (before, resized): (Option<&ScalingStatus>, Option<&str>),
    seen: &ScalingSeen,
) -> Option<ScalingStatus> {
    let decides = matches!(mode, ScalingMode::Auto | ScalingMode::Recommend);
    let said = match &seen.decision {
        Some(decision) if decides => Some(decided(before.cloned().unwrap_or_default(), decision, resized)),
        // Nothing was decided yet: what an earlier operator said still holds.
        None if decides => before.cloned(),
        _ => None,
    };
    with_drain(said, seen.drain.as_ref())
}

/// The status for the operator's metrics: with arrival rate, lag and cause also in modes without a decision, and while the decision is
/// held. These numbers are not written to the status, since that would be a write a minute.
pub fn told(said: &TracePipelineStatus, seen: &ScalingSeen) -> TracePipelineStatus {
    let mut told = said.clone();
    if let Some(watched) = &seen.watched {
        let scaling = told.scaling.get_or_insert_default();
        scaling.arrival_rate = Some(rounded(watched.arrival_rate));
        scaling.lag_seconds = Some(rounded(watched.lag_seconds));
        scaling.cause = Some(watched.cause.word().to_owned());
    }
    told
}

/// The scaling status with the drain; `None` where both are empty. An empty object must not be written: where all of the fields that
/// server-side apply owned below it are gone, the API server makes `null` of it, and refuses the whole status.
pub(super) fn with_drain(said: Option<ScalingStatus>, drain: Option<&DrainStatus>) -> Option<ScalingStatus> {
    let all = ScalingStatus { drain: drain.cloned(), ..said.unwrap_or_default() };
    Some(all).filter(|all| *all != ScalingStatus::default())
}

fn decided(before: ScalingStatus, decision: &Decision, resized: Option<&str>) -> ScalingStatus {
    let figures = decision.figures.as_ref();
    let figure = |of: fn(&Figures) -> f64| figures.map(|figures| rounded(of(figures)));
    let rescaled = decision.next.rescales.last().map(|at| at.time());
    ScalingStatus {
        recommended_replicas: Some(decision.recommended),
        cause: Some(decision.cause.word().to_owned()),
        held: decision.hold.map(|hold| hold.word().to_owned()),
        limited: decision.limited.map(|limit| limit.word().to_owned()),
        reason: joined(&decision.reason, resized),
        arrival_rate: figure(|figures| figures.arrival_rate),
        lag_seconds: figure(|figures| figures.lag_seconds),
        capacity_per_replica: decision.next.capacity.map(rounded),
        next_steps: figures.map_or_else(Vec::new, |figures| figures.next_steps.clone()),
        // A rescale is forgotten after an hour, the time of the last one is not.
        last_rescale_time: rescaled.or(before.last_rescale_time),
        drain: None,
        remembered: decision.next.remembered(&before.remembered),
    }
}

/// A sentence with what was done about memory behind it.
pub(super) fn joined(words: &str, resized: Option<&str>) -> String {
    resized.map_or_else(|| words.to_owned(), |resized| format!("{words}; {resized}"))
}

/// Two significant digits of a number that is not negative.
#[expect(clippy::cast_possible_truncation, reason = "a float is cut off at the bounds of the integer")]
fn rounded(number: f64) -> i64 {
    let whole = number.round() as i64;
    let mut unit = 1;
    while whole / unit >= 100 {
        unit *= 10;
    }
    whole / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ground::moment::Moment,
        scale::{Cause, State, Watched},
    };

    fn decision() -> Decision {
        let figures = Figures { arrival_rate: 12_345.0, lag_seconds: 3.4, ..Figures::default() };
        Decision {
            replicas: 3,
            recommended: 4,
            cause: Cause::SinkLimited,
            hold: None,
            limited: None,
            figures: Some(figures),
            reason: "so it is".into(),
            next: State { capacity: Some(10_234.0), rescales: vec![Moment(5_000)], ..State::default() },
        }
    }

    #[test]
    fn a_decision_is_said_in_rounded_numbers_and_once() {
        let seen = ScalingSeen { decision: Some(decision()), ..ScalingSeen::default() };
        let said = scaling(ScalingMode::Auto, (None, None), &seen).unwrap();
        assert_eq!((said.recommended_replicas, said.cause.as_deref()), (Some(4), Some("SinkLimited")));
        assert_eq!(
            (said.arrival_rate, said.lag_seconds, said.capacity_per_replica),
            (Some(12_000), Some(3), Some(10_000))
        );
        let later = State { capacity: Some(10_240.0), rescales: Vec::new(), ..decision().next };
        let later =
            ScalingSeen { decision: Some(Decision { next: later, ..decision() }), ..ScalingSeen::default() };
        assert_eq!(
            scaling(ScalingMode::Auto, (Some(&said), None), &later),
            Some(said.clone()),
            "an hour later"
        );
        let given =
            scaling(ScalingMode::Auto, (Some(&said), Some("a-0 was resized to 1Mi")), &later).unwrap();
        assert_eq!(given.reason, "so it is; a-0 was resized to 1Mi");
    }

    #[test]
    fn an_empty_object_is_never_said() {
        assert_eq!(
            with_drain(Some(ScalingStatus::default()), None),
            None,
            "all that was said is that somebody left"
        );
        assert_eq!(
            scaling(ScalingMode::Auto, (Some(&ScalingStatus::default()), None), &ScalingSeen::default()),
            None
        );
        let said = ScalingStatus { cause: Some("SinkLimited".into()), ..ScalingStatus::default() };
        assert_eq!(with_drain(Some(said.clone()), None), Some(said));
    }

    #[test]
    fn prometheus_is_told_in_every_mode_and_the_status_is_not() {
        let watched = Watched { arrival_rate: 12_345.0, lag_seconds: 4_000.0, cause: Cause::SinkLimited };
        let seen = ScalingSeen { watched: Some(watched), ..ScalingSeen::default() };
        assert_eq!(scaling(ScalingMode::Fixed, (None, None), &seen), None);
        let told = told(&TracePipelineStatus::default(), &seen).scaling.unwrap();
        assert_eq!(
            (told.arrival_rate, told.lag_seconds, told.cause.as_deref(), told.recommended_replicas),
            (Some(12_000), Some(4_000), Some("SinkLimited"), None)
        );
        let nothing = super::told(&TracePipelineStatus::default(), &ScalingSeen::default());
        assert_eq!(nothing, TracePipelineStatus::default());
    }

    #[test]
    fn nothing_is_said_where_nothing_is_decided() {
        let seen = ScalingSeen { decision: Some(decision()), ..ScalingSeen::default() };
        let said = scaling(ScalingMode::Recommend, (None, None), &seen).unwrap();
        for mode in [ScalingMode::Fixed, ScalingMode::External] {
            assert_eq!(scaling(mode, (Some(&said), None), &seen), None);
        }
        let later = scaling(ScalingMode::Auto, (Some(&said), Some("once")), &ScalingSeen::default());
        assert_eq!(later, Some(said), "what was said holds, with what it said of memory");
    }
}
