//! The scaling status. Measured numbers are written in steps ([`coarse`]), and a learned number that is remembered is replaced only when it
//! differs noticeably. So a steady pipeline causes no writes.

use super::coarse;
use crate::{
    facts::ScalingSeen,
    scale::{Cause, Decision},
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
/// held. These numbers are not written to the status, because the operator would then write each status once a minute.
pub fn for_metrics(said: &TracePipelineStatus, seen: &ScalingSeen) -> TracePipelineStatus {
    let mut exact = said.clone();
    if let Some(watched) = &seen.watched {
        let scaling = exact.scaling.get_or_insert_default();
        scaling.arrival_rate = Some(coarse::whole(watched.arrival_rate));
        scaling.lag_seconds = Some(coarse::whole(watched.lag_seconds));
        scaling.cause = Some(watched.cause.word().to_owned());
    }
    // The status has it in steps.
    let learned = seen.decision.as_ref().and_then(|decision| decision.next.capacity);
    if let (Some(scaling), Some(learned)) = (&mut exact.scaling, learned)
        && scaling.capacity_per_replica.is_some()
    {
        scaling.capacity_per_replica = Some(coarse::whole(learned));
    }
    exact
}

/// The scaling status with the drain; `None` where both are empty. An empty object must not be written: where all of the fields that
/// server-side apply owned below it are gone, the API server makes `null` of it, and refuses the whole status.
pub(super) fn with_drain(said: Option<ScalingStatus>, drain: Option<&DrainStatus>) -> Option<ScalingStatus> {
    let all = ScalingStatus { drain: drain.cloned(), ..said.unwrap_or_default() };
    Some(all).filter(|all| *all != ScalingStatus::default())
}

fn decided(before: ScalingStatus, decision: &Decision, resized: Option<&str>) -> ScalingStatus {
    let figures = decision.figures.as_ref();
    let rescaled = decision.next.rescales.last().map(|at| at.time());
    ScalingStatus {
        recommended_replicas: Some(decision.recommended),
        cause: cause(decision).map(str::to_owned),
        held: decision.hold.map(|hold| hold.word().to_owned()),
        limited: decision.limited.map(|limit| limit.word().to_owned()),
        reason: coarse::reason(&before.reason, joined(&decision.reason, resized)),
        arrival_rate: figures.map(|figures| coarse::rate(before.arrival_rate, figures.arrival_rate)),
        lag_seconds: figures.map(|figures| coarse::seconds(before.lag_seconds, figures.lag_seconds)),
        capacity_per_replica: decision
            .next
            .capacity
            .map(|now| coarse::rate(before.capacity_per_replica, now)),
        next_steps: figures.map_or_else(Vec::new, |figures| figures.next_steps.clone()),
        // A rescale is forgotten after an hour, the time of the last one is not.
        last_rescale_time: rescaled.or(before.last_rescale_time),
        drain: None,
        remembered: decision.next.remembered(&before.remembered),
    }
}

/// What limits; `None` where that is only supposed: the gateways' work limits once it is known how much one gateway can do.
fn cause(decision: &Decision) -> Option<&'static str> {
    let is_measured = decision.figures.as_ref().is_none_or(|figures| figures.capacity.is_some());
    (is_measured || decision.cause != Cause::ComputeLimited).then(|| decision.cause.word())
}

/// A sentence with what was done about memory behind it.
pub(super) fn joined(words: &str, resized: Option<&str>) -> String {
    resized.map_or_else(|| words.to_owned(), |resized| format!("{words}; {resized}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ground::moment::Moment,
        scale::{Figures, State, Watched},
    };
    use proptest::prelude::*;

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
    fn a_cause_is_said_when_it_is_known_what_a_gateway_can_do() {
        let of = |cause, capacity| {
            let figures = Some(Figures { capacity, ..Figures::default() });
            let seen = ScalingSeen {
                decision: Some(Decision { cause, figures, ..decision() }),
                ..ScalingSeen::default()
            };
            scaling(ScalingMode::Auto, (None, None), &seen).unwrap().cause
        };
        assert_eq!(of(Cause::ComputeLimited, None), None);
        assert_eq!(of(Cause::ComputeLimited, Some(900.0)).as_deref(), Some("ComputeLimited"));
        assert_eq!(of(Cause::SinkLimited, None).as_deref(), Some("SinkLimited"));
    }

    /// A decision for so many messages a second, with a reason as `scale` words it.
    fn decided_for(arrival: f64, capacity: f64, lag_seconds: f64) -> ScalingSeen {
        let figures = Figures { arrival_rate: arrival, lag_seconds, ..Figures::default() };
        let lag = arrival * lag_seconds;
        let reason = format!(
            "{:.1} k messages/s at 76 % of {:.1} k per gateway and a lag of {:.1} k ({lag_seconds:.0} s) need 4; stays at 4",
            arrival / 1e3,
            capacity / 1e3,
            lag / 1e3
        );
        let next = State { capacity: Some(capacity), ..State::default() };
        let decision = Decision { figures: Some(figures), reason, next, ..decision() };
        ScalingSeen { decision: Some(decision), ..ScalingSeen::default() }
    }

    proptest! {
        #[test]
        fn a_sample_that_differs_by_less_than_a_twentieth_changes_nothing(
            arrival in 2e3f64..9e8, capacity in 2e3f64..9e8, lag in 2.0f64..1e5,
            by in -0.049f64..0.049, and_by in -0.049f64..0.049,
        ) {
            let said = scaling(ScalingMode::Auto, (None, None), &decided_for(arrival, capacity, lag)).unwrap();
            let later = decided_for(arrival * (1.0 + by), capacity * (1.0 + and_by), lag * (1.0 - by));
            let again = scaling(ScalingMode::Auto, (Some(&said), None), &later).unwrap();
            prop_assert_eq!(again, said);
        }
    }

    #[test]
    fn metrics_have_the_capacity_as_it_is() {
        let said = scaling(ScalingMode::Auto, (None, None), &decided_for(9e3, 10e3, 5.0)).unwrap();
        let later = decided_for(9e3, 11e3, 5.0);
        let again = scaling(ScalingMode::Auto, (Some(&said), None), &later).unwrap();
        assert_eq!(again.capacity_per_replica, Some(10_000));
        let all = TracePipelineStatus { scaling: Some(again), ..TracePipelineStatus::default() };
        assert_eq!(for_metrics(&all, &later).scaling.unwrap().capacity_per_replica, Some(11_000));
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
        let exact = for_metrics(&TracePipelineStatus::default(), &seen).scaling.unwrap();
        assert_eq!(
            (exact.arrival_rate, exact.lag_seconds, exact.cause.as_deref(), exact.recommended_replicas),
            (Some(12_000), Some(4_000), Some("SinkLimited"), None)
        );
        let nothing = for_metrics(&TracePipelineStatus::default(), &ScalingSeen::default());
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
