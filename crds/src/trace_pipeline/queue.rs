//! The queue volume of each gateway.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The queue volume of each gateway. It cannot be changed after the pipeline was created.
//
// It becomes the volume claim template of a StatefulSet, which Kubernetes does not let anyone change; so nothing in
// here can be changed either until the operator knows how to replace volumes.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf")
    .message("queue cannot be changed after the pipeline was created: its volumes would have to be replaced"))]
pub struct Queue {
    /// Spill (the default): each gateway has a volume for blocks that cannot be inserted yet. Disabled: it has none.
    #[serde(default)]
    pub mode: QueueMode,

    /// Size of each volume: a whole number of Mi, Gi or Ti, at least 64Mi. Default 10Gi.
    #[serde(default = "size")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Mi|Gi|Ti)$') && quantity(self).compareTo(quantity('64Mi')) >= 0")
        .message("size is a whole number of Mi, Gi or Ti, at least 64Mi, such as 10Gi"))]
    pub size: String,

    /// Storage class of the volumes. When it is not set, the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("storageClassName is the name of a StorageClass: a-z, 0-9, '-' and '.'"))]
    pub storage_class_name: Option<String>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { mode: QueueMode::default(), size: size(), storage_class_name: None }
    }
}

fn size() -> String {
    "10Gi".to_owned()
}

/// Whether there is a queue volume.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueMode {
    /// Each gateway has one.
    #[default]
    Spill,
    /// There is none.
    Disabled,
}
