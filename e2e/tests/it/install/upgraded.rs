//! The operator is upgraded to one with another default image, and downgraded again. Gateways of a pipeline that names no image run on with
//! their first image, and a gateway that is replaced for another reason gets that image, too. Gateways of a pipeline that follows the
//! operator get the operator's image, until the pipeline no longer follows. Numbered spans flow the whole time: none is lost, none doubled.

use e2e_stack::images as archives;
use e2e_stack::install::{self, Images};

use crate::delivery::process::program as gateway_program;
use crate::install::chart::operator_image;
use crate::prelude::*;

/// No such image exists: a gateway with it would not start.
const OTHER_IMAGE: &str = "sluice.local/none:1";

/// The gateway that is replaced meanwhile.
const REPLACED: &str = "traces-gateway-1";

/// Alone: all tests share the operator.
#[test]
#[ignore = "group chart"]
fn an_operator_with_another_default_image_replaces_no_gateway_while_spans_flow() -> Result<()> {
    with_two_images("upgraded", stays)
}

#[test]
#[ignore = "group chart"]
fn a_pipeline_that_follows_the_operator_gets_its_image_while_spans_flow() -> Result<()> {
    with_two_images("upgraded_automatic", follows)
}

/// Runs with a pipeline that names no image, and with the installed images; installs these again at the end.
fn with_two_images(test: &str, play: impl AsyncFnOnce(&Scene, &Images) -> Result<()>) -> Result<()> {
    scene::run(test, Uses::ServersAlone, 4, async |scene: &mut Scene| {
        let operator = operator_image(&scene.environment.cluster).await?;
        let images = Images { operator, gateway: scene.environment.gateway_image.clone() };
        let unnamed = Settings { image: String::new(), ..scene.pipeline.settings().clone() };
        scene.pipeline = Pipeline::new(&scene.namespace, unnamed);
        let played = play(scene, &images).await;
        // Also after a failure, because other tests use what is installed.
        played.and(install(scene, &images).await)
    })
}

async fn stays(scene: &Scene, images: &Images) -> Result<()> {
    scene.start(&json!({"replicas": 2})).await?;
    let before = scene.pipeline.gateways().uids().await?;
    let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;

    install(scene, &Images { gateway: OTHER_IMAGE.to_owned(), ..images.clone() }).await?;
    wait_told(scene, OTHER_IMAGE).await?;
    scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
    ensure!(scene.pipeline.gateways().uids().await? == before, "the upgrade replaced a gateway");

    let pods: Api<Pod> = scene.namespace.api();
    pods.delete(REPLACED, &DeleteParams::default()).await.context("delete a gateway")?;
    let is_back = |now: &Uids| now.get(REPLACED).is_some_and(|uid| Some(uid) != before.get(REPLACED));
    scene.pipeline.gateways().wait("the gateway in its place", FLOW, is_back).await?;
    scene.pipeline.wait_ready(FLOW).await.context("with the gateway in its place")?;
    let after = scene.pipeline.gateways().uids().await?;

    install(scene, images).await?;
    wait_told(scene, &images.gateway).await?;
    scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
    ensure!(scene.pipeline.gateways().uids().await? == after, "the downgrade replaced a gateway");
    scene.end(load).await
}

async fn follows(scene: &Scene, images: &Images) -> Result<()> {
    let next = next_image(scene).await?;
    let as_operator = |strategy: &str| json!({"replicas": 2, "gateway": {"upgradeStrategy": strategy}});
    scene.start(&as_operator("Automatic")).await?;
    ensure!(running(scene).await? == BTreeSet::from([images.gateway.clone()]), "another image runs");
    let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;

    install(scene, &Images { gateway: next.clone(), ..images.clone() }).await?;
    let is_next = |status: &TracePipelineStatus| status.image.as_deref() == Some(next.as_str());
    scene.pipeline.wait("run with the operator's image", FLOW, is_next).await?;
    until("every gateway with the operator's image", FLOW, async || {
        let images = running(scene).await?;
        let is_done = images == BTreeSet::from([next.clone()]);
        Ok(Seen::when(is_done, || format!("{images:?}")))
    })
    .await?;
    scene.pipeline.wait_ready(FLOW).await.context("with the operator's image")?;
    scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;

    // It no longer follows, and keeps its current image.
    scene.change(&as_operator("Manual")).await?;
    let moved = scene.pipeline.gateways().uids().await?;
    install(scene, images).await?;
    let former = Some(images.gateway.as_str());
    let told = |status: &TracePipelineStatus| status.operator_image.as_deref() == former;
    scene.pipeline.wait("reconciled with the former image", READY, told).await?;
    scene.pipeline.wait_ready(READY).await?;
    scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
    ensure!(scene.pipeline.gateways().uids().await? == moved, "the downgrade replaced a gateway");
    scene.end(load).await
}

/// A second image of the same gateway with another name, loaded into the cluster. Its program is that of the first one.
async fn next_image(scene: &Scene) -> Result<String> {
    let store = scene.environment.images()?;
    let program = gateway_program();
    blocking(move || {
        let image = archives::build_image("gateway-next", &program)?;
        archives::load(&image, &store)?;
        Ok(image.reference)
    })
    .await
}

async fn running(scene: &Scene) -> Result<BTreeSet<String>> {
    let pods = scene.pipeline.gateways().list().await?;
    let containers = pods.into_iter().filter_map(|pod| pod.spec?.containers.into_iter().next()?.image);
    Ok(containers.collect())
}

/// Waits until an operator with this default image has reconciled the pipeline, and it is Ready with its first image.
async fn wait_told(scene: &Scene, default: &str) -> Result<()> {
    let began_with = scene.environment.gateway_image.clone();
    let other = Some(default).filter(|default| *default != began_with);
    let told = |status: &TracePipelineStatus| status.operator_image.as_deref() == other;
    let status = scene.pipeline.wait(&format!("reconciled with {default}"), READY, told).await?;
    ensure!(status.image.as_deref() == Some(began_with.as_str()), "its image is {:?}", status.image);
    scene.pipeline.wait_ready(READY).await.map(drop)
}

async fn install(scene: &Scene, images: &Images) -> Result<()> {
    let (kubeconfig, images) = (scene.environment.kubeconfig()?, images.clone());
    blocking(move || install::operator(&kubeconfig, &images)).await
}
