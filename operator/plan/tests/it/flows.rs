//! Every flow that a pipeline or the operator needs, tried against the rules of its NetworkPolicy by the rules of Kubernetes: a pod that
//! a policy selects may do what at least one of its rules allows, and nothing else. No local network enforces one.

use crate::{defaults, observed, planned, sample, with};
use k8s_openapi::{
    api::{
        core::v1::{PodSpec, PodTemplateSpec},
        networking::v1::{NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_gateway_config::parse;
use sluice_plan::{
    Defaults, Parts, Plan, Planned, build, drain_job,
    names::{ADMIN_PORT, CONTROL_PORT, NAMESPACE_NAME},
    plan,
    volumes::Drain,
};
use std::collections::BTreeMap;

/// One with what is given by default, one with everything, one with shards, and one whose ports are all others.
const SAMPLES: [&str; 4] = [
    "tracepipeline.yaml",
    "tracepipeline-full.yaml",
    "tracepipeline-sharded.yaml",
    "tracepipeline-tls-sasl.yaml",
];

/// Where the API server listens: as its Service, and on most control planes themselves.
const API_SERVER_PORTS: [i32; 2] = [443, 6_443];

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

/// A pipeline with its objects, and its pods: a gateway, and those of the Jobs for the schema and for a volume that no gateway uses.
struct Scene {
    pipeline: TracePipeline,
    parts: Parts,
    policy: NetworkPolicySpec,
    pods: [Pod; 3],
}

/// With the rules that every pipeline has: the tests of the spec's own peers are at the end.
fn scene(name: &str) -> Scene {
    let mut pipeline = sample(name);
    pipeline.spec.network_policy = None;
    let plan = planned(&pipeline, &observed(&pipeline, 12));
    let parts = build(&plan).into_parts();
    let gateway = parts.workload.clone().unwrap().spec.unwrap().template;
    let schema = parts.schema_job.clone().unwrap().spec.unwrap().template;
    let drain = drain(&plan);
    let pods = [("gateway", gateway), ("schema", schema), ("drain", drain)].map(|(name, template)| Pod {
        name,
        labels: template.metadata.unwrap().labels.unwrap(),
        spec: template.spec.unwrap(),
    });
    let policy = parts.network_policy.clone().unwrap().spec.unwrap();
    Scene { pipeline, parts, policy, pods }
}

fn drain(plan: &Plan) -> PodTemplateSpec {
    let (claim, claim_uid) = ("queue-demo-gateway-7".to_owned(), "u7".to_owned());
    let drain = Drain { ordinal: 7, claim, claim_uid, workload_version: "w.1".to_owned() };
    drain_job(plan, &drain).spec.unwrap().template
}

/// A file of the chart.
fn chart(file: &str) -> String {
    let path = format!("{}/../../charts/sluice/templates/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The operator's policy as the chart renders it with its own values: what asks for a value that is not set is left out, and so is which
/// pods are selected, which `cargo verify` looks at in what helm renders.
fn policy_of_the_operator() -> NetworkPolicySpec {
    let template = chart("networkpolicy.yaml");
    let (mut depth, mut rendered) = (0_u32, String::new());
    for line in template.lines().skip_while(|line| *line != "spec:") {
        match line.trim_start() {
            directive if directive.starts_with("{{- with ") => depth += 1,
            directive if directive.starts_with("{{- end") => depth = depth.saturating_sub(1),
            directive if directive.starts_with("{{") || depth > 0 => {}
            _ => {
                rendered.push_str(line);
                rendered.push('\n');
            }
        }
    }
    let policy: Value = serde_saphyr::from_str(&rendered).unwrap();
    let policy: NetworkPolicySpec = serde_json::from_value(policy["spec"].clone()).unwrap();
    assert!(governs(&policy, Way::In) && governs(&policy, Way::Out), "{policy:?}");
    policy
}

/// The operator's pod, as far as a policy looks at it.
fn operator() -> Pod {
    let deployment = chart("deployment.yaml");
    assert!(deployment.contains("--listen=0.0.0.0:8080") && deployment.contains("containerPort: 8080"));
    let container = json!({"name": "operator", "ports": [{"name": "http", "containerPort": 8_080}]});
    let spec = serde_json::from_value(json!({"containers": [container]})).unwrap();
    Pod { name: "operator", labels: BTreeMap::new(), spec }
}

/// Whether the policy lets the pod's connection pass; inwards, one of a stranger.
fn lets_pass(spec: &NetworkPolicySpec, pod: &Pod, way: Way, protocol: &str, port: i32) -> bool {
    if !selects(spec, &pod.labels) || !governs(spec, way) {
        return true;
    }
    let rules: Vec<Option<&Vec<NetworkPolicyPort>>> = match way {
        Way::In => {
            let rules = spec.ingress.as_deref().unwrap_or_default().iter();
            rules.filter(|rule| lets_in(rule, None)).map(|r| r.ports.as_ref()).collect()
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

/// Whether the rule is about connections of a pod with these labels in the namespace of that name; `None` is a client outside of pods.
fn lets_in(rule: &NetworkPolicyIngressRule, peer: Option<(&str, &BTreeMap<String, String>)>) -> bool {
    let matches = |selector: &Option<LabelSelector>, labels: &BTreeMap<String, String>| {
        let selector = selector.as_ref().expect("one without is not evaluated");
        assert!(selector.match_expressions.is_none(), "expressions are not evaluated");
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
    };
    let Some(from) = &rule.from else { return true };
    from.iter().any(|one| {
        assert!(one.ip_block.is_none(), "addresses are not evaluated");
        peer.is_some_and(|(namespace, labels)| {
            let of_namespace = [(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into();
            matches(&one.namespace_selector, &of_namespace) && matches(&one.pod_selector, labels)
        })
    })
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

/// Name servers and brokers, which tell of others.
fn kafka_and_names(pipeline: &TracePipeline) -> Vec<(&'static str, &'static str, i32)> {
    let mut needed = vec![
        ("names", "UDP", 53),
        ("names, when an answer is long", "TCP", 53),
        ("names on OpenShift", "UDP", 5_353),
        ("names on OpenShift, when an answer is long", "TCP", 5_353),
        ("a broker that tells of another port", "TCP", 9_094),
    ];
    let brokers = &pipeline.spec.source.kafka.as_ref().unwrap().bootstrap_servers;
    needed.extend(brokers.iter().map(|at| ("brokers", "TCP", port_of(at))));
    needed
}

#[test]
fn every_flow_that_a_pipeline_needs_passes() {
    for name in SAMPLES {
        let scene = scene(name);
        let clickhouse = &scene.pipeline.spec.sink.clickhouse;
        let of_shards = clickhouse.shards.iter().flat_map(|shard| &shard.endpoints);
        let servers: Vec<i32> = clickhouse.endpoints.iter().chain(of_shards).map(|at| port_of(at)).collect();
        assert!(!servers.is_empty(), "{name}");
        let mut needed = kafka_and_names(&scene.pipeline);
        needed.extend(servers.into_iter().map(|port| ("ClickHouse", "TCP", port)));
        for pod in &scene.pods {
            for (what, protocol, port) in &needed {
                let passes = lets_pass(&scene.policy, pod, Way::Out, protocol, *port);
                assert!(passes, "{name}: {} to {what} ({protocol} {port})", pod.name);
            }
        }
    }
}

#[test]
fn the_operator_prometheus_and_the_kubelet_reach_the_admin_port() {
    for name in SAMPLES {
        let Scene { parts, policy, pods: [gateway, ..], .. } = scene(name);
        let config = &parts.config_map.data.as_ref().unwrap()["gateway.yaml"];
        let config: Value = serde_saphyr::from_str(config).unwrap();
        let listens = port_of(config["admin"]["listen"].as_str().unwrap());
        let service = parts.service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
        let container = &gateway.spec.containers[0];
        let probed = container.readiness_probe.as_ref().unwrap().http_get.as_ref().unwrap();
        let named = container
            .ports
            .as_ref()
            .unwrap()
            .iter()
            .find(|port| probed.port == IntOrString::String(port.name.clone().unwrap_or_default()));
        assert_eq!([service, named.unwrap().container_port, ADMIN_PORT], [listens; 3]);
        assert!(lets_pass(&policy, &gateway, Way::In, "TCP", listens));
    }
}

#[test]
fn the_operators_pods_alone_reach_the_port_that_has_gateways_drain() {
    let operator = defaults().operator_pods.unwrap();
    let ours = (operator.namespace.as_str(), &operator.labels);
    let (no_labels, of_a_gateway) = (BTreeMap::new(), scene(SAMPLES[0]).pods[0].labels.clone());
    for name in SAMPLES {
        let Scene { parts, policy, pods: [gateway, ..], .. } = scene(name);
        let config = parse::from_yaml(&parts.config_map.data.as_ref().unwrap()["gateway.yaml"]).unwrap();
        let control = config.check().unwrap().control().unwrap();
        assert_eq!(i32::from(control.port()), CONTROL_PORT, "where a gateway takes commands");
        let passes = |peer| {
            let rules = policy.ingress.iter().flatten().filter(|rule| lets_in(rule, Some(peer)));
            rules
                .flat_map(|rule| rule.ports.iter().flatten())
                .any(|one| covers(one, &gateway, "TCP", CONTROL_PORT))
        };
        assert!(passes(ours));
        for stranger in [
            ("other", &operator.labels),
            (operator.namespace.as_str(), &no_labels),
            ("tracing", &of_a_gateway),
        ] {
            assert!(!passes(stranger), "{stranger:?}");
        }
        assert!(!lets_pass(&policy, &gateway, Way::In, "TCP", CONTROL_PORT));
    }
}

/// The address of an operator that runs elsewhere is not known.
#[test]
fn an_operator_that_runs_in_no_pod_reaches_that_port_as_everybody_does() {
    let pipeline = sample(SAMPLES[0]);
    let elsewhere = Defaults { operator_pods: None, ..defaults() };
    let Ok(Planned::Ready(plan)) = plan(&pipeline, &observed(&pipeline, 12), &elsewhere) else { panic!() };
    let policy = build(&plan).into_parts().network_policy.unwrap().spec.unwrap();
    assert!(lets_pass(&policy, &scene(SAMPLES[0]).pods[0], Way::In, "TCP", CONTROL_PORT));
}

/// What the chart tells the operator of its pods is what the pods are called.
#[test]
fn the_chart_names_the_operators_pods_by_their_selector() {
    let deployment = chart("deployment.yaml");
    let labels = r#"--pod-labels={{ include "sluice.selectorLabels" . | replace ": " "=" | replace "\"" "" | replace "\n" "," }}"#;
    assert!(deployment.contains(labels) && deployment.contains("name: POD_NAMESPACE"), "{deployment}");
    let known = defaults().operator_pods.unwrap().labels.into_keys().collect::<Vec<_>>();
    let helpers = chart("_helpers.tpl");
    let (_, selector) = helpers.split_once("define \"sluice.selectorLabels\" -}}\n").unwrap();
    let keys =
        selector.lines().take_while(|line| !line.starts_with("{{")).filter_map(|line| line.split_once(": "));
    let mut keys: Vec<_> = keys.map(|(key, _)| key.to_owned()).collect();
    keys.sort();
    assert_eq!(keys, known);
}

#[test]
fn every_flow_that_the_operator_needs_passes() {
    let (policy, operator) = (policy_of_the_operator(), operator());
    let passes = |way, protocol, port| lets_pass(&policy, &operator, way, protocol, port);
    for port in API_SERVER_PORTS {
        assert!(passes(Way::Out, "TCP", port), "to the API server at {port}");
    }
    assert!(passes(Way::Out, "TCP", ADMIN_PORT), "to gateways: metrics and /drainz");
    assert!(passes(Way::Out, "TCP", CONTROL_PORT), "to gateways: /drain and /resume");
    for name in SAMPLES {
        for (what, protocol, port) in kafka_and_names(&sample(name)) {
            assert!(passes(Way::Out, protocol, port), "{name}: to {what} ({protocol} {port})");
        }
    }
    assert!(passes(Way::In, "TCP", 8_080), "probes and metrics");
    // What the Service, and with it a ServiceMonitor, leads to.
    assert!(
        chart("service.yaml").contains("targetPort: http")
            && chart("servicemonitor.yaml").contains("port: http")
    );
}

#[test]
fn nothing_else_passes() {
    let scene = scene(SAMPLES[0]);
    let of_the_operator = (policy_of_the_operator(), operator());
    let others = [(Way::In, "TCP", 22), (Way::In, "TCP", 8_123), (Way::In, "TCP", 9_092)];
    let other_protocols = [(Way::Out, "UDP", 123), (Way::Out, "UDP", 9_092), (Way::Out, "SCTP", 9_092)];
    let all = scene
        .pods
        .iter()
        .map(|pod| (&scene.policy, pod, [(Way::In, "UDP", ADMIN_PORT), (Way::In, "TCP", 8_080)]));
    let own = [(Way::In, "UDP", 8_080), (Way::In, "TCP", ADMIN_PORT)];
    for (policy, pod, own) in all.chain([(&of_the_operator.0, &of_the_operator.1, own)]) {
        for (way, protocol, port) in others.into_iter().chain(other_protocols).chain(own) {
            assert!(!lets_pass(policy, pod, way, protocol, port), "{} {way:?} {protocol} {port}", pod.name);
        }
    }
}

#[test]
fn a_policy_is_about_the_pods_of_its_own_pipeline() {
    let scenes = SAMPLES.map(scene);
    for (at, one) in scenes.iter().enumerate() {
        for (place, other) in scenes.iter().enumerate() {
            let selected = other.pods.iter().filter(|pod| selects(&one.policy, &pod.labels)).count();
            let expected = if at == place { other.pods.len() } else { 0 };
            assert_eq!(selected, expected, "{} and {}", SAMPLES[at], SAMPLES[place]);
        }
    }
}

/// The policy of the demo's pipeline with these rules.
fn policy_with(rules: &Value, defaults: &Defaults) -> Value {
    let pipeline = with("/spec/networkPolicy", rules.clone());
    let Ok(Planned::Ready(plan)) = plan(&pipeline, &observed(&pipeline, 12), defaults) else { panic!() };
    json!(build(&plan).into_parts().network_policy.unwrap().spec.unwrap())
}

#[test]
fn clients_that_the_spec_names_reach_the_admin_port_beside_the_operator() {
    let prometheus = json!({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "monitoring"}}});
    let rules = json!({"metricsFrom": [prometheus]});
    let plain = policy_with(&json!({}), &defaults());
    let policy = policy_with(&rules, &defaults());
    let operator = plain["ingress"][1]["from"][0].clone();
    assert_eq!(policy["ingress"][0]["from"], json!([prometheus, operator]));
    assert_eq!(policy["ingress"][0]["ports"], plain["ingress"][0]["ports"]);
    assert_eq!(policy["ingress"][1], plain["ingress"][1], "the control port is the operator's alone");
    assert_eq!(policy["egress"], plain["egress"]);
    // One that runs elsewhere has to be named by the spec.
    let elsewhere = Defaults { operator_pods: None, ..defaults() };
    let policy = policy_with(&rules, &elsewhere);
    assert_eq!(policy["ingress"][0]["from"], json!([prometheus]));
    assert_eq!(policy["ingress"][1]["from"], Value::Null);
}

#[test]
fn servers_that_the_spec_names_are_reached_and_so_are_name_servers() {
    let brokers = json!({"ipBlock": {"cidr": "10.1.0.0/16"}});
    let plain = policy_with(&json!({}), &defaults());
    let policy = policy_with(&json!({"egressTo": [brokers]}), &defaults());
    assert_eq!(policy["ingress"], plain["ingress"]);
    let names = [("UDP", 53), ("UDP", 5_353), ("TCP", 53), ("TCP", 5_353)];
    let names = names.map(|(protocol, port)| json!({"protocol": protocol, "port": port}));
    assert_eq!(
        policy["egress"],
        json!([{"ports": names}, {"to": [brokers], "ports": [{"protocol": "TCP"}]}])
    );
}
