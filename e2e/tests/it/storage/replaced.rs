//! Queue volumes become smaller and get another storage class in one edit: each gateway in turn is drained and made again with a new
//! volume. Numbered spans flow the whole time: none is lost, none doubled.

use e2e_fixtures::local_volumes::{provide_also, provide_zoned};
use e2e_stack::kubernetes::volumes::PROVISIONER;

use crate::prelude::*;
use crate::storage::volumes::{claims, uids};

const OTHER_CLASS: &str = "e2e-replaced";

/// How long it may take to drain two gateways and make them again, on a busy machine.
const REPLACED: Duration = Duration::from_mins(5);

#[test]
#[ignore = "group storage"]
fn smaller_volumes_of_another_class_take_the_place_of_the_others_one_by_one() -> Result<()> {
    scene::run("replaced", Uses::Servers, 4, async |scene: &mut Scene| {
        // Volumes of the other class exist only on the local stack.
        scene.environment.local_clickhouse_only()?;
        // An interrupted run may have left it.
        scene.namespace.cluster().delete(&class(OTHER_CLASS)).await?;
        play(scene).await
    })
}

async fn play(scene: &Scene) -> Result<()> {
    scene.start(&spec("1Gi", None)).await?;
    let load = scene.load(FEW_PER_SECOND);
    scene.pipeline.wait_true(kind::VOLUMES_RESIZED, "UpToDate", READY).await?;
    missing(scene).await?;
    let replaced = async {
        tokio::try_join!(replace(scene), told(scene))?;
        scene.end(load).await
    };
    with_class(scene.namespace.cluster(), (OTHER_CLASS, None), Box::pin(replaced)).await
}

fn spec(size: &str, class: Option<&str>) -> Value {
    json!({
        // The volume has the only copy.
        "delivery": {"commit": "AfterEnqueue"},
        "queue": {"size": size, "storageClassName": class}, "replicas": 2,
        "scaling": {"drain": {"timeout": "1m"}},
    })
}

/// The class does not exist: nothing changes, and the status reports it.
async fn missing(scene: &Scene) -> Result<()> {
    let (pods, before) = (scene.pipeline.gateways().uids().await?, uids(scene).await?);
    scene.pipeline.apply(&spec("512Mi", Some(OTHER_CLASS))).await?;
    let refused = ("False", "StorageClassMissing");
    scene.pipeline.wait_told(kind::VOLUMES_RESIZED, refused, READY, OTHER_CLASS).await?;
    ensure!(scene.pipeline.gateways().uids().await? == pods, "gateways were replaced");
    ensure!(uids(scene).await? == before, "claims were replaced");
    Ok(())
}

/// Each claim is a new one, bound, with the class and the size; each gateway was replaced exactly once and is ready.
async fn replace(scene: &Scene) -> Result<()> {
    let (pods, before) = (scene.pipeline.gateways().uids().await?, uids(scene).await?);
    let mut seen = BTreeMap::new();
    until("new volumes for both gateways", REPLACED, async || {
        for (name, uid) in scene.pipeline.gateways().uids().await? {
            let all: &mut Vec<String> = seen.entry(name).or_default();
            if !all.contains(&uid) {
                all.push(uid);
            }
        }
        let claims = claims(scene).await?;
        let is_new = |(name, claim): (&String, &PersistentVolumeClaim)| {
            before.get(name) != claim.uid().as_ref() && described(claim) == Some((OTHER_CLASS, "512Mi", true))
        };
        let status = scene.pipeline.get().await?.status.unwrap_or_default();
        let conditions = || status.conditions.iter();
        let is_well = |kind: &str| conditions().any(|one| one.type_ == kind && one.status == "True");
        let are_new = claims.len() == 2 && claims.iter().all(is_new);
        let is_done = are_new && is_well(kind::VOLUMES_RESIZED) && is_well("Ready");
        Ok(Seen::when(is_done, || format!("{:?}", status.volumes)))
    })
    .await?;
    let status = scene.pipeline.get().await?.status.unwrap_or_default();
    ensure!(status.volumes.is_some_and(|volumes| volumes.replacing.is_none()), "a gateway is still drained");
    for pod in scene.pipeline.gateways().list().await? {
        ensure!(pod.finalizers().is_empty(), "{} is held: {:?}", pod.name_any(), pod.finalizers());
    }
    for (name, uids) in &seen {
        ensure!(uids.len() <= 2, "{name} was made again more than once: {uids:?}");
    }
    let after = scene.pipeline.gateways().uids().await?;
    ensure!(are_others(&after, &pods), "{after:?}, were {pods:?}");
    Ok(())
}

/// The status reports it while a gateway is drained or its volume is made again.
async fn told(scene: &Scene) -> Result<()> {
    reached(&scene.pipeline, "volumes-replacing", REPLACED, |status| {
        has(status, kind::RECONCILING, reason::RESIZING_VOLUMES)
            && has(status, kind::VOLUMES_RESIZED, reason::REPLACING)
    })
    .await
}

/// Class, size, and whether it is bound.
fn described(claim: &PersistentVolumeClaim) -> Option<(&str, &str, bool)> {
    let spec = claim.spec.as_ref()?;
    let size = &spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.0;
    let phase = claim.status.as_ref()?.phase.as_deref();
    Some((spec.storage_class_name.as_deref()?, size, phase == Some("Bound")))
}

/// Awaits `body` while there is this class of the local stack's volumes, which this process makes. Each volume is bound to the node, or to
/// this label of it.
pub async fn with_class(
    cluster: &Cluster,
    (name, zone): (&str, Option<&'static str>),
    body: impl Future<Output = Result<()>>,
) -> Result<()> {
    // An interrupted run may have left it.
    cluster.delete(&class(name)).await?;
    let provided = Box::pin(async {
        match zone {
            Some(zone) => provide_zoned(cluster.client(), name, zone).await,
            None => provide_also(cluster.client(), name).await,
        }
    });
    let played = async {
        tokio::select! {
            played = body => played,
            ended = provided => Err(anyhow!("the provisioner has ended: {ended:?}")),
        }
    };
    with_objects(cluster, &[class(name)], played).await
}

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    })
}
