//! Every value of the chart: it renders something that the defaults do not.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e_fixtures::files::{text, yaml};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{EnvVar, Pod, Service, ServiceAccount, Volume, VolumeMount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::{DeserializeOwned, Error as _, Visitor, value};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::chart_readme::{VALUES, described};
use super::manifests::{all_in, definitions, of_kind, rendered, rendered_from, selects, the};

/// The pod labels in the selector of the release `sluice`, unchanged since the first chart.
const SELECTOR: &str =
    r#"{"app.kubernetes.io/name":"sluice-operator","app.kubernetes.io/instance":"sluice"}"#;

/// The first published chart.
const FIRST_CHART: &str = "e2e/tests/it/install/first_chart";

const CASES: &str = include_str!("chart_values.yaml");

const POD: &str = "/spec/template/spec/";

const ARGS: &str = "/spec/template/spec/containers/0/args";

/// A case: the key of a value, the value, the kind of an object, a path in it, and the expected content of that path.
type Case = (String, Value, String, String, Value);

#[derive(Deserialize)]
struct Cases {
    together: Vec<Case>,
    alone: Vec<Case>,
    refused: Vec<(String, Value, String)>,
}

impl Cases {
    fn read() -> Result<Self> {
        serde_saphyr::from_str(CASES).context("understand chart_values.yaml")
    }
}

/// Values without a case of their own: one is set with `serviceAccount.name`, the others have an effect only with `watchNamespaces` (rights.rs).
const ELSEWHERE: &[&str] = &["serviceAccount.create", "clusterRole.enabled", "clusterRole.tracePipelines"];

/// Values that the first charts did not have, as `helm upgrade --reuse-values` leaves them.
const UNSET: &str = "global=null,nameOverride=null,fullnameOverride=null,commonLabels=null,image.registry=null,rbac=null,\
    serviceAccount.create=null,serviceAccount.name=null,topologySpreadConstraints=null,podSecurityContext=null,\
    securityContext=null,extraArgs=null,extraEnv=null,extraVolumes=null,extraVolumeMounts=null";

/// Values that turn optional objects on, and the definitions off. The definitions take most of the time and have their own values.
const ON: [&str; 5] = [
    "crds.enabled=false",
    "serviceMonitor.enabled=true",
    "gatewayPodMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "dashboards.enabled=true",
];

/// Values without a default: if they are `null`, their part is left out.
const LEFT_OUT: [&str; 6] = [
    "resources",
    "kafkaClientsMax",
    "dashboards.labels",
    "revisionHistoryLimit",
    "podSecurityContext.",
    "securityContext.",
];

#[test]
fn every_value_changes_what_is_rendered() -> Result<()> {
    let cases = Cases::read()?;
    let (usual, together) = (rendered(&[])?, set(&cases.together)?);
    for case in &cases.together {
        check(case, &together, &usual)?;
    }
    for case in &cases.alone {
        check(case, &set(std::slice::from_ref(case))?, &usual)?;
    }
    let without = rendered(&["--set", "watchNamespaces={a},clusterRole.enabled=false"])?;
    ensure!(of_kind(&without, "ClusterRole").is_none(), "clusterRole.enabled=false has no effect");
    let all = cases.together.iter().chain(&cases.alone).map(|case| case.0.as_str());
    let tested: BTreeSet<&str> = all.chain(ELSEWHERE.iter().copied()).collect();
    // Keys with a row in the README.
    let described = described(&text(VALUES)?).into_iter();
    let untested: Vec<String> =
        described.map(|(key, _)| key).filter(|key| !tested.contains(key.as_str())).collect();
    ensure!(untested.is_empty(), "no case sets {untested:?}");
    together.iter().try_for_each(is_understood)
}

/// An error about a wrong value names the value.
#[test]
fn a_wrong_value_is_refused_with_its_place() -> Result<()> {
    for (key, value, message) in Cases::read()?.refused {
        let given = format!("{key}={value}");
        let Err(error) = rendered(&["--set-json", &given]) else { anyhow::bail!("the chart takes {given}") };
        ensure!(error.to_string().contains(&message), "{given}: {error} does not say {message}");
    }
    Ok(())
}

