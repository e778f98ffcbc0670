//! A memory cgroup for one process: the kernel's own limit, and its counters.
//!
//! Job: make the cgroup, start a command inside it, read peak and OOM kills, remove it. Place in the flow: around the gateway. Limits:
//! needs the right to make cgroups below this process' own; swap is not allowed inside. Supports versions 1 and 2 of the interface; only
//! version 1 was tested.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};

use e2e_stack::process::run_by;

/// Number of cgroups made by this process, so that each has its own name.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The shell moves itself into the cgroup and then becomes the command.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// The two interfaces of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    One,
    Two,
}

/// A group; removed when dropped, once its process has ended.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    interface: Interface,
}

impl MemoryGroup {
    pub fn create(limit_bytes: u64) -> Result<MemoryGroup> {
        let (parent, interface) = parent()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("sluice-memory-{}-{number}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("create the memory cgroup {}, which needs root", folder.display()))?;
        let group = MemoryGroup { folder, interface };
        let limit = limit_bytes.to_string();
        match interface {
            Interface::One => {
                group.write("memory.limit_in_bytes", &limit)?;
                // Memory and swap together: no more than memory alone. Kernels without swap accounting lack the file.
                if group.folder.join("memory.memsw.limit_in_bytes").exists() {
                    group.write("memory.memsw.limit_in_bytes", &limit)?;
                }
            }
            Interface::Two => {
                group.write("memory.max", &limit)?;
                if group.folder.join("memory.swap.max").exists() {
                    group.write("memory.swap.max", "0")?;
                }
            }
        }
        Ok(group)
    }

    /// The same command, started inside the cgroup. Its process id is that of the shell which enters the cgroup.
    pub fn inside(&self, command: &Command) -> Command {
        let mut entering = Command::new("sh");
        entering.args(["-c", ENTER]).arg(self.folder.join("cgroup.procs"));
        run_by(entering, command)
    }

    /// Reads the bytes of anonymous memory, in any thread; page cache does not count.
    pub fn anonymous_bytes(&self) -> impl Fn() -> Result<u64> + Send + use<> {
        let name = if self.interface == Interface::One { "total_rss" } else { "anon" };
        let file = self.folder.join("memory.stat");
        move || number(&file, name)
    }

    /// Processes of the cgroup that the kernel killed because of the limit.
    pub fn kills(&self) -> Result<u64> {
        let file = if self.interface == Interface::One { "memory.oom_control" } else { "memory.events" };
        number(&self.folder.join(file), "oom_kill")
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A cgroup that still has a process stays; the code that left the process reports it.
        fs::remove_dir(&self.folder).ok();
    }
}

fn number(file: &Path, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    value_of(&text, name).with_context(|| format!("{} has no {name}", file.display()))
}

/// The value in the line `name value`.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The cgroup below which ours are made.
fn parent() -> Result<(PathBuf, Interface)> {
    let own = fs::read_to_string("/proc/self/cgroup").context("read the groups of this process")?;
    if let Some(path) = own.lines().find_map(path_of_one) {
        let folder = Path::new("/sys/fs/cgroup/memory").join(path);
        if folder.join("memory.limit_in_bytes").exists() {
            return Ok((folder, Interface::One));
        }
    }
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = Path::new("/sys/fs/cgroup").join(path);
    // A cgroup that has processes gives its children no controller. So this takes the nearest parent that does.
    for folder in own.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup")) {
        let given = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
        if given.split_whitespace().any(|controller| controller == "memory") {
            return Ok((folder.to_owned(), Interface::Two));
        }
    }
    bail!("this machine has no memory controller of cgroups")
}

/// The path in a line `7:memory:/path` of version 1.
fn path_of_one(line: &str) -> Option<&str> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    controllers.split(',').any(|name| name == "memory").then(|| path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        assert_eq!(value_of("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(value_of("cache 5\ntotal_rss 4096\n", "total_rss"), Some(4096));
        assert_eq!(path_of_one("4:memory:/a/b"), Some("a/b"));
        assert_eq!(path_of_one("9:cpu,memory:/"), Some(""));
        assert_eq!(path_of_one("3:cpuset:/"), None);
    }
}
