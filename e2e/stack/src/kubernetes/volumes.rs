//! The process of the storage class `standard`: the program `local-volumes` of `e2e/fixtures`, which makes volumes for pods that are not
//! root. It runs from a copy, so that a new build does not disturb it.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::part::Part;
use crate::paths::create_folder;
use crate::process::{Daemon, command};
use crate::programs::{self, Form};

pub const PROVISIONER: &str = "sluice.dev/local-volumes";

pub const CLASS: &str = "standard";

const NAME: &str = "volumes";

/// The process as `status` shows it.
pub fn part(state: &Path) -> Part {
    Part::silent(Daemon::new(state, NAME))
}

/// Starts the process, unless it runs.
pub fn start(state: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let daemon = part(state).daemon;
    if daemon.process().is_some() {
        return Ok(());
    }
    let program = programs::LOCAL_VOLUMES.file(Form::Checked);
    let copy = create_folder(state.join("programs"))?.join(NAME);
    // If this were a link, the next build could write into the running file, unless the linker replaces it.
    let fresh = copy.with_added_extension("new");
    fs::copy(&program, &fresh)
        .with_context(|| format!("copy {} to {}", program.display(), fresh.display()))?;
    fs::rename(&fresh, &copy).with_context(|| format!("rename {}", fresh.display()))?;
    let mut volumes = command(copy);
    volumes.arg("--kubeconfig").arg(kubeconfig).arg("--folder").arg(create_folder(state.join("volumes"))?);
    daemon.start(&volumes).map(drop)
}
