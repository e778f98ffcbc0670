//! A file system of a few MiB for a queue volume, to test a full device instead of a full `queue.maxBytes`.
//!
//! Owner: the round; unmounted when dropped. Limits: needs the right to mount (root).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use e2e_stack::process::output;
use e2e_stack::say;

/// A mounted file system in memory.
pub struct SmallVolume {
    place: PathBuf,
}

impl SmallVolume {
    /// Mounts one of so many KiB.
    pub fn mount(place: &Path, kib: u32) -> Result<SmallVolume> {
        std::fs::create_dir_all(place).with_context(|| format!("create {}", place.display()))?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "sluice-faults"]).arg(place);
        output(&mut command).context("mount a small file system, which needs root")?;
        Ok(SmallVolume { place: place.to_owned() })
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        // Lazily: a gateway that was just killed may still have files open.
        if let Err(failure) = output(Command::new("umount").arg("--lazy").arg(&self.place)) {
            say::error(&format!("{} stays mounted: {failure:#}", self.place.display()));
        }
    }
}
