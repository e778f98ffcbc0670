//! Definitions of other people's kinds, for tests that apply objects of them. Those of Strimzi are in no registry, and made of the classes
//! by which its operators read objects.
//!
//! Blocking, like everything about processes.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::paths::{Paths, content_hash, fill_once, put, sources};
use crate::process::{Job, command, output};

/// Where this is, below the sources of the stack, and what it is called in the cache.
const NAME: &str = "definitions";

const POM: &str = include_str!("../../stack/definitions/pom.xml");
const STRIMZI: &str = include_str!("../../stack/definitions/Strimzi.java");

/// Strimzi's `KafkaTopic` and `KafkaUser`.
///
/// # Errors
/// When the classes cannot be had, or nothing can be made of them.
pub fn strimzi() -> anyhow::Result<Vec<Value>> {
    let paths = Paths::from_environment()?;
    let folder = paths.cache.join(NAME).join(content_hash([POM, STRIMZI].map(str::as_bytes)));
    fill_once(&folder, |partial| made_of_classes(&paths, partial))?;
    let text = fs::read_to_string(folder.join("strimzi.json")).context("read Strimzi's definitions")?;
    serde_json::from_str(&text).context("understand Strimzi's definitions")
}

fn made_of_classes(paths: &Paths, folder: &Path) -> anyhow::Result<()> {
    let (jars, sources) = (folder.join("jars"), sources().join(NAME));
    let mut maven = command("mvn");
    maven.args(["--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies"]);
    maven.arg(format!("-DoutputDirectory={}", jars.display())).arg("--file").arg(sources.join("pom.xml"));
    Job { part: NAME, doing: "fetch Strimzi's classes", log: paths.build_log(NAME) }.run(&mut maven)?;
    let mut java = command("java");
    java.arg("--class-path").arg(jars.join("*")).arg(sources.join("Strimzi.java"));
    put(&folder.join("strimzi.json"), &output(&mut java).context("make Strimzi's definitions")?)?;
    fs::remove_dir_all(&jars).context("remove Strimzi's classes")
}
