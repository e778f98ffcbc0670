//! Signs a pipeline, or removes the signature, where several operators divide the pipelines of a cluster by labels.

use crate::world::{World, cache::Pipeline, error::Error};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{
    Responsible,
    names::{OPERATOR_SELECTOR, SIGNATURE},
};

/// Field manager of the signature.
pub const SIGNER: &str = "sluice-operator/signature";

/// Writes the signature of this operator, or removes any. The resource version makes sure that the decision was about the pipeline as it still
/// is: of two operators that sign at the same time, the API server refuses one, which looks again. Returns whether it is written.
pub async fn write(pipeline: &Pipeline, by: Option<&Responsible>, world: &World) -> Result<bool, Error> {
    world.shared.metrics.wrote("signature");
    let selector = by.and_then(|by| by.selector.as_ref()).map(ToString::to_string);
    let annotations = json!({
        SIGNATURE: by.map_or(Value::Null, |by| by.name.clone().into()),
        OPERATOR_SELECTOR: selector.map_or(Value::Null, Value::String),
    });
    let patch = json!({"metadata": {
        "uid": pipeline.uid(), "resourceVersion": pipeline.resource_version(), "annotations": annotations,
    }});
    let namespace = pipeline.namespace().unwrap_or_default();
    let api: Api<TracePipeline> = Api::namespaced(world.shared.client.clone(), &namespace);
    let how = PatchParams { field_manager: Some(SIGNER.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(&pipeline.name_any(), &how, &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        // It changed since it was read, or is gone: the next look decides anew.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::request("cannot sign the pipeline", source)),
    }
}
