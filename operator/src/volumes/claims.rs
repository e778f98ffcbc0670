//! Requests about claims.

use crate::world::{World, error::Error};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use sluice_plan::Names;

pub(super) fn claims_of(names: &Names, world: &World) -> Api<PersistentVolumeClaim> {
    Api::namespaced(world.shared.client.clone(), names.namespace())
}

/// Applies a part of exactly this claim. Its uid prevents that the apply creates a claim that is gone.
pub(super) async fn patch(
    api: &Api<PersistentVolumeClaim>,
    (name, uid): (&str, &str),
    manager: &str,
    part: &Value,
) -> kube::Result<PersistentVolumeClaim> {
    let mut object = part.clone();
    object["apiVersion"] = "v1".into();
    object["kind"] = "PersistentVolumeClaim".into();
    object["metadata"]["name"] = name.into();
    object["metadata"]["uid"] = uid.into();
    api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(&object)).await
}

pub(super) fn not_changed(name: &str, source: kube::Error) -> Error {
    Error::request(format!("cannot change the PersistentVolumeClaim {name}"), source)
}
