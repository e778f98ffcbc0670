//! What the pods of a pipeline get beside what the operator gives them: names for others, and places.
//!
//! Placement has Kubernetes' own types, so that what is written for a Deployment can be copied; [`bounded`] is their schema.

use crate::of_kubernetes::bounded;
use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What pods get beside what the operator sets. A change replaces gateways as rollout says. The pods of Jobs, which make the table and
/// drain volumes, get all of it except pod affinity, pod anti-affinity and topologySpreadConstraints: a Job that had to avoid gateways
/// might be unschedulable, and gateways wait for it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// More labels of the pods, at most 32. None begins with app.kubernetes.io/ or sluice.dev/: by those the operator, Services and
    /// policies know the pods. Nor is one a label that Kubernetes sets itself, such as job-name or topology.kubernetes.io/zone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('app.kubernetes.io/') && !k.startsWith('sluice.dev/'))")
        .message("labels of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those, and knows pods by \
                  them"))]
    pub labels: BTreeMap<String, LabelValue>,

    /// More annotations of the pods, at most 32, such as sidecar.istio.io/inject: "false" (a sidecar that never ends would keep Jobs from
    /// ending). None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('app.kubernetes.io/') && !k.startsWith('sluice.dev/'))")
        .message("annotations of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub annotations: BTreeMap<String, AnnotationValue>,

    /// Labels that a node must have, at most 32. A volume is bound to the node or zone where it was made: if that no longer matches, its
    /// gateway is unschedulable, and the change is rolled back (see rollout.autoRollback).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, LabelValue>,

    /// Taints of nodes that the pods tolerate, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<Toleration>>")]
    #[x_kube(
        validation = Rule::new("self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))")
            .message("tolerationSeconds of a toleration needs effect NoExecute: nothing else ends pods that run"),
        validation = Rule::new(
            "self.all(t, has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')")
            .message("a toleration with operator Exists has no value, and one without a key has operator Exists"),
        merge_strategy = ListMerge::Atomic
    )]
    pub tolerations: Vec<Toleration>,

    /// Which nodes the pods prefer or must have (nodeAffinity), and which pods they are to be near to or far from (podAffinity,
    /// podAntiAffinity; gateways alone). A term about pods names them by its labelSelector; those of this pipeline have
    /// app.kubernetes.io/instance: <name>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::<Affinity>")]
    pub affinity: Option<Affinity>,

    /// How gateways are spread over nodes or zones, at most 32; each topologyKey and whenUnsatisfiable once. One without a labelSelector
    /// counts this pipeline's gateways. When none is set, the scheduler's own defaults, which spread the pods of a StatefulSet over
    /// nodes and zones where it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<TopologySpreadConstraint>>")]
    #[x_kube(
        validation = Rule::new("self.all(c, !has(c.minDomains) || c.whenUnsatisfiable == 'DoNotSchedule')")
            .message("minDomains of a topologySpreadConstraint needs whenUnsatisfiable DoNotSchedule"),
        merge_strategy = ListMerge::Map(vec!["topologyKey".into(), "whenUnsatisfiable".into()])
    )]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// PriorityClass of the pods, for preemption. When it is not set, the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("priorityClassName is the name of a PriorityClass: a-z, 0-9, '-' and '.'"))]
    pub priority_class_name: Option<String>,

    /// RuntimeClass of the pods. When it is not set, the nodes' own runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("runtimeClassName is the name of a RuntimeClass: a-z, 0-9, '-' and '.'"))]
    pub runtime_class_name: Option<String>,
}

/// The value of a label.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LabelValue(
    #[schemars(length(max = 63), regex(pattern = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"))] pub String,
);

/// The value of an annotation. All of them are also in what the StatefulSet remembers of a template during a rollout, as JSON within JSON:
/// 32 of 2048 characters stay below the 256 KiB that Kubernetes allows an object.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnnotationValue(#[schemars(length(max = 2048))] pub String);
