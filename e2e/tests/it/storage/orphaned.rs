//! A user scales the StatefulSet; the number stays until the user gives it back. Then the pipeline is deleted with
//! `deletionPolicy: Orphan`. Its gateways read on, and a pipeline of the same name takes them over. No gateway is restarted, and numbered
//! spans flow the whole time: none is lost, none doubled.

use crate::deletion::life::scale_by_hand;
use crate::operator::told::kubectl;
use crate::prelude::*;
use crate::storage::volumes::{uids, wait_claims};

/// How long the deletion of a pipeline with the policy `Orphan` may take.
const SOON: Duration = Duration::from_secs(20);

#[test]
#[ignore = "group storage"]
fn gateways_that_are_scaled_by_hand_or_left_to_themselves_go_on_and_are_taken_over() -> Result<()> {
    scene::run("orphaned", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&spec()).await?;
        let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;
        let before = scene.pipeline.gateways().uids().await?;
        contested(scene).await?;
        given_back(scene).await?;
        assert_kept(&scene.pipeline, &before).await?;
        let volumes = uids(scene).await?;
        ensure!(volumes.len() == 2, "the claims are {volumes:?}");
        orphaned(scene).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        let rows = scene.oracle().rows().await?;
        scene.wait_rows(rows + FEW_BETWEEN, FLOW).await?;
        scene.start(&spec()).await?;
        assert_owned(scene, true).await?;
        assert_kept(&scene.pipeline, &before).await?;
        ensure!(uids(scene).await? == volumes, "other volumes took the place of those that there were");
        scene.end(load).await
    })
}

fn spec() -> Value {
    json!({"replicas": 2, "deletionPolicy": "Orphan", "scaling": {"drain": {"timeout": "1m"}}})
}

/// The user's number stays, and the status names who set it.
async fn contested(scene: &Scene) -> Result<()> {
    scale_by_hand(scene, 3).await?;
    let conflict = ("True", reason::SCALING_CONFLICT);
    // It says who has set the number.
    scene.pipeline.wait_told(kind::SCALING_LIMITED, conflict, READY, "kubectl").await?;
    scene.pipeline.wait_gateways(3, READY).await?;
    assert_state(&scene.pipeline, "scaling-contested").await?;
    assert_event(scene, reason::SCALING_CONFLICT).await
}

/// As the message says: the StatefulSet is made again around its gateways, and surplus gateways leave.
async fn given_back(scene: &Scene) -> Result<()> {
    kubectl(scene, &["delete", "statefulset", &scene.pipeline.workload_name(), "--cascade=orphan"]).await?;
    scene.pipeline.wait_replicas(2, READY).await?;
    scene.pipeline.wait_false(kind::SCALING_LIMITED, reason::OK, READY).await?;
    wait_claims(scene, "end of the volume of the gateway that left", FLOW, |left| left.len() == 2).await
}

/// The pipeline is deleted without waiting, and its objects have no owner.
async fn orphaned(scene: &Scene) -> Result<()> {
    scene.pipeline.delete(SOON).await?;
    assert_event(scene, "Orphaned").await?;
    assert_owned(scene, false).await
}

/// Checks that the StatefulSet belongs to the pipeline alone, or to no object.
pub async fn assert_owned(scene: &Scene, is_owned: bool) -> Result<()> {
    let workload = scene.pipeline.workload().await?.context("there is no StatefulSet")?;
    let found: Vec<&str> = workload.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
    let owner = if is_owned { scene.pipeline.get().await?.uid() } else { None };
    ensure!(found.iter().eq(owner.as_deref().iter()), "the StatefulSet belongs to {found:?}");
    Ok(())
}
