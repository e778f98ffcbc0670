//! Ends Kubernetes and removes its remains in the kernel: recorded processes only, the containers of its own containerd, mounts below its
//! own folder, pod control groups, its bridge and its nftables tables. It may run in any state, more than once. It continues if a step
//! fails, and reports all failures at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal};

use super::containerd::{self, ctr, socket};
use super::network;
use crate::paths::remove_folder;
use crate::process::{Daemon, Process, command, output};

/// Time for a process to end after SIGTERM. The API server waits for open requests, watches among them.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// Time for a container's shim to end after its container was removed.
const SHIM_PATIENCE: Duration = Duration::from_secs(5);

/// Time between two checks whether they have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// These act on pods or nodes. They end first, so that they do not restart what is being removed.
const FIRST: [&str; 6] =
    ["volumes", "kubelet", "coredns", "kube-proxy", "kube-scheduler", "kube-controller-manager"];

/// Containerd ends after its containers, and etcd after its only client.
const LAST: [&str; 3] = ["containerd", "kube-apiserver", "etcd"];

/// Here the CNI library records its networks, for the whole machine; the path cannot be configured.
const CNI_RESULTS: &str = "/var/lib/cni/results";

pub fn run(state: &Path) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    let mut step =
        |result: anyhow::Result<()>| failures.extend(result.err().map(|failure| format!("{failure:#}")));
    for name in FIRST {
        step(stop(state, name));
    }
    step(end_containers(state));
    for name in LAST {
        step(stop(state, name));
    }
    step(unmount(state));
    step(remove_folder(&state.join("cni/ipam")));
    step(remove_folder(&state.join("containerd/state/netns")));
    step(forget_networks(Path::new(CNI_RESULTS)));
    remove_control_groups();
    step(network::remove(state));
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn stop(state: &Path, name: &'static str) -> anyhow::Result<()> {
    Daemon::new(state, name).stop(Signal::TERM, STOP_PATIENCE).map(drop)
}

/// Removes all containers with their processes. If containerd has ended before its containers, it is started for this.
fn end_containers(state: &Path) -> anyhow::Result<()> {
    if containerd::part(state).daemon.process().is_none() {
        if shims(state).is_empty() {
            return Ok(());
        }
        containerd::part(state).ensure(&containerd::program(state), SHIM_PATIENCE)?;
    }
    let socket = socket(state);
    let ids = |what: &str| -> anyhow::Result<Vec<String>> {
        let said =
            output(ctr(&socket).args([what, "list", "--quiet"])).with_context(|| format!("list {what}"))?;
        Ok(said.lines().map(str::to_owned).collect())
    };
    for task in ids("tasks")? {
        // `--force` kills the task first. A task that has ended meanwhile is no failure; if one stays, its shim is found below.
        output(ctr(&socket).args(["tasks", "delete", "--force", &task])).ok();
    }
    for container in ids("containers")? {
        output(ctr(&socket).args(["containers", "delete", &container]))?;
    }
    end_shims(state)
}

/// Waits until the shims end, and kills those that do not.
fn end_shims(state: &Path) -> anyhow::Result<()> {
    let end = Instant::now() + SHIM_PATIENCE;
    while Instant::now() < end && !shims(state).is_empty() {
        std::thread::sleep(LOOK_AGAIN);
    }
    for shim in shims(state) {
        shim.signal(Signal::KILL).with_context(|| format!("kill the shim {}", shim.pid()))?;
    }
    Ok(())
}

/// Shims of our containerd: their command line has the path of its socket, which is in our own folder.
fn shims(state: &Path) -> Vec<Process> {
    let socket = socket(state);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let ours = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        arguments[0].ends_with(b"containerd-shim-runc-v2")
            && arguments.contains(&socket.as_os_str().as_encoded_bytes())
    };
    ids.filter(ours).filter_map(Process::of).collect()
}

/// Unmounts everything below the folder, deepest first: volumes, overlays, network namespaces.
fn unmount(state: &Path) -> anyhow::Result<()> {
    let mut mounts = mounts_below(state)?;
    mounts.sort_unstable();
    for mount in mounts.iter().rev() {
        output(command("umount").arg("--lazy").arg(mount))
            .with_context(|| format!("unmount {}", mount.display()))?;
    }
    Ok(())
}

fn mounts_below(state: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/mounts").context("read /proc/mounts")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(state) && point != state).collect())
}

/// Removes the CNI library's records of pods that were killed: `sluice-ID-eth0` and `cni-loopback-ID-lo`. Records of other networks stay.
fn forget_networks(results: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(results) else { return Ok(()) };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for name in names {
        let Some(id) = name.strip_prefix("sluice-").and_then(|rest| rest.strip_suffix("-eth0")) else {
            continue;
        };
        for note in [results.join(&name), results.join(format!("cni-loopback-{id}-lo"))] {
            if note.exists() {
                fs::remove_file(&note).with_context(|| format!("remove {}", note.display()))?;
            }
        }
    }
    Ok(())
}

/// Removes the control groups of pods, now empty, of version 1 (one tree per controller) and 2. The kernel may keep a group for a while
/// after its last process has ended. A group that cannot be removed stays: an empty group is harmless.
fn remove_control_groups() {
    let root = Path::new("/sys/fs/cgroup");
    let Ok(entries) = fs::read_dir(root) else { return };
    let controllers = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    for tree in controllers.chain([root.to_path_buf()]) {
        remove_group(&tree.join("kubepods"));
    }
}

fn remove_group(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for below in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        remove_group(&below);
    }
    fs::remove_dir(group).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_other_networks_stay() {
        let results = std::env::temp_dir().join(format!("sluice-cni-{}", std::process::id()));
        fs::create_dir_all(&results).unwrap();
        for name in ["sluice-a-eth0", "cni-loopback-a-lo", "other-b-eth0", "cni-loopback-b-lo"] {
            fs::write(results.join(name), "{}").unwrap();
        }
        forget_networks(&results).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, ["cni-loopback-b-lo", "other-b-eth0"]);
        fs::remove_dir_all(results).unwrap();
    }
}
