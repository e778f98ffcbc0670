//! The chart carries copies of files, because a chart cannot reach outside of itself; and what watches Sluice asks for metrics that
//! there are.

use std::collections::BTreeSet;

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

const WATCHING: [&str; 3] =
    ["config/prometheus/rules.yaml", "config/grafana/operator.json", "config/grafana/pipelines.json"];

#[test]
fn the_charts_crd_is_the_generated_one() {
    assert!(
        read("charts/sluice/files/tracepipelines.yaml") == read("crds/tracepipelines.yaml"),
        "stale: cp crds/tracepipelines.yaml charts/sluice/files/"
    );
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
    let known = format!("{}{}", read("operator/src/metrics.rs"), read("gateway/src/metrics.rs"));
    let mut asked = BTreeSet::new();
    for text in WATCHING.map(read) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned);
        asked.extend(
            words.filter(|word| word.starts_with("sluice_operator_") || word.starts_with("sluice_gateway_")),
        );
    }
    assert!(asked.len() >= 15, "{asked:?}");
    for name in asked {
        // The gateway's prefix is put in front of all its names in one place; a histogram's series have an ending of their own.
        let name = name.trim_start_matches("sluice_gateway_").trim_end_matches("_bucket");
        assert!(known.contains(&format!("\"{name}\"")), "nothing is called {name}");
    }
}
