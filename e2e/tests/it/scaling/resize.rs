//! A gateway that was OOM-killed gets more memory in place: the same pod with another limit, which the kubelet sets on a real cgroup. If
//! the API server rejects a resize, the status reports that. Numbered spans flow the whole time: none is lost, none doubled.
//!
//! A gateway of the usual size does not run out of memory. So the test lowers the limit of the running container's cgroup to its usage,
//! without the kubelet, and then the kernel kills it. The local node is this machine.

use k8s_openapi::api::core::v1::ContainerStatus;
use sluice_crds::{MemoryResize, MemoryResizeState};

use crate::prelude::*;
use crate::spec::quotas::limit;

/// Bytes by which one step lowers a cgroup's limit.
const SQUEEZE_BYTES: u64 = 1 << 20;

/// Depth below `/sys/fs/cgroup` down to which a container's cgroup is searched.
const CGROUP_DEPTH_MAX: usize = 8;

#[test]
fn a_gateway_that_the_kernel_killed_is_given_more_memory_in_place() -> Result<()> {
    scene::run("resize", Uses::Servers, 4, async |scene: &mut Scene| {
        // The nodes of another cluster are not this machine.
        scene.environment.local_clickhouse_only()?;
        scene.start(&json!({"gateway": {"resources": {"resize": "InPlace"}}})).await?;
        let before = scene.pipeline.gateways().first().await?;
        squeeze(&before)?;
        let load = scene.load(SPANS_PER_SECOND);
        given(scene, &load, &before).await?;
        refused(scene, &load, &before).await?;
        scene.end(load).await
    })
}

/// 256Mi are three quarters of the new limit, rounded up.
async fn given(scene: &Scene, load: &Load, before: &Pod) -> Result<()> {
    let entry = wait_resize(scene, MemoryResizeState::Done, 1).await?;
    ensure!(entry.memory == "384Mi", "{entry:?}");
    scene.pipeline.wait_ready(READY).await?;
    let after = scene.pipeline.gateways().first().await?;
    ensure!(after.uid() == before.uid(), "the pod was replaced");
    ensure!(spec_memory(&after).as_deref() == Some("384Mi"), "the pod asks for {:?}", spec_memory(&after));
    let limit = fs::read_to_string(limit_file(&after)?).context("read the limit")?;
    ensure!(limit.trim() == (384_u64 << 20).to_string(), "the kernel's limit is {limit}");
    assert_event(scene, "MemoryResized").await?;
    scene.wait_acked(load, SPANS_BETWEEN, FLOW).await
}

/// A quota has no room for the next step: the status quotes the quota's message, and the gateway runs on with its current limit.
async fn refused(scene: &Scene, load: &Load, before: &Pod) -> Result<()> {
    limit(&scene.namespace, "tight", &json!({"limits.memory": "400Mi"})).await?;
    squeeze(&scene.pipeline.gateways().first().await?)?;
    let entry = wait_resize(scene, MemoryResizeState::Refused, 2).await?;
    ensure!(entry.memory == "512Mi" && entry.message.contains("exceeded quota: tight"), "{entry:?}");
    scene.pipeline.wait_ready(READY).await?;
    let after = scene.pipeline.gateways().first().await?;
    ensure!(after.uid() == before.uid(), "the pod was replaced");
    ensure!(spec_memory(&after).as_deref() == Some("384Mi"), "the pod asks for {:?}", spec_memory(&after));
    scene.wait_acked(load, SPANS_BETWEEN, FLOW).await
}

async fn wait_resize(scene: &Scene, state: MemoryResizeState, ends: u32) -> Result<MemoryResize> {
    let is_it = |status: &TracePipelineStatus| {
        status.memory_resizes.iter().any(|entry| entry.state == state && entry.ends >= ends)
    };
    let status = scene.pipeline.wait(&format!("with memory {state:?}"), READY, is_it).await?;
    let entry = status.memory_resizes.into_iter().next().context("nothing is said of memory")?;
    say::progress(scene.namespace.name(), &format!("{entry:?}"));
    Ok(entry)
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find(|container| container.name == "gateway")
}

fn spec_memory(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == "gateway")?;
    Some(container.resources.as_ref()?.limits.as_ref()?.get("memory")?.0.clone())
}

/// Lowers the limit of a running gateway to the memory that the kernel cannot reclaim.
fn squeeze(pod: &Pod) -> Result<()> {
    let file = limit_file(pod)?;
    let usage = ["memory.usage_in_bytes", "memory.current"].map(|name| file.with_file_name(name));
    let usage =
        usage.into_iter().find(|path| path.exists()).context("the cgroup does not say what is used")?;
    let mut bytes: u64 = fs::read_to_string(&usage).context("read what is used")?.trim().parse()?;
    let began = bytes;
    // At each step, the kernel reclaims memory. It refuses the first limit that is below the rest.
    while bytes > SQUEEZE_BYTES && fs::write(&file, bytes.to_string()).is_ok() {
        bytes -= SQUEEZE_BYTES;
    }
    let limit = fs::read_to_string(&file).unwrap_or_default();
    say::progress("squeeze", &format!("{began} bytes used, the limit is {}", limit.trim()));
    Ok(())
}

/// The file with the memory limit of the gateway's container, of either version of cgroups.
fn limit_file(pod: &Pod) -> Result<PathBuf> {
    let id =
        container(pod).and_then(|container| container.container_id.as_deref()).context("no container")?;
    let id = id.rsplit('/').next().context("an id without a scheme")?;
    find(Path::new("/sys/fs/cgroup"), id, CGROUP_DEPTH_MAX)
        .with_context(|| format!("no cgroup of the container {id} on this machine"))
}

fn find(folder: &Path, id: &str, depth: usize) -> Option<PathBuf> {
    let is_it = folder.file_name().is_some_and(|name| name.to_string_lossy().contains(id));
    if is_it {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|name| folder.join(name));
        return files.into_iter().find(|file| file.exists());
    }
    let below = fs::read_dir(folder).ok().filter(|_| depth > 0)?;
    let folders = below
        .filter_map(|entry| entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())));
    folders.into_iter().find_map(|entry| find(&entry.path(), id, depth - 1))
}
