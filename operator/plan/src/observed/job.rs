//! What is read of any Job: what Kubernetes says of it, and how its own container ended.
//!
//! Kubernetes goes by whole pods. An injected container (a service mesh, a log shipper) may never end, which keeps the Job from
//! completing until its deadline fails it, or may fail itself. What the Job was made for is done when its own container has ended.

use crate::{
    ground::pods::unmounted,
    observed::{
        Termination,
        workload::{last_end, trouble},
    },
};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition},
        core::v1::Pod,
    },
    jiff::Timestamp,
};

/// How the container ended in a pod of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerEnd {
    /// What it said.
    pub said: Termination,
    /// When, as far as Kubernetes says so.
    pub at: Option<Timestamp>,
    /// Whether something else still runs in the pod, so that the Job has not ended with it.
    pub pod_runs: bool,
    /// The pod's name.
    pub pod: String,
}

impl ContainerEnd {
    /// That of the newest pod in which the container of this name has ended.
    pub(super) fn of(pods: &[Pod], container: &str) -> Option<Self> {
        let mut newest: Vec<_> = pods.iter().collect();
        newest.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        newest.into_iter().rev().find_map(|pod| {
            let status = pod.status.as_ref()?;
            let found = status.container_statuses.iter().flatten().find(|one| one.name == container)?;
            let ended = found.state.as_ref()?.terminated.as_ref()?;
            Some(Self {
                said: Termination::of(ended),
                at: ended.finished_at.as_ref().map(|time| time.0),
                pod_runs: status.phase.as_deref() == Some("Running"),
                pod: pod.metadata.name.clone().unwrap_or_default(),
            })
        })
    }

    /// Whether it did what the Job was made for.
    pub(super) fn is_success(&self) -> bool {
        self.said.exit_code == 0
    }

    /// What it said, for people. Of a program that named no reason itself, such as one that was killed, also where to look.
    pub(super) fn words(&self) -> String {
        let Termination { exit_code, reason, message } = &self.said;
        if reason.is_some() {
            return message.clone();
        }
        let message = if message.is_empty() { "it ended without a message" } else { message };
        format!("{message} (exit code {exit_code}; kubectl logs {})", self.pod)
    }
}

/// What keeps the container of this name from its start in the newest pod of a Job that is to stay, with the pod's name: no node takes it,
/// its image cannot be had, or as of `now` its volumes cannot be mounted. `None` for one that starts as any, that runs, or that has ended.
pub(super) fn not_started(pods: &[Pod], container: &str, now: Timestamp) -> Option<String> {
    let stays = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let newest = stays.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))?;
    let status = newest.status.as_ref()?;
    let found = status.container_statuses.iter().flatten().find(|one| one.name == container);
    if found.is_some_and(|found| last_end(found).is_some()) {
        return None;
    }
    let why = trouble(status, container).or_else(|| unmounted(newest, now))?;
    Some(format!("{}: {why}", newest.metadata.name.as_deref().unwrap_or_default()))
}

/// The condition of this type, if it holds: `Complete` or `Failed`.
pub(super) fn ended<'a>(job: &'a Job, how: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == how && condition.status == "True")
}
