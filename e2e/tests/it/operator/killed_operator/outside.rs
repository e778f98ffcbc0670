//! The operator is killed after every single write, during changes that are not, or only partly, in a pipeline's spec. A Secret that it
//! names gets other content. A user scales its gateways, also while the operator leaves it alone. The operator manages it again. Its
//! volumes get another storage class. It is deleted without its objects, and another pipeline adopts them. That pipeline is deleted while
//! neither Kafka nor `ClickHouse` can be reached, and a third one reads on. Numbered spans flow the whole time: none is lost, none doubled.
//!
//! Job, place and owner are those of [`super`]. Limits: the servers are this test's own, behind fronts that can make them unreachable; this
//! process makes the volumes of the other class.

use super::lives::Lives;
use super::whole::{complete, objects, wait_complete, wait_pods, wait_whole};
use super::{LONGEST, ROWS_BEFORE, volumes_replaced};
use crate::deletion::life::scale_by_hand;
use crate::prelude::*;
use crate::security::secured::pods::Own;
use crate::storage::orphaned::assert_owned;
use crate::storage::replaced::with_class;
use crate::storage::volumes::{self, claims, uids};

const OTHER_CLASS: &str = "e2e-killed";

/// Time limit for the deletion of a pipeline, seconds: several checks of operators that each start anew, on a machine that is half busy.
const LIMIT: u64 = 30;

/// How long the deletion may take beyond that: a few operators that each start anew.
const SLACK: Duration = Duration::from_secs(30);

/// Least number of messages that are in no table when the servers are back: the production of a part of the limit.
const LAG_MIN: i64 = 100;

#[test]
#[ignore = "group killed-operator"]
fn an_operator_that_dies_of_every_write_finishes_what_comes_from_outside() -> Result<()> {
    scene::run("killed_operator_outside", Uses::OwnOperator, 4, async |scene: &mut Scene| {
        let own = Own::start(scene).await?;
        let cluster = scene.environment.cluster.clone();
        let played = while_operator_rests(&cluster, Box::pin(play(scene, &own)));
        Box::pin(with_class(&cluster, (OTHER_CLASS, None), played)).await?;
        own.remove()
    })
}

async fn play(scene: &Scene, own: &Own) -> Result<()> {
    scene.apply_credentials().await?;
    let mut lives = Lives::prepare(scene).await?;
    Box::pin(lives.undisturbed(complete(scene, &spec(&json!({}))))).await?;
    let load = scene.flowing_load(FEW_PER_SECOND, ROWS_BEFORE, FLOW).await?;
    Box::pin(rotated(&mut lives, own)).await?;
    Box::pin(scaled_by_hand(&mut lives)).await?;
    Box::pin(left_alone(&mut lives)).await?;
    Box::pin(taken_over(&mut lives)).await?;
    Box::pin(moved(&mut lives)).await?;
    let volumes = uids(scene).await?;
    ensure!(volumes.len() == 2, "the claims are {volumes:?}");
    Box::pin(orphaned(&mut lives)).await?;
    Box::pin(adopted(&mut lives)).await?;
    Box::pin(gone(&mut lives, own)).await?;
    Box::pin(reads_on(&mut lives, own)).await?;
    ensure!(uids(scene).await? == volumes, "other volumes took the place of those that were left");
    scene.end(load).await
}

fn spec(change: &Value) -> Value {
    // A gateway that leaves tries to insert for this long, which it cannot do without servers.
    let base = merged(&volumes::spec("1Gi", 2), &json!({"gateway": {"terminationGracePeriod": "15s"}}));
    Own::spec(&merged(&base, change))
}

fn of_other_class(change: &Value) -> Value {
    spec(&merged(&json!({"queue": {"storageClassName": OTHER_CLASS}}), change))
}

