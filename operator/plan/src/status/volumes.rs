//! The conditions and messages about queue volumes: their size, and whether a volume without a gateway may hold rows.

use super::{
    progress::{Progress, moving},
    verdict::Verdict,
};
use crate::{
    drain::lifecycle,
    facts::Observed,
    ground::words::{form, plural},
    observed::{ClaimSeen, DrainJobSeen, DrainJobState, PodSeen, StorageClassSeen},
    pipeline::Intent,
    planned::Plan,
    volumes::{
        GrowthState,
        growth::is_small,
        orphans::{is_refused, left},
        replacement::{is_to_be_replaced, needs_class, outdated},
        zone_loss::{self, OutOfReach},
    },
};
use sluice_crds::{OnZoneLoss, QueueMode, Retention, TracePipeline, VolumesStatus, status::reason};
use std::time::Duration;

/// A pod that has not ended for so long after its time is on a node that does not say so. Chosen, as for what is said of such a pod.
const ENDS_LATE: Duration = Duration::from_mins(1);

/// How many there are and how far they are; `None` when the spec wants none. `coming` is how many gateways are about to be there.
pub(super) fn volumes(pipeline: &TracePipeline, observed: &Observed, coming: u32) -> Option<VolumesStatus> {
    let queue = &pipeline.spec.queue;
    if queue.mode == QueueMode::Disabled {
        return None;
    }
    let claims = || observed.volumes.claims.iter().filter(|claim| !claim.is_going);
    let is_pending = |claim: &&ClaimSeen| {
        is_small(claim, &queue.size) || claim.has_gateway && is_to_be_replaced(claim, queue)
    };
    let small = claims().filter(is_pending).count();
    let drained = claims().filter(|claim| claim.is_drained && !claim.has_gateway).count();
    Some(VolumesStatus {
        desired: queue.size.clone(),
        resized: number(claims().count() - small),
        pending: number(small),
        drained: number(drained),
        orphaned: number(orphaned(pipeline, observed, coming).count()),
        replacing: observed.volumes.replacing.clone(),
        cache_since: None,
    })
}

/// Whether every volume has its size.
pub(super) fn resized(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    let size = &pipeline.spec.queue.size;
    let Some(counted) = volumes(pipeline, observed, 0) else {
        return Verdict::yes(reason::UP_TO_DATE, "there are no queue volumes: queue.mode is Disabled");
    };
    if let Some(message) = not_expandable(pipeline, observed) {
        return Verdict::no(reason::NOT_EXPANDABLE, message);
    }
    if let Some(message) = class_missing(pipeline, observed) {
        return Verdict::no(reason::STORAGE_CLASS_MISSING, message);
    }
    if let Some(message) = replaced(pipeline, observed) {
        return Verdict::no(reason::REPLACING, message);
    }
    if counted.pending == 0 {
        return Verdict::yes(reason::UP_TO_DATE, have(counted.resized, &format!("{size} or more")));
    }
    let mut small = observed.volumes.claims.iter().filter(|claim| !claim.is_going && is_small(claim, size));
    if small.all(|claim| claim.waits_for_file_system) {
        let message = format!("{}, and its file system not yet", have(counted.pending, "grown"));
        return Verdict::no(reason::FILE_SYSTEM_RESIZE_PENDING, message);
    }
    Verdict::no(reason::RESIZING, grown(&counted, observed))
}

