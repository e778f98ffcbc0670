//! Programs under callgrind, and the counts that it writes.
//!
//! Job: start a program under valgrind without the caller's environment, and read how many instructions were counted. Place in the flow:
//! between the stages, or the gateway, and the [figures](crate::figures). Limits: one program at a time in a folder.

use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Each file of counts has this name, some with a number behind it.
const OUT: &str = "callgrind.out";

/// Valgrind, which was found.
pub struct Callgrind {
    /// Where the files of counts are written.
    folder: PathBuf,
    /// Held until this is dropped. A second run in the folder would remove the first one's files; it waits instead.
    _lock: File,
}

impl Callgrind {
    /// Looks for valgrind, and makes the folder for its files.
    pub fn find(folder: &Path) -> Result<Self> {
        match Command::new("valgrind").arg("--version").output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                bail!("valgrind --version: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("valgrind is not installed: apt-get install valgrind")
            }
            Err(error) => return Err(error).context("start valgrind"),
        }
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let lock = File::create(folder.join("lock")).with_context(|| format!("lock {}", folder.display()))?;
        lock.lock().with_context(|| format!("lock {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// The command that counts a program's instructions. Files of an earlier run are removed.
    ///
    /// The environment moves the stack, and jemalloc, librdkafka and the gateway read settings from it. So the program gets only `PATH`,
    /// which Debian's shell script around valgrind needs.
    pub fn command(&self, options: &[&str], program: &Path) -> Result<Command> {
        for file in self.files()? {
            fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
        }
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=callgrind"]).args(options);
        command.arg(format!("--callgrind-out-file={}", self.folder.join(OUT).display())).arg(program);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// The counts of a run that has ended, in order: one for each `--dump-after`, then that of the rest.
    pub fn counts(&self) -> Result<Vec<u64>> {
        let mut numbered = Vec::new();
        for file in self.files()? {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let count = count(&text).with_context(|| format!("{} has no count", file.display()))?;
            // The last one has no number.
            let number =
                file.extension().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(u32::MAX);
            numbered.push((number, count));
        }
        ensure!(!numbered.is_empty(), "callgrind wrote no file in {}", self.folder.display());
        numbered.sort_unstable();
        Ok(numbered.into_iter().map(|(_, count)| count).collect())
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let listed = fs::read_dir(&self.folder).with_context(|| format!("list {}", self.folder.display()))?;
        let mut files = Vec::new();
        for entry in listed {
            let path = entry.with_context(|| format!("list {}", self.folder.display()))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OUT)) {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The count in the text of a file: `totals: 1234`.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}
