//! The `PodMonitor` of a pipeline's gateways. A cluster may lack its CRD, and may get it later. So the operator does not watch it, but reads it
//! when the pipeline's spec changes, when the operator starts, and, if one is wanted, every [`MONITOR_SECONDS`].
//!
//! Nothing waits for the `PodMonitor`: the gateways run without it.

use crate::{
    world::{
        World,
        api_error::ErrorClass,
        cache::is_of,
        error::Error,
        memory::{Key, MONITOR_SECONDS},
    },
    write::{
        apply::{self},
        events, prune,
    },
};
use kube::{Api, ResourceExt, api::DeleteParams};
use sluice_crds::TracePipeline;
use sluice_plan::{Plan, PodMonitor, pod_monitor};
use std::time::Instant;
use tracing::debug;

/// The API server's reason for a missing object. For a missing kind it answers 404 with another text.
const NO_OBJECT: &str = "NotFound";

const KIND: &str = <PodMonitor as k8s_openapi::Resource>::KIND;

/// The answer of the API server.
enum Found {
    Object(Option<Box<PodMonitor>>),
    /// The cluster has no CRD of `PodMonitor`.
    NoKind,
}

/// Applies the `PodMonitor` of the plan, or deletes it if the plan has none.
pub async fn tend(pipeline: &TracePipeline, plan: &Plan, world: &World) -> Result<(), Error> {
    let names = plan.names();
    let key = Key { namespace: names.namespace().to_owned(), name: names.pipeline().to_owned() };
    let (desired, now) = (pod_monitor(plan), Instant::now());
    let of = (pipeline.uid().unwrap_or_default(), pipeline.metadata.generation.unwrap_or_default());
    let memory = &world.shared.memory;
    if !memory.is_monitor_due(&key, (&of, desired.is_some()), now) {
        return Ok(());
    }
    let name = names.gateway();
    let found = match look(names.namespace(), &name, world).await {
        // The pipeline wants none, and an operator without the right to read has created none.
        Err(error) if desired.is_none() && ErrorClass::of(&error) == ErrorClass::Forbidden => {
            debug!(%error, pod_monitor = %name, "no right to read a PodMonitor that the pipeline does not ask for");
            Found::Object(None)
        }
        found => {
            found.map_err(|source| Error::request(format!("cannot read the PodMonitor {name}"), source))?
        }
    };
    let is_without_kind = desired.is_some() && matches!(found, Found::NoKind);
    match (desired, found) {
        (Some(_), Found::NoKind) if memory.is_monitor_without_kind(&key, &of) => {}
        (Some(_), Found::NoKind) => tell_of_no_kind(pipeline, world).await,
        (Some(desired), Found::Object(live)) => {
            apply::apply_over(pipeline, live.as_deref(), desired, world).await?;
        }
        (None, Found::Object(Some(live))) => switch_off(pipeline, &live, world).await?,
        (None, Found::Object(None) | Found::NoKind) => {}
    }
    memory.looked_at_monitor(&key, (of, is_without_kind), now);
    Ok(())
}

async fn look(namespace: &str, name: &str, world: &World) -> Result<Found, kube::Error> {
    let api: Api<PodMonitor> = Api::namespaced(world.shared.client.clone(), namespace);
    match api.get(name).await {
        Ok(found) => Ok(Found::Object(Some(Box::new(found)))),
        Err(kube::Error::Api(status)) if status.code == 404 && status.reason == NO_OBJECT => {
            Ok(Found::Object(None))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::NoKind),
        Err(error) => Err(error),
    }
}

/// Deletes the `PodMonitor`, also an orphan of a pipeline with the same name; but not one that is already being deleted: another finalizer
/// may hold it.
async fn switch_off(pipeline: &TracePipeline, live: &PodMonitor, world: &World) -> Result<(), Error> {
    let is_ours = is_of(live, &pipeline.name_any(), &pipeline.uid().unwrap_or_default());
    if !is_ours || live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    prune::delete(live, DeleteParams::background(), world).await
}

async fn tell_of_no_kind(pipeline: &TracePipeline, world: &World) {
    let note = format!(
        "spec.observability.podMonitor is enabled, but the cluster has no CRD for {KIND}: install the Prometheus operator. Sluice looks for \
         it every {MONITOR_SECONDS} s, and creates no {KIND} until then"
    );
    events::tell(pipeline, "NoPodMonitors", &note, &world.shared).await;
}
