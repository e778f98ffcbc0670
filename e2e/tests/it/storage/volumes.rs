//! Queue volumes grow while gateways run, and the volume of a removed gateway is drained before it is deleted. Numbered spans flow the
//! whole time: none is lost, none doubled.
//!
//! The local stack's volumes cannot grow. So the test plays two roles: the administrator, who lets the storage class grow volumes, and the
//! resizer, which writes the new size into the claims' status. This shows what the operator and Kubernetes do then, but not that a file
//! system grows under a gateway.

use e2e_stack::kubernetes::volumes::CLASS;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::prelude::*;

/// Claims of the gateways, as Kubernetes labels them.
const CLAIMS: &str = "app.kubernetes.io/name=sluice-gateway,app.kubernetes.io/component=gateway";

#[test]
#[ignore = "group storage"]
fn volumes_grow_around_their_gateways_and_go_once_they_are_drained() -> Result<()> {
    scene::run("volumes", Uses::Servers, 4, async |scene: &mut Scene| {
        // The test may resize only volumes of this class, on the local stack.
        scene.environment.local_clickhouse_only()?;
        let played = play(scene).await;
        // All tests share the storage class. The other test that changes it runs alone.
        played.and(lets_grow(scene.namespace.cluster(), false).await)
    })
}

async fn play(scene: &Scene) -> Result<()> {
    scene.start(&spec("1Gi", 2)).await?;
    let load = scene.load(FEW_PER_SECOND);
    scene.pipeline.wait_true(kind::VOLUMES_RESIZED, "UpToDate", READY).await?;
    refuse(scene).await?;
    grow_telling(scene, async || told(scene).await).await?;
    leave_one_behind(scene).await?;
    scene.end(load).await
}

pub fn spec(size: &str, replicas: u32) -> Value {
    // With Job, the operator drains and deletes the volume of a removed gateway, as with AfterEnqueue.
    json!({
        "queue": {"size": size}, "replicas": replicas,
        "scaling": {"drain": {"onTimeout": "Job", "timeout": "1m"}},
    })
}

/// The class does not let volumes grow: nothing changes, and the status says what would help.
async fn refuse(scene: &Scene) -> Result<()> {
    lets_grow(scene.namespace.cluster(), false).await?;
    let (uid, pods) = (workload_uid(scene).await?, scene.pipeline.gateways().uids().await?);
    scene.pipeline.apply(&spec("2Gi", 2)).await?;
    let refused = ("False", "NotExpandable");
    scene.pipeline.wait_told(kind::VOLUMES_RESIZED, refused, READY, "queue.size back to 1Gi").await?;
    assert_state(&scene.pipeline, "not-expandable").await?;
    ensure!(workload_uid(scene).await? == uid, "the StatefulSet was made again");
    scene.assert_same_gateways(&pods).await?;
    scene.change(&spec("1Gi", 2)).await.map(drop)
}

/// The claims request more space, the StatefulSet is made again, and the same pods run on.
pub async fn grow(scene: &Scene) -> Result<()> {
    grow_telling(scene, async || Ok(())).await
}

/// As [`grow`], with a check before the resizer does its work.
async fn grow_telling(scene: &Scene, look: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    lets_grow(scene.namespace.cluster(), true).await?;
    let (uid, pods) = (workload_uid(scene).await?, scene.pipeline.gateways().uids().await?);
    scene.pipeline.apply(&spec("2Gi", 2)).await?;
    scene.pipeline.wait_false(kind::VOLUMES_RESIZED, "Resizing", READY).await?;
    until("the StatefulSet made again with larger claims", READY, async || {
        let workload = scene.pipeline.workload().await?;
        let size = workload.as_ref().and_then(template_size);
        let is_new = workload.is_some_and(|workload| workload.uid() != uid);
        Ok(Seen::when(is_new && size.as_deref() == Some("2Gi"), || format!("{size:?}")))
    })
    .await?;
    look().await?;
    resize(scene).await?;
    scene.pipeline.wait_true(kind::VOLUMES_RESIZED, "UpToDate", READY).await?;
    let status = scene.pipeline.wait_ready(READY).await?;
    let volumes = status.volumes.context("the status says nothing of volumes")?;
    ensure!((volumes.resized, volumes.pending) == (2, 0), "{volumes:?}");
    scene.assert_same_gateways(&pods).await?;
    assert_kept(&scene.pipeline, &pods).await
}

