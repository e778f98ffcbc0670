//! What a pipeline is meant to do as a whole, before its size is looked at: run, rest, be left alone, or go.
//!
//! ```text
//!  Run --suspend--> Suspend: all gateways leave (scale::drain), and are taken away ---> resumed: as many come back
//!  Run --delete---> Remove:  Immediate .......................................... let go
//!                            Drain: all gateways leave, until the limit .......... let go
//!                            Orphan: the objects lose their owner, until the limit let go
//! ```
//!
//! Nothing in here is remembered by the operator: how far gateways are on their way out and how many there were stands in the
//! status, since when a pipeline is deleted in its metadata. Whoever starts after a crash goes on from there. Pure: no clock.

use crate::{
    TemplateSeen, WorkloadSeen,
    scale::{
        Moment,
        drain::{self, Terms},
    },
};
use sluice_crds::{
    Commit, DeletionPolicy, DrainState, FINALIZER, ManagementState, QueueMode, ScalingMode, SuspensionStatus,
    TracePipeline,
};

/// The limit in seconds of a removal whose spec does not say one that can be read: the default of `scaling.drain.timeout`.
const REMOVAL_SECONDS: u32 = 900;

/// What a pipeline is meant to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// As the spec says.
    Run,
    /// To have no gateways, and to keep everything else.
    Suspend,
    /// To stay as it is, whatever the spec says.
    LeaveAlone,
    /// To go.
    Remove,
}

impl Intent {
    /// Reads it off the pipeline. To be left alone goes before being suspended, to be deleted before both.
    pub fn of(pipeline: &TracePipeline) -> Self {
        match (&pipeline.metadata.deletion_timestamp, pipeline.spec.management_state) {
            (Some(_), _) => Self::Remove,
            (None, ManagementState::Unmanaged) => Self::LeaveAlone,
            (None, ManagementState::Managed) if pipeline.spec.suspend => Self::Suspend,
            (None, ManagementState::Managed) => Self::Run,
        }
    }
}

/// Whether the pipeline is to be held by [`FINALIZER`].
pub fn needs_finalizer(pipeline: &TracePipeline) -> bool {
    pipeline.spec.deletion_policy != DeletionPolicy::Immediate
}

/// Whether the pipeline is held by [`FINALIZER`].
pub fn has_finalizer(pipeline: &TracePipeline) -> bool {
    pipeline.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// On which terms gateways leave; `None` when the spec says none that can be read.
///
/// Who leaves for good does so at the limit all the same, since neither a rest nor a removal may wait for a `ClickHouse` that is
/// away: Kafka still has what was not inserted, or the volumes that have it stay. A removal counts its limit from the deletion on, not
/// from the first gateway that was told.
pub fn terms(pipeline: &TracePipeline) -> Option<Terms> {
    let terms = Terms::of(&pipeline.spec).ok();
    let on_timeout = drain::leave_all_the_same(&pipeline.spec);
    match Intent::of(pipeline) {
        Intent::Run | Intent::LeaveAlone => terms,
        Intent::Suspend => terms.map(|terms| Terms { on_timeout, ..terms }),
        Intent::Remove => Some(Terms { timeout_seconds: u32::MAX, on_timeout }),
    }
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
            Some(written.unwrap_or(SuspensionStatus { replicas: there }))
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
    /// Nothing: we do not hold it.
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
    /// Nobody wants anything done before.
    AtOnce,
    /// No gateway holds anything.
    Empty,
    /// Its objects stay without it.
    Orphaned,
    /// What was to be done before took so many seconds.
    Late(u32),
}

/// Decides on a pipeline that is deleted.
pub fn removal(now: Moment, pipeline: &TracePipeline, workload: Option<&WorkloadSeen>) -> Removal {
    let Some(deleted_at) = pipeline.metadata.deletion_timestamp.as_ref().filter(|_| has_finalizer(pipeline))
    else {
        return Removal::Free;
    };
    let limit = Terms::of(&pipeline.spec).map_or(REMOVAL_SECONDS, |terms| terms.timeout_seconds);
    let is_late = now.seconds_since(drain::moment(deleted_at)) >= f64::from(limit);
    match (pipeline.spec.deletion_policy, workload) {
        (DeletionPolicy::Immediate, _) => Removal::LetGo(LetGo::AtOnce),
        (DeletionPolicy::Drain, None) => Removal::LetGo(LetGo::Empty),
        (DeletionPolicy::Drain | DeletionPolicy::Orphan, _) if is_late => Removal::LetGo(LetGo::Late(limit)),
        (DeletionPolicy::Drain, Some(_)) => Removal::Drain,
        (DeletionPolicy::Orphan, _) => Removal::Orphan,
    }
}

impl LetGo {
    /// A word for an event.
    pub fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "Deleted",
            Self::Empty => "Drained",
            Self::Orphaned => "Orphaned",
            Self::Late(_) => "DrainTimedOut",
        }
    }

    /// In words; `state` is what the status says of gateways on their way out, `kept` what becomes of the queue volumes.
    pub fn words(self, state: &str, kept: KeptVolumes) -> String {
        match self {
            Self::AtOnce => format!("deletionPolicy is Immediate: everything is removed{}", kept.words()),
            Self::Empty => {
                format!("no gateway holds anything any more: everything is removed{}", kept.words())
            }
            Self::Orphaned => {
                "deletionPolicy is Orphan: the pipeline's objects stay and belong to nobody".to_owned()
            }
            Self::Late(seconds) => format!(
                "what was to be done first took longer than {seconds} s ({state}): everything is removed all the same{}",
                match kept {
                    KeptVolumes::None | KeptVolumes::Copies => format!(
                        "{}. Offsets are committed after the insert, so that Kafka still has what was not inserted",
                        kept.words()
                    ),
                    KeptVolumes::OnlyCopies => kept.words().to_owned(),
                }
            ),
        }
    }
}

/// What becomes of the queue volumes of a pipeline that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptVolumes {
    /// They go with it, or there are none.
    None,
    /// They stay; Kafka has what is on them.
    Copies,
    /// They stay, and may hold the only copy of rows.
    OnlyCopies,
}

impl KeptVolumes {
    /// From the spec, and what the StatefulSet does with its claims when it goes: that alone decides, whatever the spec has come to ask
    /// for. `None` without a StatefulSet: then what is there stays.
    pub fn of(pipeline: &TracePipeline, template: Option<&TemplateSeen>) -> Self {
        let spec = &pipeline.spec;
        if spec.queue.mode == QueueMode::Disabled || template.is_some_and(|template| !template.keeps_deleted)
        {
            return Self::None;
        }
        // Those that were all kept may have been filled while what is on them was committed.
        let keeps_all = template.is_none_or(|template| template.keeps_all);
        if spec.delivery.commit == Commit::AfterEnqueue || keeps_all {
            Self::OnlyCopies
        } else {
            Self::Copies
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Copies => " but the queue volumes",
            Self::OnlyCopies => {
                " but the queue volumes, which may hold the only copy of rows that were not inserted. A pipeline of the same name \
                 takes them and inserts what is on them, and so does `sluice-gateway drain`; when nothing is wanted of them their \
                 claims are to be deleted by hand"
            }
        }
    }
}
