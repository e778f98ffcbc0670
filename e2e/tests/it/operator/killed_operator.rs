//! The operator is killed after every single write that it makes, through all that is done to a pipeline in its life: made, its volumes
//! grown, changed in config and in memory, changed to what fails and is taken back by the operator, and to what waits and is taken back by
//! an edit, suspended, resumed, its volumes replaced by smaller ones, one gateway fewer, deleted. Numbered spans flow through all of it but
//! its beginning and its end: none is lost, none doubled. What is done to it from outside its spec is in [`outside`].
//!
//! ```text
//! start -> Lease -> watches -> reconcile -> a write --> API server: carried out, the answer is kept back
//!   ^                                          `-----> SIGKILL
//!   `--- until the pipeline is as asked, and each of its objects is there once ---'
//! ```
//!
//! Job: shows of the real thing what the model in `operator/plan` shows of the plan: whatever an operator knows that is written nowhere,
//! the next one does without. Place in the flow: a front lets the first write of each process through and nothing after it; an event or
//! the Lease is no write. Owner: the test; the processes are its own, while the installed operator rests. Limits: an answer is kept back
//! every time, which is the harder half: the operator never learns that it succeeded. The volumes of the local stack cannot grow, so the
//! test plays the resizer, as in `volumes.rs`. The operator asks gateways by the addresses of their pods, which this machine can do
//! because it is the node.

mod lives;
mod outside;
mod whole;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e_fixtures::cluster::{Seen, until};
use e2e_fixtures::pipeline::{Pipeline, Settings, merged};
use serde_json::{Value, json};
use sluice_crds::TracePipelineStatus;
use sluice_crds::status::{condition as kind, reason};

use crate::deletion::life::assert_event;
use crate::environment::while_operator_rests;
use crate::scene::{self, FLOW, Scene, Uses, are_others};
use crate::spec::objects::assert_memory;
use crate::storage::volumes;
use lives::Lives;
use whole::{complete, objects, wait_complete, wait_pods, wait_whole};

/// Partitions: two for each of two gateways.
const PARTITIONS: i32 = 4;

/// Memory that gateways are changed to: more than they have by themselves.
const MEMORY: &str = "320Mi";

/// Load of numbered spans: enough to see one that is missing or doubled at any step.
const SPANS_PER_SECOND: u64 = 1_000;

/// Rows that must be there before the first change: both gateways have inserted and committed by then.
const ROWS_BEFORE: u64 = 4_000;

/// Longest time for one action: as many lives of two seconds, and a busy machine.
const LONGEST: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group killed-operator"]
async fn an_operator_that_dies_of_every_write_finishes_every_action() -> Result<()> {
    scene::run("killed_operator", Uses::OwnOperator, PARTITIONS, async |scene: &mut Scene| {
        // Volumes of any other class, on any other cluster, are not the test's to resize.
        scene.environment.local_clickhouse_only()?;
        // Each end reaches one of the two: pods by name, the operator's process on loopback.
        let brokers = vec![scene.environment.kafka_pods.clone(), scene.environment.kafka_host.clone()];
        let settings = Settings { brokers, ..scene.pipeline.settings().clone() };
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        let cluster = scene.environment.cluster.clone();
        let played = while_operator_rests(&cluster, Box::pin(play(scene))).await;
        // The storage class is everybody's.
        let restored = volumes::lets_grow(&cluster, false).await;
        played.and(restored)
    })
    .await
}

async fn play(scene: &Scene) -> Result<()> {
    scene.apply_credentials().await?;
    let mut lives = Lives::prepare(scene).await?;
    Box::pin(made(&mut lives)).await?;
    let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
    Box::pin(grown(&mut lives)).await?;
    let config = json!({"gateway": {"logLevel": "debug"}});
    Box::pin(changed(&mut lives, "config", &config)).await?;
    let memory = merged(&config, &json!({"gateway": {"resources": {"memory": MEMORY}}}));
    Box::pin(changed(&mut lives, "memory", &memory)).await?;
    for pod in scene.pipeline.gateways().list().await? {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        assert_memory(container.context("a gateway without a container")?, MEMORY)?;
    }
    Box::pin(taken_back(&mut lives, &memory)).await?;
    Box::pin(healed(&mut lives, &memory)).await?;
    Box::pin(suspended(&mut lives, &memory)).await?;
    Box::pin(resumed(&mut lives, &memory)).await?;
    let smaller = merged(&memory, &json!({"queue": {"size": "1Gi"}}));
    Box::pin(volumes_replaced(&mut lives, "shrink", &spec(2, &smaller))).await?;
    Box::pin(one_left(&mut lives, &smaller)).await?;
    scene.end(load).await?;
    Box::pin(deleted(&mut lives)).await?;
    std::fs::remove_dir_all(&lives.folder).context("remove the test's files")
}

