//! Containerd with its own folders and socket, beside any other that the machine runs, and the images in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::rendered;
use crate::images::Image;
use crate::part::Part;
use crate::paths::put;
use crate::process::{Daemon, command, output};
use crate::requirements::cni_programs;

const CONFIGURATION: &str = include_str!("../../kubernetes/containerd.toml");
pub(super) const NETWORK: &str = include_str!("../../kubernetes/network.conflist");

/// It answers within a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest time (seconds) for one command to containerd; importing an image of 100 MB takes about one.
const COMMAND_SECONDS: &str = "60";

pub fn socket(state: &Path) -> PathBuf {
    state.join("containerd/containerd.sock")
}

/// The `ctr` command for the node's images and containers, with a time limit.
pub fn ctr(socket: &Path) -> Command {
    let mut ctr = command("timeout");
    ctr.args([COMMAND_SECONDS, "ctr", "--address"]).arg(socket).args(["--namespace", "k8s.io"]);
    ctr
}

pub fn part(state: &Path) -> Part {
    let socket = socket(state);
    let address = socket.display().to_string();
    let probe = Box::new(move || output(ctr(&socket).arg("version")).map(drop));
    Part { daemon: Daemon::new(state, "containerd"), address, probe }
}

/// Starts it and loads the image of the pod sandbox.
pub fn start(state: &Path, pause: &Image) -> anyhow::Result<()> {
    let plugins = cni_programs().context("the CNI plugins are gone")?;
    let configuration = rendered(CONFIGURATION, state)
        .replace("@PAUSE_IMAGE@", &pause.reference)
        .replace("@CNI_PROGRAMS@", &plugins.to_string_lossy());
    put(&configuration_file(state), &configuration)?;
    put(&state.join("cni/net.d/10-sluice.conflist"), &rendered(NETWORK, state))?;
    part(state).ensure(&program(state), PATIENCE)?;
    import(&socket(state), pause)
}

pub fn program(state: &Path) -> Command {
    let mut containerd = command("containerd");
    containerd.arg("--config").arg(configuration_file(state)).args(["--log-level", "warn"]);
    containerd
}

/// Loads an image unless it is already there. It uses the same command as `kind load image-archive`, so an image that works here also works
/// in kind.
pub fn import(socket: &Path, image: &Image) -> anyhow::Result<()> {
    let known =
        output(ctr(socket).args(["images", "list", "--quiet"]).arg(format!("name=={}", image.reference)));
    if known.context("ask containerd for its images")?.contains(&image.reference) {
        return Ok(());
    }
    output(ctr(socket).args(["images", "import", "--all-platforms", "--digests"]).arg(&image.archive))
        .map(drop)
        .with_context(|| format!("give {} to containerd", image.reference))
}

fn configuration_file(state: &Path) -> PathBuf {
    state.join("containerd/config.toml")
}
