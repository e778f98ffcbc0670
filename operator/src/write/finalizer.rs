//! Adds and removes the finalizer of a pipeline. The finalizer delays the deletion until the gateways are drained or orphaned. This file writes
//! no other metadata of a pipeline, and nothing of its spec.

use crate::world::{World, error::Error};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::json;
use sluice_crds::{FINALIZER, TracePipeline};
use tracing::info;

/// Field manager of the finalizer.
pub const FINALIZERS: &str = "sluice-operator/finalizer";

/// Adds the finalizer. The operator adds it before it creates any object, so that no gateway exists that a deletion would not drain.
pub async fn hold(pipeline: &TracePipeline, world: &World) -> Result<(), Error> {
    let held = json!({
        "apiVersion": TracePipeline::api_version(&()), "kind": TracePipeline::kind(&()),
        // The uid fails the write if another pipeline now has this name.
        "metadata": {"name": pipeline.name_any(), "namespace": pipeline.namespace(), "uid": pipeline.uid(),
            "finalizers": [FINALIZER]},
    });
    world.shared.metrics.wrote("finalizer");
    let how = PatchParams::apply(FINALIZERS);
    let answer = api(pipeline, world).patch_metadata(&pipeline.name_any(), &how, &Patch::Apply(held)).await;
    answer.map(drop).map_err(|source| {
        Error::request(format!("cannot add the finalizer {FINALIZER} to the pipeline"), source)
    })
}

/// Removes the finalizer, also if another field manager owns it, and keeps all others.
pub async fn let_go(pipeline: &impl Resource, world: &World) -> Result<(), Error> {
    let (api, name) = (api(pipeline, world), pipeline.name_any());
    let found = api.get_metadata_opt(&name).await;
    let found =
        found.map_err(|source| Error::request("cannot read the finalizers of the pipeline", source))?;
    let Some(found) = found.filter(|found| found.uid() == pipeline.uid()) else { return Ok(()) };
    let left: Vec<String> =
        found.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    if left.len() == found.finalizers().len() {
        return Ok(());
    }
    world.shared.metrics.wrote("finalizer");
    let how = PatchParams { field_manager: Some(FINALIZERS.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(&name, &how, &Patch::Merge(without(&found, &left))).await {
        Ok(_) => {
            let namespace = pipeline.namespace().unwrap_or_default();
            info!(%namespace, pipeline = name, "removed the finalizer: the pipeline can go");
            Ok(())
        }
        // Gone already.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => {
            Err(Error::request(format!("cannot remove the finalizer {FINALIZER} from the pipeline"), source))
        }
    }
}

/// The patch replaces the whole list: the resource version makes sure that the list is still the one that was read.
fn without(found: &PartialObjectMeta<TracePipeline>, finalizers: &[String]) -> serde_json::Value {
    json!({"metadata": {
        "uid": found.uid(), "resourceVersion": found.resource_version(), "finalizers": finalizers,
    }})
}

fn api(pipeline: &impl Resource, world: &World) -> Api<TracePipeline> {
    Api::namespaced(world.shared.client.clone(), &pipeline.namespace().unwrap_or_default())
}
