//! The stack's folders: a cache for built parts, which no command removes, and a folder for state and data, which `down --purge` removes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::process::{interrupt, wait};
use crate::say;

/// Another place for the cache of built parts.
pub const CACHE_VARIABLE: &str = "SLUICE_CACHE";

/// Another place for the running stack's state and data.
pub const STATE_VARIABLE: &str = "SLUICE_STACK";

/// Short on purpose: socket addresses below it may have at most 107 bytes.
const STATE_DEFAULT: &str = "/var/lib/sluice/stack";

/// Longest state folder (bytes) with which containerd's and its shims' socket addresses still fit into 107.
const STATE_BYTES_MAX: usize = 60;

/// Longest wait for a lock: another command may be building everything with an empty cache.
const LOCK_PATIENCE: std::time::Duration = std::time::Duration::from_mins(45);

#[derive(Clone, Debug)]
pub struct Paths {
    /// Built parts, by version or content hash.
    pub cache: PathBuf,
    /// State, data and logs of the running stack.
    pub state: PathBuf,
}

impl Paths {
    /// From `SLUICE_CACHE` (default `~/.cache/sluice`) and `SLUICE_STACK` (default `/var/lib/sluice/stack`).
    pub fn from_environment() -> anyhow::Result<Self> {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = match given(CACHE_VARIABLE) {
            Some(cache) => cache,
            None => given("HOME")
                .context("set SLUICE_CACHE or HOME: the folder for built parts is unknown")?
                .join(".cache/sluice"),
        };
        let state = given(STATE_VARIABLE).unwrap_or_else(|| PathBuf::from(STATE_DEFAULT));
        if !state.is_absolute() || state.as_os_str().len() > STATE_BYTES_MAX {
            bail!(
                "{STATE_VARIABLE}={} must be an absolute path of at most {STATE_BYTES_MAX} bytes",
                state.display()
            );
        }
        Ok(Self {
            cache: std::path::absolute(&cache)
                .with_context(|| format!("{CACHE_VARIABLE}={}", cache.display()))?,
            state,
        })
    }

    pub fn kubernetes(&self) -> PathBuf {
        self.state.join("kubernetes")
    }

    pub fn kafka(&self) -> PathBuf {
        self.state.join("kafka")
    }

    pub fn clickhouse(&self) -> PathBuf {
        self.state.join("clickhouse")
    }

    pub fn build_log(&self, part: &str) -> PathBuf {
        self.cache.join("log").join(format!("{part}.log"))
    }

    /// Waits until no other command changes the stack, and excludes other commands until the lock is dropped. The lock file is beside the
    /// state folder, so that it survives a purge.
    pub fn lock(&self) -> anyhow::Result<StackLock> {
        self.lock_while(interrupt::check)
    }

    /// As [`Self::lock`], but also waits after Ctrl-C: the command must still stop what it started.
    pub fn lock_to_stop(&self) -> anyhow::Result<StackLock> {
        self.lock_while(|| Ok(()))
    }

    fn lock_while(&self, allowed: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<StackLock> {
        let file = self.state.with_added_extension("lock");
        create_parent(&file)?;
        let held = lock(&file, "another command is changing the stack; waiting for it", allowed)?;
        Ok(StackLock { file, _held: held })
    }
}

/// The right to change the stack; ends when this is dropped, or when the process ends.
#[derive(Debug)]
pub struct StackLock {
    file: PathBuf,
    _held: File,
}

impl StackLock {
    /// Releases the lock and removes its file, the last one of the stack.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        fs::remove_file(&self.file).with_context(|| format!("remove {}", self.file.display()))
    }
}

/// Takes the lock. While another command holds it, prints that and waits, as long as `allowed` returns no error.
fn lock(file: &Path, waits: &str, allowed: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<File> {
    let mut told = false;
    wait::while_allowed(LOCK_PATIENCE, allowed, || {
        let held = try_lock(file);
        if held.is_err() && !std::mem::replace(&mut told, true) {
            say::progress("stack", waits);
        }
        held
    })
}

fn try_lock(file: &Path) -> anyhow::Result<File> {
    let held = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("open {}", file.display()))?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("lock {}", file.display()))?;
    // A purge may have removed the file after we opened it and before we locked it. Then other commands lock a new file.
    let ours = held.metadata().with_context(|| format!("look at {}", file.display()))?;
    let named = fs::metadata(file).with_context(|| format!("look at {}", file.display()))?;
    anyhow::ensure!(
        (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        "{} was removed meanwhile",
        file.display()
    );
    Ok(held)
}

/// The folder of this package's data files in the checkout.
pub fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// Digits (hexadecimal) of a content hash that name a part or an image: 48 bits, so a chance clash among a few hundred is very unlikely.
pub const HASH_DIGITS: usize = 12;