/// What the status reports while the resizer works, and when only the file systems are left, which grow with the pods.
async fn told(scene: &Scene) -> Result<()> {
    let grows = |resized: &'static str| {
        move |status: &TracePipelineStatus| {
            has(status, kind::RECONCILING, reason::RESIZING_VOLUMES)
                && has(status, kind::VOLUMES_RESIZED, resized)
        }
    };
    reached(&scene.pipeline, "volumes-growing", READY, grows(reason::RESIZING)).await?;
    wait_for_file_systems(scene, true).await?;
    reached(&scene.pipeline, "file-systems-pending", READY, grows(reason::FILE_SYSTEM_RESIZE_PENDING))
        .await?;
    wait_for_file_systems(scene, false).await
}

/// Sets or removes the condition by which a resizer reports that the volumes have grown and the file systems have not.
async fn wait_for_file_systems(scene: &Scene, wait: bool) -> Result<()> {
    let api: Api<PersistentVolumeClaim> = scene.namespace.api();
    let waits = json!([{"type": "FileSystemResizePending", "status": "True"}]);
    let said = json!({"conditions": if wait { waits } else { json!([]) }});
    for name in claims(scene).await?.keys() {
        merge_status(&api, name, said.clone()).await?;
    }
    Ok(())
}

/// One gateway leaves; its volume stays until a Job has found it empty, and is then deleted.
async fn leave_one_behind(scene: &Scene) -> Result<()> {
    scene.pipeline.apply(&spec("2Gi", 1)).await?;
    scene.pipeline.wait_false(kind::VOLUMES_DRAINED, "Draining", FLOW).await?;
    drained(scene).await?;
    // The gateway comes back with a new volume of the new size.
    scene.change(&spec("2Gi", 2)).await?;
    let sizes: Vec<Option<String>> = claims(scene).await?.values().map(requested).collect();
    ensure!(sizes == [Some("2Gi".to_owned()), Some("2Gi".to_owned())], "the claims ask for {sizes:?}");
    Ok(())
}

/// Waits until the only volume is that of the first gateway, and the status says that the others were drained.
pub async fn drained(scene: &Scene) -> Result<()> {
    let is_first = |left: &Uids| left.keys().eq(["queue-traces-gateway-0"]);
    wait_claims(scene, "end of the volume without a gateway", FLOW, is_first).await?;
    scene.pipeline.wait_true(kind::VOLUMES_DRAINED, "Ok", FLOW).await.map(drop)
}

/// Sets whether the stack's storage class lets volumes grow.
pub async fn lets_grow(cluster: &Cluster, lets: bool) -> Result<()> {
    let classes: Api<StorageClass> = Api::all(cluster.client());
    merge(&classes, CLASS, json!({"allowVolumeExpansion": lets})).await
}

/// The last work of a resizer: the status of every claim has the requested size.
async fn resize(scene: &Scene) -> Result<()> {
    let api: Api<PersistentVolumeClaim> = scene.namespace.api();
    for (name, claim) in claims(scene).await? {
        let size = requested(&claim).context("a claim that asks for nothing")?;
        ensure!(size == "2Gi", "{name} asks for {size}");
        merge_status(&api, &name, json!({"capacity": {"storage": size}})).await?;
    }
    Ok(())
}

pub async fn claims(scene: &Scene) -> Result<BTreeMap<String, PersistentVolumeClaim>> {
    let claims = scene.namespace.list::<PersistentVolumeClaim>(CLAIMS).await?;
    Ok(claims.into_iter().map(|claim| (claim.name_any(), claim)).collect())
}

pub async fn uids(scene: &Scene) -> Result<Uids> {
    let claims = claims(scene).await?;
    Ok(claims.into_iter().filter_map(|(name, claim)| Some((name, claim.uid()?))).collect())
}

/// Waits until the names and UIDs of the claims are as wanted.
pub async fn wait_claims(
    scene: &Scene,
    what: &str,
    deadline: Duration,
    wanted: impl Fn(&Uids) -> bool,
) -> Result<()> {
    until(what, deadline, async || {
        let uids = uids(scene).await?;
        Ok(Seen::when(wanted(&uids), || format!("{uids:?}")))
    })
    .await
}

fn requested(claim: &PersistentVolumeClaim) -> Option<String> {
    Some(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?.0.clone())
}

async fn workload_uid(scene: &Scene) -> Result<Option<String>> {
    Ok(scene.pipeline.workload().await?.context("there is no StatefulSet")?.uid())
}

fn template_size(workload: &StatefulSet) -> Option<String> {
    requested(workload.spec.as_ref()?.volume_claim_templates.as_ref()?.first()?)
}