/// Everything is made by processes of which none makes two things.
async fn made(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&volumes::spec("1Gi", 2)).await?;
        let sized = ("True", reason::UP_TO_DATE);
        scene.pipeline.wait_condition(kind::VOLUMES_RESIZED, sized, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act("creation", done).await?.ensure_pods(&[1, 1])
}

/// The claims grow, the `StatefulSet` is made again, and the very pods go on.
async fn grown(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        volumes::grow(scene).await?;
        wait_complete(scene, 2).await
    };
    lives.act("growth", done).await?.ensure_pods(&[1, 1])
}

/// Each gateway is replaced, and once.
async fn changed(lives: &mut Lives<'_>, action: &str, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let spec = spec(2, change);
    lives.act(action, complete(scene, &spec)).await?.ensure_pods(&[2, 2])
}

/// A gateway that does not start is tried, and brought back; the other one never notices.
async fn taken_back(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let unknown = json!({"source": {"kafka": {"properties": {"no.such.property": "1"}}}});
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &unknown))).await?;
        scene.pipeline.wait_condition(kind::READY, ("False", reason::ROLLED_BACK), LONGEST).await?;
        let is_back = |status: &TracePipelineStatus| status.ready_replicas == Some(2);
        scene.pipeline.wait("with both gateways on what ran before", LONGEST, is_back).await?;
        wait_whole(scene, 2).await
    };
    lives.act("roll-back", done).await?.ensure_pods(&[1, 3])
}

/// An edit takes an image back that nobody has, while one gateway waits for it; the other one never notices.
async fn healed(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let nowhere = json!({
        "gateway": {"image": "sluice.local/gateway:no-such-version"},
        // A Job of that image would be waited for first.
        "sink": {"clickhouse": {"schema": {"management": "None"}}},
    });
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &nowhere))).await?;
        let waits = ("False", reason::REPLICAS_NOT_READY);
        scene.pipeline.wait_condition(kind::READY, waits, LONGEST).await?;
        complete(scene, &spec(2, change)).await
    };
    lives.act("heal", done).await?.ensure_pods(&[1, 3])
}

/// All gateways leave, and what they need to come back stays.
async fn suspended(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &json!({"suspend": true})))).await?;
        let rests = ("True", reason::SUSPENDED);
        scene.pipeline.wait_condition(kind::SUSPENDED, rests, LONGEST).await?;
        scene.pipeline.wait_condition(kind::READY, rests, LONGEST).await?;
        wait_pods(scene, &[]).await?;
        wait_whole(scene, 2).await
    };
    let course = lives.act("suspend", done).await?;
    course.ensure_drained(0)?;
    course.ensure_pods(&[1, 1])
}

async fn resumed(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let spec = spec(2, change);
    lives.act("resume", complete(scene, &spec)).await?.ensure_pods(&[1, 1])
}

/// Each gateway is emptied and made again with another volume, and no claim is left of those that were.
async fn volumes_replaced(lives: &mut Lives<'_>, action: &str, spec: &Value) -> Result<()> {
    let scene = lives.scene;
    let before = volumes::uids(scene).await?;
    let done = async {
        scene.pipeline.apply(spec).await?;
        let sized = ("True", reason::UP_TO_DATE);
        scene.pipeline.wait_condition(kind::VOLUMES_RESIZED, sized, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act(action, done).await?.ensure_pods(&[2, 2])?;
    let after = volumes::uids(scene).await?;
    ensure!(after.len() == 2 && are_others(&after, &before), "the claims are {after:?}, were {before:?}");
    Ok(())
}

/// One of two leaves when it is empty, and its volume goes once a Job has found that empty. The other one goes on as it is.
async fn one_left(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let stays = format!("{}-gateway-0", scene.pipeline.name());
    let done = async {
        scene.pipeline.apply(&spec(1, change)).await?;
        wait_pods(scene, &[&stays]).await?;
        wait_complete(scene, 1).await
    };
    let course = lives.act("scale-in", done).await?;
    course.ensure_drained(1)?;
    course.ensure_pods(&[1, 1])?;
    scene.pipeline.gateways().ensure_not_restarted(&stays).await
}

/// The gateway that is left gets empty, and then all of it goes, its volume too: `Drain` is the deletion policy that nobody chose.
async fn deleted(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.delete(LONGEST).await?;
        wait_pods(scene, &[]).await?;
        until("end of everything that the pipeline owned", LONGEST, async || {
            let left = objects(scene).await?;
            Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
        })
        .await
    };
    let course = lives.act("delete", done).await?;
    course.ensure_drained(0)?;
    course.ensure_pods(&[1])?;
    assert_event(scene, "Drained").await
}

/// So many gateways with grown volumes, changed otherwise.
fn spec(replicas: u32, change: &Value) -> Value {
    merged(&volumes::spec("2Gi", replicas), change)
}
