//! Prometheus' own code reads alert rules and dashboards and runs the rules' unit tests. Every query must use only metrics and labels of
//! `config/prometheus/METRICS.md`, which the programs' own tests compare with their exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::manifests;
use e2e::asked::asked;
use e2e_fixtures::files::{self, text};
use e2e_stack::process::{command, output};
use e2e_stack::{paths, rulecheck};

const RULES: &str = "config/prometheus/rules.yaml";
const RULES_TEST: &str = "config/prometheus/rules_test.yaml";
const METRICS: &str = "config/prometheus/METRICS.md";
const DASHBOARDS: [&str; 2] = ["config/grafana/operator.json", "config/grafana/pipelines.json"];

/// Labels that Prometheus and the chart's monitors add to a series.
const SCRAPED: [&str; 7] = ["namespace", "pod", "container", "pipeline", "job", "instance", "service"];

const OF_HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The metrics and labels of one query, as rulecheck reports them.
#[derive(Debug, Deserialize)]
struct Asked {
    query: String,
    error: Option<String>,
    selectors: Vec<Selector>,
    groupings: Vec<Grouping>,
}

#[derive(Debug, Deserialize)]
struct Selector {
    metric: String,
    labels: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Grouping {
    labels: Vec<String>,
    metrics: Vec<String>,
}

/// Every series with the labels that the program gives it.
type Known = BTreeMap<String, BTreeSet<String>>;

/// Prometheus reads the rules, and their unit tests pass.
#[test]
fn alert_rules_fire_and_keep_quiet() -> anyhow::Result<()> {
    let program = rulecheck::path()?;
    for words in [["rules", RULES], ["test", RULES_TEST]] {
        let mut check = command(&program);
        check.current_dir(paths::workspace()).args(words);
        output(&mut check)?;
    }
    Ok(())
}

/// If `prometheusRule` is the only value that is set, nothing is scraped. Then no alert may fire, at any time of two days.
#[test]
fn alerts_alone_keep_quiet() -> anyhow::Result<()> {
    let objects = manifests::rendered(&["--set", "prometheusRule.enabled=true"])?;
    let rules = manifests::the("PrometheusRule", &objects)?;
    let alerts = manifests::rules(&rules["spec"]["groups"]).filter_map(|rule| rule["alert"].as_str());
    let names: BTreeSet<&str> = alerts.collect();
    ensure!(names.len() > 20, "the chart renders the alerts {names:?}");
    let folder = files::temporary(&format!("sluice-alerts-{}", std::process::id()))?;
    let times = ["30m", "12h", "48h"];
    let quiet = names.iter().flat_map(|name| {
        times.map(|time| serde_json::json!({"eval_time": time, "alertname": name, "exp_alerts": []}))
    });
    let test = serde_json::json!({
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "5m",
        "tests": [{
            "name": "nothing is scraped",
            "interval": "5m",
            "input_series": [{"series": "up{job=\"another\"}", "values": "1x600"}],
            "alert_rule_test": quiet.collect::<Vec<_>>(),
        }],
    });
    fs::write(folder.join("rules.yaml"), rules["spec"].to_string()).context("write the rules")?;
    fs::write(folder.join("test.yaml"), test.to_string()).context("write the test")?;
    let said = output(command(rulecheck::path()?).arg("test").arg(folder.join("test.yaml")));
    paths::remove_folder(&folder)?;
    // It also expects each alert to fire, which rules_test.yaml tests.
    let said = said.err().context("no alert could fire")?.to_string();
    let missed = |name: &&&str| !said.contains(&format!("no test sees {name} fire"));
    let fired: Vec<_> = names.iter().filter(missed).collect();
    ensure!(fired.is_empty() && !said.contains("these fire"), "{fired:?} fire: {said}");
    Ok(())
}

/// Prometheus reads every query, and every query uses existing metrics and labels.
#[test]
fn rules_and_dashboards_ask_for_metrics_that_there_are() -> anyhow::Result<()> {
    let known = known(&text(METRICS)?);
    let mut texts = of_rules(&text(RULES)?)?;
    for file in DASHBOARDS {
        let found = of_dashboard(&text(file)?).with_context(|| format!("understand {file}"))?;
        ensure!(!found.is_empty(), "{file} has no query");
        texts.extend(found);
    }
    let all: Vec<Asked> = asked("rulecheck queries", command(rulecheck::path()?).arg("queries"), &texts)?;
    let wrong: Vec<_> = all.iter().flat_map(|asked| wrong(asked, &known)).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn of_rules(text: &str) -> anyhow::Result<Vec<String>> {
    let file: Value = serde_saphyr::from_str(text).with_context(|| format!("understand {RULES}"))?;
    ensure!(file["groups"].is_array(), "no groups of rules");
    Ok(manifests::rules(&file["groups"])
        .filter_map(|rule| rule["expr"].as_str().map(str::to_owned))
        .collect())
}

/// The queries of all panels and of all variables, at any depth. Grafana's variables occur in label values only, where any text is valid.
fn of_dashboard(text: &str) -> anyhow::Result<Vec<String>> {
    let board: Value = serde_json::from_str(text)?;
    let found = manifests::all_in(&board).into_iter().flat_map(|value| {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        [text("expr").map(str::to_owned), text("query").and_then(of_variable)]
    });
    Ok(found.flatten().collect())
}

/// The query of a variable's values: `label_values(METRIC, LABEL)` is Grafana's syntax for the values of a label.
fn of_variable(text: &str) -> Option<String> {
    let inside = text.strip_prefix("label_values(")?;
    let (metric, label) =
        inside.strip_suffix(')').and_then(|inside| inside.rsplit_once(',')).unwrap_or((inside, ""));
    // If it cannot be split, it is no query either, and Prometheus rejects it.
    Some(format!("count by ({}) ({})", label.trim(), metric.trim()))
}

/// The rows of the table: the metric in the first column, its type in the second, its labels in the fourth.
fn known(table: &str) -> Known {
    let mut known = Known::new();
    for line in table.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind, _, labels, ..] = cells[..] else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        let labels: BTreeSet<_> = labels
            .split(',')
            .map(|l| l.trim().trim_matches('`').to_owned())
            .filter(|l| !l.is_empty())
            .collect();
        if kind != "histogram" {
            known.insert(name.to_owned(), labels);
            continue;
        }
        for ending in OF_HISTOGRAM {
            let le = (ending == "_bucket").then(|| "le".to_owned());
            known.insert(format!("{name}{ending}"), labels.iter().cloned().chain(le).collect());
        }
    }
    known
}

