//! Carries rollouts on: compares what the first gateway reports with what the others report, asks `sluice_plan::rollout` for the next step, and
//! deletes pods: those that Kubernetes leaves broken, and outdated ones if more than one may be away. Kept here is one number for each gateway
//! while one is tried; what must outlive the process is in the status and in the StatefulSet.

use crate::{
    api_error::{ApiError, ErrorClass},
    gateways::looks::Look,
    memory::Key,
    observe::Facts,
    reconcile::World,
    scaling,
};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline};
use sluice_plan::{
    GatewaySeen, Moment, Names, Plan, WorkloadSeen,
    objects::{plan_hash, revision},
    rollout::{Counts, Looks, Seen, Step, Terms, Unavailable, outdated, spec_hash, step, stuck, trouble_of},
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tracing::info;

/// While one gateway is tried, it is looked at again after so many seconds.
const CANARY_SECONDS: u64 = 5;
/// While the others follow, their deadline is looked at after so many seconds; what happens to pods is told by the watches.
const ROLLING_SECONDS: u64 = 10;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not delete the pod.
    #[error("cannot delete the pod {name}, which has an older revision")]
    Delete { name: String, source: ApiError },
    /// The server did not say what there is.
    #[error("cannot see the StatefulSet {name} and its pods")]
    Look { name: String, source: ApiError },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Delete { source, .. } | Self::Look { source, .. } => source.class(),
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

    /// Deletes pods that Kubernetes makes again with the newest revision: as many as may be away where that is more than one, and otherwise one
    /// that is stuck.
    pub async fn replace(
        &self,
        pipeline: &TracePipeline,
        next: &RolloutStatus,
        facts: &Facts,
        world: &World,
    ) -> Result<(), Error> {
        let observed = &facts.observed;
        let is_draining = observed.scaling.drain.is_some() || observed.volumes.replacing.is_some();
        let (Some(workload), Ok(names)) = (&observed.workload, Names::of(pipeline)) else { return Ok(()) };
        let unavailable = Terms::of(&pipeline.spec).map_or(Unavailable::Number(1), |terms| terms.unavailable);
        match outdated(next, unavailable, workload, is_draining) {
            Some(due) if !due.is_empty() => {}
            // A rollout ends by its deadline. A way back has none: what is stuck must not keep it from going on.
            Some(_) if next.state != RolloutState::RolledBack => return Ok(()),
            _ => {
                if let Some(pod) = stuck(self.now(), next, workload, is_draining) {
                    delete(pod, &names, world).await?;
                }
                return Ok(());
            }
        }
        let Some(now) = Box::pin(at_the_server(&names, world)).await? else { return Ok(()) };
        for pod in outdated(next, unavailable, &now, is_draining).unwrap_or_default() {
            // Of one that is another by now, others have to be looked at again, too.
            if !delete(pod, &names, world).await? {
                break;
            }
        }
        Ok(())
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

/// The StatefulSet and its pods as the server has them: copies may be older than what an operator deleted at its last look, and more would be
/// away than may be.
async fn at_the_server(names: &Names, world: &World) -> Result<Option<WorkloadSeen>, Error> {
    let failed = |source: kube::Error| Error::Look { name: names.gateway(), source: source.into() };
    let client = &world.shared.client;
    let workloads: Api<StatefulSet> = Api::namespaced(client.clone(), names.namespace());
    let Some(workload) = workloads.get_opt(&names.gateway()).await.map_err(failed)? else { return Ok(None) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), names.namespace());
    let pods = pods.list(&ListParams::default().labels(&names.selector_text())).await.map_err(failed)?;
    Ok(Some(WorkloadSeen::of(&workload, &pods.items)))
}

/// Deletes the very pod that was looked at, and says whether it was still the same.
async fn delete(pod: &GatewaySeen, names: &Names, world: &World) -> Result<bool, Error> {
    info!(
        namespace = %names.namespace(), pipeline = %names.pipeline(), pod = %pod.name, revision = ?pod.revision,
        trouble = ?pod.trouble, "a pod of an older revision is deleted"
    );
    world.shared.metrics.wrote("Pod");
    let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let exactly = Preconditions { uid: Some(pod.uid.clone()), resource_version: pod.version.clone() };
    match api.delete(&pod.name, &DeleteParams::default().preconditions(exactly)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::Delete { name: pod.name.clone(), source: source.into() }),
    }
}

/// What each gateway that is ready has read and failed to deliver since it began; those that did not answer are left out.
fn counts(look: &Look) -> Counts {
    let ready = look.said.iter().filter(|said| said.gateway.is_ready);
    ready.filter_map(|said| Some((said.gateway.ordinal, said.report.as_ref().ok()?.counted))).collect()
}
