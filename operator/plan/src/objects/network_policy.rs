//! The NetworkPolicy: which connections to and from the pods are allowed.
//!
//! The admin port accepts connections from any client, for metrics; or from the clients that the spec names, and the operator's pods, which
//! ask there how a gateway is. The control port, which takes drain requests, accepts only the operator's pods. Kubernetes always allows
//! connections from the node's kubelet and from the pod itself, such as those of `kubectl port-forward`. Egress allows DNS, and TCP to any
//! address: brokers announce their addresses and ports, so no list of the operator's would be right. The spec may name the servers.
//! In a namespace that denies everything by default, this policy lets the pipeline work.

use crate::{
    identity::{Identity, OperatorPods},
    names::{ADMIN_PORT, CONTROL_PORT, EDGE, GATEWAY, NAMESPACE_NAME, OTLP_GRPC_PORT, OTLP_HTTP_PORT},
    pipeline::network_peers::NetworkPeers,
};
use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

/// Ports of the name servers. A policy is about the port that packets have once the Service's address was replaced by a pod's: the
/// name servers of `OpenShift` listen at 5353.
const DNS_PORTS: [i32; 2] = [53, 5353];

/// The NetworkPolicy of gateways and Jobs. With `accepts_otlp`, the clients of the spec, or all, may send OTLP. An operator outside a pod has no
/// known address; then the policy allows every client to reach the
/// control port, and the admin port only the clients of the spec, if it names any.
pub(crate) fn network_policy(
    identity: &Identity,
    operator: Option<&OperatorPods>,
    peers: &NetworkPeers,
    accepts_otlp: bool,
) -> NetworkPolicy {
    let operator = operator.map(peer);
    let mut metrics = peers.metrics_from.clone();
    if !metrics.is_empty() {
        metrics.extend(operator.clone());
    }
    let control = operator.into_iter().collect();
    let of_clients = accepts_otlp.then(|| otlp(peers));
    let ingress = of_clients.into_iter().chain([from(metrics, ADMIN_PORT), from(control, CONTROL_PORT)]);
    NetworkPolicy {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector_of_all()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(ingress.collect()),
            egress: Some(egress(&peers.egress_to)),
        }),
    }
}

/// The NetworkPolicy of the edge: OTLP from the clients of the spec, or from all; metrics as of gateways; and out, what gateways may.
pub(crate) fn edge_network_policy(
    identity: &Identity,
    operator: Option<&OperatorPods>,
    peers: &NetworkPeers,
) -> NetworkPolicy {
    let mut metrics = peers.metrics_from.clone();
    if !metrics.is_empty() {
        metrics.extend(operator.map(peer));
    }
    NetworkPolicy {
        metadata: identity.metadata(&identity.names.edge(), EDGE),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector(EDGE)),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![otlp(peers), from(metrics, ADMIN_PORT)]),
            egress: Some(egress(&peers.egress_to)),
        }),
    }
}

/// OTLP from the clients of the spec, or from all.
fn otlp(peers: &NetworkPeers) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        ports: Some([OTLP_GRPC_PORT, OTLP_HTTP_PORT].map(|number| port("TCP", Some(number))).to_vec()),
        ..from(peers.otlp_from.clone(), OTLP_GRPC_PORT)
    }
}

/// DNS, and TCP to these servers, or to all. Long answers of name servers take TCP.
fn egress(servers: &[NetworkPolicyPeer]) -> Vec<NetworkPolicyEgressRule> {
    let mut names = DNS_PORTS.map(|number| port("UDP", Some(number))).to_vec();
    if !servers.is_empty() {
        names.extend(DNS_PORTS.map(|number| port("TCP", Some(number))));
    }
    let to = |servers: &[NetworkPolicyPeer], ports| NetworkPolicyEgressRule {
        to: (!servers.is_empty()).then(|| servers.to_vec()),
        ports: Some(ports),
    };
    vec![to(&[], names), to(servers, vec![port("TCP", None)])]
}

/// An empty list is everybody.
fn from(peers: Vec<NetworkPolicyPeer>, to: i32) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: (!peers.is_empty()).then_some(peers),
        ports: Some(vec![port("TCP", Some(to))]),
    }
}

fn peer(operator: &OperatorPods) -> NetworkPolicyPeer {
    let selector = |labels| Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
    NetworkPolicyPeer {
        namespace_selector: selector([(NAMESPACE_NAME.to_owned(), operator.namespace.clone())].into()),
        pod_selector: selector(operator.labels.clone()),
        ..NetworkPolicyPeer::default()
    }
}

fn port(protocol: &str, port: Option<i32>) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.into()),
        port: port.map(IntOrString::Int),
        ..NetworkPolicyPort::default()
    }
}
