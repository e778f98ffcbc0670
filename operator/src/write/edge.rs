//! The edge: its objects are applied beside those of gateways, and removed when the spec has no edge. A failure here keeps no gateway waiting.
//!
//! ```text
//!  spec.edge is set ----> ServiceAccount, ConfigMap, Service, NetworkPolicy, PodDisruptionBudget, Deployment and its number, autoscaler
//!            is not ----> autoscaler and Deployment are deleted ----> its pods have ended ----> the other objects are deleted
//!  the pipeline goes ---> autoscaler and Deployment are deleted ----> its pods have ended ----> gateways drain
//! ```
//!
//! `replicas` has its own field manager ([`SCALER`]), as that of gateways. So an autoscaler that takes the field finds the number that was there:
//! a field that its only manager no longer applies would become 1.

use crate::{
    read::observe::Facts,
    world::{
        World,
        cache::{find, is_of, owned},
        error::Error,
    },
    write::{
        apply::{Appliable, OBJECTS, SCALER, Writer},
        prune::delete,
    },
};
use k8s_openapi::{
    api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::reflector::Store,
};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{EdgeParts, EdgeSeen, Plan, edge::EdgeScale, names, objects};
use std::{collections::BTreeSet, sync::Arc};
use tracing::info;

/// Applies the edge of a plan, or removes it if the spec has none. Without a plan, or while a Secret of its clients is missing, what runs keeps
/// running.
pub async fn tend(
    pipeline: &TracePipeline,
    plan: Option<&Plan>,
    facts: &Facts,
    world: &World,
) -> Result<(), Error> {
    if pipeline.spec.edge.is_none() {
        return remove(pipeline, facts, world).await;
    }
    if !world.cache.has_listed_edges() {
        return Err(Error::EdgeNotListed);
    }
    let Some(edge) = plan.and_then(|plan| plan.edge().ready()) else { return Ok(()) };
    let parts = Box::pin(apply(pipeline, objects::edge(edge), edge.scale(), world)).await?;
    Box::pin(prune(pipeline, &parts, facts.observed.edge.as_ref(), world)).await
}

/// Applies the objects in the order in which they are needed, and returns them as the server has them.
async fn apply(
    pipeline: &TracePipeline,
    desired: EdgeParts,
    scale: EdgeScale,
    world: &World,
) -> Result<EdgeParts, Error> {
    let (writer, cache) = (Writer::of(pipeline, world), &world.cache);
    // An autoscaler that is no longer wanted would set the number again.
    if desired.autoscaler.is_none() {
        delete_all(&cache.autoscalers, pipeline, world).await?;
    }
    Ok(EdgeParts {
        service_account: writer.apply(&cache.service_accounts, desired.service_account).await?,
        config_map: writer.apply(&cache.config_maps, desired.config_map).await?,
        service: writer.apply(&cache.services, desired.service).await?,
        network_policy: writer.apply_some(&cache.network_policies, desired.network_policy).await?,
        disruption_budget: writer.apply_some(&cache.disruption_budgets, desired.disruption_budget).await?,
        workload: Box::pin(workload(&writer, desired.workload, scale, world)).await?,
        autoscaler: writer.apply_some(&cache.autoscalers, desired.autoscaler).await?,
    })
}

/// Applies the Deployment and its number of pods, each under its own field manager. It is made with the number, which this manager then gives up:
/// so the operator may stop at any point.
async fn workload(
    writer: &Writer<'_>,
    desired: Deployment,
    scale: EdgeScale,
    world: &World,
) -> Result<Deployment, Error> {
    let (name, namespace) = (desired.name_any(), desired.namespace().unwrap_or_default());
    let live = &world.cache.deployments;
    let Some(now) = find(live, &namespace, &name) else {
        let made = writer.apply(live, with_replicas(desired.clone(), scale.first())).await?;
        let made = set_replicas(&made, scale.first(), world).await?;
        return writer.apply_over(Some(&made), desired).await;
    };
    match number_to_set(&now, scale).filter(|_| writer.may_change(&*now)) {
        Some(replicas) => {
            let now = set_replicas(&now, replicas, world).await?;
            writer.apply_over(Some(&now), desired).await
        }
        None => writer.apply_over(Some(&*now), desired).await,
    }
}

