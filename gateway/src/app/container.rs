//! Compares the config's memory limit with the limit that the kernel sets on this process.
//!
//! The operator gives the container the limit that the config has. A mutating webhook, such as that of a `VerticalPodAutoscaler`, may lower
//! it afterwards. The kernel would then OOM-kill the gateway whenever its blocks fill the budget. So the gateway divides the lower limit.
//! Only blocks get less room: ranges, and with them tokens, stay the same.
//!
//! The limit is read once, at the start, from the process's cgroup and its ancestors, of either version (`cgroups(7)`). Fewer CPUs than
//! workers are harmless and not reported. A queue volume that is smaller than its config is filled to a share of its size
//! ([`crate::volume`]).

use sluice_gateway_config::{
    ByteSize, CheckedConfig, Shortfall,
    edge_budget::{EdgeBudget, EdgeSizing},
};
use std::{borrow::Cow, fs, path::Path};

/// The container's memory limit is below the config's, and too low for the buffers.
#[derive(Debug, thiserror::Error)]
#[error(
    "the container's memory limit is {found}, below memory.limit: {asked} of the config, and {shortfall}: a VerticalPodAutoscaler or \
     another webhook has changed the pod's limit; exclude these pods from it, or set its minimum to {asked}, and then delete the pod, \
     which keeps its limit"
)]
pub struct TooLittle {
    found: ByteSize,
    asked: ByteSize,
    shortfall: Shortfall,
}

/// The config with the lower of its memory limit and the container's.
///
/// # Errors
/// [`TooLittle`] when its buffers do not fit.
pub fn fitted(config: &CheckedConfig) -> Result<Cow<'_, CheckedConfig>, TooLittle> {
    fitted_to(config, memory_limit(Path::new("/")))
}

fn fitted_to(config: &CheckedConfig, limit: Option<u64>) -> Result<Cow<'_, CheckedConfig>, TooLittle> {
    let asked = config.config().memory.limit;
    let Some(found) = limit.map(ByteSize::bytes).filter(|found| *found < asked) else {
        return Ok(Cow::Borrowed(config));
    };
    let fitted = config.within(found).map_err(|shortfall| TooLittle { found, asked, shortfall })?;
    tracing::warn!(
        container = %found,
        config = %asked,
        blocks = %fitted.budget().blocks,
        "the container's memory limit is below memory.limit of the config, so the gateway uses the lower one and has less room for \
         blocks; a VerticalPodAutoscaler or another webhook has changed the pod's limit"
    );
    Ok(Cow::Owned(fitted))
}

/// The budget of an edge with the lower of its memory limit and the container's.
///
/// # Errors
/// [`TooLittle`] when its buffers do not fit.
pub fn fitted_edge(sizing: EdgeSizing, budget: EdgeBudget) -> Result<EdgeBudget, TooLittle> {
    let asked = sizing.limit;
    let Some(found) = memory_limit(Path::new("/")).map(ByteSize::bytes).filter(|found| *found < asked) else {
        return Ok(budget);
    };
    let fitted = EdgeBudget::divide(&EdgeSizing { limit: found, ..sizing })
        .map_err(|shortfall| TooLittle { found, asked, shortfall })?;
    tracing::warn!(
        container = %found,
        config = %asked,
        requests = %fitted.requests,
        "the container's memory limit is below memory.limit of the config, so the edge uses the lower one and takes fewer requests at a \
         time; a VerticalPodAutoscaler or another webhook has changed the pod's limit"
    );
    Ok(fitted)
}

/// The lowest limit of this process's cgroup and its ancestors, in bytes; `None` without one. A container usually sees its own cgroup as
/// the root.
fn memory_limit(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if hierarchy == "0" && controllers.is_empty() {
            return least(&root.join("sys/fs/cgroup"), path, "memory.max");
        }
        let is_of_memory = controllers.split(',').any(|controller| controller == "memory");
        is_of_memory.then(|| least(&root.join("sys/fs/cgroup/memory"), path, "memory.limit_in_bytes"))?
    });
    limits.min()
}

fn least(mount: &Path, path: &str, file: &str) -> Option<u64> {
    // If the mount shows only the container's part, the host's path does not exist there.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let limit = |group: &Path| fs::read_to_string(mount.join(group).join(file)).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const MIB: u64 = 1 << 20;

    /// A cgroup of version 1 with the host's paths.
    const V1: &str = "9:cpuset:/\n5:cpu,memory:/kubepods/burstable/pod1/abc\n1:name=systemd:/\n0::/\n";

    fn config() -> CheckedConfig {
        let text = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 2, memory: {limit: 256MiB}, \
                    source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                    sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";
        sluice_gateway_config::parse::from_yaml(text).unwrap().check().unwrap()
    }

    /// Paths and texts.
    type Files = &'static [(&'static str, &'static str)];

    /// A file system with these files.
    fn files(test: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("sluice-container-{test}-{}", std::process::id()));
        for (path, text) in files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn the_limit_is_that_of_the_container_in_either_version_of_cgroups() {
        let cases: [(&str, Files, Option<u64>); 7] = [
            (
                "v2",
                &[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "268435456\n")],
                Some(256 * MIB),
            ),
            ("v2-none", &[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max\n")], None),
            (
                "v2-host",
                &[
                    ("proc/self/cgroup", "0::/kubepods/pod1/abc\n"),
                    ("sys/fs/cgroup/kubepods/pod1/abc/memory.max", "max\n"),
                    ("sys/fs/cgroup/kubepods/pod1/memory.max", "1048576\n"),
                    ("sys/fs/cgroup/kubepods/memory.max", "2097152\n"),
                ],
                Some(MIB),
            ),
            (
                "v1",
                &[("proc/self/cgroup", V1), ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n")],
                Some(MIB),
            ),
            (
                "v1-host",
                &[
                    ("proc/self/cgroup", V1),
                    ("sys/fs/cgroup/memory/kubepods/burstable/pod1/abc/memory.limit_in_bytes", "2097152\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ],
                Some(2 * MIB),
            ),
            ("no-memory", &[("proc/self/cgroup", "9:cpuset:/\n")], None),
            ("nothing", &[("proc/self/status", "")], None),
        ];
        for (test, tree, expected) in cases {
            let root = files(test, tree);
            assert_eq!(memory_limit(&root), expected, "{test}");
            fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn a_lower_limit_of_the_container_is_divided_and_one_that_is_too_low_is_refused() {
        let config = config();
        for limit in [None, Some(256 * MIB), Some(u64::MAX)] {
            assert!(matches!(fitted_to(&config, limit), Ok(Cow::Borrowed(_))), "{limit:?}");
        }
        let fitted = fitted_to(&config, Some(200 * MIB + 1)).unwrap();
        let parts: u64 = fitted.budget().parts().iter().map(|(_, bytes)| bytes.get()).sum();
        assert_eq!(parts, 200 * MIB);
        assert!(fitted.budget().blocks < config.budget().blocks);
        let refused = fitted_to(&config, Some(128 * MIB)).unwrap_err().to_string();
        for said in [
            "memory limit is 128MiB, below memory.limit: 256MiB",
            "smallest limit that would do is",
            "VerticalPodAutoscaler",
        ] {
            assert!(refused.contains(said), "{refused}");
        }
    }
}
