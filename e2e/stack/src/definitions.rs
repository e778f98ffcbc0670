//! CRDs of other projects, for tests that apply objects of these kinds. The CRDs of the Prometheus operator come from its Go module, which Go
//! checks by `go.sum`. The CRDs of Strimzi are in no registry: they are generated from the classes by which its operators read objects.
//!
//! Blocking, like everything about processes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::maven;
use crate::paths::{Paths, content_hash, fill_once, put, remove_folder, sources};
use crate::process::{Job, command, output};

/// Name of its folder below the sources of the stack, and in the cache.
const NAME: &str = "definitions";

/// The module with the kinds of the Prometheus operator, and their folder in it.
const MONITORING: (&str, &str) =
    ("github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd");

/// The kinds that the chart makes objects of.
const MONITORS: [&str; 3] = ["servicemonitors", "podmonitors", "prometheusrules"];

const POM: &str = include_str!("../definitions/pom.xml");
const STRIMZI: &str = include_str!("../definitions/Strimzi.java");

/// The CRDs of the Prometheus operator for which the chart has objects.
pub fn monitoring() -> anyhow::Result<Vec<Value>> {
    let (module, folder) = MONITORING;
    let folder = downloaded(module)?.join(folder);
    let read = |kind: &str| -> anyhow::Result<Value> {
        let file = folder.join(format!("monitoring.coreos.com_{kind}.yaml"));
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("understand {}", file.display()))
    };
    MONITORS.into_iter().map(read).collect()
}

/// Downloads the module if Go's cache lacks it; returns its folder.
fn downloaded(module: &str) -> anyhow::Result<PathBuf> {
    let mut go = command("go");
    go.current_dir(sources().join(NAME)).env("GOTOOLCHAIN", "local");
    // Flags and workspaces of the user's settings would change which module Go finds.
    go.env("GOFLAGS", "").env("GOWORK", "off").args(["mod", "download", "-json", module]);
    let told = output(&mut go).with_context(|| format!("download {module}"))?;
    let told: Value = serde_json::from_str(&told).context("understand go mod download")?;
    Ok(PathBuf::from(told["Dir"].as_str().with_context(|| format!("{module} is nowhere: {told}"))?))
}

/// Strimzi's `KafkaTopic` and `KafkaUser`.
pub fn strimzi() -> anyhow::Result<Vec<Value>> {
    let paths = Paths::from_environment()?;
    let folder = paths.cache.join(NAME).join(content_hash([POM, STRIMZI].map(str::as_bytes)));
    fill_once(&folder, |partial| made_of_classes(&paths, partial))?;
    let text = fs::read_to_string(folder.join("strimzi.json")).context("read Strimzi's definitions")?;
    serde_json::from_str(&text).context("understand Strimzi's definitions")
}

fn made_of_classes(paths: &Paths, folder: &Path) -> anyhow::Result<()> {
    let (jars, sources) = (folder.join("jars"), sources().join(NAME));
    Job { part: NAME, doing: "fetch Strimzi's classes", log: paths.build_log(NAME) }
        .run(&mut maven::jars(&sources.join("pom.xml"), &jars))?;
    let mut java = command("java");
    java.arg("--class-path").arg(jars.join("*")).arg(sources.join("Strimzi.java"));
    put(&folder.join("strimzi.json"), &output(&mut java).context("make Strimzi's definitions")?)?;
    remove_folder(&jars)
}
