//! What is done with volumes that no gateway uses: a Job drains each of them, and only what such a Job has found empty may go.
//!
//! ```text
//!  claim without a gateway --> Job --> failed: run again after a while
//!     ^                         `----> empty: marked --> deleted, or kept   (queue.retentionPolicy.whenScaled)
//!     |                                                    `--> the API server does not let it: noted on the claim, and kept
//!     `-- its gateway is wanted again: the Job ends first, then the gateway may start
//! ```
//!
//! Every gateway that is scaled in leaves its volume, also after `kubectl scale` of the StatefulSet or the loss of a node: any volume may
//! hold the only copy of rows. A gateway that answered that it is empty may have written to the volume afterwards, and a Job that finds
//! nothing takes a second.
//!
//! What a Job finds holds only while no gateway can use the volume. That is so until the StatefulSet's `replicas` are set again:
//! [`crate::observed::TemplateSeen::version`] tells. A rollout changes nothing about it.

use crate::observed::{ClaimSeen, DrainJobSeen, DrainJobState, TemplateSeen, VolumesSeen};
use std::time::Duration;

/// Jobs that drain at the same time: each takes the memory of a gateway. Chosen.
const DRAINS_MAX: usize = 8;

/// A failed Job is run again after this time: it needs servers, and these return without an action. Chosen: twice the time of the schema
/// Job, since no gateway waits for it.
pub const DRAIN_RETRY_AFTER: Duration = Duration::from_mins(1);

/// A gateway whose volume a Job uses waits at most this long for the Job's end: a pod has its grace period of half a minute, and a
/// node that is lost gives no sign. After it the gateway is started; it does not get the volume before the Job has let go of it.
const JOB_END_MAX: Duration = Duration::from_mins(2);

/// What is to be done now. All of it may be repeated, and cut off anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Volumes to drain.
    pub drain: Vec<Drain>,
    /// Claims to be marked as drained, by name and uid.
    pub mark: Vec<(String, String)>,
    /// Claims whose mark is to go, since a gateway uses them.
    pub unmark: Vec<(String, String)>,
    /// Claims to delete.
    pub delete: Vec<(String, String)>,
    /// Claims that are to be deleted, and that the API server did not let be: whether it does by now may be asked once in a while.
    pub refused: Vec<(String, String)>,
    /// Jobs to end, by name.
    pub end: Vec<String>,
    /// Gateways at the most, for now: Jobs still use the volumes of the others.
    pub replicas_max: Option<u32>,
}

/// A volume to drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// The gateway's number.
    pub ordinal: u32,
    pub claim: String,
    /// The very claim.
    pub claim_uid: String,
    /// [`TemplateSeen::version`] by now.
    pub workload_version: String,
}

/// Decides. `current` and `wanted` are the replicas that the StatefulSet has and that it is about to get.
pub fn orphans(current: u32, wanted: u32, deletes_drained: bool, seen: &VolumesSeen) -> Orphans {
    // Without a StatefulSet it is unknown which volumes are in use.
    let Some(template) = seen.template.as_ref().filter(|template| !template.is_going) else {
        return Orphans::default();
    };
    let in_use = |ordinal: u32| ordinal < current.max(wanted);
    let mut steps = Orphans { replicas_max: held_by_jobs(current, wanted, seen), ..Orphans::default() };
    for claim in seen.claims.iter().filter(|claim| !claim.is_going) {
        let key = || (claim.name.clone(), claim.uid.clone());
        if in_use(claim.ordinal) || claim.has_gateway {
            if claim.is_drained {
                steps.unmark.push(key());
            }
            continue;
        }
        if deletes_drained && is_refused(claim) {
            steps.refused.push(key());
        }
        match fate(claim, template, deletes_drained && !is_refused(claim), job_of(claim, seen)) {
            Fate::Mark => steps.mark.push(key()),
            Fate::Delete => steps.delete.push(key()),
            Fate::Drain => steps.drain.push(Drain {
                ordinal: claim.ordinal,
                claim: claim.name.clone(),
                claim_uid: claim.uid.clone(),
                workload_version: template.version.clone(),
            }),
            Fate::Wait => {}
        }
    }
    let at_work = seen.jobs.iter().filter(|job| job.state == DrainJobState::Running).count();
    steps.drain.truncate(DRAINS_MAX.saturating_sub(at_work));
    let is_over = |job: &&DrainJobSeen| {
        let used = |claim: &ClaimSeen| in_use(claim.ordinal) || claim.has_gateway;
        let kept = |claim: &ClaimSeen| claim.is_drained && (!deletes_drained || is_refused(claim));
        let claim = claim_of(job, seen).filter(|claim| !used(claim) && !kept(claim));
        job.going_for.is_none() && claim.is_none_or(|_| has_failed_or_proves_nothing(job, template))
    };
    steps.end = seen.jobs.iter().filter(is_over).map(|job| job.name.clone()).collect();
    steps
}