/// The metrics and labels in a query that do not exist.
fn wrong(asked: &Asked, known: &Known) -> Vec<String> {
    let mut found: Vec<String> = asked.error.iter().map(|error| format!("cannot be read: {error}")).collect();
    let has = |metric: &str, label: &str| {
        SCRAPED.contains(&label) || known.get(metric).is_some_and(|labels| labels.contains(label))
    };
    for Selector { metric, labels } in &asked.selectors {
        if !known.contains_key(metric) {
            found.push(format!("nothing is called {metric}"));
            continue;
        }
        let unknown = labels.iter().filter(|label| !has(metric, label));
        found.extend(unknown.map(|label| format!("{metric} has no label {label}")));
    }
    for Grouping { labels, metrics } in &asked.groupings {
        let unknown = labels.iter().filter(|label| !metrics.iter().any(|metric| has(metric, label)));
        found.extend(unknown.map(|label| format!("none of {} has a label {label}", metrics.join(", "))));
    }
    found.into_iter().map(|what| format!("{}: {what}", asked.query)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n\
        | `a_total` | counter | things | `x`, `y` | Things. |\n| `b_seconds` | histogram | seconds |  | Time. |\n";

    fn judged(selectors: &[(&str, &[&str])], groupings: &[(&[&str], &[&str])]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let asked = Asked {
            query: "q".into(),
            error: None,
            selectors: selectors
                .iter()
                .map(|(metric, labels)| Selector { metric: (*metric).into(), labels: owned(labels) })
                .collect(),
            groupings: groupings
                .iter()
                .map(|(labels, metrics)| Grouping { labels: owned(labels), metrics: owned(metrics) })
                .collect(),
        };
        wrong(&asked, &known(TABLE))
    }

    #[test]
    fn what_is_in_the_table_may_be_asked_for_and_nothing_else() {
        assert_eq!(known(TABLE).len(), 4, "a counter, and three series of a histogram");
        let right = judged(
            &[("a_total", &["x", "namespace"]), ("b_seconds_bucket", &["le"])],
            &[(&["le"], &["b_seconds_bucket"]), (&["pod", "y"], &["b_seconds_sum", "a_total"])],
        );
        assert_eq!(right, Vec::<String>::new());
        let wrong = judged(
            &[("a", &[]), ("b_seconds", &[]), ("a_total", &["z"]), ("b_seconds_sum", &["le"])],
            &[(&["x"], &["b_seconds_sum"])],
        );
        assert_eq!(wrong.len(), 5, "{wrong:?}");
    }

    #[test]
    fn queries_are_found_wherever_a_panel_stands() {
        let board =
            r#"{"panels": [{"targets": [{"expr": "a"}]}, {"panels": [{"targets": [{"expr": "b"}, {}]}]}]}"#;
        assert_eq!(of_dashboard(board).unwrap(), ["a", "b"]);
        let board = r#"{"templating": {"list": [{"query": "prometheus"}, {"query": "label_values(a{b=~\"$c\"}, d)"}]}}"#;
        assert_eq!(of_dashboard(board).unwrap(), [r#"count by (d) (a{b=~"$c"})"#]);
        assert_eq!(of_variable("label_values(a)").unwrap(), "count by () (a))", "which Prometheus rejects");
        let rules = "groups: [{rules: [{alert: A, expr: a}]}, {rules: [{record: r, expr: b}]}]";
        assert_eq!(of_rules(rules).unwrap(), ["a", "b"]);
    }
}