/// The number to set; `None` if the Deployment keeps the one that it has. A number of the spec is also set if another client has changed it.
fn number_to_set(now: &Deployment, scale: EdgeScale) -> Option<u32> {
    let there = now.spec.as_ref().and_then(|spec| spec.replicas).and_then(|there| u32::try_from(there).ok());
    let is_ours = has_replicas(now.managed_fields(), SCALER);
    match scale.fixed() {
        Some(replicas) => (!is_ours || there != Some(replicas)).then_some(replicas),
        // The operator stopped after it had made the Deployment: its next apply would give the number up.
        None if !is_ours && has_replicas(now.managed_fields(), OBJECTS) => {
            Some(there.unwrap_or_else(|| scale.first()))
        }
        None => None,
    }
}

fn has_replicas(entries: &[ManagedFieldsEntry], manager: &str) -> bool {
    let of_manager = entries.iter().filter(|entry| entry.manager.as_deref() == Some(manager));
    let mut fields = of_manager.filter_map(|entry| entry.fields_v1.as_ref());
    fields.any(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
}

fn with_replicas(mut workload: Deployment, replicas: u32) -> Deployment {
    // The definition bounds it at 1,000.
    let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
    workload.spec.get_or_insert_default().replicas = Some(replicas);
    workload
}

/// Sets the number of exactly this Deployment, by its uid, and takes the field from other managers.
async fn set_replicas(now: &Deployment, replicas: u32, world: &World) -> Result<Deployment, Error> {
    let (name, namespace) = (now.name_any(), now.namespace().unwrap_or_default());
    let scaled = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": now.uid()},
        "spec": {"replicas": replicas},
    });
    world.shared.metrics.wrote("replicas");
    let how = PatchParams::apply(SCALER).force();
    let api = kube::Api::<Deployment>::namespaced(world.shared.client.clone(), &namespace);
    api.patch(&name, &how, &Patch::Apply(&scaled)).await.map_err(|source| {
        Error::request(format!("cannot set the Deployment {name} to {replicas} replicas"), source)
    })
}

/// Deletes what the spec of an edge no longer asks for: its policy, its budget, and configs that no pod mounts.
async fn prune(
    pipeline: &TracePipeline,
    applied: &EdgeParts,
    seen: Option<&EdgeSeen>,
    world: &World,
) -> Result<(), Error> {
    let cache = &world.cache;
    if applied.network_policy.is_none() {
        delete_all(&cache.network_policies, pipeline, world).await?;
    }
    if applied.disruption_budget.is_none() {
        delete_all(&cache.disruption_budgets, pipeline, world).await?;
    }
    // While pods of an older revision run, one that restarts needs its config.
    if !seen.is_some_and(EdgeSeen::is_rolled_out) {
        return Ok(());
    }
    let pods = cache.pods_of(&pipeline.namespace().unwrap_or_default(), &pipeline.name_any());
    let mounted = objects::configs_of_pods(pods.iter().map(|pod| &**pod));
    let configs = owned(&cache.config_maps, &pipeline.uid().unwrap_or_default());
    for config in surplus_configs(&configs, &applied.config_map.name_any(), &mounted) {
        delete(&*config, DeleteParams::background(), world).await?;
    }
    Ok(())
}

fn surplus_configs(
    configs: &[Arc<ConfigMap>],
    current: &str,
    mounted: &BTreeSet<String>,
) -> Vec<Arc<ConfigMap>> {
    let is_surplus = |config: &&Arc<ConfigMap>| {
        let name = config.name_any();
        is_of_edge(&***config) && name != current && !mounted.contains(&name)
    };
    configs.iter().filter(is_surplus).cloned().collect()
}

/// Removes the edge of a pipeline that has none any more. The pods end first: until then they need their account and their policy.
async fn remove(pipeline: &TracePipeline, facts: &Facts, world: &World) -> Result<(), Error> {
    end(pipeline, world).await?;
    if facts.observed.edge.is_some() {
        return Ok(());
    }
    let cache = &world.cache;
    delete_all(&cache.services, pipeline, world).await?;
    delete_all(&cache.disruption_budgets, pipeline, world).await?;
    delete_all(&cache.network_policies, pipeline, world).await?;
    delete_all(&cache.config_maps, pipeline, world).await?;
    delete_all(&cache.service_accounts, pipeline, world).await
}

