//! The operator is killed after every single write, in all changes of a pipeline's life. The pipeline is made; its volumes grow; its config
//! and memory change; a change fails and the operator rolls it back; a change waits and an edit reverts it. It is suspended and resumed;
//! smaller volumes replace its volumes; one gateway is removed; it is deleted. Numbered spans flow from the first change to the last: none
//! is lost, none doubled. Changes from outside its spec are in [`outside`].
//!
//! ```text
//! start -> Lease -> watches -> reconcile -> a write --> API server: carried out, the answer is held
//!   ^                                          `-----> SIGKILL
//!   `--- until the pipeline is as requested, and each of its objects exists once ---'
//! ```
//!
//! Job: shows with the real program what the model in `operator/plan` shows for the plan: an operator needs no knowledge that is not
//! stored. Place in the flow: a front forwards the first write of each process and nothing after it; events and writes of the Lease do not
//! count. Owner: the test; the processes are its own, while the installed operator is paused. Limits: each answer is held, which is the
//! harder case: the operator never learns that the write succeeded. The volumes of the local stack cannot grow, so the test plays the
//! resizer, as in `volumes.rs`. The operator reaches gateways by the addresses of their pods. That works from this machine because it is
//! the node.

mod lives;
mod outside;
mod whole;

use crate::prelude::*;
use crate::spec::objects::assert_memory;
use crate::storage::volumes;
use lives::Lives;
use whole::{complete, wait_complete, wait_pods, wait_whole};

/// The gateways' new memory: more than their default.
const MEMORY: &str = "320Mi";

/// Rows that must be in the table before the first change: both gateways have inserted and committed by then.
const ROWS_BEFORE: u64 = 4_000;

/// Longest time for one change: many processes of two seconds each, on a busy machine.
const LONGEST: Duration = Duration::from_mins(4);

#[test]
#[ignore = "group killed-operator"]
fn an_operator_that_dies_of_every_write_finishes_every_action() -> Result<()> {
    scene::run("killed_operator", Uses::OwnOperator, 4, async |scene: &mut Scene| {
        // The test may resize only volumes of this class, on the local stack.
        scene.environment.local_clickhouse_only()?;
        // Pods reach the first address by name, and the operator's process the second on loopback.
        let brokers = vec![scene.environment.kafka.pods.clone(), scene.environment.kafka.host.clone()];
        let settings = Settings { brokers, ..scene.pipeline.settings().clone() };
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        let cluster = scene.environment.cluster.clone();
        let played = while_operator_rests(&cluster, Box::pin(play(scene))).await;
        // All tests share the storage class.
        let restored = volumes::lets_grow(&cluster, false).await;
        played.and(restored)
    })
}

async fn play(scene: &Scene) -> Result<()> {
    scene.apply_credentials().await?;
    let mut lives = Lives::prepare(scene).await?;
    Box::pin(made(&mut lives)).await?;
    let load = scene.flowing_load(FEW_PER_SECOND, ROWS_BEFORE, FLOW).await?;
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
    fs::remove_dir_all(&lives.folder).context("remove the test's files")
}

/// Several processes make all objects, and none makes two of them.
async fn made(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&volumes::spec("1Gi", 2)).await?;
        scene.pipeline.wait_true(kind::VOLUMES_RESIZED, reason::UP_TO_DATE, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act("creation", done).await?.ensure_pods(&[1, 1])
}

/// The claims grow, the `StatefulSet` is made again, and the same pods run on.
async fn grown(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        volumes::grow(scene).await?;
        wait_complete(scene, 2).await
    };
    lives.act("growth", done).await?.ensure_pods(&[1, 1])
}

/// Each gateway is replaced exactly once.
async fn changed(lives: &mut Lives<'_>, action: &str, change: &Value) -> Result<()> {
    lives.act(action, complete(lives.scene, &spec(2, change))).await?.ensure_pods(&[2, 2])
}

/// The operator tries a gateway that does not start, and rolls it back; the other gateway does not change.
async fn taken_back(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let unknown = json!({"source": {"kafka": {"properties": {"no.such.property": "1"}}}});
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &unknown))).await?;
        scene.pipeline.wait_false(kind::READY, reason::ROLLED_BACK, LONGEST).await?;
        scene.pipeline.wait_gateways(2, LONGEST).await.context("on what ran before")?;
        wait_whole(scene, 2).await
    };
    lives.act("roll-back", done).await?.ensure_pods(&[1, 3])
}

/// One gateway waits for an image that does not exist, and an edit reverts the image; the other gateway does not change.
async fn healed(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let nowhere = json!({
        "gateway": {"image": "sluice.local/gateway:no-such-version"},
        // Otherwise the operator would first wait for a Job with that image.
        "sink": {"clickhouse": {"schema": {"management": "None"}}},
    });
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &nowhere))).await?;
        scene.pipeline.wait_false(kind::READY, reason::REPLICAS_NOT_READY, LONGEST).await?;
        complete(scene, &spec(2, change)).await
    };
    lives.act("heal", done).await?.ensure_pods(&[1, 3])
}

/// All gateways leave, and everything that they need to come back stays.
async fn suspended(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.apply(&spec(2, &merged(change, &json!({"suspend": true})))).await?;
        scene.pipeline.wait_true(kind::SUSPENDED, reason::SUSPENDED, LONGEST).await?;
        scene.pipeline.wait_true(kind::READY, reason::SUSPENDED, LONGEST).await?;
        wait_pods(scene, &[]).await?;
        wait_whole(scene, 2).await
    };
    let course = lives.act("suspend", done).await?;
    course.ensure_drained(0)?;
    course.ensure_pods(&[1, 1])
}

async fn resumed(lives: &mut Lives<'_>, change: &Value) -> Result<()> {
    lives.act("resume", complete(lives.scene, &spec(2, change))).await?.ensure_pods(&[1, 1])
}

/// Each gateway is drained and made again with another volume, and none of the former claims is left.
async fn volumes_replaced(lives: &mut Lives<'_>, action: &str, spec: &Value) -> Result<()> {
    let scene = lives.scene;
    let before = volumes::uids(scene).await?;
    let done = async {
        scene.pipeline.apply(spec).await?;
        scene.pipeline.wait_true(kind::VOLUMES_RESIZED, reason::UP_TO_DATE, LONGEST).await?;
        wait_complete(scene, 2).await
    };
    lives.act(action, done).await?.ensure_pods(&[2, 2])?;
    let after = volumes::uids(scene).await?;
    ensure!(after.len() == 2 && are_others(&after, &before), "the claims are {after:?}, were {before:?}");
    Ok(())
}

/// One of two gateways leaves when it is empty. Its volume is deleted after a Job has found it empty. The other gateway runs on unchanged.
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

/// The last gateway drains, and then everything is deleted, its volume too: `Drain` is the default deletion policy.
async fn deleted(lives: &mut Lives<'_>) -> Result<()> {
    let scene = lives.scene;
    let done = async {
        scene.pipeline.delete(LONGEST).await?;
        wait_pods(scene, &[]).await?;
        scene.wait_without(&pipeline_kinds(), LONGEST).await
    };
    let course = lives.act("delete", done).await?;
    course.ensure_drained(0)?;
    course.ensure_pods(&[1])?;
    assert_event(scene, "Drained").await
}

/// This many gateways with grown volumes, and with `change`.
fn spec(replicas: u32, change: &Value) -> Value {
    merged(&volumes::spec("2Gi", replicas), change)
}
