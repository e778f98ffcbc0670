//! A queue volume whose disk fails to sync or to read on demand.
//!
//! Job: compiles the library that `e2e/faults/disk_fails.c` describes, and holds the file that switches the fault on. Place in the
//! flow: a scenario gives [`FailingDisk::environment`] to the gateways that it starts. Owner: the scenario. Limits: it is the C library's
//! `fsync` and `fdatasync` that fail, or its `pread`; what a real disk would have lost by then is still there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use e2e_stack::process::{command, output};

/// The library's source.
const SOURCE: &str = include_str!("../disk_fails.c");

/// What a disk fails to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// To make durable what was written.
    Sync = 1,
    /// To read what is there.
    Read = 2,
}

/// The disk of all gateways that were started with its [environment](Self::environment).
pub struct FailingDisk {
    library: PathBuf,
    switch: PathBuf,
    volume: PathBuf,
    file: File,
}

impl FailingDisk {
    /// One that is well, below `volume`, which must be there; with files below `folder` whose names begin with `name`.
    ///
    /// # Errors
    /// When a file cannot be written, or what the compiler says.
    pub fn make(folder: &Path, name: &str, volume: &Path) -> Result<FailingDisk> {
        let at = |end: &str| folder.join(format!("{name}-{end}"));
        let (source, library, switch) = (at("disk.c"), at("disk.so"), at("disk.fails"));
        std::fs::write(&source, SOURCE).with_context(|| format!("write {}", source.display()))?;
        let mut cc = command("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        output(&mut cc).context("compile the disk that fails")?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&switch);
        let file = file.with_context(|| format!("open {}", switch.display()))?;
        // The library compares what the kernel calls it.
        let volume = volume.canonicalize().with_context(|| format!("find {}", volume.display()))?;
        let disk = FailingDisk { library, switch, volume, file };
        disk.set(None)?;
        Ok(disk)
    }

    /// What a gateway is started with.
    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.library.clone()),
            ("SLUICE_DISK_FAILS".to_owned(), self.switch.clone()),
            ("SLUICE_DISK_FOLDER".to_owned(), self.volume.clone()),
        ]
    }

    /// From now on such calls fail; with `None`, none does.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, fails: Option<Call>) -> Result<()> {
        let fails = fails.map_or(0, |call| call as i64);
        // In place: gateways have the file mapped.
        self.file
            .write_all_at(&fails.to_ne_bytes(), 0)
            .with_context(|| format!("write {}", self.switch.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_cannot_sync_below_the_folder_and_can_elsewhere() {
        let folder = std::env::temp_dir().join(format!("sluice-failing-disk-{}", std::process::id()));
        let volume = folder.join("volume");
        std::fs::create_dir_all(&volume).unwrap();
        let disk = FailingDisk::make(&folder, "test", &volume).unwrap();
        let synced = |place: &Path, environment: Vec<(String, PathBuf)>| {
            let mut sync = command("dd");
            sync.args(["if=/dev/null", "conv=fsync"]).arg(format!("of={}", place.display()));
            output(sync.envs(environment))
        };
        let (below, beside) = (volume.join("file"), folder.join("volume-beside"));
        synced(&below, disk.environment()).unwrap();
        disk.set(Some(Call::Sync)).unwrap();
        let failure = synced(&below, disk.environment()).unwrap_err();
        assert!(format!("{failure:#}").contains("Input/output error"), "{failure:#}");
        synced(&beside, disk.environment()).unwrap();
        synced(&below, Vec::new()).unwrap();
        disk.set(None).unwrap();
        synced(&below, disk.environment()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
