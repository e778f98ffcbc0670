//! `cargo run -p e2e-verify -- publish REGISTRY`: pushes both images and the chart to a registry, without a container engine.
//!
//! ```text
//! REGISTRY/sluice-operator:VERSION        crane push
//! REGISTRY/sluice-gateway:VERSION         crane push
//! REGISTRY/charts/sluice:VERSION          helm push; its default image.registry is REGISTRY
//! ```
//!
//! The chart is pushed last: when users can pull it, the images are already there.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::images::{ProgramArgs, Programs, build_image_in};
use crate::paths::{self, create_folder, remove_folder};
use crate::process::{command, interrupt, output};
use crate::{crane, helm, say};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where to push, and which version and programs.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct PublishArgs {
    /// Registry, with a path if there is one, such as registry.example.com/observability
    #[arg(value_name = "REGISTRY", value_parser = registry)]
    pub registry: String,

    /// Version of the chart and tag of the images
    #[arg(long, value_name = "VERSION", default_value = VERSION)]
    pub version: String,

    /// Speak HTTP instead of HTTPS
    #[arg(long)]
    pub plain_http: bool,

    /// The programs in the images.
    #[command(flatten)]
    pub programs: ProgramArgs,
}

const AFTER_HELP: &str = "\
Needs no container engine. The logins are those of `docker login` or `crane auth login` (~/.docker/config.json). The images
are those of `images`, for this machine's architecture. What the registry has under the same version is replaced. The
last line of the output is the command that installs the chart.

Examples:
  cargo run -p e2e-verify -- publish registry.example.com/observability
  cargo run -p e2e-verify -- publish --plain-http localhost:5000 --version 0.1.0-rc.1";

fn registry(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('/');
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-._:/".contains(c);
    if name.is_empty() || name.contains("://") || !name.chars().all(is_legal) {
        return Err("is a host with a port and a path if there are any, without https://".into());
    }
    Ok(name.to_owned())
}

/// Builds and pushes images and chart, and prints the references.
pub fn run(args: &PublishArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let programs = args.programs.programs()?;
    // Not in the cache, which holds the images of the tests.
    let folder = std::env::temp_dir().join(format!("sluice-publish-{}", std::process::id()));
    let pushed = args.push(&programs, &folder);
    remove_folder(&folder)?;
    pushed?;
    let plain = if args.plain_http { " --plain-http" } else { "" };
    say::line(&format!(
        "helm install sluice {} --version {} --namespace sluice-system --create-namespace{plain}",
        args.chart(),
        args.version
    ));
    Ok(ExitCode::SUCCESS)
}

impl PublishArgs {
    fn push(&self, programs: &Programs, folder: &Path) -> Result<()> {
        for (name, program) in [("operator", &programs.operator), ("gateway", &programs.gateway)] {
            let image = build_image_in(&folder.join(name), name, program)?;
            let reference = self.image(name);
            let mut push = command(crane::path()?);
            push.args(["push"]).arg(&image.archive).arg(&reference);
            if self.plain_http {
                push.arg("--insecure");
            }
            // With the digest, so that a pod can refer to it.
            say::line(output(&mut push).with_context(|| format!("push {reference}"))?.trim());
        }
        self.push_chart(&folder.join("chart")).context("publish the chart")
    }

    fn image(&self, name: &str) -> String {
        format!("{}/sluice-{name}:{}", self.registry, self.version)
    }

    fn chart(&self) -> String {
        format!("oci://{}/charts/sluice", self.registry)
    }

    fn push_chart(&self, folder: &Path) -> Result<()> {
        let chart = folder.join("sluice");
        copy(&paths::workspace().join("charts/sluice"), &chart)?;
        self.adapt(&chart)?;
        let mut package = helm(&["package", "--version", &self.version, "--app-version", &self.version])?;
        output(package.arg("--destination").arg(folder).arg(&chart))?;
        let mut push = helm(&["push"])?;
        push.arg(folder.join(format!("sluice-{}.tgz", self.version)));
        push.arg(format!("oci://{}/charts", self.registry));
        if self.plain_http {
            push.arg("--plain-http");
        }
        output(&mut push).map(drop)
    }

    /// Sets the chart's default registry for images to the one it is pushed to.
    fn adapt(&self, chart: &Path) -> Result<()> {
        let registry = (
            "\nimage:\n  # -- Registry",
            "\n  registry: \"\"\n",
            format!("\n  registry: {:?}\n", self.registry),
        );
        let [operator, gateway] = ["operator", "gateway"].map(|name| {
            let theirs = format!("image: sluice-{name}:{VERSION}\n");
            (theirs, format!("image: {}\n", self.image(name)))
        });
        edit(&chart.join("values.yaml"), |text| {
            let (before, after) = text.split_once(registry.0)?;
            let (comment, after) = after.split_once(registry.1)?;
            Some([before, registry.0, comment, &registry.2, after].concat())
        })?;
        edit(&chart.join("Chart.yaml"), |text| {
            let is_there = [&operator.0, &gateway.0].iter().all(|image| text.contains(image.as_str()));
            is_there.then(|| text.replace(&operator.0, &operator.1).replace(&gateway.0, &gateway.1))
        })
    }
}

fn edit(file: &Path, change: impl Fn(&str) -> Option<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let text = change(&text).with_context(|| format!("{} has another form", file.display()))?;
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    create_folder(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry.with_context(|| format!("list {}", from.display()))?.path();
        let name = entry.file_name().context("an entry without name")?;
        if entry.is_dir() {
            copy(&entry, &to.join(name))?;
        } else {
            fs::copy(&entry, to.join(name)).with_context(|| format!("copy {}", entry.display()))?;
        }
    }
    Ok(())
}

fn helm(words: &[&str]) -> Result<Command> {
    let mut helm = command(helm::path()?);
    helm.args(words);
    Ok(helm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_a_host_with_a_port_and_a_path() {
        for (text, is) in [
            ("registry.example.com", Some("registry.example.com")),
            ("localhost:5000/a/b/", Some("localhost:5000/a/b")),
            ("https://registry.example.com", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(registry(text).ok().as_deref(), is, "{text}");
        }
    }
}