/// Whether no volume without a gateway may hold something. `coming` is how many gateways are about to be there.
pub(super) fn drained(pipeline: &TracePipeline, observed: &Observed, coming: u32) -> Verdict {
    if let Some(message) = deleted(pipeline, observed) {
        return Verdict::no(reason::CLAIM_DELETED, message);
    }
    let left: Vec<&ClaimSeen> = orphaned(pipeline, observed, coming).collect();
    if left.is_empty() {
        if let Some(message) = not_deleted(pipeline, observed) {
            return Verdict::yes(reason::NOT_DELETED, message);
        }
        return with_their_gateways(pipeline, observed);
    }
    let failed = left.iter().filter_map(|claim| {
        let mut jobs = observed.volumes.jobs.iter().filter(|job| job.claim_uid == claim.uid);
        jobs.find_map(failure).map(|message| (*claim, message))
    });
    let failed: Vec<(&ClaimSeen, &str)> = failed.collect();
    let count = left.len();
    if Intent::of(pipeline) == Intent::Suspend {
        let message = format!(
            "Jobs drain {} without a gateway when the pipeline resumes",
            plural(count, "queue volume")
        );
        return Verdict::no(reason::DRAINING, message);
    }
    if let Some(message) = not_drained(pipeline, &failed, count) {
        return Verdict::no(reason::DRAIN_FAILED, message);
    }
    let stuck = observed.volumes.jobs.iter().find_map(|job| Some((&job.name, job.not_started.as_ref()?)));
    let stuck = stuck.map_or_else(String::new, |(job, why)| format!("; the Job {job} does not start: {why}"));
    let volumes = plural(count, "queue volume");
    Verdict::no(reason::DRAINING, format!("Jobs drain {volumes} without a gateway{stuck}"))
}

/// The message about volumes that Jobs could not drain, of so many without a gateway; `None` without such a volume.
fn not_drained(pipeline: &TracePipeline, failed: &[(&ClaimSeen, &str)], count: usize) -> Option<String> {
    let (claim, message) = failed.first()?;
    let (others, of) = match failed.len() {
        1 => (String::new(), "one".to_owned()),
        all => (format!(" and {} more", all - 1), all.to_string()),
    };
    // No Job inserts what is in logs: the gateways of these volumes do, once there are so many. Damage and dead letters need a person.
    let gateways = failed.iter().map(|(claim, _)| claim.ordinal.saturating_add(1)).max().unwrap_or(1);
    let remedy = match &pipeline.spec.source.otlp {
        Some(_) => format!(
            ". To insert or read what is on it, run {} (replicas, or scaling.minReplicas in Auto). To give it up, kubectl delete pvc {} -n {}: \
             requests that are not inserted, dead letters and damaged segments on this volume are lost then",
            plural(gateways, "gateway"),
            claim.name,
            pipeline.metadata.namespace.as_deref().unwrap_or("default")
        ),
        None => String::new(),
    };
    Some(format!(
        "{}{others} could not be drained ({of} of {} without a gateway); the operator tries again: {message}{remedy}",
        claim.name,
        plural(count, "queue volume")
    ))
}

/// Every queue volume that may hold blocks belongs to a gateway, which may be suspended.
fn with_their_gateways(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    let rests = Intent::of(pipeline) == Intent::Suspend
        && observed.workload.as_ref().is_some_and(|workload| workload.wanted == 0);
    let suspension = pipeline.status.as_ref().and_then(|status| status.suspension).filter(|_| rests);
    let Some(suspension) = suspension else {
        return Verdict::yes(reason::OK, "every queue volume that may hold blocks has a gateway");
    };
    let claims = observed.volumes.claims.iter();
    let waiting = claims.filter(|claim| claim.is_bound && !claim.is_drained && !claim.is_going).count();
    if suspension.is_empty || waiting == 0 {
        return Verdict::yes(
            reason::OK,
            "every gateway had inserted what it held before the suspension removed it",
        );
    }
    let volumes = plural(waiting, "queue volume");
    Verdict::no(
        reason::DRAINING,
        format!(
            "{volumes} may hold blocks: it is not known of every gateway that it was empty when the suspension removed it. The gateways \
             insert the blocks when the pipeline resumes"
        ),
    )
}

