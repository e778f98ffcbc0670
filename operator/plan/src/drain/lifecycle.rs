//! Suspension and deletion of a pipeline: what happens to its gateways, its objects and its queue volumes.
//!
//! ```text
//!  Run --suspend--> Suspend: all gateways drain, and are removed ---> resumed: as many come back
//!  Run --delete---> Remove:  Immediate ........................................... finalizer removed
//!                            Drain: all gateways drain, until the limit ........... finalizer removed
//!                            Orphan: the objects lose their owner, until the limit  finalizer removed
//! ```
//!
//! The status has how far gateways are drained and how many there were; the metadata has when the pipeline was deleted. So an operator
//! that crashed continues from there. Pure: no clock.

use crate::{
    facts::Observed,
    ground::moment::Moment,
    observed::{ClaimSeen, VolumesSeen, WorkloadSeen},
    pipeline::{
        Intent,
        drain_terms::{self, Terms},
    },
};
use sluice_crds::{
    DeletionPolicy, DrainState, FINALIZER, QueueMode, ScalingMode, SuspensionStatus, TracePipeline,
};

/// The limit in seconds of a removal whose spec does not say one that can be read: the default of `scaling.drain.timeout`.
const REMOVAL_SECONDS: u32 = 900;

/// Seconds that a removal may take beyond its limit until no queue volume that is to stay goes with its StatefulSet. It takes two looks,
/// 4 s, when the API server answers; an API server that starts again, or an admission webhook that is away, is back by then. Chosen.
const RELEASE_SECONDS_MAX: u32 = 60;

/// Whether the pipeline is to be held by [`FINALIZER`].
pub fn needs_finalizer(pipeline: &TracePipeline) -> bool {
    pipeline.spec.deletion_policy != DeletionPolicy::Immediate
}

/// Whether the pipeline is held by [`FINALIZER`].
pub fn has_finalizer(pipeline: &TracePipeline) -> bool {
    pipeline.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// The terms of a drain; `None` when the spec has none that can be parsed.
///
/// When the pipeline is suspended or deleted, gateways are removed at the limit in any case: neither may wait for a `ClickHouse` that is
/// away. Volumes with rows that were not inserted stay. A deletion counts its limit from the deletion timestamp, not from the first
/// request to a gateway.
pub fn terms(pipeline: &TracePipeline) -> Option<Terms> {
    let terms = Terms::of(&pipeline.spec).ok();
    let on_timeout = drain_terms::leave_all_the_same(&pipeline.spec);
    match Intent::of(pipeline) {
        Intent::Run | Intent::LeaveAlone => terms,
        Intent::Suspend => terms.map(|terms| Terms { on_timeout, ..terms }),
        Intent::Remove => Some(Terms { timeout_seconds: u32::MAX, on_timeout }),
    }
}

/// The gateways that there are: as the StatefulSet has them, or those that are left without one, such as while it is made again for
/// larger volumes. These read on, so that a rest or a removal waits for them as for any other.
pub fn there(observed: &Observed) -> Option<WorkloadSeen> {
    let alone = |wanted| WorkloadSeen { wanted, replicas: wanted, ..WorkloadSeen::default() };
    observed.workload.clone().or_else(|| observed.volumes.left_alone.map(alone))
}

/// What is remembered of a suspension; `None` when there is nothing to come back from.
pub fn suspension(pipeline: &TracePipeline, workload: Option<&WorkloadSeen>) -> Option<SuspensionStatus> {
    let status = pipeline.status.as_ref();
    let written = status.and_then(|status| status.suspension);
    match Intent::of(pipeline) {
        Intent::Suspend => {
            let scaling = status.and_then(|status| status.scaling.as_ref());
            let drain = scaling.and_then(|scaling| scaling.drain.as_ref());
            // Gateways that are on their way out already are none that come back.
            let target = drain.filter(|drain| drain.state == DrainState::Draining).map(|drain| drain.target);
            let there = target.or_else(|| workload.map(|workload| workload.wanted)).unwrap_or(0);
            Some(written.unwrap_or(SuspensionStatus { replicas: there, ..SuspensionStatus::default() }))
        }
        Intent::LeaveAlone | Intent::Remove => written,
        Intent::Run => {
            let is_decided = match pipeline.spec.scaling.mode {
                ScalingMode::Fixed | ScalingMode::External => false,
                ScalingMode::Auto | ScalingMode::Recommend => pipeline.spec.replicas.is_none(),
            };
            let is_away = workload.is_none_or(|workload| workload.wanted == 0);
            written.filter(|written| is_decided && is_away && written.replicas > 0)
        }
    }
}

/// What is to be done with a pipeline that is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing: the pipeline does not have our finalizer.
    Free,
    /// Its gateways are to leave.
    Drain,
    /// Its objects are to lose their owner.
    Orphan,
    /// It may go, and what it owns with it.
    LetGo(LetGo),
}

