//! What the pods may be reached at, and what they may reach.
//!
//! The admin port takes connections from anyone, for metrics; the control port, which has gateways drain, from the operator's pods alone.
//! Kubernetes lets through what comes from the node's kubelet or from the pod itself, as `kubectl port-forward` does. Outwards, names may be looked up and TCP may go anywhere: brokers tell their
//! addresses and ports when they are asked, so that no list made beforehand would be right. In a namespace that denies
//! everything by default, this is what lets the pipeline work.

use crate::{
    OperatorPods,
    names::{ADMIN_PORT, CONTROL_PORT, GATEWAY, NAMESPACE_NAME},
    schema::Identity,
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

/// The NetworkPolicy of gateways and schema Job. An operator that runs in no pod has an address that nobody knows here, and with it
/// everybody reaches the control port.
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