/// Helm answers a text of another form with the regular expression alone: `templates/_forms.tpl` says it in words.
#[test]
fn the_schema_has_no_pattern() -> Result<()> {
    let schema = text("charts/sluice/values.schema.json")?;
    ensure!(!schema.contains("\"pattern\""), "move the pattern to templates/_forms.tpl");
    Ok(())
}

/// The schema refuses a key that Kubernetes would drop with a warning, and no key that Kubernetes has.
#[test]
fn elements_have_the_fields_of_kubernetes_and_no_others() -> Result<()> {
    let schema: Value = serde_json::from_str(&text("charts/sluice/values.schema.json")?)?;
    for (value, fields) in [
        ("extraEnv", field_names::<EnvVar>()),
        ("extraVolumes", field_names::<Volume>()),
        ("extraVolumeMounts", field_names::<VolumeMount>()),
    ] {
        let element = &schema["properties"][value]["items"];
        let known = element["properties"].as_object().into_iter().flatten();
        let known: BTreeSet<&str> = known.map(|(key, _)| key.as_str()).collect();
        ensure!(known == fields, "{value}: the schema has {known:?}, Kubernetes has {fields:?}");
        ensure!(element["additionalProperties"] == false, "{value} takes other keys");
    }
    Ok(())
}

/// What the operator reads is not refused by the chart.
#[test]
fn every_selector_and_log_filter_of_the_operator_is_taken() -> Result<()> {
    let selectors =
        ["team", "!team", "a=b,c!=d", "example.com/a == b", "a in (b, c), d notin (e)", " a in(b) ", "a="];
    let filters = ["WARN", "off", "warn,sluice_kafka=debug", "sluice_operator::run=trace,error"];
    let selectors = selectors.map(|selector| format!("pipelineSelector={}", json!(selector)));
    for given in selectors.into_iter().chain(filters.map(|filter| format!("logLevel={}", json!(filter)))) {
        rendered(&["--set-json", &given]).with_context(|| given.clone())?;
    }
    Ok(())
}

/// Kubernetes rejects a change of a Deployment's selector. With another Lease, new operators would work at the same time as the old ones.
#[test]
fn no_value_changes_selector_or_lease() -> Result<()> {
    let first = rendered_from(FIRST_CHART, &[])?;
    let together = set(&Cases::read()?.together)?;
    let labels = rendered(&["--set", "commonLabels.a=b,podLabels.c=d"])?;
    let short = rendered(&["--set", "nameOverride=x"])?;
    let expected: Value = serde_json::from_str(SELECTOR)?;
    for objects in [&first, &rendered(&[])?, &together, &labels, &short] {
        let deployment = the("Deployment", objects)?;
        let selector = &deployment["spec"]["selector"];
        ensure!(*selector == json!({"matchLabels": expected}), "another selector: {selector}");
        ensure!(has(deployment, ARGS, &json!("--lease-name=sluice")), "another Lease: {deployment}");
        let service = the("Service", objects)?;
        ensure!(
            service["spec"]["selector"] == expected,
            "the Service selects {}",
            service["spec"]["selector"]
        );
        let template = &deployment["spec"]["template"]["metadata"]["labels"];
        ensure!(selects(selector, template), "the Deployment does not select its pods: {template}");
    }
    for pod in rendered(&[])?.iter().filter(|object| object["kind"] == "Pod") {
        let labels = &pod["metadata"]["labels"];
        ensure!(labels["app.kubernetes.io/name"] == "sluice-test", "selectors find a test: {labels}");
    }
    Ok(())
}

