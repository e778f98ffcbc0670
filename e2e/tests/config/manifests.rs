//! The chart: it passes lint, it renders, and its objects match the code.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use e2e_fixtures::files;
use e2e_stack::process::output;
use e2e_stack::{helm, paths};

/// The objects that the operator makes for the smallest sample.
const PLANNED: &str = "operator/plan/tests/golden/tracepipeline.yaml";

/// Values that turn all optional objects on.
const EVERYTHING: [&str; 2] = [
    "--set",
    "serviceMonitor.enabled=true,gatewayPodMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true",
];

/// Values that the chart must refuse: misspelt, of another type, out of range, or without effect.
const REFUSED: [&str; 18] = [
    "serviceMonitr.enabled=true",
    "networkPolicy.enabled=maybe",
    "networkPolicy.allow=all",
    "serviceMonitor.interval=often",
    "replicas=6",
    "watchNamespaces={Upper}",
    "clusterRole.tracePipelines=some",
    "clusterRole.aggregate=some",
    "watchNamespaces={a},clusterRole.enabled=false,clusterRole.tracePipelines=true",
    "resources.limits.memry=1Gi",
    "resources.limits.memory=1GB",
    "resources.claims[0].name=gpu",
    "podDisruptionBudget.maxUnavailable=some",
    "tolerations[0].efect=NoSchedule",
    "affinity.nodeAfinity.x=y",
    "networkPolicy.metricsFrom[0].podSelektor.x=y",
    "kafkaClientsMax=0",
    "kafkaClientsMax=1025",
];

/// Values that the chart must accept, because Kubernetes does.
const TAKEN: [&str; 5] = [
    r#"resources={"requests":{"cpu":0.5},"limits":{"memory":"1Gi","example.com/device":1}}"#,
    r#"podDisruptionBudget={"maxUnavailable":"50%"}"#,
    r#"tolerations=[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}]"#,
    r#"affinity={"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1}]}}"#,
    r#"networkPolicy={"metricsFrom":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}"#,
];

/// Release names that cannot be part of a Service's name.
const NOT_NAMES: [&str; 2] = ["2024", "a.b"];

/// `helm lint --strict`, with the chart's own values and with everything on.
#[test]
fn the_chart_lints() -> anyhow::Result<()> {
    output(&mut helm(&["lint", "--strict", "charts/sluice"])?)?;
    let mut everything = helm(&["lint", "--strict", "charts/sluice"])?;
    everything.args(EVERYTHING);
    output(&mut everything).map(drop)
}

/// Renders the chart with its defaults and with everything on, and checks the objects.
#[test]
fn the_chart_renders_what_the_code_says() -> anyhow::Result<()> {
    let usual = rendered(&[])?;
    let kinds = [
        "Deployment",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    ];
    for kind in kinds {
        the(kind, &usual)?;
    }
    for expected in [sluice_crds::crd(), sluice_crds::connection_crd()] {
        let name = &expected["metadata"]["name"];
        let rendered = definitions(&usual).find(|one| one["metadata"]["name"] == *name);
        let rendered = rendered.with_context(|| format!("the chart does not render {name}"))?;
        ensure!(
            rendered["spec"] == expected["spec"],
            "the chart's {name} is not the one that the code makes"
        );
    }
    ensure!(definitions(&usual).count() == 2, "the chart renders other definitions");
    let without = rendered(&["--set", "crds.enabled=false"])?;
    ensure!(
        of_kind(&without, "CustomResourceDefinition").is_none(),
        "crds.enabled=false still renders a definition"
    );
    monitoring(&usual)?;
    kafka_clients()?;
    network_policy(&usual)?;
    for value in REFUSED {
        ensure!(rendered(&["--set", value]).is_err(), "the chart takes {value}");
    }
    for value in TAKEN {
        rendered(&["--set-json", value]).with_context(|| format!("values.schema.json refuses {value}"))?;
    }
    users(&usual)?;
    names()?;
    kept()
}

