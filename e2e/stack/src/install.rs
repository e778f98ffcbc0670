//! The product on the cluster: images built from this checkout, and the operator installed by its chart.
//!
//! Blocking, like everything about processes; within a runtime, call it from a blocking task. The operator runs in [`OPERATOR_NAMESPACE`]
//! as the release [`RELEASE`], the usual place for a user's installation.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

use crate::process::output;
use crate::programs::Form;
use crate::say;
use crate::target::Resolved;
use crate::{helm, images, paths};

pub const OPERATOR_NAMESPACE: &str = "sluice-system";

const RELEASE: &str = "sluice";

/// How long helm waits until the operator is ready. With a loaded image it starts within seconds.
const READY_TIMEOUT: &str = "3m";

/// Images that are already in the cluster, for clusters into which we cannot load images.
#[derive(Args, Clone, Debug, Default)]
pub struct ImageArgs {
    /// Image of the operator, for clusters that pull their images
    #[arg(long, value_name = "REFERENCE", env = "SLUICE_OPERATOR_IMAGE", requires = "gateway_image")]
    pub operator_image: Option<String>,

    /// Image of the gateway, for clusters that pull their images
    #[arg(long, value_name = "REFERENCE", env = "SLUICE_GATEWAY_IMAGE", requires = "operator_image")]
    pub gateway_image: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    pub operator: String,
    pub gateway: String,
}

/// The images to run: the named ones, or images that are built from this checkout in this form and loaded into the cluster.
pub fn images(target: &Resolved, named: &ImageArgs, form: Form) -> anyhow::Result<Images> {
    if let (Some(operator), Some(gateway)) = (&named.operator_image, &named.gateway_image) {
        return Ok(Images { operator: operator.clone(), gateway: gateway.clone() });
    }
    let store = target.images.as_ref().context(
        "this cluster pulls its images: push them with `cargo run -p e2e-verify -- publish REGISTRY`, and \
         use --operator-image and --gateway-image",
    )?;
    let programs = images::Programs::compiled(form)?;
    let loaded = |name: &str, program: &Path| -> anyhow::Result<String> {
        let image = images::build_image(name, program)?;
        images::load(&image, store)?;
        say::progress("images", &format!("{} is on the node", image.reference));
        Ok(image.reference)
    };
    let operator = loaded("operator", &programs.operator)?;
    Ok(Images { operator, gateway: loaded("gateway", &programs.gateway)? })
}

/// Installs or upgrades the operator and waits until it is ready.
pub fn operator(kubeconfig: &Path, images: &Images) -> anyhow::Result<()> {
    say::progress("operator", "helm upgrade --install sluice charts/sluice");
    let parts = |image: &'static str, reference: &str| {
        let (repository, tag) =
            reference.rsplit_once(':').with_context(|| format!("the image {reference} has no tag"))?;
        anyhow::Ok([format!("{image}.repository={repository}"), format!("{image}.tag={tag}")])
    };
    let values = [parts("image", &images.operator)?, parts("gateway.image", &images.gateway)?].concat();
    let mut helm = helm_command(kubeconfig)?;
    helm.args(["upgrade", "--install", RELEASE]).arg(paths::workspace().join("charts/sluice"));
    helm.args(["--namespace", OPERATOR_NAMESPACE, "--create-namespace"]);
    helm.args(["--wait", "--timeout", READY_TIMEOUT]);
    // Tests and demo use all cores, and an operator without CPU time loses its Lease.
    helm.args(["--set", "resources.requests.cpu=250m"]);
    for value in &values {
        helm.args(["--set-string", value]);
    }
    output(&mut helm).context("install the operator by its chart")?;
    say::progress("operator", "ready");
    Ok(())
}

/// Removes the operator; it is no error if none is installed. The definition of `TracePipeline` stays, as the chart promises.
pub fn remove(kubeconfig: &Path) -> anyhow::Result<()> {
    let mut helm = helm_command(kubeconfig)?;
    helm.args(["uninstall", RELEASE, "--namespace", OPERATOR_NAMESPACE, "--ignore-not-found", "--wait"]);
    output(&mut helm).map(drop).context("remove the operator")
}

fn helm_command(kubeconfig: &Path) -> anyhow::Result<Command> {
    let mut helm = crate::process::command(helm::path()?);
    helm.env("KUBECONFIG", kubeconfig);
    Ok(helm)
}
