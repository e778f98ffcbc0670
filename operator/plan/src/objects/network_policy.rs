//! The NetworkPolicy: which connections to and from the pods are allowed.
//!
//! The admin port accepts connections from any client, for metrics. The control port, which takes drain requests, accepts only the
//! operator's pods. Kubernetes always allows connections from the node's kubelet and from the pod itself, such as those of `kubectl
//! port-forward`. Egress allows DNS, and TCP to any address: brokers announce their addresses and ports, so no fixed list would be right.
//! In a namespace that denies everything by default, this policy lets the pipeline work.

use crate::{
    identity::{Identity, OperatorPods},
    names::{ADMIN_PORT, CONTROL_PORT, GATEWAY, NAMESPACE_NAME},
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

/// The NetworkPolicy of gateways and schema Job. An operator outside a pod has no known address; then the policy allows every client to
/// reach the control port.
pub(crate) fn network_policy(identity: &Identity, operator: Option<&OperatorPods>) -> NetworkPolicy {
    let to = |ports| NetworkPolicyEgressRule { ports: Some(ports), ..NetworkPolicyEgressRule::default() };
    // Over TCP, which long answers take, they are reached with everything else.
    let names = DNS_PORTS.map(|number| port("UDP", Some(number))).to_vec();
    NetworkPolicy {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector_of_all()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![from(None, ADMIN_PORT), from(operator.map(peer), CONTROL_PORT)]),
            egress: Some(vec![to(names), to(vec![port("TCP", None)])]),
        }),
    }
}

fn from(peer: Option<NetworkPolicyPeer>, to: i32) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule { from: peer.map(|peer| vec![peer]), ports: Some(vec![port("TCP", Some(to))]) }
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