/// The chart passes the limit of Kafka clients to the operator. After an upgrade with the values of a chart without this value, the
/// operator uses its own default.
fn kafka_clients() -> anyhow::Result<()> {
    for (value, expected) in [
        ("kafkaClientsMax=64", Some("--kafka-clients-max=64")),
        ("kafkaClientsMax=1024", Some("--kafka-clients-max=1024")),
        ("kafkaClientsMax=null", None),
    ] {
        let objects = rendered(&["--set", value])?;
        let arguments = operator_arguments(&objects)?;
        let found = arguments.into_iter().find(|argument| argument.starts_with("--kafka-clients-max"));
        ensure!(found == expected, "{value} is {found:?}");
    }
    Ok(())
}

/// Names of a release and its namespace are rendered as text, even if YAML would read a number or a boolean. The chart rejects release
/// names that cannot be part of a Service's name.
fn names() -> anyhow::Result<()> {
    let narrowed = ["--set-json", r#"watchNamespaces=["2024"]"#];
    for more in [&[] as &[&str], &narrowed] {
        let arguments: Vec<&str> = EVERYTHING.iter().chain(more).copied().collect();
        let objects = rendered_as("true", "2024", &arguments)?;
        for field in ["namespace", "app.kubernetes.io/instance"] {
            let found = objects.iter().flat_map(all_in).filter_map(|value| value.get(field));
            let found: Vec<&Value> = found.filter(|value| !value.is_object()).collect();
            ensure!(found.len() > 10 && found.iter().all(|value| value.is_string()), "{field} is {found:?}");
        }
        let labels = "--pod-labels=app.kubernetes.io/name=sluice-operator,app.kubernetes.io/instance=true";
        let arguments = operator_arguments(&objects)?;
        ensure!(arguments.contains(&labels), "{labels} is not among {arguments:?}");
    }
    for release in NOT_NAMES {
        let refused = rendered_as(release, "sluice-system", &[]).map(drop);
        let is_said = refused.is_err_and(|error| error.to_string().contains("the release cannot be called"));
        ensure!(is_said, "a release may be called {release}");
    }
    Ok(())
}

/// A value, and all values in it.
pub(super) fn all_in(value: &Value) -> Vec<&Value> {
    let inner: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    std::iter::once(value).chain(inner.into_iter().flat_map(all_in)).collect()
}

/// Users with Kubernetes' own roles in a namespace can read pipelines there, or make them; only the operator writes the status.
fn users(usual: &[Value]) -> anyhow::Result<()> {
    let is_for = |role: &Value, whom: &str| {
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{whom}")] == "true"
    };
    let may = |whom: &str, resource: &str, verb: &str| {
        let has =
            |list: &Value, word: &str| list.as_array().is_some_and(|list| list.iter().any(|one| one == word));
        let roles = usual.iter().filter(|role| role["kind"] == "ClusterRole" && is_for(role, whom));
        let mut granted = roles.flat_map(|role| role["rules"].as_array().into_iter().flatten());
        granted.any(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb))
    };
    for (whom, resource, verb, expected) in [
        ("view", "tracepipelines", "list", true),
        ("view", "tracepipelines", "create", false),
        ("view", "tracepipelines/scale", "patch", false),
        ("edit", "tracepipelines", "create", true),
        ("edit", "tracepipelines/scale", "patch", true),
        ("admin", "tracepipelines", "delete", true),
        ("edit", "tracepipelines/status", "patch", false),
        ("admin", "tracepipelines/status", "update", false),
        ("view", "traceconnections", "list", true),
        ("view", "traceconnections", "patch", false),
        ("edit", "traceconnections", "patch", true),
        ("admin", "traceconnections/status", "patch", false),
    ] {
        ensure!(may(whom, resource, verb) == expected, "{whom} may {verb} {resource}: {}", !expected);
    }
    for (values, expected) in [
        ("clusterRole.aggregate=false", false),
        // With all namespaces, and with its ClusterRole for other cases.
        ("clusterRole.enabled=false", true),
        ("clusterRole.enabled=false,watchNamespaces={a}", false),
        ("watchNamespaces={a}", true),
    ] {
        let objects = rendered(&["--set", values])?;
        let gives = objects.iter().any(|role| is_for(role, "view") || is_for(role, "edit"));
        ensure!(gives == expected, "{values} gives rights to users: {gives}");
    }
    Ok(())
}