/// `helm upgrade --reuse-values` from a chart without the newer values renders the same as the defaults.
#[test]
fn values_that_are_not_there_are_the_charts_own() -> Result<()> {
    let mut found = rendered(&["--set", UNSET, "--set-json", r#"gateway.image="""#])?;
    // A chart that has this one as a dependency may turn it off by `condition: sluice.enabled`.
    let usual = rendered(&["--set", "revisionHistoryLimit=10,enabled=true"])?;
    found.retain(Value::is_object);
    ensure!(found.len() == usual.len(), "{} objects, not {}", found.len(), usual.len());
    for (found, usual) in found.iter().zip(&usual) {
        ensure!(found == usual, "{found} is not {usual}");
    }
    Ok(())
}

/// `null` deletes a value of the chart, also a map. Each such value then has its default, is left out, or causes an error that names it.
#[test]
fn a_value_that_is_null_has_its_default() -> Result<()> {
    let paths = keys(&yaml(VALUES)?, "");
    ensure!(paths.len() > 60, "{} values", paths.len());
    let (mut alone, mut together): (Vec<&str>, Vec<Vec<&str>>) = Default::default();
    for path in &paths {
        if LEFT_OUT.iter().any(|key| path.starts_with(*key)) || !ON.iter().all(|one| stays(one, path)) {
            alone.push(path);
            continue;
        }
        // One value of each map at a time: a map that is null has no other values.
        let top = |path: &str| path.split('.').next().map(str::to_owned);
        let free = together.iter_mut().find(|round| round.iter().all(|other| top(other) != top(path)));
        match free {
            Some(round) => round.push(path),
            None => together.push(vec![path]),
        }
    }
    let usual = on(&ON, &[])?;
    for round in &together {
        ensure!(on(&ON, round)? == usual, "one of these is not its default once it is null: {round:?}");
    }
    for path in alone {
        let kept: Vec<&str> = ON.into_iter().filter(|one| stays(one, path)).collect();
        let found = match on(&kept, &[path]) {
            Ok(found) => found,
            Err(error) if error.to_string().contains("missing property") => continue,
            Err(error) => return Err(error.context(format!("{path}=null"))),
        };
        if LEFT_OUT.iter().any(|key| path.starts_with(*key)) {
            let others = found.iter().filter(|object| object["kind"] != "CustomResourceDefinition");
            ensure!(!others.flat_map(all_in).any(Value::is_null), "{path}=null renders null");
            found.iter().try_for_each(is_understood).with_context(|| format!("{path}=null"))?;
        } else {
            ensure!(found == on(&kept, &[])?, "{path}=null is not its default");
        }
    }
    Ok(())
}

/// Whether a value of [`ON`] is still set once the value at this path is null.
fn stays(one: &str, path: &str) -> bool {
    let is_of_null = one.starts_with(&format!("{path}.")) || one.starts_with(&format!("{path}="));
    let is_of_definitions = one.starts_with("crds.") && path.starts_with("crds");
    !is_of_null && !is_of_definitions
}

/// The annotations that Artifact Hub shows: the definitions and the images that the chart renders.
#[test]
fn annotations_name_what_there_is() -> Result<()> {
    let chart = yaml("charts/sluice/Chart.yaml")?;
    let list = |name: &str| -> Result<Value> {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
        serde_saphyr::from_str(text.with_context(|| format!("no {name}"))?).context("understand it")
    };
    let objects = rendered(&[])?;
    let named = list("crds")?;
    let named = named.as_array().context("definitions are no list")?;
    ensure!(named.len() == definitions(&objects).count(), "{named:?}");
    for definition in definitions(&objects) {
        let found = named.iter().find(|one| one["name"] == definition["metadata"]["name"]);
        let found = found.with_context(|| format!("{named:?} lacks {}", definition["metadata"]["name"]))?;
        ensure!(found["kind"] == definition["spec"]["names"]["kind"], "{found}");
        ensure!(found["version"] == definition["spec"]["versions"][0]["name"], "{found}");
    }
    let example = &list("crdsExamples")?[0];
    serde_json::from_value::<sluice_crds::TracePipeline>(example.clone()).context("the example")?;
    let images = list("images")?;
    let images: BTreeSet<&str> =
        images.as_array().into_iter().flatten().filter_map(|one| one["image"].as_str()).collect();
    let pods = objects.iter().filter(|object| object["kind"] == "Pod");
    let run = pods.filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect();
    ensure!(images == run, "the annotation has {images:?}, the chart {run:?}");
    for link in list("links")?.as_array().context("links are no list")? {
        let is_link = link["url"].as_str().is_some_and(|url| url.starts_with("https://"));
        ensure!(is_link && link["name"].is_string(), "{link}");
    }
    Ok(())
}

/// What the chart renders with these values, and with the values at these paths deleted.
fn on(given: &[&str], nulls: &[&str]) -> Result<Vec<Value>> {
    let given = given.iter().map(|one| (*one).to_owned());
    let nulls = nulls.iter().map(|path| format!("{path}=null"));
    let given: Vec<String> = given.chain(nulls).collect();
    let mut found = rendered(&["--set", &given.join(",")])?;
    found.retain(Value::is_object);
    Ok(found)
}

fn keys(values: &Value, below: &str) -> Vec<String> {
    let fields = values.as_object().into_iter().flatten();
    let found = fields.flat_map(|(key, value)| {
        let path = format!("{below}{key}");
        let inner = keys(value, &format!("{path}."));
        std::iter::once(path).chain(inner)
    });
    found.collect()
}

fn set(cases: &[Case]) -> Result<Vec<Value>> {
    let values = cases.iter().map(|(key, value, ..)| format!("{key}={value}"));
    let given: Vec<String> = values.flat_map(|value| ["--set-json".to_owned(), value]).collect();
    rendered(&given.iter().map(String::as_str).collect::<Vec<_>>()).with_context(|| format!("{cases:?}"))
}

/// Fails unless the value has its effect, and the effect is missing without the value.
fn check((key, value, kind, at, is): &Case, objects: &[Value], usual: &[Value]) -> Result<()> {
    let at = at.replacen("pod/", POD, 1).replacen("container/", &format!("{POD}containers/0/"), 1);
    let is_so = |objects: &[Value]| {
        let mut all = objects.iter().filter(|object| object["kind"] == **kind);
        if is.is_null() {
            all.all(|one| one.pointer(&at).is_none())
        } else {
            all.any(|one| has(one, &at, is))
        }
    };
    ensure!(is_so(objects), "{key}={value}: {at} of no {kind} is {is}");
    ensure!(!is_so(usual), "{key}: {at} of a {kind} is {is} without it");
    Ok(())
}

fn has(object: &Value, at: &str, expected: &Value) -> bool {
    match object.pointer(at) {
        Some(Value::Array(all)) if !expected.is_array() => all.contains(expected),
        found => found == Some(expected),
    }
}

/// Kubernetes knows every field: its types read and write the object without a change.
fn is_understood(object: &Value) -> Result<()> {
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => same::<Deployment>(object),
        "Pod" => same::<Pod>(object),
        "Service" => same::<Service>(object),
        "ServiceAccount" => same::<ServiceAccount>(object),
        "NetworkPolicy" => same::<NetworkPolicy>(object),
        "PodDisruptionBudget" => same::<PodDisruptionBudget>(object),
        "Role" => same::<Role>(object),
        "RoleBinding" => same::<RoleBinding>(object),
        "ClusterRole" => same::<ClusterRole>(object),
        "ClusterRoleBinding" => same::<ClusterRoleBinding>(object),
        _ => Ok(()),
    }
}

fn same<K: Serialize + DeserializeOwned>(object: &Value) -> Result<()> {
    let known: K = serde_json::from_value(object.clone()).with_context(|| format!("understand {object}"))?;
    let again = serde_json::to_value(known)?;
    ensure!(again == *object, "Kubernetes reads {again} of {object}");
    Ok(())
}

/// The fields of a type, by the names that its values have in JSON.
fn field_names<K: DeserializeOwned>() -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    // It always fails: it has no value.
    drop(K::deserialize(FieldNames(&mut found)));
    found
}

/// Collects the names of the fields that a type asks for.
struct FieldNames<'a>(&'a mut BTreeSet<&'static str>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.extend(fields);
        Err(value::Error::custom("names alone"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(value::Error::custom("no struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map enum identifier ignored_any
    }
}
