//! What the pods may be reached at, and what they may reach.
//!
//! Only the admin port takes connections. Outwards, names may be looked up and TCP may go anywhere: brokers tell their
//! addresses and ports when they are asked, so that no list made beforehand would be right. In a namespace that denies
//! everything by default, this is what lets the pipeline work.

use crate::{
    names::{ADMIN_PORT, GATEWAY},
    schema::Identity,
};
use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort,
        NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

/// Port of the name servers.
const DNS_PORT: i32 = 53;

/// The NetworkPolicy of gateways and schema Job.
pub(crate) fn network_policy(identity: &Identity) -> NetworkPolicy {
    let to = |ports| NetworkPolicyEgressRule { ports: Some(ports), ..NetworkPolicyEgressRule::default() };
    NetworkPolicy {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector_of_all()),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(vec![port("TCP", Some(ADMIN_PORT))]),
                ..NetworkPolicyIngressRule::default()
            }]),
            egress: Some(vec![to(vec![port("UDP", Some(DNS_PORT))]), to(vec![port("TCP", None)])]),
        }),
    }
}

fn port(protocol: &str, port: Option<i32>) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.into()),
        port: port.map(IntOrString::Int),
        ..NetworkPolicyPort::default()
    }
}