/// Whether the definitions stay after the release is removed.
fn kept() -> anyhow::Result<()> {
    for (value, expected) in [("crds.keep=true", json!("keep")), ("crds.keep=false", Value::Null)] {
        let objects = rendered(&["--set", value])?;
        for definition in definitions(&objects) {
            let policy = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
            ensure!(*policy == expected, "{value} renders {policy}");
        }
    }
    Ok(())
}

/// The objects for the Prometheus operator and Grafana: none by default; with the values set, they select our own pods.
fn monitoring(usual: &[Value]) -> anyhow::Result<()> {
    let kinds = ["ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"];
    ensure!(kinds.iter().all(|kind| of_kind(usual, kind).is_none()), "the chart renders monitoring unasked");
    let everything = rendered(&EVERYTHING)?;
    let found = |kind| the(kind, &everything);
    let service = &found("Service")?["metadata"]["labels"];
    let selector = &found("ServiceMonitor")?["spec"]["selector"];
    ensure!(selects(selector, service), "the ServiceMonitor selects {selector}, the Service has {service}");
    let endpoint = &found("ServiceMonitor")?["spec"]["endpoints"][0];
    let ports = &found("Service")?["spec"]["ports"];
    ensure!(
        has_port(ports, &endpoint["port"]),
        "the ServiceMonitor asks {endpoint}, the Service has {ports}"
    );
    ensure!(
        endpoint["honorLabels"] == true,
        "metrics about a pipeline get the operator's namespace: {endpoint}"
    );
    let gateways = &found("PodMonitor")?["spec"];
    ensure!(gateways["namespaceSelector"]["any"] == true, "the PodMonitor looks into {gateways}");
    scraped(gateways)?;
    let groups = &found("PrometheusRule")?["spec"]["groups"];
    let is_whole = |rule: &Value| {
        ["alert", "expr", "for"].iter().all(|field| rule[field].is_string())
            && rule["annotations"]["summary"].is_string()
    };
    ensure!(groups.is_array() && rules(groups).all(is_whole), "a rule lacks a field: {groups}");
    own_leader(groups, &found("Service")?["metadata"])?;
    let boards = everything.iter().filter(|object| object["kind"] == "ConfigMap");
    for board in boards {
        for (file, text) in board["data"].as_object().context("a dashboard without data")? {
            let text = text.as_str().with_context(|| format!("{file} is no text"))?;
            serde_json::from_str::<Value>(text).with_context(|| format!("{file} is no JSON"))?;
        }
    }
    Ok(())
}

/// The alert about a missing leader is about the release's own leader, by the labels that the `ServiceMonitor` adds.
fn own_leader(groups: &Value, service: &Value) -> anyhow::Result<()> {
    let rule = rules(groups).find(|rule| rule["alert"] == "SluiceOperatorHasNoLeader");
    let rule = rule.context("no rule misses the leader")?;
    let (namespace, name) = (&service["namespace"], &service["name"]);
    let expected = format!("absent(sluice_operator_leader{{namespace={namespace},service={name}}} == 1)");
    ensure!(rule["expr"] == expected, "{} is not {expected}", rule["expr"]);
    let labels = &rule["labels"];
    ensure!(labels["namespace"] == *namespace && labels["service"] == *name, "the alert has {labels}");
    Ok(())
}

