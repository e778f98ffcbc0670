//! A queue volume whose disk fails to sync, to read or to write on demand, or holds such a call.
//!
//! Job: compiles the library of `e2e/faults/disk_fails.c`, and holds the file that switches the fault on. Place in the flow: a scenario
//! passes [`FailingDisk::environment`] to the gateways that it starts. Owner: the scenario. Limits: only the C library's `fsync` and
//! `fdatasync` fail, or its `pread` and `pwrite`; data that a real disk would have lost is still there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::preload::Preload;
use e2e_stack::process::interrupt;

/// Places in the file: which call fails, which is held, and how many calls were held.
const FAILS: u64 = 0;
const HOLDS: u64 = 1;
const HELD: u64 = 2;

/// Time between two checks whether a call is held.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

const SOURCE: &str = include_str!("../disk_fails.c");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Sync = 1,
    Read = 2,
    Write = 3,
}

/// A call of a log that the disk holds, in the order of a request's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hold {
    /// The write of a part of a record: the requests in it are accepted.
    RecordWrite = 1,
    /// The sync of records that are written.
    RecordSync = 2,
    /// The end of that sync: the requests are durable, and have no answer yet.
    RecordSynced = 3,
    /// The write of a committed offset with its plan of ranges.
    CommitWrite = 4,
    /// Its sync.
    CommitSync = 5,
    /// The end of that sync.
    CommitSynced = 6,
}

/// The disk of all gateways that were started with its [environment](Self::environment).
pub struct FailingDisk {
    preload: Preload,
    volume: PathBuf,
}

impl FailingDisk {
    /// A working disk below `volume`, which must exist. Its files are below `folder`; their names begin with `name`.
    pub fn make(folder: &Path, name: &str, volume: &Path) -> Result<FailingDisk> {
        let preload = Preload::make(folder, &format!("{name}-disk"), "the disk that fails", SOURCE, 3)?;
        // The library compares the path that the kernel reports.
        let volume = volume.canonicalize().with_context(|| format!("find {}", volume.display()))?;
        Ok(FailingDisk { preload, volume })
    }

    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        let folder = ("SLUICE_DISK_FOLDER".to_owned(), self.volume.clone());
        [self.preload.environment("SLUICE_DISK_FAILS"), vec![folder]].concat()
    }

    /// From now on, such calls fail; with `None`, none does.
    pub fn set(&self, fails: Option<Call>) -> Result<()> {
        self.preload.set(FAILS, fails.map_or(0, |call| call as i64))
    }

    /// From now on, such calls are held until this is called again; with `None`, none is.
    pub fn hold(&self, holds: Option<Hold>) -> Result<()> {
        self.preload.set(HELD, 0)?;
        self.preload.set(HOLDS, holds.map_or(0, |hold| hold as i64))
    }

    /// Waits until a call is held.
    pub async fn caught(&self, patience: Duration) -> Result<()> {
        let waited = async {
            while self.preload.get(HELD)? == 0 {
                interrupt::check()?;
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(patience, waited).await;
        waited.with_context(|| format!("the disk has held no call within {patience:?}"))?
    }
}

#[cfg(test)]
mod tests {
    use e2e_stack::process::{command, output};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_sync_of_a_segment_is_held_until_it_is_let_go_of() {
        let folder = std::env::temp_dir().join(format!("sluice-holding-disk-{}", std::process::id()));
        let volume = folder.join("volume");
        std::fs::create_dir_all(&volume).unwrap();
        let disk = FailingDisk::make(&folder, "test", &volume).unwrap();
        disk.hold(Some(Hold::RecordSync)).unwrap();
        let sync = |name: &str| {
            let mut sync = command("dd");
            sync.args(["if=/dev/null", "conv=fsync", "status=none"]);
            sync.arg(format!("of={}", volume.join(name).display())).envs(disk.environment());
            sync
        };
        output(&mut sync("offsets")).unwrap();
        let mut held = sync("segment-0000000000000001.spool").spawn().unwrap();
        disk.caught(PATIENCE).await.unwrap();
        assert!(held.try_wait().unwrap().is_none(), "it waits");
        disk.hold(None).unwrap();
        assert!(held.wait().unwrap().success());
        let unseen = disk.caught(Duration::from_millis(1)).await;
        assert!(unseen.unwrap_err().to_string().contains("has held no call"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

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