/// New connections need the new password: each gateway is replaced exactly once.
async fn rotated(lives: &mut Lives<'_>, own: &Own) -> Result<()> {
    let scene = lives.scene;
    let before = scene.pipeline.gateways().uids().await?;
    own.change_password()?;
    let done = async {
        Own::apply_changed_password(scene).await?;
        // The spec is the same, so the status cannot show the change.
        scene.wait_other_gateways(&before, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act("rotation", done).await?.ensure_pods(&[2, 2])
}

/// A user has set the number: it stays, the status names who set it, and no gateway is replaced.
async fn scaled_by_hand(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scale_by_hand(scene, 3).await?;
        let conflict = ("True", reason::SCALING_CONFLICT);
        // It says who has set the number.
        scene.pipeline.wait_told(kind::SCALING_LIMITED, conflict, LONGEST, "kubectl").await?;
        scene.pipeline.wait_gateways(3, LONGEST).await?;
        wait_whole(scene, 3).await
    };
    lives.act("scaled by hand", done).await?.ensure_pods(&[1, 1, 1])
}

/// The operator does not carry out a change of the spec, and does not undo manual changes: the number is lower than ever wanted, and an
/// object is missing.
async fn left_alone(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let stays = format!("{}-0", scene.pipeline.workload_name());
    let service = format!("Service {}", scene.pipeline.workload_name());
    let done = async {
        let change = json!({"managementState": "Unmanaged", "gateway": {"logLevel": "debug"}});
        scene.pipeline.apply(&spec(&change)).await?;
        scene.pipeline.wait_true(kind::RECONCILIATION_PAUSED, reason::UNMANAGED, LONGEST).await?;
        let services = scene.namespace.api::<Service>();
        let deleted = services.delete(&scene.pipeline.workload_name(), &DeleteParams::default()).await;
        deleted.context("delete the Service")?;
        scale_by_hand(scene, 1).await?;
        wait_pods(scene, &[&stays]).await?;
        scene.pipeline.wait_gateways(1, LONGEST).await?;
        let left = objects(scene).await?;
        ensure!(!left.contains(&service), "the Service was made again: {left:?}");
        Ok(())
    };
    lives.act("left alone", done).await?.ensure_pods(&[1, 1, 1])
}

/// The operator manages the number and every object again. The volume without a gateway is drained and deleted. The remaining gateway runs
/// on.
async fn taken_over(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&spec(&json!({}))).await?;
        scene.pipeline.wait_false(kind::RECONCILIATION_PAUSED, reason::MANAGED, LONGEST).await?;
        scene.pipeline.wait_false(kind::SCALING_LIMITED, reason::OK, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act("taken over", done).await?.ensure_pods(&[1, 1])
}

/// Each gateway is drained and made again with a volume of the other class.
async fn moved(lives: &mut Lives<'_>) -> Result<()> {
    volumes_replaced(lives, "storage class", &of_other_class(&json!({}))).await?;
    for (name, claim) in claims(lives.scene).await? {
        let class = claim.spec.and_then(|spec| spec.storage_class_name);
        ensure!(class.as_deref() == Some(OTHER_CLASS), "{name} is of the class {class:?}");
    }
    Ok(())
}

/// The pipeline is deleted, and all its objects stay, without an owner.
async fn orphaned(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&of_other_class(&json!({"deletionPolicy": "Orphan"}))).await?;
        scene.pipeline.delete(LONGEST).await
    };
    lives.act("orphan", done).await?.ensure_pods(&[1, 1])?;
    wait_whole(scene, 2).await?;
    assert_owned(scene, false).await
}

/// A pipeline of the same name owns all of it, and the gateways do not change.
async fn adopted(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    lives.act("adopted", complete(scene, &of_other_class(&json!({})))).await?.ensure_pods(&[1, 1])?;
    assert_owned(scene, true).await
}

/// No server can be reached, and spans keep coming. The pipeline is deleted at its limit and reports what was not drained. Only the volumes
/// that may have something are left. A gateway that had inserted and committed everything when the servers went away leaves none.
async fn gone(lives: &mut Lives<'_>, own: &Own) -> Result<()> {
    let scene = lives.scene;
    let limit = json!({"scaling": {"drain": {"timeout": format!("{LIMIT}s")}}});
    own.clickhouse.open(false);
    own.kafka.open(false);
    let done = async {
        scene.pipeline.apply(&of_other_class(&limit)).await?;
        scene.pipeline.delete(Duration::from_secs(LIMIT) + SLACK).await?;
        wait_pods(scene, &[]).await?;
        let claim = format!("PersistentVolumeClaim queue-{}", scene.pipeline.workload_name());
        let volumes = [0, 1].map(|number| format!("{claim}-{number}"));
        until("end of everything but the volumes", LONGEST, async || {
            let left: Vec<String> = objects(scene).await?.into_iter().collect();
            let are_volumes = !left.is_empty() && left.iter().all(|one| volumes.contains(one));
            Ok(Seen::when(are_volumes, || format!("{left:?}")))
        })
        .await
    };
    lives.act("delete without servers", done).await?.ensure_pods(&[1, 1])?;
    let longer = format!("longer than {LIMIT} s (");
    assert_event_says(scene, "DrainTimedOut", &[&longer, "which may hold the only copy"]).await
}

/// The servers are back. A pipeline of the same name and group reads on from the committed offsets, and uses the left volumes.
async fn reads_on(lives: &mut Lives<'_>, own: &Own) -> Result<()> {
    let scene = lives.scene;
    let lag = scene.topic.lag(&scene.pipeline.settings().consumer_group()).await?;
    ensure!(lag.messages >= LAG_MIN, "nothing waits for the next pipeline: {lag:?}");
    own.kafka.open(true);
    own.clickhouse.open(true);
    lives.act("made again", complete(scene, &of_other_class(&json!({})))).await?.ensure_pods(&[1, 1])
}
