//! `cargo run -p e2e-verify -- publish` into a registry of the test: users can pull what it pushes, and the chart names the images.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e_fixtures::files;
use e2e_fixtures::registry::Registry;
use e2e_stack::images::ProgramArgs;
use e2e_stack::paths::remove_folder;
use e2e_stack::process::{command, output};
use e2e_stack::publish::{self, PublishArgs};
use e2e_stack::{crane, helm};
use serde_json::Value;

use super::manifests::{operator_arguments, rendered_from, the};

/// A version other than the checkout's.
const VERSION: &str = "7.8.9-rc.1";

#[test]
fn one_command_publishes_images_and_chart_that_can_be_pulled() -> Result<()> {
    let served = Registry::serve()?;
    let registry = format!("{}/observability", served.address());
    // Any program will do: other tests run images in the cluster.
    let program = std::env::current_exe().context("find this program")?;
    publish::run(&PublishArgs {
        registry: registry.clone(),
        version: VERSION.to_owned(),
        plain_http: true,
        programs: ProgramArgs { operator: Some(program.clone()), gateway: Some(program) },
    })?;

    let folder = files::temporary(&format!("sluice-pulled-{}", std::process::id()))?;
    let pulled = is_pulled(&registry, &folder);
    remove_folder(&folder)?;
    pulled
}

fn is_pulled(registry: &str, folder: &Path) -> Result<()> {
    let mut pull = command(helm::path()?);
    pull.args(["pull", &format!("oci://{registry}/charts/sluice"), "--version", VERSION, "--plain-http"]);
    output(pull.arg("--destination").arg(folder))?;
    let archive = folder.join(format!("sluice-{VERSION}.tgz"));
    let objects = rendered_from(archive.to_str().context("its path is not UTF-8")?, &[])?;
    let container = &the("Deployment", &objects)?["spec"]["template"]["spec"]["containers"][0];
    let operator = container["image"].as_str().context("no image")?;
    let mut args = operator_arguments(&objects)?.into_iter();
    let gateway = args.find_map(|arg| arg.strip_prefix("--gateway-image=")).context("no gateway image")?;
    let mut show = command(helm::path()?);
    let shown = output(show.args(["show", "chart"]).arg(&archive))?;
    for (name, reference) in [("operator", operator), ("gateway", gateway)] {
        let expected = format!("{registry}/sluice-{name}:{VERSION}");
        ensure!(reference == expected, "the chart runs {reference}, not {expected}");
        ensure!(
            shown.contains(&format!("image: {expected}\n")),
            "the annotation for Artifact Hub has other images: {shown}"
        );
        let mut config = command(crane::path()?);
        let text = output(config.args(["config", reference]))?;
        let config: Value = serde_json::from_str(&text).context("understand the image's config")?;
        ensure!(config["config"]["User"] == "65532:65532", "{reference} runs as {config}");
        let saved = folder.join(name);
        // Reads every layer, and checks its digest.
        output(command(crane::path()?).args(["pull", reference]).arg(&saved))?;
        ensure!(saved.is_file(), "{reference} was not pulled");
    }
    Ok(())
}
