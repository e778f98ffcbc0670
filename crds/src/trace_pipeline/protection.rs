//! What surrounds the gateways: how many of them may be evicted at the same time, and whom they may be reached by.

use crate::of_kubernetes::bounded;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How many gateways may be evicted at the same time, for instance by a node that is drained; and, counted by themselves, how many pods of the
/// edge.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Whether there is a PodDisruptionBudget. Default true. Without one any number of gateways may be evicted at the same time, unless
    /// another budget has them; two budgets of the same pods let none be evicted.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Gateways that may be unavailable at the same time, 1 to 1000. Default 1. A gateway that is not ready counts as unavailable for ten
    /// minutes, and may itself be evicted at any time.
    #[serde(default = "max_unavailable")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_unavailable: u32,
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self { enabled: enabled(), max_unavailable: max_unavailable() }
    }
}

/// Which connections to and from the pods are allowed.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRules {
    /// Whether there is a NetworkPolicy. Default true: any client may connect to the admin port (see metricsFrom). Only the operator may
    /// connect to the port above it, and only clients of OTLP to the ports for OTLP (see otlpFrom). No client may connect to another port.
    /// Pods may use DNS and open any TCP connection (see egressTo). Rules of several policies add up: with false, only other policies apply,
    /// and no rule where there is no other policy.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Clients that may connect to the admin port, which serves /metrics, at most 32; as in from of a NetworkPolicy. When there is none, any
    /// client. The operator's pods always may, and so may the kubelet. An operator that runs outside of a pod must be among them, and for
    /// kubectl sluice lag and spool the API servers, as ipBlock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<NetworkPolicyPeer>>")]
    #[x_kube(
        validation = Rule::new("self.all(p, has(p.ipBlock) != (has(p.namespaceSelector) || has(p.podSelector)))")
            .message("each of metricsFrom has ipBlock, or namespaceSelector, podSelector or both of these, such as \
                      podSelector: {matchLabels: {app: prometheus}}"),
        merge_strategy = ListMerge::Atomic
    )]
    pub metrics_from: Vec<NetworkPolicyPeer>,

    /// Clients that may send OTLP, to the edge or to gateways with source.otlp, at most 32; as in from of a NetworkPolicy. When there is none, any client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<NetworkPolicyPeer>>")]
    #[x_kube(
        validation = Rule::new("self.all(p, has(p.ipBlock) != (has(p.namespaceSelector) || has(p.podSelector)))")
            .message("each of otlpFrom has ipBlock, or namespaceSelector, podSelector or both of these, such as \
                      podSelector: {matchLabels: {app: collector}}"),
        merge_strategy = ListMerge::Atomic
    )]
    pub otlp_from: Vec<NetworkPolicyPeer>,

    /// Servers that the pods may open TCP connections to, at most 32; as in to of a NetworkPolicy. When there is none, any server. All
    /// brokers and all ClickHouse servers must be among them. If sasl.oauth has clientCredentials, so must the server of tokenEndpoint. With
    /// awsMskIam without secretRef, so must AWS STS or the EKS Pod Identity agent (169.254.170.23). DNS is always allowed. A change takes effect on all gateways at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<NetworkPolicyPeer>>")]
    #[x_kube(
        validation = Rule::new("self.all(p, has(p.ipBlock) != (has(p.namespaceSelector) || has(p.podSelector)))")
            .message("each of egressTo has ipBlock, or namespaceSelector, podSelector or both of these, such as \
                      ipBlock: {cidr: 10.0.0.0/8}"),
        merge_strategy = ListMerge::Atomic
    )]
    pub egress_to: Vec<NetworkPolicyPeer>,
}

impl Default for NetworkRules {
    fn default() -> Self {
        Self { enabled: enabled(), metrics_from: Vec::new(), otlp_from: Vec::new(), egress_to: Vec::new() }
    }
}

fn enabled() -> bool {
    true
}

fn max_unavailable() -> u32 {
    1
}