/// The volumes that may hold something and that no gateway uses.
pub(crate) fn left(current: u32, seen: &VolumesSeen) -> impl Iterator<Item = &ClaimSeen> {
    seen.claims.iter().filter(move |claim| {
        let is_unused = claim.ordinal >= current && !claim.has_gateway && !claim.is_going;
        is_unused && claim.is_bound && !claim.is_drained
    })
}

/// Whether a drained claim stays although it is to go: it is neither asked for again nor drained again for that.
pub(crate) fn is_refused(claim: &ClaimSeen) -> bool {
    claim.is_drained && claim.not_deleted.is_some()
}

/// What becomes of a claim that no gateway uses.
enum Fate {
    Mark,
    Delete,
    Drain,
    Wait,
}

fn fate(
    claim: &ClaimSeen,
    template: &TemplateSeen,
    deletes_drained: bool,
    job: Option<&DrainJobSeen>,
) -> Fate {
    let is_proved = !claim.is_bound
        || job.is_some_and(|job| {
            job.state == DrainJobState::Succeeded && job.workload_version == template.version
        });
    match (is_proved, claim.is_drained) {
        (true, false) => Fate::Mark,
        (true, true) if deletes_drained => Fate::Delete,
        // Kept; the mark says that it needs no Job.
        (_, true) if !deletes_drained => Fate::Wait,
        _ if job.is_some() => Fate::Wait,
        // Also of one that is marked: a gateway may have used it since, and it is about to be deleted.
        _ => Fate::Drain,
    }
}

/// The Job of this very claim.
fn job_of<'a>(claim: &ClaimSeen, seen: &'a VolumesSeen) -> Option<&'a DrainJobSeen> {
    seen.jobs.iter().find(|job| job.ordinal == claim.ordinal && job.claim_uid == claim.uid)
}

/// The very claim of this Job, unless it is on its way out.
fn claim_of<'a>(job: &DrainJobSeen, seen: &'a VolumesSeen) -> Option<&'a ClaimSeen> {
    let mut claims = seen.claims.iter().filter(|claim| !claim.is_going);
    claims.find(|claim| job.ordinal == claim.ordinal && job.claim_uid == claim.uid)
}

/// Whether a Job is to be run again. One that succeeded stays as the proof until its claim goes.
fn has_failed_or_proves_nothing(job: &DrainJobSeen, template: &TemplateSeen) -> bool {
    match &job.state {
        DrainJobState::Running => false,
        DrainJobState::Succeeded => job.workload_version != template.version,
        DrainJobState::Failed { ago, .. } => *ago >= DRAIN_RETRY_AFTER,
    }
}

/// How many gateways there may be before the Jobs that use the volumes of others have ended.
fn held_by_jobs(current: u32, wanted: u32, seen: &VolumesSeen) -> Option<u32> {
    let is_waited_for = |job: &&DrainJobSeen| {
        (current..wanted).contains(&job.ordinal) && job.going_for.is_none_or(|going| going < JOB_END_MAX)
    };
    seen.jobs.iter().filter(is_waited_for).map(|job| job.ordinal).min()
}