/// Why a pipeline may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetGo {
    /// Nothing is to be done before.
    AtOnce,
    /// No gateway holds anything.
    Empty,
    /// No gateway is waited for any more, and not all of them have said that they hold nothing.
    Unproved,
    /// Its objects stay without it.
    Orphaned,
    /// What was to be done before took so many seconds.
    Late(u32),
}

/// Decides on a pipeline that is deleted; `workload` is what [`there`] is of it.
pub fn removal(now: Moment, pipeline: &TracePipeline, workload: Option<&WorkloadSeen>) -> Removal {
    let Some(deleted_at) = pipeline.metadata.deletion_timestamp.as_ref().filter(|_| has_finalizer(pipeline))
    else {
        return Removal::Free;
    };
    let limit = limit_seconds(pipeline);
    let is_late = now.seconds_since(Moment::of(deleted_at)) >= f64::from(limit);
    match (pipeline.spec.deletion_policy, workload) {
        (DeletionPolicy::Immediate, _) => Removal::LetGo(LetGo::AtOnce),
        (DeletionPolicy::Drain, None) => Removal::LetGo(LetGo::Empty),
        (DeletionPolicy::Drain | DeletionPolicy::Orphan, _) if is_late => Removal::LetGo(LetGo::Late(limit)),
        (DeletionPolicy::Drain, Some(_)) => Removal::Drain,
        (DeletionPolicy::Orphan, _) => Removal::Orphan,
    }
}

fn limit_seconds(pipeline: &TracePipeline) -> u32 {
    Terms::of(&pipeline.spec).map_or(REMOVAL_SECONDS, |terms| terms.timeout_seconds)
}

/// Whether nothing is waited for any more, not even that the volumes that are to stay do so.
pub fn is_past_waiting(now: Moment, pipeline: &TracePipeline) -> bool {
    let longest = limit_seconds(pipeline).saturating_add(RELEASE_SECONDS_MAX);
    let deleted_at = pipeline.metadata.deletion_timestamp.as_ref();
    deleted_at.is_some_and(|at| now.seconds_since(Moment::of(at)) >= f64::from(longest))
}

impl LetGo {
    /// A word for an event.
    pub fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "Deleted",
            Self::Empty => "Drained",
            Self::Unproved => "DrainIncomplete",
            Self::Orphaned => "Orphaned",
            Self::Late(_) => "DrainTimedOut",
        }
    }

    /// In words; `state` is what the status says of gateways on their way out, `kept` what becomes of the queue volumes. `has_kafka`: with
    /// `source.otlp`, what is on them is nowhere else.
    pub fn words(self, state: &str, kept: &KeptVolumes, has_kafka: bool) -> String {
        let kept = kept.words(has_kafka);
        match self {
            Self::AtOnce => format!("deletionPolicy is Immediate: the operator removes everything{kept}"),
            Self::Empty => format!("every gateway is empty: the operator removes everything{kept}"),
            Self::Unproved => format!(
                "no gateway is left to drain, and not all have confirmed that they are empty ({state}): the operator removes \
                 everything{kept}"
            ),
            Self::Orphaned => {
                "deletionPolicy is Orphan: the pipeline's objects stay, without an owner reference".to_owned()
            }
            Self::Late(seconds) => {
                let others = if has_kafka {
                    ". Other rows that gateways held can be read again only as far as Kafka still has them"
                } else {
                    ""
                };
                format!(
                    "the deletion took longer than {seconds} s ({state}): the operator removes everything{kept}{others}"
                )
            }
        }
    }
}

/// What happens to the queue volumes of a pipeline that is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptVolumes {
    /// There are none, or all of them were empty and go with it.
    None,
    /// They go with it, and nothing was checked, because `deletionPolicy` is Immediate.
    Unasked,
    /// They stay, as the spec says, and are empty.
    Empty,
    /// Those of these names stay, and may hold the only copy of rows.
    MayHold(Vec<String>),
}

/// Volumes that are named; the others are counted.
const NAMED_MAX: usize = 3;

