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

/// Packages that must not be in a package's tree.
struct Rule {
    package: &'static str,
    without: &'static [&'static str],
}

/// The levels of README.md, "Code map".
const RULES: [Rule; 21] = [
    Rule {
        package: "sluice-crds",
        without: &["kube-client", "tokio", "sluice-gateway-config", "sluice-plan"],
    },
    Rule { package: "sluice-gateway-config", without: &["tokio", "futures", "hyper", "sluice-crds"] },
    Rule { package: "sluice-plan", without: &["kube-client", "tokio", "hyper", "rdkafka"] },
    Rule {
        package: "sluice-otlp-json",
        without: &["sluice-clickhouse", "sluice-gateway-config", "rdkafka", "tokio", "hyper", "prost"],
    },
    Rule {
        package: "sluice-otlp-server",
        without: &["sluice-otlp", "sluice-clickhouse", "sluice-gateway-config", "rdkafka", "prost"],
    },
    Rule { package: "sluice-clickhouse", without: &["sluice-otlp", "rdkafka", "kube-core"] },
    Rule { package: "sluice-ranges", without: &["rdkafka", "tokio", "hyper", "sluice-kafka"] },
    Rule {
        package: "sluice-login",
        without: &["sluice-otlp", "sluice-clickhouse", "sluice-kafka", "kube-core"],
    },
    // hyper is sluice-login's, which asks token endpoints.
    Rule { package: "sluice-kafka", without: &["sluice-otlp", "sluice-clickhouse", "kube-core"] },
    Rule { package: "sluice-spool", without: &["tokio", "sluice-otlp", "rdkafka"] },
    Rule {
        package: "sluice-operator",
        without: &["sluice-gateway", "sluice-otlp", "sluice-clickhouse", "sluice-kafka", "sluice-kubectl"],
    },
    Rule {
        package: "sluice-kubectl",
        without: &[
            "rdkafka",
            "openssl-sys",
            "sluice-operator",
            "sluice-gateway",
            "sluice-otlp",
            "sluice-clickhouse",
        ],
    },
    Rule {
        package: "sluice-gateway",
        without: &["kube-core", "k8s-openapi", "sluice-crds", "sluice-operator", "prost"],
    },
    Rule {
        package: "e2e-stack",
        without: &["kube-client", "rdkafka", "clickhouse", "sluice-crds", "sluice-gateway-config"],
    },
    Rule { package: "e2e-verify", without: &["kube-client", "rdkafka", "clickhouse", "sluice-crds"] },
    Rule { package: "e2e-simulate", without: &["kube-client", "rdkafka", "sluice-operator"] },
    Rule { package: "e2e-fixtures", without: &["sluice-operator", "sluice-gateway", "prost", "e2e-faults"] },
    Rule { package: "e2e-faults", without: &["sluice-operator", "sluice-gateway", "prost", "e2e-bench"] },
    Rule { package: "e2e-bench", without: &["sluice-operator", "sluice-gateway", "prost", "e2e-faults"] },
    Rule { package: "e2e-demo", without: &["sluice-operator", "sluice-gateway", "e2e-faults", "e2e-bench"] },
    Rule { package: "e2e", without: &["sluice-operator", "sluice-gateway", "prost"] },
];

/// A package that has no dependency at all.
const ALONE: &str = "sluice-otlp";

/// Checks every rule, and returns all violations in one error.
pub fn check() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for Rule { package, without } in &RULES {
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
