//! Every flow that a pipeline needs, tried against the rules of its NetworkPolicy by the rules of Kubernetes: a pod that a policy
//! selects may do what at least one of its rules allows, and nothing else. No local network enforces one.

use crate::{observed, planned, sample};
use k8s_openapi::{
    api::{
        core::v1::PodSpec,
        networking::v1::{NetworkPolicy, NetworkPolicyPort, NetworkPolicySpec},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use sluice_crds::TracePipeline;
use sluice_plan::{Parts, build};
use std::collections::BTreeMap;

const SAMPLES: [&str; 2] = ["tracepipeline.yaml", "tracepipeline-full.yaml"];

/// A pod as a policy sees it.
struct Pod {
    name: &'static str,
    labels: BTreeMap<String, String>,
    spec: PodSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

fn parts(pipeline: &TracePipeline) -> Parts {
    build(&planned(pipeline, &observed(pipeline, 12))).into_parts()
}

/// The pods of a pipeline: a gateway, and that of the schema Job.
fn pods(parts: &Parts) -> Vec<Pod> {
    let gateway = parts.workload.clone().unwrap().spec.unwrap().template;
    let schema = parts.schema_job.clone().unwrap().spec.unwrap().template;
    [("gateway", gateway), ("schema", schema)]
        .map(|(name, template)| Pod {
            name,
            labels: template.metadata.unwrap().labels.unwrap(),
            spec: template.spec.unwrap(),
        })
        .into()
}

/// Whether the policy lets the pod's connection pass.
fn lets_pass(policy: &NetworkPolicy, pod: &Pod, way: Way, protocol: &str, port: i32) -> bool {
    let spec = policy.spec.as_ref().unwrap();
    if !selects(spec, &pod.labels) || !governs(spec, way) {
        return true;
    }
    let rules: Vec<Option<&Vec<NetworkPolicyPort>>> = match way {
        Way::In => {
            let rules = spec.ingress.as_deref().unwrap_or_default().iter();
            rules
                .inspect(|rule| assert!(rule.from.is_none(), "peers are not evaluated"))
                .map(|r| r.ports.as_ref())
                .collect()
        }
        Way::Out => {
            let rules = spec.egress.as_deref().unwrap_or_default().iter();
            rules
                .inspect(|rule| assert!(rule.to.is_none(), "peers are not evaluated"))
                .map(|r| r.ports.as_ref())
                .collect()
        }
    };
    let matches = |ports: &Vec<NetworkPolicyPort>| ports.iter().any(|one| covers(one, pod, protocol, port));
    // A rule without ports is about all of them.
    rules.into_iter().any(|ports| ports.is_none_or(|ports| ports.is_empty() || matches(ports)))
}

fn selects(spec: &NetworkPolicySpec, labels: &BTreeMap<String, String>) -> bool {
    let selector = spec.pod_selector.as_ref().unwrap();
    assert!(selector.match_expressions.is_none(), "expressions are not evaluated");
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

fn governs(spec: &NetworkPolicySpec, way: Way) -> bool {
    let name = if way == Way::In { "Ingress" } else { "Egress" };
    spec.policy_types.iter().flatten().any(|kind| kind == name)
}

fn covers(rule: &NetworkPolicyPort, pod: &Pod, protocol: &str, port: i32) -> bool {
    if rule.protocol.as_deref().unwrap_or("TCP") != protocol {
        return false;
    }
    match &rule.port {
        None => true,
        Some(IntOrString::Int(first)) => (*first..=rule.end_port.unwrap_or(*first)).contains(&port),
        Some(IntOrString::String(name)) => {
            let ports = pod.spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
            ports.filter(|one| one.name.as_ref() == Some(name)).any(|one| one.container_port == port)
        }
    }
}

/// The port at the end of `host:port` or `http://host:port/`.
fn port_of(address: &str) -> i32 {
    address.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn every_flow_that_a_pipeline_needs_passes() {
    for name in SAMPLES {
        let pipeline = sample(name);
        let parts = parts(&pipeline);
        let kafka = &pipeline.spec.source.kafka;
        let mut needed = vec![
            ("names", "UDP", 53),
            ("names, when an answer is long", "TCP", 53),
            ("a broker that tells of another port", "TCP", 9_094),
        ];
        needed.extend(kafka.bootstrap_servers.iter().map(|at| ("brokers", "TCP", port_of(at))));
        needed.extend(
            pipeline.spec.sink.clickhouse.endpoints.iter().map(|at| ("ClickHouse", "TCP", port_of(at))),
        );
        for pod in pods(&parts) {
            for (what, protocol, port) in &needed {
                let passes = lets_pass(&parts.network_policy, &pod, Way::Out, protocol, *port);
                assert!(passes, "{name}: {} to {what} ({protocol} {port})", pod.name);
            }
        }
    }
}

#[test]
fn the_operator_prometheus_and_the_kubelet_reach_the_admin_port() {
    for name in SAMPLES {
        let parts = parts(&sample(name));
        let config = &parts.config_map.data.as_ref().unwrap()["gateway.yaml"];
        let config: serde_json::Value = serde_saphyr::from_str(config).unwrap();
        let listens = port_of(config["admin"]["listen"].as_str().unwrap());
        let service = parts.service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
        let gateway = &pods(&parts)[0];
        let container = &gateway.spec.containers[0];
        let probed = container.readiness_probe.as_ref().unwrap().http_get.as_ref().unwrap();
        let named = container
            .ports
            .as_ref()
            .unwrap()
            .iter()
            .find(|port| probed.port == IntOrString::String(port.name.clone().unwrap_or_default()));
        assert_eq!([service, named.unwrap().container_port], [listens, listens]);
        assert!(lets_pass(&parts.network_policy, gateway, Way::In, "TCP", listens));
    }
}

#[test]
fn nothing_else_passes() {
    let parts = parts(&sample(SAMPLES[0]));
    for pod in pods(&parts) {
        for (way, protocol, port) in [
            (Way::In, "TCP", 22),
            (Way::In, "TCP", 8_123),
            (Way::In, "TCP", 9_092),
            (Way::In, "UDP", 9_090),
            (Way::Out, "UDP", 123),
            (Way::Out, "SCTP", 9_092),
        ] {
            assert!(
                !lets_pass(&parts.network_policy, &pod, way, protocol, port),
                "{} {way:?} {port}",
                pod.name
            );
        }
    }
}

#[test]
fn a_policy_is_about_the_pods_of_its_own_pipeline() {
    let [one, other] = SAMPLES.map(|name| parts(&sample(name)));
    let spec = one.network_policy.spec.as_ref().unwrap();
    assert!(pods(&one).iter().all(|pod| selects(spec, &pod.labels)));
    assert!(pods(&other).iter().all(|pod| !selects(spec, &pod.labels)));
}
