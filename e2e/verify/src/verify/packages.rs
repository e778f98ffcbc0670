//! Checks that packages depend only on packages of lower levels, and that pure packages have no client, socket or runtime in their tree.
//!
//! It reads `cargo tree`, so that indirect dependencies count, too.

use std::collections::BTreeSet;

use anyhow::bail;

use e2e_stack::cargo::cargo;
use e2e_stack::process::output;

/// Packages that must build alone: without features of dependencies that another package enables.
pub const PURE: [&str; 10] = [
    "sluice-crds",
    "sluice-gateway-config",
    "sluice-plan",
    "sluice-otlp",
    "sluice-otlp-json",
    "sluice-otlp-server",
    "sluice-ranges",
    "sluice-clickhouse",
    "sluice-login",
    "sluice-spool",
];

/// A package, and the packages that must not be in its tree.
type Rule = (&'static str, &'static [&'static str]);

/// The levels of README.md, "Code map".
const RULES: [Rule; 21] = [
    ("sluice-crds", &["kube-client", "tokio", "sluice-gateway-config", "sluice-plan"]),
    ("sluice-gateway-config", &["tokio", "futures", "hyper", "sluice-crds"]),
    ("sluice-plan", &["kube-client", "tokio", "hyper", "rdkafka"]),
    (
        "sluice-otlp-json",
        &["sluice-clickhouse", "sluice-gateway-config", "rdkafka", "tokio", "hyper", "prost"],
    ),
    (
        "sluice-otlp-server",
        &["sluice-otlp", "sluice-clickhouse", "sluice-gateway-config", "rdkafka", "prost"],
    ),
    ("sluice-clickhouse", &["sluice-otlp", "rdkafka", "kube-core"]),
    ("sluice-ranges", &["rdkafka", "tokio", "hyper", "sluice-kafka"]),
    ("sluice-login", &["sluice-otlp", "sluice-clickhouse", "sluice-kafka", "kube-core"]),
    // hyper is a dependency of sluice-login, which sends requests to token endpoints.
    ("sluice-kafka", &["sluice-otlp", "sluice-clickhouse", "kube-core"]),
    ("sluice-spool", &["tokio", "sluice-otlp", "rdkafka"]),
    (
        "sluice-operator",
        &["sluice-gateway", "sluice-otlp", "sluice-clickhouse", "sluice-kafka", "sluice-kubectl"],
    ),
    (
        "sluice-kubectl",
        &["rdkafka", "openssl-sys", "sluice-operator", "sluice-gateway", "sluice-otlp", "sluice-clickhouse"],
    ),
    ("sluice-gateway", &["kube-core", "k8s-openapi", "sluice-crds", "sluice-operator", "prost"]),
    ("e2e-stack", &["kube-client", "rdkafka", "clickhouse", "sluice-crds", "sluice-gateway-config"]),
    ("e2e-verify", &["kube-client", "rdkafka", "clickhouse", "sluice-crds"]),
    ("e2e-simulate", &["kube-client", "rdkafka", "sluice-operator"]),
    ("e2e-fixtures", &["sluice-operator", "sluice-gateway", "prost", "e2e-faults"]),
    ("e2e-faults", &["sluice-operator", "sluice-gateway", "prost", "e2e-bench"]),
    ("e2e-bench", &["sluice-operator", "sluice-gateway", "prost", "e2e-faults"]),
    ("e2e-demo", &["sluice-operator", "sluice-gateway", "e2e-faults", "e2e-bench"]),
    ("e2e", &["sluice-operator", "sluice-gateway", "prost"]),
];

/// A package that has no dependency at all.
const ALONE: &str = "sluice-otlp";

/// Checks every rule, and returns all violations in one error.
pub fn check() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for (package, without) in &RULES {
        let tree = tree(package)?;
        broken.extend(without.iter().filter(|name| tree.contains(**name)).map(|name| {
            format!("{package} must not depend on {name}; `cargo tree -p {package} -i {name}` shows the path")
        }));
    }
    let alone = tree(ALONE)?;
    if alone.len() > 1 {
        broken.push(format!("{ALONE} must have no dependencies, and has {alone:?}"));
    }
    if !broken.is_empty() {
        bail!("{}", broken.join("\n"));
    }
    Ok(())
}

/// Names of all packages that a package is built from, itself included, tests excluded.
fn tree(package: &str) -> anyhow::Result<BTreeSet<String>> {
    let arguments = ["tree", "-p", package, "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let lines = output(&mut cargo(&arguments))?;
    Ok(lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}
