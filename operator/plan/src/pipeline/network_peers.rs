//! Peers of the NetworkPolicy that the spec names, checked, and in the form in which the API server keeps them.

use crate::pipeline::pod_template::check_selector;
use k8s_openapi::{
    api::networking::v1::{IPBlock, NetworkPolicyPeer},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use sluice_crds::TracePipelineSpec;
use sluice_gateway_config::Violations;
use std::net::IpAddr;

/// Who may connect to the admin port, who may send OTLP to the edge, and which servers pods may connect to. An empty list is everybody, and every server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NetworkPeers {
    pub metrics_from: Vec<NetworkPolicyPeer>,
    pub otlp_from: Vec<NetworkPolicyPeer>,
    pub egress_to: Vec<NetworkPolicyPeer>,
}

impl NetworkPeers {
    /// Reads what the spec says, or adds what is wrong with it. `None` if there is to be no policy.
    pub fn of(spec: &TracePipelineSpec, found: &mut Violations) -> Option<Self> {
        let rules = spec.network_policy.clone().unwrap_or_default();
        for (field, peers) in [
            ("metricsFrom", &rules.metrics_from),
            ("otlpFrom", &rules.otlp_from),
            ("egressTo", &rules.egress_to),
        ] {
            for peer in peers {
                check(peer, &format!("spec.networkPolicy.{field}"), found);
            }
        }
        let kept = |peers: Vec<NetworkPolicyPeer>| peers.into_iter().map(as_kept).collect();
        rules.enabled.then(|| Self {
            metrics_from: kept(rules.metrics_from),
            otlp_from: kept(rules.otlp_from),
            egress_to: kept(rules.egress_to),
        })
    }
}

fn check(peer: &NetworkPolicyPeer, at: &str, found: &mut Violations) {
    let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
    let has_selector = namespace_selector.is_some() || pod_selector.is_some();
    found.add_if(ip_block.is_some() == has_selector, at, || {
        "a peer has ipBlock, or namespaceSelector, podSelector or both of these".to_owned()
    });
    check_selector(namespace_selector.as_ref(), at, found);
    check_selector(pod_selector.as_ref(), at, found);
    let Some(IPBlock { cidr, except }) = ip_block else { return };
    for range in [cidr].into_iter().chain(except.iter().flatten()) {
        found.add_if(!is_range(range), at, || {
            format!("{range:?} is not a range of addresses such as 10.0.0.0/8 or 2001:db8::/32")
        });
    }
}

/// Without empty lists, which the API server leaves out. An empty selector stays: it selects everything.
fn as_kept(peer: NetworkPolicyPeer) -> NetworkPolicyPeer {
    let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
    NetworkPolicyPeer {
        ip_block: ip_block.map(|IPBlock { cidr, except }| IPBlock {
            cidr,
            except: except.filter(|ranges| !ranges.is_empty()),
        }),
        namespace_selector: namespace_selector.map(selector_as_kept),
        pod_selector: pod_selector.map(selector_as_kept),
    }
}

fn selector_as_kept(selector: LabelSelector) -> LabelSelector {
    let requirement = |one: LabelSelectorRequirement| LabelSelectorRequirement {
        values: one.values.filter(|values| !values.is_empty()),
        ..one
    };
    let expressions = selector.match_expressions.filter(|all| !all.is_empty());
    LabelSelector {
        match_expressions: expressions.map(|all| all.into_iter().map(requirement).collect()),
        match_labels: selector.match_labels.filter(|labels| !labels.is_empty()),
    }
}

/// An address, and how many of its bits count.
fn is_range(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    is_number && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn peer(value: Value) -> NetworkPolicyPeer {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn ranges_have_an_address_and_its_bits() {
        for (text, is_one) in [
            ("10.0.0.0/8", true),
            ("0.0.0.0/0", true),
            ("2001:db8::/128", true),
            ("10.0.0.0", false),
            ("10.0.0.0/33", false),
            ("::/129", false),
            ("10.0.0.0/+8", false),
            ("broker/8", false),
            ("10.0.0.0/", false),
        ] {
            assert_eq!(is_range(text), is_one, "{text}");
        }
    }

    #[test]
    fn a_peer_is_what_the_server_keeps_of_it() {
        for (sent, kept) in [
            (json!({"podSelector": {}}), json!({"podSelector": {}})),
            (json!({"podSelector": {"matchLabels": {}, "matchExpressions": []}}), json!({"podSelector": {}})),
            (
                json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}}),
                json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
            ),
            (
                json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}),
                json!({"ipBlock": {"cidr": "10.0.0.0/8"}}),
            ),
        ] {
            assert_eq!(json!(as_kept(peer(sent))), kept);
        }
    }

    #[test]
    fn what_a_policy_would_be_refused_for_is_a_violation() {
        for (value, message) in [
            (json!({}), "a peer has ipBlock"),
            (json!({"ipBlock": {"cidr": "::/0"}, "podSelector": {}}), "a peer has ipBlock"),
            (json!({"ipBlock": {"cidr": "kafka"}}), "is not a range of addresses"),
            (json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["a"]}}), "is not a range of addresses"),
            (json!({"podSelector": {"matchLabels": {"a b": "c"}}}), "is not a label"),
        ] {
            let mut found = Violations::default();
            check(&peer(value), "spec.networkPolicy.egressTo", &mut found);
            let words = found.to_string();
            assert!(words.contains("spec.networkPolicy.egressTo") && words.contains(message), "{words}");
        }
    }
}
