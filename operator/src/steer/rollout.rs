//! Carries rollouts on: compares what the first gateway reports with what the others report, asks `sluice_plan::rollout` for the next step, and
//! deletes pods: those that Kubernetes leaves broken, and outdated ones if more than one may be away. While one gateway is tried, the memory of the
//! pipeline has some numbers for each gateway. What must outlive the process is in the status and in the StatefulSet.

use crate::{
    read::{gateways::looks::Look, observe::Facts},
    world::{
        World,
        error::Error,
        memory::{CanaryMemory, Key},
        status,
    },
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline};
use sluice_plan::{
    GatewaySeen, Names, Plan, WorkloadSeen,
    objects::{plan_hash, revision},
    rollout::{
        Counts, Looks, Seen, Step, Terms, Unavailable, outdated, spec_known_as, step, stuck, trouble_of,
    },
};
use tracing::info;

/// While one gateway is tried, the next reconcile is due after this many seconds.
const CANARY_SECONDS: u64 = 5;
/// While the others follow, the next reconcile is due after this many seconds, for their deadline. The watches report changes of pods.
const ROLLING_SECONDS: u64 = 10;

/// The next step; `None` while gateways may not be changed: the schema comes first, or the StatefulSet is made anew.
pub fn next_step(
    pipeline: &TracePipeline,
    plan: &Plan,
    replicas: u32,
    facts: &Facts,
    world: &World,
) -> Option<Step> {
    // A plan that stands has terms that can be read.
    let terms = Terms::of(&pipeline.spec).ok().filter(|_| plan.lets_workload_change())?;
    let written = status::rollout(pipeline);
    let key = key(plan);
    let is_tried = written.is_some_and(|written| written.state == RolloutState::Canary);
    let trouble = world.shared.memory.with(&key, |memory| {
        if is_tried {
            return trouble(&mut memory.canary, facts);
        }
        memory.canary = None;
        None
    });
    let seen = Seen {
        workload: facts.observed.workload.as_ref(),
        replicas,
        revision: &revision(plan),
        spec: &spec_known_as(pipeline, facts.observed.workload.as_ref()),
        plan_hash: &plan_hash(plan),
        leaving: facts.observed.scaling.drain.as_ref(),
        trouble,
    };
    let step = step(world.timestamp(), &terms, written, &seen);
    tell(&key, written, &step.next);
    Some(step)
}

/// Deletes pods that Kubernetes makes again with the newest revision: as many as may be away where that is more than one, and otherwise one
/// that is stuck.
pub async fn replace(
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
            if let Some(pod) = stuck(world.timestamp(), next, workload, is_draining) {
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

/// What the first gateway fails at since the last look, and the others do not; or that it cannot use the table, which one with `source.otlp` says
/// while it is ready.
fn trouble(memory: &mut Option<CanaryMemory>, facts: &Facts) -> Option<String> {
    let first = facts.observed.workload.as_ref()?.wanted.checked_sub(1)?;
    let look = match (facts.look.as_deref(), &*memory) {
        (Some(look), remembered) if remembered.as_ref().is_none_or(|it| it.at != look.at) => look,
        (_, remembered) => return remembered.as_ref()?.trouble.clone(),
    };
    let (now, at) = (counts(look), look.at);
    let without_table = without_table(look, first);
    let Some(remembered) = memory else {
        let trouble = without_table;
        *memory = Some(CanaryMemory { first: now.clone(), last: now, at, trouble: trouble.clone() });
        return trouble;
    };
    let looks = Looks { first: &remembered.first, last: &remembered.last, now: &now };
    let trouble = without_table.or_else(|| trouble_of(first, looks));
    // A gateway that did not answer before is compared from now on.
    for (ordinal, counted) in &now {
        remembered.first.entry(*ordinal).or_insert(*counted);
    }
    (remembered.last, remembered.at, remembered.trouble) = (now, at, trouble.clone());
    trouble
}

fn without_table(look: &Look, ordinal: u32) -> Option<String> {
    let said = look.said.iter().find(|said| said.gateway.ordinal == ordinal)?;
    let error = said.report.as_ref().ok()?.insert_error.as_ref().filter(|error| error.is_of_table())?;
    Some(format!("gateway {ordinal} {}", error.message))
}

/// The rollout looks again after this many seconds.
pub fn look_seconds(rollout: Option<&RolloutStatus>) -> u64 {
    match rollout.map(|rollout| rollout.state) {
        Some(RolloutState::Canary) => CANARY_SECONDS,
        Some(RolloutState::Rolling) => ROLLING_SECONDS,
        _ => u64::MAX,
    }
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
    let failed = |source: kube::Error| {
        Error::request(format!("cannot see the StatefulSet {} and its pods", names.gateway()), source)
    };
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
        namespace = %names.namespace(), pipeline = %names.pipeline(), pod = %pod.name, revision = pod.revision.as_deref(),
        trouble = pod.trouble.as_deref(), "a pod of an older revision is deleted"
    );
    world.shared.metrics.wrote("Pod");
    let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let exactly = Preconditions { uid: Some(pod.uid.clone()), resource_version: pod.version.clone() };
    match api.delete(&pod.name, &DeleteParams::default().preconditions(exactly)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::request(
            format!("cannot delete the pod {}, which has an older revision", pod.name),
            source,
        )),
    }
}

/// What each gateway that is ready has read and failed to deliver since it began; those that did not answer are left out.
fn counts(look: &Look) -> Counts {
    let ready = look.said.iter().filter(|said| said.gateway.is_ready);
    ready.filter_map(|said| Some((said.gateway.ordinal, said.report.as_ref().ok()?.counted))).collect()
}
