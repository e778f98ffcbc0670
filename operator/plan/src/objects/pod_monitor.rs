//! The PodMonitor: has the Prometheus operator scrape a pipeline's gateways and its edge. A cluster may lack this kind, so gateways do not wait for
//! this object.

use crate::{
    edge::EdgePlan,
    names::{COMPONENT, EDGE, GATEWAY, INSTANCE, MANAGED_BY, OPERATOR},
    planned::Plan,
};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The port of pods that has metrics.
const PORT: &str = "admin";

/// The fields of a `PodMonitor` that the operator sets. Its definition comes with the Prometheus operator:
/// <https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitor>.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMonitor {
    api_version: String,
    kind: String,
    /// Its name is that of the gateways' other objects.
    pub metadata: ObjectMeta,
    /// Which pods Prometheus scrapes, at which port, and how often.
    pub spec: Value,
}

impl k8s_openapi::Resource for PodMonitor {
    const API_VERSION: &'static str = "monitoring.coreos.com/v1";
    const GROUP: &'static str = "monitoring.coreos.com";
    const KIND: &'static str = "PodMonitor";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "podmonitors";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for PodMonitor {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The `PodMonitor`; `None` where the spec asks for none.
pub fn pod_monitor(plan: &Plan) -> Option<PodMonitor> {
    use k8s_openapi::Resource;
    let asked = plan.pod_monitoring.as_ref()?;
    let mut metadata = plan.identity.metadata(&plan.names().gateway(), GATEWAY);
    let theirs = asked.labels.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    metadata.labels.get_or_insert_default().extend(theirs);
    Some(PodMonitor {
        api_version: PodMonitor::API_VERSION.to_owned(),
        kind: PodMonitor::KIND.to_owned(),
        metadata,
        spec: json!({
            "selector": selector(plan),
            "podMetricsEndpoints": [{
                "port": PORT,
                "interval": asked.interval,
                // Rules and dashboards know a pipeline by this label.
                "relabelings": [{
                    "action": "replace",
                    "sourceLabels": ["__meta_kubernetes_pod_label_app_kubernetes_io_instance"],
                    "targetLabel": "pipeline",
                }],
            }],
        }),
    })
}

/// Selects the gateways; with an edge, its pods as well.
fn selector(plan: &Plan) -> Value {
    if *plan.edge() == EdgePlan::None {
        return json!({"matchLabels": plan.names().selector(GATEWAY)});
    }
    json!({
        "matchLabels": {INSTANCE: plan.names().pipeline(), MANAGED_BY: OPERATOR},
        "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": [GATEWAY, EDGE]}],
    })
}