/// The message about claims in use that another client deleted. Kubernetes keeps each until its pod has ended; on a lost node that never
/// happens. `None` without such a claim.
fn deleted(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let volumes = &observed.volumes;
    let is_replaced = |claim: &ClaimSeen| {
        volumes.replacing.as_ref().is_some_and(|replaced| replaced.gateway == claim.ordinal)
    };
    let is_lost = |claim: &&ClaimSeen| claim.is_deleted && claim.has_gateway && !is_replaced(claim);
    let mut lost = volumes.claims.iter().filter(is_lost);
    let claim = lost.next()?;
    let others = match lost.count() {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let pod = volumes.holders.iter().find(|holder| holder.ordinal == claim.ordinal);
    let is_late = pod.and_then(|pod| pod.late_for).is_some_and(|late| late >= ENDS_LATE);
    let pod = pod.map_or("its gateway", |pod| &pod.name);
    let volume = claim.volume.as_deref().unwrap_or("NAME");
    let keep = if pipeline.spec.has_only_copies_on_volumes() {
        format!(
            "it may be the only copy of rows: to keep it, first kubectl patch pv {volume} -p \
             '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'"
        )
    } else {
        "Kafka has what is on it".to_owned()
    };
    let then = if is_late {
        format!("{pod} had to end and has not: where its node is off and does not come back, delete the node")
    } else {
        format!("for a new volume, kubectl delete pod {pod}")
    };
    Some(format!(
        "the claim {}{others} was deleted; it goes, with its volume, once {pod} has ended. {keep}; {then}",
        claim.name
    ))
}

/// That drained volumes stay which are to be deleted; `None` where there is none.
fn not_deleted(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let is_meant = pipeline.spec.queue.retention_policy.when_scaled == Retention::Delete;
    let stays = |claim: &&ClaimSeen| is_refused(claim) && !claim.has_gateway && !claim.is_going;
    let kept: Vec<&ClaimSeen> = observed.volumes.claims.iter().filter(stays).filter(|_| is_meant).collect();
    let refusal = kept.first()?.not_deleted.as_ref()?;
    Some(format!(
        "every queue volume that may hold blocks has a gateway; {} {}, because the API server refuses to delete their \
         claims: {refusal}; grant delete of persistentvolumeclaims (chart value volumes.delete), delete them by hand, or set \
         queue.retentionPolicy.whenScaled to Retain",
        plural(kept.len(), "empty volume"),
        form(kept.len(), "stays", "stay")
    ))
}

/// The operator recreates the StatefulSet for larger volumes.
pub(super) fn made_anew(plan: &Plan, observed: &Observed) -> Option<Progress> {
    let is_between = observed.workload.is_none() && observed.volumes.left_alone.is_some();
    let is_begun = plan
        .growth()
        .is_some_and(|growth| matches!(growth.state, GrowthState::Recreate | GrowthState::Recreating));
    (is_between || is_begun).then(|| {
        moving(reason::RESIZING_VOLUMES, "the operator recreates the StatefulSet; its gateways keep running")
    })
}

/// Gateways that the nodes which reach their volumes do not take: such as those of a zone or a machine that is gone. Kubernetes waits for
/// ever; what to do depends on what is on the volume.
pub(super) fn out_of_reach(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    let mut kept = zone_loss::out_of_reach(observed);
    let OutOfReach { pod, claim } = kept.next()?;
    let others = match kept.count() {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let volume = claim.volume.as_deref().unwrap_or("that is gone");
    let node = claim.selected_node.as_ref();
    let made_for = node.map_or_else(String::new, |node| format!(", made for the node {node},"));
    let when_gone = when_gone(pipeline, observed, pod, claim);
    let message = format!(
        "{}{others}: unschedulable, because no node that reaches the volume {volume} of its claim {}{made_for} takes it. Bring back such \
         a node, or free resources on it. {when_gone}. The scheduler says: {}",
        pod.name,
        claim.name,
        pod.trouble.as_deref().unwrap_or_default()
    );
    let (ready, reconciling) = (reason::VOLUME_OUT_OF_REACH, reason::WAITING);
    Some(Progress::Held { ready, reconciling, message })
}

/// What becomes of a volume that no node reaches, or what a person can do.
fn when_gone(pipeline: &TracePipeline, observed: &Observed, pod: &PodSeen, claim: &ClaimSeen) -> String {
    let by_hand = if pipeline.spec.has_only_copies_on_volumes() {
        "The volume may hold the only copy of rows: if you delete its claim, they are lost".to_owned()
    } else {
        format!(
            "If it is gone for good, recreate claim and pod: kubectl delete pvc {} && kubectl delete pod {}. Kafka still has the rows of \
             the volume, unless retention deleted them (kubectl sluice lag) or AfterEnqueue committed them earlier",
            claim.name, pod.name
        )
    };
    let refusal = observed.volumes.not_replaced.as_ref();
    match (pipeline.spec.queue.on_zone_loss.unwrap_or_default(), zone_loss::due(pipeline, observed, pod)) {
        (OnZoneLoss::Wait, _) => by_hand,
        (OnZoneLoss::Recreate, Ok(_)) if refusal.is_some() => format!(
            "The operator cannot recreate it (queue.onZoneLoss), because the API server refuses to delete its claim: {}. {by_hand}",
            refusal.map_or("", String::as_str)
        ),
        (OnZoneLoss::Recreate, Ok(at)) => {
            format!(
                "Kafka has the rows of the volume; the operator recreates it at {at} unless a node takes the pod before \
                 (queue.onZoneLoss)"
            )
        }
        (OnZoneLoss::Recreate, Err(why)) => {
            format!("The operator does not recreate it (queue.onZoneLoss): {why}. {by_hand}")
        }
    }
}

/// A gateway gets a new volume, and is not ready meanwhile.
pub(super) fn replacing(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    observed.volumes.replacing.as_ref()?;
    Some(moving(reason::RESIZING_VOLUMES, replaced(pipeline, observed)?))
}

/// Gateways run as planned, and their volumes are not as large yet.
pub(super) fn growing(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Option<Progress> {
    let growth = plan.growth()?;
    if let Some(message) = not_expandable(pipeline, observed) {
        return Some(Progress::Refused { reason: reason::NOT_EXPANDABLE, message });
    }
    if let Some(message) = class_missing(pipeline, observed) {
        let (ready, reconciling) = (reason::STORAGE_CLASS_MISSING, reason::WAITING);
        return Some(Progress::Held { ready, reconciling, message });
    }
    if let Some(message) = replaced(pipeline, observed) {
        return Some(moving(reason::RESIZING_VOLUMES, message));
    }
    let counted = volumes(pipeline, observed, 0)?;
    let is_at_it = counted.pending > 0 || matches!(growth.state, GrowthState::Ask(_) | GrowthState::Later);
    is_at_it.then(|| moving(reason::RESIZING_VOLUMES, grown(&counted, observed)))
}

/// There is nothing to make new volumes from.
fn class_missing(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let queue = &pipeline.spec.queue;
    let is_missing =
        observed.storage_class == StorageClassSeen::Missing && needs_class(queue, &observed.volumes);
    let class = queue.storage_class_name.as_ref().filter(|_| is_missing)?;
    Some(format!(
        "queue.storageClassName: there is no StorageClass {class:?}; gateways keep their volumes. Create it, or set \
         queue.storageClassName to an existing one"
    ))
}

/// How far volumes are that are replaced; `None` when none is.
fn replaced(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let queue = &pipeline.spec.queue;
    let left = outdated(queue, &observed.volumes).count();
    let all = observed.volumes.claims.iter().filter(|claim| claim.has_gateway && !claim.is_going).count();
    let class =
        queue.storage_class_name.as_ref().map(|class| format!(" of class {class}")).unwrap_or_default();
    let wanted = format!("{}{class}", queue.size);
    match &observed.volumes.replacing {
        Some(now) => Some(format!(
            "gateway {} is drained and gets a new volume of {wanted}; {} left to replace ({:?}): {}",
            now.gateway,
            plural(left, "volume"),
            now.state,
            now.reason
        )),
        None if left == 0 => None,
        None => Some(match &observed.volumes.not_replaced {
            Some(refusal) => format!(
                "{left} of {all} queue volumes are to be replaced by new ones of {wanted}, but the API server refuses to delete their \
                 claims: {refusal}; grant delete of persistentvolumeclaims (chart value volumes.delete), or set queue.size and \
                 queue.storageClassName back; gateways keep their volumes"
            ),
            None => format!(
                "{left} of {all} queue volumes are replaced by new ones of {wanted}, one at a time, when no other change is in progress"
            ),
        }),
    }
}

/// Why volumes cannot grow, and what would help.
fn not_expandable(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let (size, seen) = (&pipeline.spec.queue.size, &observed.volumes);
    let stays = |claim: &&ClaimSeen| !claim.is_going && !is_to_be_replaced(claim, &pipeline.spec.queue);
    let small = || seen.claims.iter().filter(stays).filter(|claim| is_small(claim, size));
    let live = seen.template.as_ref().and_then(|template| template.size.as_deref()).unwrap_or("what it was");
    let helps = format!(
        "set allowVolumeExpansion: true on the storage class if its driver can expand volumes, or set queue.size back to {live}; \
         gateways keep their volumes"
    );
    if let Some(refusal) = seen.refusal.as_ref().filter(|_| small().next().is_some()) {
        return Some(format!(
            "the API server does not let a queue volume grow to {size}: {refusal}; {helps}"
        ));
    }
    let fixed = small()
        .filter(|claim| claim.requested < crate::ground::quantity::bytes(size))
        .filter_map(|claim| claim.storage_class.as_ref())
        .find(|class| seen.expandable.get(*class) == Some(&false))?;
    Some(format!("the storage class {fixed} does not let queue volumes grow to {size}: {helps}"))
}

fn orphaned<'a>(
    pipeline: &TracePipeline,
    observed: &'a Observed,
    coming: u32,
) -> impl Iterator<Item = &'a ClaimSeen> + use<'a> {
    // Without a StatefulSet it is unknown which gateway uses which volume.
    let workload = observed.workload.as_ref().filter(|_| observed.volumes.template.is_some());
    // Those of gateways that come back wait for them.
    let resting = lifecycle::suspension(pipeline, workload).map_or(0, |suspension| suspension.replicas);
    let waited_for = resting.max(coming);
    workload.into_iter().flat_map(move |workload| left(workload.wanted.max(waited_for), &observed.volumes))
}

fn failure(job: &DrainJobSeen) -> Option<&str> {
    match &job.state {
        DrainJobState::Failed { message, .. } => Some(message),
        DrainJobState::Running | DrainJobState::Succeeded => None,
    }
}

fn grown(counted: &VolumesStatus, observed: &Observed) -> String {
    let all = counted.resized.saturating_add(counted.pending);
    let (of, have) = (plural(all, "queue volume"), form(all, "has", "have"));
    let words = format!("{} of {of} {have} {} or more", counted.resized, counted.desired);
    let mut small =
        observed.volumes.claims.iter().filter(|claim| !claim.is_going && is_small(claim, &counted.desired));
    let kept = small.find_map(|claim| Some((&claim.name, claim.not_grown.as_ref()?)));
    match kept {
        Some((claim, why)) => format!(
            "{words}; {claim} does not grow ({why}): make room for it, or set queue.size back; gateways keep their volumes"
        ),
        None => words,
    }
}

/// So many queue volumes that have this.
fn have(count: u32, what: &str) -> String {
    format!("{} {} {what}", plural(count, "queue volume"), form(count, "has", "have"))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
