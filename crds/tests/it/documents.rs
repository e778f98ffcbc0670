//! Documents name fields and alerts that there are.

use crate::{connections, schema};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

/// Documents that tell people what to set, and to look at.
const DOCUMENTS: [&str; 18] = [
    "README.md",
    "config/MIGRATION.md",
    "config/README.md",
    "config/prometheus/RUNBOOK.md",
    "crds/CONDITIONS.md",
    "e2e/README.md",
    "gateway/ARCHITECTURE.md",
    "gateway/DELIVERY.md",
    "gateway/TABLE.md",
    "gateway/VALUES.md",
    "operator/ARCHITECTURE.md",
    "operator/EDGE.md",
    "operator/LIFECYCLE.md",
    "operator/ROLLOUTS.md",
    "operator/SCALING.md",
    "operator/SECURITY.md",
    "operator/SOURCE_OTLP.md",
    "operator/VOLUMES.md",
];

/// Values of the chart that begin as a field of the spec does.
const OF_THE_CHART: [&str; 1] = ["volumes.delete"];

/// Attributes of spans that begin as a field of the edge is called.
const OF_SPANS: [&str; 2] = ["http.", "service."];

/// Every field of an object, by its path; what is below a free map is not among them.
fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        fields(inner, &path, found);
        fields(&inner["items"], &path, found);
        found.insert(path);
    }
}

/// What stands between backticks and looks like the path of a field, without the value that may follow it.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    let paths = code.map(|code| code.split([':', ' ', '=']).next().unwrap_or_default());
    paths.filter(|path| {
        path.contains('.')
            && path.rsplit('.').next() != Some("yaml")
            && path.starts_with(|c: char| c.is_ascii_lowercase())
            && path.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    })
}

/// Whether a document may name it: a field by its whole path, or by the end of it when it begins with something that is a field.
fn is_known(path: &str, known: &BTreeSet<String>) -> bool {
    if OF_THE_CHART.contains(&path) || OF_SPANS.iter().any(|beginning| path.starts_with(beginning)) {
        return true;
    }
    let (first, _) = path.split_once('.').unwrap_or((path, ""));
    let is_whole = ["spec", "status", "metadata"].contains(&first);
    let is_ours =
        known.iter().any(|field| field.rsplit('.').next() == Some(first) && field.starts_with("spec."));
    match (is_whole, is_ours) {
        (true, _) => first == "metadata" || known.contains(path),
        (false, true) => {
            let end = format!(".{path}");
            known.iter().any(|field| field.ends_with(&end))
        }
        // It is something of Kafka's, ClickHouse's, Kubernetes' or the chart's.
        (false, false) => true,
    }
}

#[test]
fn documents_name_fields_that_there_are() {
    let mut known = BTreeSet::new();
    fields(&schema(), "", &mut known);
    fields(&connections::schema(), "", &mut known);
    let mut checked = 0;
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let path = format!("{}/../{document}", env!("CARGO_MANIFEST_DIR"));
        for name in named(&fs::read_to_string(path).unwrap()) {
            checked += 1;
            if !is_known(name, &known) {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(checked > 50, "{checked} names");
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn a_field_that_there_is_not_is_found() {
    let mut known = BTreeSet::new();
    fields(&schema(), "", &mut known);
    for (text, is_right) in [
        ("set `spec.queue.size` to", true),
        ("`queue.size: 2Gi`", true),
        ("`insert.maxInterval`", false),
        ("`spec.gateway.imagine`", false),
        ("`status.image`", true),
        ("`status.picture`", false),
        ("`retention.bytes` of the topic", true),
    ] {
        assert_eq!(named(text).all(|name| is_known(name, &known)), is_right, "{text}");
        assert_eq!(named(text).count(), 1, "{text}");
    }
}

/// What is called as alerts are: `Sluice`, and words that begin with a capital letter.
fn alerts_named(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        word.strip_prefix("Sluice").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    })
}

#[test]
fn documents_name_alerts_that_there_are() {
    let read = |file: &str| fs::read_to_string(format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let rules = read("config/prometheus/rules.yaml");
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    let documents = DOCUMENTS.iter().chain(&["charts/sluice/README.md", "config/prometheus/METRICS.md"]);
    for document in documents {
        let wrong: Vec<_> = alerts_named(&read(document))
            .filter(|alert| !alerts.contains(alert))
            .map(str::to_owned)
            .collect();
        assert!(
            wrong.is_empty(),
            "{document} names alerts that config/prometheus/rules.yaml does not have: {wrong:?}"
        );
    }
}
