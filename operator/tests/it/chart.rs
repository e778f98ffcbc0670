//! The chart carries copies of files, because a chart cannot read files outside its folder. Alerts and dashboards ask only for metrics that
//! exist.

use serde_json::Value;
use std::collections::BTreeSet;

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

const WATCHING: [&str; 3] =
    ["config/prometheus/rules.yaml", "config/grafana/operator.json", "config/grafana/pipelines.json"];

/// Severities of alerts, in the order of the runbook.
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];

#[test]
fn the_charts_crds_are_the_generated_ones() {
    for file in ["tracepipelines.yaml", "traceconnections.yaml"] {
        assert!(
            read(&format!("charts/sluice/files/{file}")) == read(&format!("crds/{file}")),
            "stale: cp crds/{file} charts/sluice/files/"
        );
    }
}

#[test]
fn the_charts_rules_and_dashboards_are_those_of_config() {
    for (copy, original) in [
        ("charts/sluice/files/rules.yaml", WATCHING[0]),
        ("charts/sluice/files/dashboards/operator.json", WATCHING[1]),
        ("charts/sluice/files/dashboards/pipelines.json", WATCHING[2]),
    ] {
        assert!(read(copy) == read(original), "stale: cp {original} {copy}");
    }
}

#[test]
fn rules_and_dashboards_ask_for_metrics_that_there_are() {
    // Labels and syntax are looked at by Prometheus's own code in `cargo verify`.
    let known = read("config/prometheus/METRICS.md");
    let mut asked = BTreeSet::new();
    for text in WATCHING.map(read) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned);
        asked.extend(
            words.filter(|word| word.starts_with("sluice_operator_") || word.starts_with("sluice_gateway_")),
        );
    }
    assert!(asked.len() >= 15, "{asked:?}");
    for name in asked {
        let name = name.trim_end_matches("_bucket");
        assert!(known.contains(&format!("| `{name}` |")), "nothing is called {name}");
    }
}

#[test]
fn every_alert_has_an_entry_in_the_runbook_and_points_at_it() {
    let rules: Value = serde_saphyr::from_str(&read(WATCHING[0])).unwrap();
    let mut alerts = Vec::new();
    for rule in
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
    {
        let name = rule["alert"].as_str().unwrap();
        let url = rule["annotations"]["runbook_url"].as_str();
        assert_eq!(url, Some(format!("RUNBOOK.md#{}", name.to_lowercase()).as_str()), "{name}");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        let rank = SEVERITIES.iter().position(|known| *known == severity);
        alerts.push((rank.unwrap_or_else(|| panic!("{name}: {severity}")), name.to_owned()));
    }
    // The sort is stable: alerts of one severity stay in the order of the rules.
    alerts.sort_by_key(|(rank, _)| *rank);
    let alerts: Vec<String> = alerts.into_iter().map(|(_, name)| name).collect();
    let runbook = read("config/prometheus/RUNBOOK.md");
    let entries: Vec<_> = runbook.split("\n### ").skip(1).collect();
    let named: Vec<_> = entries.iter().map(|entry| entry.lines().next().unwrap()).collect();
    assert_eq!(named, alerts, "entries stand by severity, and then in the order of the alerts");
    for entry in &entries {
        let (_, text) = entry.split_once('\n').unwrap();
        assert!(text.starts_with("\n```sh\n"), "an entry begins with commands: {entry}");
        let parts = ["\n\n**Means** ", "\n\n**Do**"];
        assert!(parts.iter().all(|part| entry.contains(part)), "{entry}");
    }
    // Links between entries lead somewhere.
    for link in runbook.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(link == "audit" || alerts.iter().any(|alert| alert.to_lowercase() == link), "{link}");
    }
}

#[test]
fn kafkas_retention_is_watched() {
    let rules = read(WATCHING[0]);
    assert!(rules.contains("predict_linear(sluice_gateway_retention_seconds_left"), "{rules}");
    assert!(rules.contains("sluice_gateway_messages_lost_total"), "{rules}");
}