/// Deletes the edge's Deployment, and what would set its number.
async fn end(pipeline: &TracePipeline, world: &World) -> Result<(), Error> {
    delete_all::<HorizontalPodAutoscaler>(&world.cache.autoscalers, pipeline, world).await?;
    delete_all::<Deployment>(&world.cache.deployments, pipeline, world).await
}

/// Ends the edge of a pipeline that is being deleted. Returns whether any of its pods still exists: until then it accepts spans.
pub async fn ends_first(pipeline: &TracePipeline, facts: &Facts, world: &World) -> Result<bool, Error> {
    if facts.observed.edge.is_none() {
        return Ok(false);
    }
    end(pipeline, world).await?;
    Ok(true)
}

/// Deletes the objects of one kind that are of the pipeline's edge. Objects that are already being deleted are left out.
async fn delete_all<K: Appliable>(
    live: &Store<K>,
    pipeline: &TracePipeline,
    world: &World,
) -> Result<(), Error> {
    let (name, uid) = (pipeline.name_any(), pipeline.uid().unwrap_or_default());
    let found = live.state_filter(|object| {
        object.namespace() == pipeline.namespace()
            && object.meta().deletion_timestamp.is_none()
            && is_of_edge(object)
            && is_of(object, &name, &uid)
    });
    for object in found {
        info!(kind = <K as k8s_openapi::Resource>::KIND, name = %object.name_any(), "deleting an object of the edge");
        delete(&*object, DeleteParams::background(), world).await?;
    }
    Ok(())
}

/// Whether an object is one of an edge.
pub(crate) fn is_of_edge<K: kube::Resource>(object: &K) -> bool {
    object.labels().get(names::COMPONENT).is_some_and(|part| part == names::EDGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: u32, managers: &[&str]) -> Deployment {
        let entry = |manager: &&str| json!({"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let entries: Vec<_> = managers.iter().map(entry).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "a", "managedFields": entries},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))
        .unwrap()
    }

    #[test]
    fn a_number_of_the_spec_is_kept_and_a_number_of_an_autoscaler_is_left_alone() {
        let fixed = EdgeScale::Fixed(3);
        let auto = EdgeScale::Autoscaled { replicas_min: 2, replicas_max: 9, cpu_percent: 70 };
        for (there, managers, scale, expected) in [
            (3, &[SCALER][..], fixed, None),
            (5, &[SCALER], fixed, Some(3)),
            // Another client changed it, and an autoscaler of before had it.
            (7, &["kubectl"], fixed, Some(3)),
            (3, &["kube-controller-manager"], fixed, Some(3)),
            (3, &["kube-controller-manager", SCALER], fixed, None),
            // The operator stopped after it had made the Deployment.
            (3, &[OBJECTS], fixed, Some(3)),
            (4, &[OBJECTS], auto, Some(4)),
            (4, &[OBJECTS, SCALER], auto, None),
            (4, &[SCALER], auto, None),
            (8, &["kube-controller-manager"], auto, None),
            (1, &[], auto, None),
        ] {
            let found = number_to_set(&deployment(there, managers), scale);
            assert_eq!(found, expected, "{there} of {managers:?}, {scale:?}");
        }
    }

    #[test]
    fn only_configs_of_the_edge_that_nothing_mounts_are_surplus() {
        let config = |name: &str, component: &str| -> Arc<ConfigMap> {
            let labels = json!({names::COMPONENT: component});
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap())
        };
        let configs = [
            config("now", names::EDGE),
            config("mounted", names::EDGE),
            config("old", names::EDGE),
            config("of-gateways", names::GATEWAY),
        ];
        let found = surplus_configs(&configs, "now", &BTreeSet::from(["mounted".to_owned()]));
        assert_eq!(found.iter().map(|config| config.name_any()).collect::<Vec<_>>(), ["old"]);
    }
}