/// The `PodMonitor` selects the gateways that the operator makes, at an existing port, and adds the label `pipeline`, by which alerts and
/// dashboards separate them.
fn scraped(monitor: &Value) -> anyhow::Result<()> {
    let planned = files::yamls(PLANNED)?;
    let workload =
        of_kind(&planned, "StatefulSet").with_context(|| format!("{PLANNED} has no StatefulSet"))?;
    let pod = &workload["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    let selector = &monitor["selector"];
    ensure!(selects(selector, labels), "the PodMonitor selects {selector}, gateways have {labels}");
    let endpoint = &monitor["podMetricsEndpoints"][0];
    let ports = &pod["spec"]["containers"][0]["ports"];
    ensure!(has_port(ports, &endpoint["port"]), "the PodMonitor asks {endpoint}, gateways have {ports}");
    // The label `app.kubernetes.io/instance` as Prometheus writes it; a gateway has its pipeline's name there.
    let is_named = endpoint["relabelings"].as_array().is_some_and(|all| {
        all.iter().any(|one| {
            one["sourceLabels"] == json!(["__meta_kubernetes_pod_label_app_kubernetes_io_instance"])
                && one["targetLabel"] == "pipeline"
        })
    });
    ensure!(is_named, "gateways get no label `pipeline`: {endpoint}");
    let pipeline = &workload["metadata"]["ownerReferences"][0]["name"];
    ensure!(labels["app.kubernetes.io/instance"] == *pipeline, "gateways of {pipeline} have {labels}");
    Ok(())
}

fn has_port(ports: &Value, name: &Value) -> bool {
    name.is_string() && ports.as_array().is_some_and(|ports| ports.iter().any(|port| port["name"] == *name))
}

/// The operator's NetworkPolicy: it selects the operator's pods, and allows probes and metrics.
fn network_policy(usual: &[Value]) -> anyhow::Result<()> {
    let policy = &the("NetworkPolicy", usual)?["spec"];
    let template = &the("Deployment", usual)?["spec"]["template"];
    let is_selected = selects(&policy["podSelector"], &template["metadata"]["labels"]);
    ensure!(is_selected, "the policy does not select the operators, or selects every pod");
    let port = &template["spec"]["containers"][0]["ports"][0]["containerPort"];
    ensure!(policy["ingress"][0]["ports"][0]["port"] == *port, "probes and metrics are kept out");
    let peers = ["--set-json", r#"networkPolicy.metricsFrom=[{"namespaceSelector":{}}]"#];
    let narrowed = rendered(&peers)?;
    let narrowed = of_kind(&narrowed, "NetworkPolicy").context("peers remove the NetworkPolicy")?;
    ensure!(narrowed["spec"]["ingress"][0]["from"].is_array(), "metricsFrom has no effect");
    let without = rendered(&["--set", "networkPolicy.enabled=false"])?;
    ensure!(of_kind(&without, "NetworkPolicy").is_none(), "networkPolicy.enabled=false still renders one");
    Ok(())
}

pub(super) fn rendered(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    rendered_as("sluice", "sluice-system", arguments)
}

fn rendered_as(release: &str, namespace: &str, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let words = ["template", release, "charts/sluice", "--namespace", namespace];
    understood(helm(&words)?.args(arguments))
}

/// Renders a chart, or an archive of one.
pub(super) fn rendered_from(chart: &str, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    understood(helm(&["template", "sluice", chart, "--namespace", "sluice-system"])?.args(arguments))
}

fn understood(command: &mut Command) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(&output(command)?).context("understand what helm renders")
}

/// The first object of this kind, which the chart must render.
pub(super) fn the<'a>(kind: &str, objects: &'a [Value]) -> anyhow::Result<&'a Value> {
    of_kind(objects, kind).with_context(|| format!("the chart renders no {kind}"))
}

/// The operator's arguments.
pub(super) fn operator_arguments(objects: &[Value]) -> anyhow::Result<Vec<&str>> {
    let arguments = &the("Deployment", objects)?["spec"]["template"]["spec"]["containers"][0]["args"];
    Ok(arguments.as_array().into_iter().flatten().filter_map(Value::as_str).collect())
}

/// Whether a selector has labels, and an object with these labels has all of them.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object().filter(|wanted| !wanted.is_empty());
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

/// The rules of all groups.
pub(super) fn rules(groups: &Value) -> impl Iterator<Item = &Value> {
    let groups = groups.as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

pub(super) fn definitions(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition")
}

pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

fn helm(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut helm = e2e_stack::process::command(helm::path()?);
    helm.current_dir(paths::workspace()).args(arguments);
    Ok(helm)
}
