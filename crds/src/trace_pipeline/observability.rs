//! What reads the gateways' metrics.

use super::LabelValue;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What reads the gateways' metrics.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observability {
    /// Has the Prometheus operator read the gateways' metrics.
    #[serde(default)]
    pub pod_monitor: PodMonitoring,
}

/// Has the Prometheus operator read the gateways' metrics.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMonitoring {
    /// Whether there is a PodMonitor of this pipeline's gateways and edge. Default false. It requires the Prometheus operator's CRD; while the
    /// cluster has none, an Event reports that, and the pipeline runs without it. The chart's PodMonitor (gatewayPodMonitor) covers the
    /// gateways of all pipelines; with both, every gateway is scraped twice.
    #[serde(default)]
    pub enabled: bool,

    /// Labels of the PodMonitor, at most 32, by which a Prometheus chooses it, such as release: kube-prometheus-stack. None begins with
    /// app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('app.kubernetes.io/') && !k.startsWith('sluice.dev/'))")
        .message("labels of podMonitor cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub labels: BTreeMap<String, LabelValue>,

    /// How often a gateway is scraped: a duration such as 30s or 1m30s, from 1s to 10m. Default 30s.
    #[serde(default = "interval")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('1s') && duration(self) <= duration('10m')")
        .message("interval is a duration from 1s to 10m in whole m and s, such as 30s or 1m30s"))]
    pub interval: String,
}

impl Default for PodMonitoring {
    fn default() -> Self {
        Self { enabled: false, labels: BTreeMap::new(), interval: interval() }
    }
}

fn interval() -> String {
    "30s".to_owned()
}
