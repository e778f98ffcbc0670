//! The chart: it lints, it renders, and what it renders is what the code says.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::step::printed;
use crate::cargo::cargo;
use crate::stack::{helm, paths};

/// `helm lint --strict`.
pub fn lint() -> anyhow::Result<()> {
    printed(helm(&["lint", "--strict", "charts/sluice"])?).map(drop)
}

/// Renders the chart with its own values and with all else that it can be told, and looks at what must be in it.
pub fn render() -> anyhow::Result<()> {
    let usual = rendered(&[])?;
    let kinds =
        ["Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"];
    for kind in kinds {
        ensure!(of_kind(&usual, kind).is_some(), "the chart renders no {kind}");
    }
    let rendered_crd =
        of_kind(&usual, "CustomResourceDefinition").context("the chart renders no definition")?;
    let printed_crd: Value =
        serde_saphyr::from_str(&printed(cargo(&["run", "--quiet", "-p", "sluice-crds"]))?)
            .context("understand the printed definition")?;
    ensure!(
        rendered_crd["spec"] == printed_crd["spec"],
        "the chart's definition of TracePipeline is not the one that the code prints"
    );
    let without = rendered(&["--set", "crds.enabled=false"])?;
    ensure!(
        of_kind(&without, "CustomResourceDefinition").is_none(),
        "crds.enabled=false still renders a definition"
    );
    let namespaced = rendered(&["--set", "watchNamespaces={tracing}"])?;
    let cluster_wide = of_kind(&namespaced, "ClusterRole");
    ensure!(cluster_wide.is_none(), "a namespaced installation asks for rights in the whole cluster");
    ensure!(of_kind(&namespaced, "Role").is_some(), "a namespaced installation has no Role");
    Ok(())
}

fn rendered(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let mut command = helm(&["template", "sluice", "charts/sluice", "--namespace", "sluice-system"])?;
    command.args(arguments);
    let text = printed(command)?;
    serde_saphyr::from_multiple(&text).context("understand what helm renders")
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

fn helm(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut helm = crate::process::command(helm::path()?);
    helm.current_dir(paths::workspace()).args(arguments);
    Ok(helm)
}
