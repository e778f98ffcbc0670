//! The queue volume of each gateway.

use crate::{repeated::repeated_at, texts};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The queue volume of each gateway. It grows while gateways run; for a smaller one, or one of another storage class, the gateways are
/// drained and recreated with a new volume, one at a time. The mode cannot be changed.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // The server tries rules on the default of the object too, in which nothing is filled in.
    validation = Rule::new("has(self.mode) == has(oldSelf.mode) && (!has(self.mode) || self.mode == oldSelf.mode)")
        .message("queue.mode cannot be changed after the pipeline was created: gateways would lose their volumes, or need new \
                  ones"),
    validation = repeated_at(&["maxBytes"], Rule::new(
        "!has(self.maxBytes) || !has(self.size) || !isQuantity(self.maxBytes) || !isQuantity(self.size) \
         || quantity(self.maxBytes).asInteger() <= quantity(self.size).asInteger() / 20 * 19")
        .message("maxBytes must be at most 95 % of size, such as 9728Mi of 10Gi: the file system of the volume needs the rest"))
)]
pub struct Queue {
    /// Spill (the default): each gateway has a volume for blocks that cannot be inserted yet, or with source.otlp for requests. Disabled: it has
    /// none.
    #[serde(default)]
    pub mode: QueueMode,

    /// Size of each volume: a whole number of Mi, Gi or Ti, 64Mi to 64Ti. Default 10Gi. A larger one makes the volumes grow
    /// while gateways run, where their storage class allows that; a smaller one replaces them, one gateway at a time, each once it
    /// is empty.
    #[serde(default = "size")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$') && quantity(self).compareTo(quantity('64Mi')) >= 0 \
         && quantity(self).compareTo(quantity('64Ti')) <= 0")
        .message("size is a whole number of Mi, Gi or Ti from 64Mi to 64Ti, such as 10Gi"))]
    pub size: String,

    /// Bytes of each volume that blocks may take: a whole number of Mi, Gi or Ti, at least 32Mi and at most 19/20 of size. When it is not
    /// set, 95 % of the volume, since the file system needs the rest; that grows with the volume. A gateway whose queue is full stops
    /// reading, and messages wait in Kafka; with source.otlp, clients are asked to send again. A smaller number leaves room for other users of the disk, or limits how long a queue takes to
    /// drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$') && quantity(self).compareTo(quantity('32Mi')) >= 0")
        .message("maxBytes is a whole number of Mi, Gi or Ti, at least 32Mi, such as 8Gi"))]
    pub max_bytes: Option<String>,

    /// Storage class of the volumes. When it is not set, the cluster's default. Another one replaces the volumes, one gateway at a time,
    /// each once it is empty; removing the field replaces none, and applies to new volumes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::object_name("storageClassName is the name of a StorageClass", "fast-ssd"))]
    pub storage_class_name: Option<String>,

    /// What happens to volumes that no gateway uses any more.
    #[serde(default)]
    pub retention_policy: RetentionPolicy,

    /// What the operator does with a volume that no node reaches any more, so that its gateway cannot run: Wait (the default) for a person,
    /// or Recreate.
    #[serde(default = "on_zone_loss", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnZoneLoss")]
    pub on_zone_loss: Option<OnZoneLoss>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            mode: QueueMode::default(),
            size: size(),
            max_bytes: None,
            storage_class_name: None,
            retention_policy: RetentionPolicy::default(),
            on_zone_loss: on_zone_loss(),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn on_zone_loss() -> Option<OnZoneLoss> {
    Some(OnZoneLoss::default())
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

/// What becomes of a volume that no node reaches any more: its zone or its machine is gone, or full.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnZoneLoss {
    /// Its gateway waits, and `Ready` says what a person can do.
    #[default]
    Wait,
    /// After ten minutes the operator deletes it, and its gateway gets a new one: only with delivery.commit AfterInsert, and only if Kafka
    /// is known to have all that was on it. Else as with Wait.
    Recreate,
}

/// What happens to volumes that no gateway uses any more. A volume that may hold the only copy of rows is always kept until it is
/// drained.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    /// When there are fewer gateways: Delete (the default) or Retain.
    #[serde(default)]
    pub when_scaled: Retention,

    /// When the pipeline is deleted: Delete (the default) or Retain. Volumes that are not known to be empty always stay, since no gateway
    /// is left to drain them, and an event names them; with delivery.commit AfterEnqueue all volumes stay.
    #[serde(default)]
    pub when_deleted: Retention,
}

/// What happens to a volume.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// It goes.
    #[default]
    Delete,
    /// It stays.
    Retain,
}