/// A short name for exactly these contents.
pub fn content_hash<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for content in contents {
        // The length first, so that moving bytes from one content to the next changes the hash.
        hash.update(content.len().to_le_bytes());
        hash.update(content);
    }
    hexadecimal(&hash.finalize())[..HASH_DIGITS].to_owned()
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Makes a folder and those above it, and returns it.
pub fn create_folder(folder: impl Into<PathBuf>) -> anyhow::Result<PathBuf> {
    let folder = folder.into();
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// Makes the folder in which a file or folder is to be.
pub fn create_parent(path: &Path) -> anyhow::Result<()> {
    path.parent().map_or(Ok(()), |parent| create_folder(parent).map(drop))
}

/// Writes a file only if its contents differ; returns whether it did. kube-proxy ends when its configuration is written, even with the same
/// text.
pub fn put(file: &Path, text: &str) -> anyhow::Result<bool> {
    if fs::read(file).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(false);
    }
    create_parent(file)?;
    let fresh = file.with_added_extension("new");
    fs::write(&fresh, text).with_context(|| format!("write {}", fresh.display()))?;
    fs::rename(&fresh, file).with_context(|| format!("replace {}", file.display()))?;
    Ok(true)
}

/// Makes a folder of the cache completely or not at all: `fill` works in a folder beside it, which is renamed at the end. An existing
/// folder is not changed. If another thread or command is making the folder, this call waits for it.
pub fn fill_once(folder: &Path, fill: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    create_parent(folder)?;
    let waits = format!("another command makes {}; waiting for it", folder.display());
    let _held = lock(&folder.with_added_extension("lock"), &waits, interrupt::check)?;
    if folder.is_dir() {
        return Ok(());
    }
    let partial = folder.with_added_extension("partial");
    remove_folder(&partial)?;
    create_folder(&partial)?;
    fill(&partial)?;
    fs::rename(&partial, folder)
        .with_context(|| format!("rename {} to {}", partial.display(), folder.display()))
}

/// Removes a folder with its contents; it may be absent.
pub fn remove_folder(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(failure) if failure.kind() != std::io::ErrorKind::NotFound => {
            Err(failure).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Fills the `@NAME@` places of a template.
pub fn render(template: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_hash_tells_where_contents_end() {
        let hash = |parts: &[&[u8]]| content_hash(parts.iter().copied());
        assert_eq!(hash(&[b"ab", b"c"]), hash(&[b"ab", b"c"]));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[]).len(), HASH_DIGITS);
    }

    #[test]
    fn a_file_with_the_same_text_is_not_written_again() {
        let file = std::env::temp_dir().join(format!("sluice-put-{}", std::process::id()));
        assert!(put(&file, "a").unwrap());
        assert!(!put(&file, "a").unwrap());
        assert!(put(&file, "b").unwrap());
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_folder_is_filled_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("sluice-fill-{}", std::process::id()));
        assert!(fill_once(&folder, |_| bail!("no")).is_err());
        assert!(!folder.exists());
        fill_once(&folder, |partial| Ok(fs::write(partial.join("x"), "1")?)).unwrap();
        fill_once(&folder, |_| bail!("it is not filled twice")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "1");
        remove_filled(&folder);
    }

    #[test]
    fn a_folder_that_is_being_filled_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("sluice-fill-twice-{}", std::process::id()));
        let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
        let (go_on, may_go_on) = std::sync::mpsc::sync_channel(1);
        std::thread::scope(|scope| {
            let folder = &folder;
            let first = scope.spawn(move || {
                fill_once(folder, |_| {
                    begun.send(())?;
                    Ok(may_go_on.recv()?)
                })
            });
            has_begun.recv().unwrap();
            assert!(try_lock(&folder.with_added_extension("lock")).is_err(), "it is being filled");
            let second = scope.spawn(move || fill_once(folder, |_| bail!("it is not filled twice")));
            go_on.send(()).unwrap();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
        });
        remove_filled(&folder);
    }

    #[test]
    fn who_is_asked_to_stop_takes_a_lock_that_is_free_and_waits_for_no_other() {
        let file = std::env::temp_dir().join(format!("sluice-stop-{}.lock", std::process::id()));
        let asked_to_stop = || bail!("interrupted");
        let _held = lock(&file, "it is held", asked_to_stop).unwrap();
        assert_eq!(lock(&file, "it is held", asked_to_stop).unwrap_err().to_string(), "interrupted");
        // Not taken once more: until its `exec`, a child that another test starts has the lock, too.
        fs::remove_file(file).unwrap();
    }

    fn remove_filled(folder: &Path) {
        remove_folder(folder).unwrap();
        remove_folder(&folder.with_added_extension("partial")).unwrap();
        fs::remove_file(folder.with_added_extension("lock")).unwrap();
    }
}
