//! Claiming a volume, and reading how full it is.
//!
//! The lock is an advisory lock on a file of its own, held as long as the [`Volume`] lives. The kernel releases it when the process ends,
//! however it ends.

use crate::identity::{FORMAT, Identity};
use rustix::fs::{FlockOperation, flock, statvfs};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The file that is locked. It stays empty.
const LOCK_FILE: &str = "sluice-queue.lock";

/// The identity file; a draft is written first.
const IDENTITY_FILE: &str = "sluice-queue.json";
const DRAFT_FILE: &str = "sluice-queue.json.new";

/// A folder of every new ext4 file system.
const FILE_SYSTEM_FOLDER: &str = "lost+found";

/// A larger file is not an identity file.
const IDENTITY_BYTES_MAX: u64 = 4 << 10;

/// How often to retry while the volume is in use. Chosen: a hundred tries cost nothing.
const CLAIM_AGAIN: Duration = Duration::from_millis(100);

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// There is no folder at the path.
    #[error("there is no queue volume at {path}: mount it there, or name its folder in queue.path")]
    Missing { path: PathBuf },
    /// Another process holds the volume.
    #[error(
        "the queue volume {path} is in use by another process; a volume belongs to one gateway at a time"
    )]
    InUse { path: PathBuf },
    /// The volume belongs to another pipeline.
    #[error(
        "the queue volume {path} belongs to pipeline {found}, not to {expected}; \
         give this pipeline a volume of its own"
    )]
    Foreign { path: PathBuf, found: String, expected: String },
    /// The volume's identity cannot be read, or its layout version is unknown.
    #[error("the queue volume {path} cannot be read by this program: {reason}")]
    Unreadable { path: PathBuf, reason: String },
}

/// The size and free space of a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total: u64,
    /// Bytes that this user may still write.
    pub free: u64,
}

/// A volume that this process has claimed.
#[derive(Debug)]
pub struct Volume {
    path: PathBuf,
    _locked: File,
}

impl Volume {
    /// Like [`Self::claim`], but retries for up to `patience` while another process has the volume: a process that was just killed may
    /// still hold it. `wait` waits before each retry, and returns `false` to stop.
    ///
    /// # Errors
    /// Those of [`Self::claim`]; [`Error::InUse`] after `patience`, or if `wait` returned `false`.
    pub fn claim_within(
        path: &Path,
        identity: &Identity,
        patience: Duration,
        mut wait: impl FnMut(Duration) -> bool,
    ) -> Result<Self, Error> {
        let begun = Instant::now();
        loop {
            match Self::claim(path, identity) {
                Err(Error::InUse { .. }) if begun.elapsed() < patience && wait(CLAIM_AGAIN) => {}
                claimed => return claimed,
            }
        }
    }

