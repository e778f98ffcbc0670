//! The objects of a pipeline after a change: each exactly once and no others, and gateways in the expected state.

use super::LONGEST;
use crate::prelude::*;

/// Most configs of gateways: the planned one, the running one while the planned one is rolled back, and two older ones.
const CONFIGS_MAX: usize = 4;

/// Waits until each object of a pipeline exists once, with this many claims, and no others exist.
pub async fn wait_whole(scene: &Scene, claims: u32) -> Result<()> {
    until("each object of the pipeline once", LONGEST, async || {
        let found = objects(scene).await?;
        Ok(Seen::when(is_whole(scene.pipeline.name(), claims, &found), || format!("{found:?}")))
    })
    .await
}

fn is_whole(pipeline: &str, claims: u32, found: &BTreeSet<String>) -> bool {
    let once = ["NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"];
    let mut expected: BTreeSet<String> =
        once.iter().map(|kind| format!("{kind} {pipeline}-gateway")).collect();
    expected
        .extend((0..claims).map(|number| format!("PersistentVolumeClaim queue-{pipeline}-gateway-{number}")));
    // Their names contain a hash of their content.
    let hashed = ["Job schema", "ConfigMap schema", "ConfigMap config"].map(|hashed| {
        let prefix = hashed.replace(' ', &format!(" {pipeline}-")) + "-";
        found.iter().filter(|name| name.starts_with(&prefix)).count()
    });
    let [jobs, schemas, configs] = hashed;
    let is_once = (jobs, schemas) == (1, 1) && (1..=CONFIGS_MAX).contains(&configs);
    is_once && expected.is_subset(found) && found.len() == expected.len() + jobs + schemas + configs
}

/// Kind and name of every object with the pipeline's labels, except pods.
pub async fn objects(scene: &Scene) -> Result<BTreeSet<String>> {
    let selector = pipeline_selector(scene.pipeline.name());
    Ok(scene.namespace.objects(&pipeline_kinds(), &selector).await?.into_keys().collect())
}

/// Applies the spec of two gateways, and waits until it is complete.
pub async fn complete(scene: &Scene, spec: &Value) -> Result<()> {
    scene.pipeline.apply(spec).await?;
    wait_complete(scene, 2).await
}

/// Waits until this many gateways run, all with the newest revision, and the pipeline has each object once.
pub async fn wait_complete(scene: &Scene, replicas: u32) -> Result<()> {
    let what = format!("with {replicas} gateways of the newest revision");
    let is_so = |status: &TracePipelineStatus| is_complete(status, replicas);
    scene.pipeline.wait(&what, LONGEST, is_so).await?;
    wait_whole(scene, replicas).await
}

/// Waits until these are the only pods of the gateways; a terminating pod counts too.
pub async fn wait_pods(scene: &Scene, names: &[&str]) -> Result<()> {
    let what = format!("pods {names:?} and no other");
    scene.pipeline.gateways().wait(&what, LONGEST, |found| found.keys().eq(names)).await
}

#[test]
fn a_pipeline_is_whole_with_each_object_once() {
    let names = |more: &[&str]| -> BTreeSet<String> {
        let all = [
            "NetworkPolicy p-gateway",
            "PodDisruptionBudget p-gateway",
            "Service p-gateway",
            "ServiceAccount p-gateway",
            "StatefulSet p-gateway",
            "PersistentVolumeClaim queue-p-gateway-0",
            "Job p-schema-1",
            "ConfigMap p-schema-1",
        ];
        all.iter().chain(more).map(ToString::to_string).collect()
    };
    let one = "ConfigMap p-config-1";
    assert!(is_whole("p", 1, &names(&[one])));
    assert!(is_whole("p", 1, &names(&[one, "ConfigMap p-config-2"])));
    for more in [
        &[][..],
        &[one, "Job p-drain-1"],
        &[one, "Job p-schema-2"],
        &[one, "PersistentVolumeClaim queue-p-gateway-1"],
    ] {
        assert!(!is_whole("p", 1, &names(more)), "{more:?}");
    }
    assert!(!is_whole("p", 2, &names(&[one])));
}