impl KeptVolumes {
    /// From what the StatefulSet does with its claims when it goes, the gateways that said that they are empty, and the names of the
    /// claims that were deleted.
    pub fn of(
        pipeline: &TracePipeline,
        seen: &VolumesSeen,
        (empty, thrown_away): (&[u32], &[String]),
    ) -> Self {
        if pipeline.spec.queue.mode == QueueMode::Disabled {
            return Self::None;
        }
        let stays =
            |claim: &&ClaimSeen| claim.is_bound && !claim.is_going && !thrown_away.contains(&claim.name);
        let left: Vec<&ClaimSeen> = seen.claims.iter().filter(stays).collect();
        if left.is_empty() {
            return Self::None;
        }
        // A Job has drained those that are marked, unless a gateway has them again.
        let is_known =
            |claim: &ClaimSeen| empty.contains(&claim.ordinal) || (claim.is_drained && !claim.has_gateway);
        let keeps_none = seen.template.as_ref().is_some_and(|template| !template.keeps_deleted);
        if keeps_none || left.iter().any(|claim| claim.goes_with_workload && !is_known(claim)) {
            return Self::Unasked;
        }
        let may_hold = left.iter().filter(|claim| !is_known(claim));
        let named: Vec<String> = may_hold.map(|claim| claim.name.clone()).collect();
        if named.is_empty() { Self::Empty } else { Self::MayHold(named) }
    }

    fn words(&self, has_kafka: bool) -> String {
        match self {
            Self::None => String::new(),
            Self::Unasked if has_kafka => {
                ", also the queue volumes, which may hold rows that Kafka no longer has".to_owned()
            }
            Self::Unasked => {
                ", also the queue volumes, which may hold the only copy of requests and dead letters"
                    .to_owned()
            }
            Self::Empty => " except the queue volumes, which are empty".to_owned(),
            Self::MayHold(names) => {
                let first = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
                let others = names.len().saturating_sub(NAMED_MAX);
                let others = if others > 0 { format!(" and {others} more") } else { String::new() };
                let by_whom = if has_kafka {
                    "A pipeline of the same name uses them and inserts their rows, and so does `sluice-gateway drain`"
                } else {
                    "A pipeline of the same name with source.otlp uses them and inserts their rows"
                };
                format!(
                    " except the queue volumes {first}{others}, which may hold the only copy of rows that were not inserted. {by_whom}; \
                     if you do not need the rows, delete the claims"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::TemplateSeen;

    #[test]
    fn what_stays_behind_and_what_may_be_lost_is_said_as_it_is() {
        let pipeline: TracePipeline = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a"},
            "spec": {
                "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"]}},
                "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
            },
        }))
        .unwrap();
        let claims = (0..5).map(|ordinal| ClaimSeen {
            name: format!("queue-{ordinal}"),
            ordinal,
            is_bound: true,
            ..ClaimSeen::default()
        });
        let template = |keeps_deleted| Some(TemplateSeen { keeps_deleted, ..TemplateSeen::default() });
        let seen =
            VolumesSeen { template: template(true), claims: claims.collect(), ..VolumesSeen::default() };
        let names: Vec<String> = seen.claims.iter().map(|claim| claim.name.clone()).collect();
        let of =
            |empty: &[u32], thrown_away: &[String]| KeptVolumes::of(&pipeline, &seen, (empty, thrown_away));
        assert_eq!(of(&[], &names), KeptVolumes::None);
        assert_eq!(of(&[0, 1, 2, 3, 4], &[]), KeptVolumes::Empty);
        let kept = of(&[4], &[]);
        assert_eq!(kept, KeptVolumes::MayHold(names[..4].to_vec()));
        let mut drained = seen.clone();
        drained.claims[0].is_drained = true;
        assert_eq!(
            KeptVolumes::of(&pipeline, &drained, (&[4], &[])),
            KeptVolumes::MayHold(names[1..4].to_vec()),
            "a Job has emptied the first"
        );
        let late = LetGo::Late(900).words("gateway 0 holds 7 blocks", &kept, true);
        for words in [
            "queue-0, queue-1, queue-2 and 1 more, which may hold the only copy",
            "as far as Kafka still has",
        ] {
            assert!(late.contains(words), "{late}");
        }
        let of_otlp = LetGo::Late(900).words("gateway 0 holds 7 blocks", &kept, false);
        assert!(!of_otlp.contains("Kafka") && !of_otlp.contains("sluice-gateway drain"), "{of_otlp}");
        let unasked = VolumesSeen { template: template(false), ..seen.clone() };
        let words = LetGo::AtOnce.words("", &KeptVolumes::of(&pipeline, &unasked, (&[], &[])), true);
        assert!(words.ends_with("which may hold rows that Kafka no longer has"), "{words}");
        let mut owned = seen.clone();
        owned.claims[2].goes_with_workload = true;
        assert_eq!(
            KeptVolumes::of(&pipeline, &owned, (&[], &[])),
            KeptVolumes::Unasked,
            "one goes all the same"
        );
        assert_eq!(KeptVolumes::of(&pipeline, &owned, (&[0, 1, 2, 3, 4], &[])), KeptVolumes::Empty);
    }
}
