//! Peers of the NetworkPolicy that the spec names, checked, and in the form in which the API server keeps them.

use crate::pipeline::pod_template::check_selector;
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{IPBlock, NetworkPolicyPeer},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use sluice_crds::TracePipelineSpec;
use sluice_gateway_config::Violations;
use std::net::{IpAddr, SocketAddr};

/// Who may connect to the admin port, who may send OTLP, and which servers pods may connect to. An empty list is everybody, and every server.
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
        if rules.enabled {
            check_families(&rules.egress_to, spec, found);
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
    let Some(all) = range(cidr, at, found) else { return };
    for text in except.iter().flatten() {
        let Some(without) = range(text, at, found) else { continue };
        let is_within = all.contains(&without) && without.prefix_len() > all.prefix_len();
        found.add_if(!is_within, at, || {
            format!("except {text:?} is not a part of {cidr:?}: name a smaller range of addresses within it")
        });
    }
}

/// Adds lists of servers that `egressTo` cuts off whole: all addresses are of IPv4, and all peers are ranges of IPv6, or the other way round. A
/// server with a name may have addresses of both.
fn check_families(peers: &[NetworkPolicyPeer], spec: &TracePipelineSpec, found: &mut Violations) {
    let of_range = |peer: &NetworkPolicyPeer| peer.ip_block.as_ref()?.cidr.parse::<IpNet>().ok();
    let ranges: Option<Vec<IpNet>> = peers.iter().map(of_range).collect();
    let is_of_range =
        |address: IpAddr| ranges.iter().flatten().any(|range| range.addr().is_ipv4() == address.is_ipv4());
    let is_allowed = |server: &String| address_of(server).is_none_or(is_of_range);
    let (none, sink) = (Vec::new(), &spec.sink.clickhouse);
    let brokers = spec.source.kafka.as_ref().map_or(&none, |kafka| &kafka.bootstrap_servers);
    let shards = sink.shards.iter().map(|shard| ("sink.clickhouse.shards", &shard.endpoints));
    let alone = [("source.kafka.bootstrapServers", brokers), ("sink.clickhouse.endpoints", &sink.endpoints)];
    for (field, servers) in alone.into_iter().chain(shards) {
        let is_cut_off =
            ranges.as_ref().is_some_and(|ranges| !ranges.is_empty()) && !servers.iter().any(is_allowed);
        if let Some(server) = servers.first().filter(|_| is_cut_off) {
            let message =
                format!("no ipBlock is of the address family of {server:?} in {field}: add one that is");
            found.add("spec.networkPolicy.egressTo", message);
        }
    }
}

/// The address of a broker or an endpoint that has one instead of a name.
fn address_of(server: &str) -> Option<IpAddr> {
    let server = server.split_once("://").map_or(server, |(_, rest)| rest);
    server.trim_end_matches('/').parse::<SocketAddr>().ok().map(|address| address.ip())
}

/// The range of addresses that a text names, or adds that it names none.
fn range(text: &str, at: &str, found: &mut Violations) -> Option<IpNet> {
    // `ipnet` reads 010.0.0.0 as 10.0.0.0, and others may read it as octal.
    let is_plain = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
    let range = text.parse().ok().filter(|_| is_plain);
    found.add_if(range.is_none(), at, || {
        format!("{text:?} is not a range of addresses such as 10.0.0.0/8 or 2001:db8::/32")
    });
    range
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
            ("010.0.0.0/8", false),
            ("10.0.0.0/33", false),
            ("::/129", false),
            ("10.0.0.0/+8", false),
            ("broker/8", false),
            ("10.0.0.0/", false),
        ] {
            let mut found = Violations::default();
            assert_eq!(range(text, "cidr", &mut found).is_some(), is_one, "{text}");
            assert_eq!(found.is_empty(), is_one, "{text}: {found}");
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
    fn a_server_of_the_other_family_than_all_ranges_is_a_violation() {
        let spec = |brokers: &str, peers: Value| -> TracePipelineSpec {
            let brokers: Vec<&str> = brokers.split(',').collect();
            serde_json::from_value(json!({
                "source": {"kafka": {"bootstrapServers": brokers, "topics": ["spans"]}},
                "sink": {"clickhouse": {"endpoints": ["http://10.0.0.1:8123/"]}},
                "networkPolicy": {"egressTo": peers},
            }))
            .unwrap()
        };
        let (v4, v6) = (json!({"ipBlock": {"cidr": "10.0.0.0/8"}}), json!({"ipBlock": {"cidr": "::/0"}}));
        let pods = json!({"podSelector": {}});
        for (brokers, peers, servers) in [
            ("[2001:db8::1]:9092", json!([v4]), vec!["[2001:db8::1]:9092"]),
            ("kafka:9092", json!([v6]), vec!["http://10.0.0.1:8123/"]),
            ("10.0.0.2:9092", json!([v6]), vec!["10.0.0.2:9092", "http://10.0.0.1:8123/"]),
            ("10.0.0.2:9092,kafka:9092", json!([v6]), vec!["http://10.0.0.1:8123/"]),
            ("[2001:db8::1]:9092", json!([v4, v6]), vec![]),
            ("[2001:db8::1]:9092", json!([v4, pods]), vec![]),
            ("[2001:db8::1]:9092", json!([]), vec![]),
        ] {
            let mut found = Violations::default();
            NetworkPeers::of(&spec(brokers, peers.clone()), &mut found).unwrap();
            let words = found.to_string();
            assert_eq!(words.matches("no ipBlock is of").count(), servers.len(), "{peers}: {words}");
            assert!(servers.iter().all(|server| words.contains(&format!("{server:?} in s"))), "{words}");
        }
    }

    #[test]
    fn what_a_policy_would_be_refused_for_is_a_violation() {
        for (value, message) in [
            (json!({}), "a peer has ipBlock"),
            (json!({"ipBlock": {"cidr": "::/0"}, "podSelector": {}}), "a peer has ipBlock"),
            (json!({"ipBlock": {"cidr": "kafka"}}), "is not a range of addresses"),
            (json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["a"]}}), "is not a range of addresses"),
            (
                json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16"]}}),
                "except \"11.0.0.0/16\" is not a part of \"10.0.0.0/8\"",
            ),
            (json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}), "is not a part of"),
            (json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["::/64"]}}), "is not a part of"),
            (json!({"podSelector": {"matchLabels": {"a b": "c"}}}), "is not a label"),
        ] {
            let mut found = Violations::default();
            check(&peer(value), "spec.networkPolicy.egressTo", &mut found);
            let words = found.to_string();
            assert!(words.contains("spec.networkPolicy.egressTo") && words.contains(message), "{words}");
        }
    }
}