    /// Claims the volume at `path` for a pipeline: locks it, and writes or compares its identity.
    pub fn claim(path: &Path, identity: &Identity) -> Result<Self, Error> {
        let lock_path = path.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let locked = options.open(&lock_path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
            _ => failed("open or create", &lock_path)(error),
        })?;
        if flock(&locked, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::InUse { path: path.to_owned() });
        }
        match File::open(path.join(IDENTITY_FILE)) {
            Ok(file) => compare(path, file, identity)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => write(path, identity)?,
            Err(error) => return Err(failed("open", &path.join(IDENTITY_FILE))(error)),
        }
        Ok(Self { path: path.to_owned(), _locked: locked })
    }

    /// Whether the volume has no queue files: nothing was ever queued, or all of it was drained. Before the queue is opened nothing more
    /// is known: the files of a used volume may or may not contain unsettled blocks.
    pub fn is_blank(&self) -> Result<bool, Error> {
        let own = [LOCK_FILE, IDENTITY_FILE, DRAFT_FILE, FILE_SYSTEM_FOLDER];
        for entry in std::fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let name = entry.map_err(failed("list", &self.path))?.file_name();
            if !own.iter().any(|known| name == *known) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The size and free space of the volume.
    pub fn space(&self) -> Result<Space, Error> {
        let stat = statvfs(&self.path).map_err(|source| Error::Io {
            action: "read the space of",
            path: self.path.clone(),
            source: source.into(),
        })?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

/// Writes the identity to a draft and renames it, so that it is whole or absent after a crash.
fn write(path: &Path, identity: &Identity) -> Result<(), Error> {
    let text = serde_json::to_string(identity).expect("two plain fields always serialise");
    let (draft, place) = (path.join(DRAFT_FILE), path.join(IDENTITY_FILE));
    let mut file = File::create(&draft).map_err(failed("create", &draft))?;
    file.write_all(text.as_bytes()).map_err(failed("write", &draft))?;
    file.sync_all().map_err(failed("sync", &draft))?;
    std::fs::rename(&draft, &place).map_err(failed("rename to its place", &draft))?;
    let directory = File::open(path).map_err(failed("open", path))?;
    directory.sync_all().map_err(failed("sync", path))
}

fn compare(path: &Path, file: File, expected: &Identity) -> Result<(), Error> {
    let unreadable = |reason: String| Error::Unreadable { path: path.to_owned(), reason };
    let mut text = String::new();
    file.take(IDENTITY_BYTES_MAX).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    let found: Identity = serde_json::from_str(&text)
        .map_err(|error| unreadable(format!("{IDENTITY_FILE} is damaged ({error})")))?;
    if found.format != FORMAT {
        return Err(unreadable(format!(
            "its layout is version {}, this program knows {FORMAT}",
            found.format
        )));
    }
    if found.pipeline != expected.pipeline {
        let (found, expected) = (found.pipeline, expected.pipeline.clone());
        return Err(Error::Foreign { path: path.to_owned(), found, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-spool-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_volume_that_another_process_lets_go_of_is_waited_for() {
        let path = fresh("waited");
        let identity = Identity::of("tracing", "prod");
        let mut held = Some(Volume::claim(&path, &identity).unwrap());
        let lets_go = |_| {
            held = None;
            true
        };
        let claimed = Volume::claim_within(&path, &identity, Duration::from_mins(1), lets_go).unwrap();
        let ended = Volume::claim_within(&path, &identity, Duration::from_mins(1), |_| false);
        assert!(matches!(ended, Err(Error::InUse { .. })), "whoever waits is told to end");
        let too_long = Volume::claim_within(&path, &identity, Duration::ZERO, |_| panic!("nobody may wait"));
        assert!(matches!(too_long, Err(Error::InUse { .. })));
        drop(claimed);
        std::fs::remove_dir_all(&path).unwrap();
        let missing = Volume::claim(&path, &identity).unwrap_err();
        assert!(
            matches!(missing, Error::Missing { .. }) && missing.to_string().contains("queue.path"),
            "{missing}"
        );
    }

    #[test]
    fn a_volume_is_claimed_once_at_a_time_and_again_after_a_restart() {
        let path = fresh("claim");
        let identity = Identity::of("tracing", "prod");
        let volume = Volume::claim(&path, &identity).unwrap();
        assert!(matches!(Volume::claim(&path, &identity), Err(Error::InUse { .. })));
        let space = volume.space().unwrap();
        assert!(space.total >= space.free && space.total > 0, "{space:?}");
        drop(volume);
        Volume::claim(&path, &identity).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn the_volume_of_another_pipeline_is_left_alone() {
        let path = fresh("foreign");
        drop(Volume::claim(&path, &Identity::of("tracing", "prod")).unwrap());
        let error = Volume::claim(&path, &Identity::of("tracing", "test")).unwrap_err();
        assert!(error.to_string().contains("tracing/prod"), "{error}");
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_damaged_or_newer_identity_is_not_overwritten() {
        let path = fresh("damaged");
        for text in ["{", r#"{"format":2,"pipeline":"tracing/prod"}"#] {
            std::fs::write(path.join(IDENTITY_FILE), text).unwrap();
            let result = Volume::claim(&path, &Identity::of("tracing", "prod"));
            assert!(matches!(result, Err(Error::Unreadable { .. })), "{result:?}");
            assert_eq!(std::fs::read_to_string(path.join(IDENTITY_FILE)).unwrap(), text);
        }
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_missing_directory_says_which() {
        let error = Volume::claim(Path::new("/nonexistent/queue"), &Identity::of("a", "b")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/queue"), "{error}");
    }
}
