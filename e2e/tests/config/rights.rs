//! The operator's rights: the chart grants its service account exactly the rights in SECURITY.md, for every choice of values. Another test
//! checks that the operator uses each of them (operator/tests/it/rights.rs).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::manifests::{rendered, the};

const TABLE: &str = include_str!("../../../operator/SECURITY.md");

const RELEASE_NAMESPACE: &str = "sluice-system";

/// The key for what a `ClusterRoleBinding` grants.
const CLUSTER: &str = "";

/// Group, resource and verb.
type Rights = BTreeSet<[String; 3]>;

/// Rights by namespace, or by [`CLUSTER`].
type Granted = BTreeMap<String, Rights>;

struct Table {
    namespaces: Rights,
    cluster: Rights,
    release: Rights,
}

/// Compares chart and table for an installation for all namespaces, and for installations for some.
#[test]
fn the_chart_grants_the_rights_that_the_operator_uses_and_no_others() -> anyhow::Result<()> {
    let Table { namespaces, cluster, release } = Table::read()?;
    let pipelines: Rights =
        namespaces.iter().filter(|[_, resource, _]| resource == "tracepipelines").cloned().collect();
    let deletes = right("", "persistentvolumeclaims", "delete");
    let keeping: Rights = namespaces.iter().filter(|right| **right != deletes).cloned().collect();
    ensure!(keeping.len() + 1 == namespaces.len(), "the table does not say who deletes claims");
    for (values, in_each, in_cluster) in [
        ("watchNamespaces={a,b}", &namespaces, cluster.clone()),
        ("watchNamespaces={a,b},volumes.delete=false", &keeping, cluster.clone()),
        ("watchNamespaces={a,b},clusterRole.tracePipelines=true", &namespaces, &cluster | &pipelines),
        ("watchNamespaces={a,b},clusterRole.enabled=false", &namespaces, Rights::new()),
    ] {
        let expected = [("a", in_each.clone()), ("b", in_each.clone()), (CLUSTER, in_cluster)];
        compare(values, expected, &release)?;
    }
    compare("replicas=1", [(CLUSTER, &namespaces | &cluster)], &release)?;
    compare("volumes.delete=false", [(CLUSTER, &keeping | &cluster)], &release)
}

fn compare<const N: usize>(
    values: &str,
    expected: [(&str, Rights); N],
    release: &Rights,
) -> anyhow::Result<()> {
    let mut expected = Granted::from(expected.map(|(place, rights)| (place.to_owned(), rights)));
    expected.retain(|_, rights| !rights.is_empty());
    expected.insert(RELEASE_NAMESPACE.to_owned(), release.clone());
    let found = granted(&rendered(&["--set", values])?).with_context(|| values.to_owned())?;
    let places: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let none = Rights::new();
    for place in places {
        let [expected, found] = [&expected, &found].map(|granted| granted.get(place).unwrap_or(&none));
        let (lacks, exceeds) = (expected - found, found - expected);
        ensure!(
            lacks.is_empty() && exceeds.is_empty(),
            "{values}: in namespace {place:?} the chart does not grant {lacks:?}, and grants {exceeds:?} beyond SECURITY.md"
        );
    }
    Ok(())
}

fn granted(objects: &[Value]) -> anyhow::Result<Granted> {
    let account = &the("ServiceAccount", objects)?["metadata"];
    let subject =
        json!([{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]);
    let mut all = Granted::new();
    for binding in objects.iter().filter(|object| object["subjects"].is_array()) {
        ensure!(binding["subjects"] == subject, "rights are given to {}", binding["subjects"]);
        let namespace = &binding["metadata"]["namespace"];
        let named = [&binding["roleRef"]["kind"], &binding["roleRef"]["name"], namespace];
        let role = objects.iter().find(|role| {
            let metadata = &role["metadata"];
            [&role["kind"], &metadata["name"], &metadata["namespace"]] == named
        });
        let role = role.with_context(|| format!("no role for {}", binding["roleRef"]))?;
        let place = namespace.as_str().unwrap_or(CLUSTER).to_owned();
        for rule in role["rules"].as_array().context("a role without rules")? {
            all.entry(place.clone()).or_default().extend(rights(rule, account)?);
        }
    }
    Ok(all)
}

/// The rights that a rule grants. Leases have no labels: a right to change Leases must be for the operator's own name only.
fn rights(rule: &Value, account: &Value) -> anyhow::Result<Rights> {
    let words = |field: &str| -> anyhow::Result<Vec<&str>> {
        let words = rule[field].as_array().with_context(|| format!("a rule without {field}: {rule}"))?;
        Ok(words.iter().filter_map(Value::as_str).collect())
    };
    let mut rights = Rights::new();
    for group in words("apiGroups")? {
        for resource in words("resources")? {
            rights.extend(words("verbs")?.iter().map(|verb| right(group, resource, verb)));
        }
    }
    let names = &rule["resourceNames"];
    let is_of_others = rights.iter().any(|[_, resource, verb]| resource == "leases" && verb != "create");
    let expected = if is_of_others { json!([account["name"]]) } else { Value::Null };
    ensure!(*names == expected, "{rule} is about {names}, not {expected}");
    Ok(rights)
}

impl Table {
    fn read() -> anyhow::Result<Table> {
        let mut table = Table { namespaces: Rights::new(), cluster: Rights::new(), release: Rights::new() };
        let rows = TABLE.lines().skip_while(|line| !line.starts_with("| where |")).skip(2);
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', ""));
            let cells: Vec<String> = cells.collect();
            let [place, group, resources, verbs, _] = cells.as_slice() else {
                anyhow::bail!("not five columns: {row}");
            };
            let rights = match place.as_str() {
                "each namespace" => &mut table.namespaces,
                "cluster" => &mut table.cluster,
                "release namespace" => &mut table.release,
                other => anyhow::bail!("SECURITY.md knows no place {other}"),
            };
            let group = if group == "core" { "" } else { group };
            for resource in resources.split(", ") {
                rights.extend(verbs.split(", ").map(|verb| right(group, resource, verb)));
            }
        }
        let count = table.namespaces.len() + table.cluster.len() + table.release.len();
        ensure!(count >= 60, "SECURITY.md has {count} rights");
        Ok(table)
    }
}

fn right(group: &str, resource: &str, verb: &str) -> [String; 3] {
    [group, resource, verb].map(str::to_owned)
}
