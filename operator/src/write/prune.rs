//! Deletes objects that a pipeline no longer wants.
//!
//! - Configs and schema Jobs are named by their content, so that each change leaves one behind.
//! - A NetworkPolicy or PodDisruptionBudget may be switched off, also one that an orphaned pipeline of the same name left behind.
//!
//! All other objects keep their name and are changed in place. Kubernetes deletes them with the pipeline, by their owner references. Objects of
//! the edge are left out: see `edge.rs`.

use crate::{
    read::observe::Facts,
    world::{
        World,
        cache::{Cache, is_of, owned},
        error::Error,
    },
    write::{apply::Appliable, edge::is_of_edge},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
    runtime::reflector::Store,
};
use sluice_crds::TracePipeline;
use sluice_plan::{Applied, Objects, WorkloadSeen, names, objects};
use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};
use tracing::info;

/// Older configs of gateways that are kept. With the current one, three revisions can be rolled back to.
const OLD_CONFIGS_KEPT: usize = 2;

/// Deletes old configs, old schema Jobs, and objects that are switched off.
pub async fn prune(
    pipeline: &TracePipeline,
    applied: &Objects<Applied>,
    seen: Option<&WorkloadSeen>,
    world: &World,
) -> Result<(), Error> {
    let uid = pipeline.uid().unwrap_or_default();
    for job in surplus_jobs(&owned(&world.cache.jobs, &uid), applied) {
        delete(&*job, DeleteParams::background(), world).await?;
    }
    if applied.parts().network_policy.is_none() {
        for policy in switched_off(&world.cache.network_policies, pipeline) {
            delete(&*policy, DeleteParams::background(), world).await?;
        }
    }
    if applied.parts().disruption_budget.is_none() {
        for budget in switched_off(&world.cache.disruption_budgets, pipeline) {
            delete(&*budget, DeleteParams::background(), world).await?;
        }
    }
    // While gateways of an older revision run, or the schema Job has not succeeded, a restarting pod needs its config.
    let is_settled = applied.parts().workload.is_some() && seen.is_some_and(WorkloadSeen::is_rolled_out);
    if is_settled {
        let mut mounted = mounted_configs(pipeline, &world.cache);
        // The revision to roll back to may have no pod at the moment.
        mounted.extend(applied.parts().workload.iter().flat_map(objects::configs_of));
        for config in surplus_configs(&owned(&world.cache.config_maps, &uid), applied, &mounted) {
            delete(&*config, DeleteParams::background(), world).await?;
        }
    }
    Ok(())
}

/// Objects of a kind that the pipeline does not want, also orphaned ones of a pipeline with the same name. Objects that are already being
/// deleted are left out: another finalizer may hold them.
fn switched_off<K: Appliable>(live: &Store<K>, pipeline: &TracePipeline) -> Vec<Arc<K>> {
    let (name, uid) = (pipeline.name_any(), pipeline.uid().unwrap_or_default());
    live.state_filter(|object| {
        object.namespace() == pipeline.namespace()
            && object.meta().deletion_timestamp.is_none()
            && !is_of_edge(object)
            && is_of(object, &name, &uid)
    })
}

/// Deletes the pods of gateways whose StatefulSet is gone: no controller would delete them. It deletes only the pods in `facts`, by uid.
pub async fn end_left_alone(facts: &Facts, world: &World) -> Result<(), Error> {
    if facts.stateful_set.is_some() {
        return Ok(());
    }
    for pod in facts.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        info!(pod = %pod.name_any(), "deleting a gateway's pod that has no StatefulSet");
        delete(pod, DeleteParams::default(), world).await?;
    }
    Ok(())
}

/// All schema Jobs but the current one; the current one too if it failed and must run again. Jobs that drain volumes are left out.
fn surplus_jobs(jobs: &[Arc<Job>], applied: &Objects<Applied>) -> Vec<Arc<Job>> {
    let current = applied.parts().schema_job.as_ref().map(ResourceExt::name_any);
    let is_surplus = |job: &&Arc<Job>| {
        let is_of_schema = job.labels().get(names::COMPONENT).is_some_and(|part| part == names::SCHEMA);
        is_of_schema && Some(job.name_any()) != current && job.meta().deletion_timestamp.is_none()
    };
    jobs.iter().filter(is_surplus).cloned().collect()
}

fn surplus_configs(
    configs: &[Arc<ConfigMap>],
    applied: &Objects<Applied>,
    mounted: &BTreeSet<String>,
) -> Vec<Arc<ConfigMap>> {
    let parts = applied.parts();
    let current: BTreeSet<String> = [Some(&parts.config_map), parts.schema_config_map.as_ref()]
        .into_iter()
        .flatten()
        .map(ResourceExt::name_any)
        .collect();
    let is_used =
        |config: &ConfigMap| current.contains(&config.name_any()) || mounted.contains(&config.name_any());
    let unused = configs.iter().filter(|config| !is_used(config) && !is_of_edge(&***config)).cloned();
    let (mut of_gateways, of_jobs): (Vec<_>, Vec<_>) = unused
        .partition(|config| config.labels().get(names::COMPONENT).is_some_and(|part| part == names::GATEWAY));
    of_gateways
        .sort_by_key(|config| Reverse((config.creation_timestamp().map(|time| time.0), config.name_any())));
    of_gateways.into_iter().skip(OLD_CONFIGS_KEPT).chain(of_jobs).collect()
}

/// Names of the configs that pods of the pipeline mount.
fn mounted_configs(pipeline: &TracePipeline, cache: &Cache) -> BTreeSet<String> {
    let pods = cache.pods_of(&pipeline.namespace().unwrap_or_default(), &pipeline.name_any());
    objects::configs_of_pods(pods.iter().map(|pod| &**pod))
}

/// Deletes exactly this object, by its uid: another one may exist under its name.
pub(crate) async fn delete<K: Appliable>(object: &K, how: DeleteParams, world: &World) -> Result<(), Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let exactly = Preconditions { uid: object.uid(), ..how.preconditions.clone().unwrap_or_default() };
    delete_named::<K>((&namespace, &name), how.preconditions(exactly), world).await
}

/// Deletes the object with this name. A dry run only checks whether the API server would allow it.
pub(crate) async fn delete_named<K: Appliable>(
    (namespace, name): (&str, &str),
    how: DeleteParams,
    world: &World,
) -> Result<(), Error> {
    let kind = <K as k8s_openapi::Resource>::KIND;
    let api: Api<K> = Api::namespaced(world.shared.client.clone(), namespace);
    if !how.dry_run {
        world.shared.metrics.wrote(kind);
    }
    match api.delete(name, &how).await {
        Ok(_) => Ok(()),
        // Gone already, or replaced.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(source) => Err(Error::request(format!("cannot delete the {kind} {name}"), source)),
    }
}
