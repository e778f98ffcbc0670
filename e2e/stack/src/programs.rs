//! The project's own programs as cargo compiles them, in the form of tests and of the demo, or in release form.
//!
//! Limits: this does not check what is up to date; cargo does.

use std::path::PathBuf;

use crate::cargo::{cargo, target_folder};
use crate::paths::Paths;
use crate::process::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the demo runs them: compiled in minutes, with assertions and overflow checks. Enough for tests that count spans.
    Checked,
    /// As [`Self::Checked`], with the features of the end-to-end tests. The tests' dev-dependencies turn on features of some crates.
    /// Without these features, cargo would compile those crates, and all crates that depend on them, twice.
    Tested,
    /// As users run it. Compiles for minutes; only measurements of time, memory or size need it.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    pub package: &'static str,
    pub file: &'static str,
}

pub const OPERATOR: Program = Program { package: "sluice-operator", file: "sluice-operator" };

/// The plugin, which kubectl runs as `kubectl sluice`.
pub const KUBECTL: Program = Program { package: "sluice-kubectl", file: "kubectl-sluice" };

pub const GATEWAY: Program = Program { package: "sluice-gateway", file: "sluice-gateway" };

/// The provisioner of the local stack's volumes.
pub const LOCAL_VOLUMES: Program = Program { package: "e2e-fixtures", file: "local-volumes" };

/// The demo program itself, without its set-up.
pub const DEMO: Program = Program { package: "e2e-demo", file: "e2e-demo" };

pub const FAULTS: Program = Program { package: "e2e-faults", file: "e2e-faults" };

pub const BENCH: Program = Program { package: "e2e-bench", file: "e2e-bench" };

/// Simulated days of the scaling decision.
pub const SIMULATE: Program = Program { package: "e2e-simulate", file: "e2e-simulate" };

/// All programs of the stack and the demo. They are compiled together: alone, a package would select other features of its dependencies,
/// and cargo would compile those once more. The plugin is not in the list: what only it needs (CEL, JSON Schema) would be a tenth of the time.
const ON_STACK: [Program; 4] = [OPERATOR, GATEWAY, LOCAL_VOLUMES, DEMO];

impl Form {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Checked | Self::Tested => &[],
            Self::Release => &["--release"],
        }
    }

    fn folder(self) -> PathBuf {
        target_folder().join(match self {
            Self::Checked | Self::Tested => "debug",
            Self::Release => "release",
        })
    }
}

impl Program {
    pub fn file(self, form: Form) -> PathBuf {
        form.folder().join(self.file)
    }
}

/// Compiles the programs. In release form: operator and gateway; otherwise at least all programs of the stack.
pub fn compile(form: Form) -> anyhow::Result<()> {
    match form {
        Form::Checked => build(form, "programs", &ON_STACK.map(|program| program.package), &[]),
        Form::Tested => build(form, "programs", &[], &["--workspace", "--bins", "--test", "cluster"]),
        Form::Release => build(form, "programs", &[OPERATOR.package, GATEWAY.package], &[]),
    }
}

pub fn release_gateway() -> anyhow::Result<PathBuf> {
    build(Form::Release, "gateway", &[GATEWAY.package], &[])?;
    Ok(GATEWAY.file(Form::Release))
}

/// An example of the gateway's package beside the gateway, in the same form.
pub fn gateway_example(name: &str, form: Form) -> anyhow::Result<()> {
    // With the features of tests, like everything else in this command. Alone, the package would have its dependencies compiled once more.
    build(form, "gateway-example", &[], &["--workspace", "--example", name])
}

fn build(form: Form, log: &str, packages: &[&str], more: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo(&["build"]);
    command.args(form.flags()).args(packages.iter().flat_map(|package| ["--package", package])).args(more);
    let doing = format!("compile {}", if packages.is_empty() { more.join(" ") } else { packages.join(", ") });
    Job { part: "programs", doing: &doing, log: Paths::from_environment()?.build_log(log) }.run(&mut command)
}
