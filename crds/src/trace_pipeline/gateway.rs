//! The gateway's image, size and behaviour.

use crate::trace_pipeline::{pod_template::PodTemplate, resources::Resources, sink::SecretRef};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The gateway's image, size and behaviour.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Image. When it is not set, or empty, the operator's image for gateways when the pipeline began; gateways keep it when the operator is
    /// upgraded (see upgradeStrategy). status.image is the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9][A-Za-z0-9._:/@-]*)?$')")
        .message("image is a reference such as registry.example.com/sluice-gateway:1.2.3"))]
    pub image: Option<String>,

    /// What an upgrade of the operator, which brings another image, does to gateways while image is not set. Manual (the
    /// default): no gateway is replaced; they keep the image that they began with (status.defaultImage), and status.operatorImage is the
    /// operator's image for them now. Automatic: they get that image, one gateway first as with any change (see rollout). Gateways hold
    /// messages and rows, so the owner of a pipeline decides when they are replaced; an upgrade of the operator would replace the gateways
    /// of all pipelines at once. To upgrade, set Automatic, once or permanently, or set image. When image is removed from the spec,
    /// gateways get the operator's image of that moment. An image with which no gateway has been ready is not kept: the operator's next one
    /// takes its place.
    #[serde(default = "upgrade_strategy", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "UpgradeStrategy")]
    pub upgrade_strategy: Option<UpgradeStrategy>,

    /// When the image is pulled: IfNotPresent (the default), Always or Never.
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,

    /// Secrets in the pipeline's namespace with which images are pulled, of type kubernetes.io/dockerconfigjson, by name; at most 16. The
    /// pods of Jobs have them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub image_pull_secrets: Vec<SecretRef>,

    /// Memory and CPU of one gateway.
    #[serde(default)]
    pub resources: Resources,

    /// Worker threads of one gateway, 1 to 64. When it is not set: the whole cores of resources.requests.cpu, at least
    /// 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub workers: Option<u32>,

    /// What is logged: error, warn, info (the default), debug or trace.
    #[serde(default)]
    pub log_level: LogLevel,

    /// How long a gateway may take to stop: a duration such as 90s or 1m30s, from 15s to 1h. Default 60s. It waits for blocks in flight until 10
    /// s before the end, which are reserved for the exit.
    #[serde(default = "termination_grace_period")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('15s') && duration(self) <= duration('1h')")
        .message("terminationGracePeriod is a duration from 15s to 1h in whole h, m and s, such as 60s or 1m30s"))]
    pub termination_grace_period: String,

    /// Labels, annotations and placement of the pods. When it is not set, they have only those of the operator, and the scheduler may place
    /// them anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Box<PodTemplate>>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            image: None,
            upgrade_strategy: upgrade_strategy(),
            image_pull_policy: ImagePullPolicy::default(),
            image_pull_secrets: Vec::new(),
            resources: Resources::default(),
            workers: None,
            log_level: LogLevel::default(),
            termination_grace_period: termination_grace_period(),
            pod_template: None,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field, as serde wants it")]
fn upgrade_strategy() -> Option<UpgradeStrategy> {
    Some(UpgradeStrategy::default())
}

fn termination_grace_period() -> String {
    "60s".to_owned()
}

/// What another image of the operator means to gateways whose spec names none.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeStrategy {
    /// They get it.
    Automatic,
    /// They keep what they have.
    #[default]
    Manual,
}

/// When the image is pulled.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImagePullPolicy {
    /// At each start of a pod.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

/// What is logged.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what may fail soon.
    Warn,
    /// And what changed.
    #[default]
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}
