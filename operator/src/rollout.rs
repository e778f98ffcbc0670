//! Carries rollouts on: compares what the first gateway says of itself with what the others say, asks `sluice_plan::rollout` for the next
//! step, and deletes pods that Kubernetes leaves broken. What is kept here is one number a gateway while one is tried; what must
//! outlive the process stands in the status and in the StatefulSet.

use crate::{
    api_error::{ApiError, ErrorClass},
    gateways::looks::Look,
    memory::Key,
    observe::Facts,
    reconcile::World,
    scaling,
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline};
use sluice_plan::{
    Plan,
    rollout::{Counts, Looks, Seen, Step, Terms, plan_hash, revision, spec_hash, step, stuck, trouble_of},
    scale::Moment,
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tracing::{info, warn};

/// While one gateway is tried, it is looked at again after so many seconds.
const CANARY_SECONDS: u64 = 5;
/// While the others follow, their deadline is looked at after so many seconds; what happens to pods is told by the watches.
const ROLLING_SECONDS: u64 = 10;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not delete the pod.
    #[error("cannot delete the pod {name}, which is stuck on a revision that nobody means any more")]
    Delete {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Delete { source, .. } => source.class(),
        }
    }
}

/// What gateways said while one of them is tried: when that began, and at the last look.
#[derive(Debug)]
struct Remembered {
    first: Counts,
    last: Counts,
    /// When gateways were asked for the last of it.
    at: Moment,
    /// What came of that look: it holds until there is another one.
    trouble: Option<String>,
}

/// The rollouts of all pipelines.
#[derive(Debug)]
pub struct Rollouts {
    clock: fn() -> Moment,
    /// What gateways of pipelines with a canary said at the last look; forgotten when there is none.
    counts: Mutex<HashMap<Key, Remembered>>,
}

impl Default for Rollouts {
    fn default() -> Self {
        Self::by(scaling::now)
    }
}

impl Rollouts {
    /// By another clock than the system's, as in tests.
    pub fn by(clock: fn() -> Moment) -> Self {
        Self { clock, counts: Mutex::default() }
    }

    /// The next step; `None` while gateways may not be changed: the schema comes first, or the StatefulSet is made anew.
    pub fn step(&self, pipeline: &TracePipeline, plan: &Plan, replicas: u32, facts: &Facts) -> Option<Step> {
        // A plan that stands has terms that can be read.
        let terms = Terms::of(&pipeline.spec).ok().filter(|_| plan.lets_workload_change())?;
        let written = written(pipeline);
        let key = key(plan);
        let trouble = if written.is_some_and(|written| written.state == RolloutState::Canary) {
            self.trouble(&key, facts)
        } else {
            self.forget(&key);
            None
        };
        let seen = Seen {
            workload: facts.observed.workload.as_ref(),
            replicas,
            revision: &revision(plan),
            spec: &spec_hash(pipeline),
            plan_hash: &plan_hash(plan),
            leaving: facts.observed.scaling.drain.as_ref(),
            trouble,
        };
        let step = step(self.now(), &terms, written, &seen);
        tell(&key, written, &step.next);
        Some(step)
    }

    /// Deletes a pod that is stuck, if there is one.
    pub async fn heal(
        &self,
        plan: &Plan,
        next: &RolloutStatus,
        facts: &Facts,
        world: &World,
    ) -> Result<(), Error> {
        let observed = &facts.observed;
        let is_draining = observed.scaling.drain.is_some() || observed.volumes.replacing.is_some();
        let found =
            observed.workload.as_ref().and_then(|workload| stuck(self.now(), next, workload, is_draining));
        let Some(pod) = found else { return Ok(()) };
        let Key { namespace, name: pipeline } = key(plan);
        warn!(
            %namespace, %pipeline, pod = %pod.name, revision = ?pod.revision, trouble = ?pod.trouble,
            "a pod that is stuck on an older revision is deleted"
        );
        world.shared.metrics.wrote("Pod");
        let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), &namespace);
        // The very pod that was looked at: another one may have its name by now.
        let exactly = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
        match api.delete(&pod.name, &DeleteParams::default().preconditions(exactly)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(source) => Err(Error::Delete { name: pod.name.clone(), source: source.into() }),
        }
    }

    /// Forgets a pipeline that is gone, or that tries nothing.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    /// What the first gateway fails at since the last look, and the others do not.
    fn trouble(&self, key: &Key, facts: &Facts) -> Option<String> {
        let first = facts.observed.workload.as_ref()?.wanted.checked_sub(1)?;
        let mut known = self.known();
        let look = match (facts.look.as_deref(), known.get(key)) {
            (Some(look), remembered) if remembered.is_none_or(|remembered| remembered.at != look.at) => look,
            (_, remembered) => return remembered?.trouble.clone(),
        };
        let (now, at) = (counts(look), look.at);
        let Some(remembered) = known.get_mut(key) else {
            known.insert(key.clone(), Remembered { first: now.clone(), last: now, at, trouble: None });
            return None;
        };
        let trouble =
            trouble_of(first, Looks { first: &remembered.first, last: &remembered.last, now: &now });
        // A gateway that did not answer before is compared from now on.
        for (ordinal, counted) in &now {
            remembered.first.entry(*ordinal).or_insert(*counted);
        }
        (remembered.last, remembered.at, remembered.trouble) = (now, at, trouble.clone());
        trouble
    }

    fn now(&self) -> Timestamp {
        scaling::timestamp((self.clock)())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Remembered>> {
        // Whatever the thread that held it died of: at worst one look has nothing to compare with.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rollout looks again after so many seconds.
pub fn look_seconds(rollout: Option<&RolloutStatus>) -> u64 {
    match rollout.map(|rollout| rollout.state) {
        Some(RolloutState::Canary) => CANARY_SECONDS,
        Some(RolloutState::Rolling) => ROLLING_SECONDS,
        _ => u64::MAX,
    }
}

fn written(pipeline: &TracePipeline) -> Option<&RolloutStatus> {
    pipeline.status.as_ref()?.rollout.as_ref()
}

fn key(plan: &Plan) -> Key {
    Key { namespace: plan.names().namespace().to_owned(), name: plan.names().pipeline().to_owned() }
}

fn tell(key: &Key, written: Option<&RolloutStatus>, next: &RolloutStatus) {
    let was = written.map(|written| (written.state, written.revision.as_str()));
    if was != Some((next.state, next.revision.as_str())) {
        info!(
            namespace = %key.namespace, pipeline = %key.name, state = ?next.state, revision = %next.revision,
            message = %next.message, "rollout"
        );
    }
}

/// What each gateway that is ready has read and failed to deliver since it began; those that did not answer are left out.
fn counts(look: &Look) -> Counts {
    let ready = look.said.iter().filter(|said| said.gateway.is_ready);
    ready.filter_map(|said| Some((said.gateway.ordinal, said.report.as_ref().ok()?.counted))).collect()
}
