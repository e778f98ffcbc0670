//! The UID of the pod that this process runs in.
//!
//! Kubernetes could provide it in an environment variable. But that is part of the pod template: an upgraded operator that set it would
//! replace every gateway of every pipeline. The kubelet provides it in another way: it mounts `/etc/hosts` from the pod's own folder,
//! `<root>/pods/<uid>/etc-hosts` (`getEtcHostsPath` in pkg/kubelet), and Linux lists the mounts (`proc_pid_mountinfo(5)`). Runtimes with
//! a virtual machine in between (Kata, gVisor) do not show it.

use std::{fs::File, io::Read as _};

/// Where Linux lists the mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Bytes of the list that are read. A pod has some dozen mounts of 200 bytes.
const MOUNTS_BYTES_MAX: u64 = 1 << 20;

/// Field of a mount: the mounted path within its file system.
const SOURCE: usize = 3;

/// Field of a mount: where it is mounted.
const TARGET: usize = 4;

/// The UID of this process's pod; `None` outside Kubernetes, and if the runtime does not show it.
pub fn own() -> Option<String> {
    let mut mounts = Vec::new();
    File::open(MOUNTS).and_then(|file| file.take(MOUNTS_BYTES_MAX).read_to_end(&mut mounts)).ok()?;
    in_mounts(&String::from_utf8_lossy(&mounts)).map(str::to_owned)
}

fn in_mounts(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        if *fields.get(TARGET)? != "/etc/hosts" {
            return None;
        }
        let (folder, uid) = fields.get(SOURCE)?.strip_suffix("/etc-hosts")?.rsplit_once('/')?;
        (folder.ends_with("/pods") && !uid.is_empty()).then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_folder_that_the_kubelet_mounts_hosts_from() {
        let uid = "3f0d3b1c-6a52-4a0e-9a3c-0e6c1c1a9d42";
        let root = "612 583 0:47 / / ro,relatime master:199 - overlay overlay rw";
        for (line, expected) in [
            (
                format!(
                    "631 612 254:0 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/vda rw"
                ),
                Some(uid),
            ),
            // The kubelet's folder may be its own file system, or lie in a subvolume.
            (format!("631 612 254:1 /pods/{uid}/etc-hosts /etc/hosts rw - xfs /dev/vdb rw"), Some(uid)),
            (
                format!(
                    "631 612 0:30 /@/var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw - btrfs /dev/vda rw"
                ),
                Some(uid),
            ),
            // A mount of Docker, one of the pod template, and another file.
            (
                "631 612 254:0 /var/lib/docker/containers/0a1b/hosts /etc/hosts rw - ext4 /dev/vda rw".into(),
                None,
            ),
            (
                format!(
                    "631 612 254:0 /var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/h/hosts /etc/hosts ro - ext4 /dev/vda rw"
                ),
                None,
            ),
            (
                format!(
                    "631 612 254:0 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/other rw - ext4 /dev/vda rw"
                ),
                None,
            ),
            ("631 612 254:0 /pods//etc-hosts /etc/hosts".into(), None),
            ("631 612".into(), None),
        ] {
            assert_eq!(in_mounts(&format!("{root}\n{line}\n")), expected, "{line}");
        }
    }
}
