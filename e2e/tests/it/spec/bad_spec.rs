//! Specs that cannot be carried out: each causes a condition or a rejection that says what to do, and works after the correction.

use e2e_fixtures::spans::Numbers;

use crate::prelude::*;
use crate::storage::replaced::with_class;
use crate::storage::volumes;

/// Waits for the condition; its message and that of Ready must contain `word`.
async fn expect_condition(scene: &Scene, kind: &str, reason: &str, word: &str) -> Result<()> {
    scene.pipeline.wait_told(kind, ("False", reason), READY, word).await?;
    let ready = scene.pipeline.condition(kind::READY).await?;
    ensure!(ready.status == "False", "Ready is {} though {kind} is False", ready.status);
    ensure!(ready.message.contains(word), "the message of Ready does not name {word}: {}", ready.message);
    Ok(())
}

/// Waits until it is Ready again and spans flow.
async fn expect_mended(scene: &Scene) -> Result<()> {
    scene.pipeline.wait_ready(READY).await?;
    let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..1_000).await?;
    scene.assert_nothing_lost(&sent).await.map(drop)
}

#[test]
fn a_missing_topic_is_named_and_found_when_made() -> Result<()> {
    scene::run("a_missing_topic_is_named", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        scene.topic.delete().await?;
        scene.pipeline.apply(&json!({})).await?;
        expect_condition(scene, kind::SOURCE_REACHABLE, reason::TOPIC_MISSING, scene.topic.name()).await?;
        assert_state(&scene.pipeline, "topic-missing").await?;
        scene.topic = scene.topic.again(4).await?;
        expect_mended(scene).await
    })
}

#[test]
fn a_missing_secret_is_named_and_found_when_made() -> Result<()> {
    scene::run("a_missing_secret_is_named", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.pipeline.apply(&json!({})).await?;
        expect_condition(scene, kind::SINK_REACHABLE, reason::SECRET_MISSING, CREDENTIALS).await?;
        assert_state(&scene.pipeline, "secret-missing").await?;
        scene.apply_credentials().await?;
        expect_mended(scene).await
    })
}

#[test]
#[ignore = "group spec"]
fn a_wrong_password_is_said_and_mended() -> Result<()> {
    scene::run("a_wrong_password_is_said", Uses::Servers, 4, async |scene: &mut Scene| {
        let user = scene.environment.clickhouse_pods.user.clone();
        scene.namespace.apply_credentials(CREDENTIALS, &user, "not-the-password").await?;
        scene.pipeline.apply(&json!({})).await?;
        expect_condition(scene, kind::SINK_REACHABLE, reason::AUTH_FAILED, "password").await?;
        assert_state(&scene.pipeline, "sink-refuses-user").await?;
        scene.apply_credentials().await?;
        expect_mended(scene).await
    })
}

#[test]
#[ignore = "group spec"]
fn an_unknown_table_is_named_and_made_when_allowed() -> Result<()> {
    scene::run("an_unknown_table_is_named", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        scene.pipeline.apply(&at("sink.clickhouse.schema.management", "Validate")).await?;
        expect_condition(scene, kind::SCHEMA_READY, reason::TABLE_MISSING, TABLE).await?;
        assert_state(&scene.pipeline, "table-missing").await?;
        scene.pipeline.apply(&json!({})).await?;
        expect_mended(scene).await
    })
}

/// The spec does not change: only the table is created.
#[test]
#[ignore = "group spec"]
fn a_missing_table_is_found_when_somebody_else_makes_it() -> Result<()> {
    scene::run("a_missing_table_is_found", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start_default().await?;
        scene.pipeline.delete(READY).await?;
        let (ours, elsewhere) = (TABLE.to_owned(), format!("{TABLE}_elsewhere"));
        rename(scene, (&ours, &elsewhere)).await?;
        scene.pipeline.apply(&at("sink.clickhouse.schema.management", "Validate")).await?;
        expect_condition(scene, kind::SCHEMA_READY, reason::TABLE_MISSING, TABLE).await?;
        rename(scene, (&elsewhere, &ours)).await?;
        expect_mended(scene).await
    })
}

async fn rename(scene: &Scene, (from, to): (&str, &str)) -> Result<()> {
    let database = scene.database.name();
    let query = format!("RENAME TABLE `{database}`.`{from}` TO `{database}`.`{to}`");
    scene.environment.server.execute(&query).await
}

#[test]
#[ignore = "group spec"]
fn an_unknown_storage_class_is_named_and_found_when_made() -> Result<()> {
    scene::run("an_unknown_storage_class_is", Uses::Servers, 4, async |scene: &mut Scene| {
        // This class of volumes exists only on the local stack.
        scene.environment.local_clickhouse_only()?;
        let unknown = scene.namespace.name().to_owned();
        scene.apply_credentials().await?;
        scene.pipeline.apply(&json!({"queue": {"storageClassName": unknown}})).await?;
        expect_condition(scene, kind::READY, reason::STORAGE_CLASS_MISSING, &unknown).await?;
        assert_state(&scene.pipeline, "storage-class-missing").await?;
        let claims = volumes::claims(scene).await?;
        ensure!(claims.is_empty(), "claims of a class that does not exist: {claims:?}");
        with_class(scene.namespace.cluster(), (&unknown, None), Box::pin(expect_mended(scene))).await
    })
}

#[test]
fn too_little_memory_is_refused_with_the_number_that_would_do() -> Result<()> {
    scene::run("too_little_memory_is_refused", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        // The buffers of four partitions with record batches of 16 MiB do not fit into 128 MiB, which the schema allows.
        let memory = |memory: &str| {
            json!({
                "source": {"kafka": {"recordBatchBytesMax": "16Mi"}},
                "gateway": {"resources": {"memory": memory}},
            })
        };
        scene.pipeline.apply(&memory("128Mi")).await?;
        let message = scene.pipeline.wait_false(kind::READY, reason::SPEC_INVALID, READY).await?;
        scene.pipeline.wait_true(kind::STALLED, reason::SPEC_INVALID, READY).await?;
        assert_state(&scene.pipeline, "spec-invalid").await?;
        let enough = mebibytes(&message).filter(|mebibytes| *mebibytes != 128).max();
        let enough = enough.with_context(|| format!("the message has no number that would do: {message}"))?;
        scene.pipeline.apply(&memory(&format!("{}Mi", enough - 1))).await?;
        scene.pipeline.wait_false(kind::READY, reason::SPEC_INVALID, READY).await?;
        let mended = memory(&format!("{enough}Mi"));
        scene.pipeline.apply(&mended).await?;
        expect_mended(scene).await?;
        nothing_happens_to_gateways(scene, &mended, (&memory("100Mi"), &memory("128Mi"))).await
    })
}

/// An edit that the API server or the operator rejects does not affect running gateways, nor does its correction.
async fn nothing_happens_to_gateways(
    scene: &Scene,
    mended: &Value,
    (refused_at_once, refused_later): (&Value, &Value),
) -> Result<()> {
    let before = running(scene).await?;
    expect_refusal(scene.pipeline.apply(refused_at_once).await, "memory is a whole number of Mi or Gi")?;
    scene.pipeline.apply(refused_later).await?;
    scene.pipeline.wait_false(kind::READY, reason::SPEC_INVALID, READY).await?;
    let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 1_000..2_000).await?;
    // The first thousand came after the correction.
    scene.assert_nothing_lost(&Sent { acked: Numbers::from(0..2_000), ..sent }).await?;
    let meanwhile = running(scene).await?;
    ensure!(meanwhile == before, "a refused edit changed what ran: {before:?}, {meanwhile:?}");
    scene.change(mended).await?;
    let after = running(scene).await?;
    ensure!(after == before, "taking a refused edit back changed what ran: {before:?}, {after:?}");
    Ok(())
}

/// The running gateways by name, each with its UID and its number of restarts, and the generation of their `StatefulSet`, from which they
/// were made.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    gateways: BTreeMap<String, (String, i32)>,
    workload: Option<i64>,
}

async fn running(scene: &Scene) -> Result<Running> {
    let gateways = scene.pipeline.gateways().lives().await?;
    ensure!(!gateways.is_empty(), "there is no gateway");
    let workload = scene.pipeline.workload().await?.context("there is no StatefulSet")?;
    Ok(Running { gateways, workload: workload.metadata.generation })
}

/// The numbers of whole MiB in a text, such as `256Mi`, `256MiB` or `256 MiB`.
fn mebibytes(text: &str) -> impl Iterator<Item = u64> {
    text.match_indices("Mi").filter_map(|(end, _)| {
        let number = text[..end].trim_end();
        let begin = number.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        number[begin..].parse().ok()
    })
}

#[test]
fn numbers_of_mebibytes_are_found_in_words() {
    let found: Vec<u64> = mebibytes("128Mi is too little, 231 MiB would do (16MiB each); Mi").collect();
    assert_eq!(found, [128, 231, 16]);
}

#[test]
fn what_the_schema_can_check_is_refused_at_once() -> Result<()> {
    scene::run("what_the_schema_can_check", Uses::Servers, 1, async |scene: &mut Scene| {
        let long_name = Settings { name: "n".repeat(45), ..scene.pipeline.settings().clone() };
        let long_name = Pipeline::new(&scene.namespace, long_name);
        expect_refusal(long_name.apply(&json!({})).await, "at most 44 characters")?;
        for (change, words) in refused() {
            let applied = scene.pipeline.apply(&change).await;
            expect_refusal(applied, words).with_context(|| change.to_string())?;
        }
        // Some fields cannot change after the creation. There is no Secret, so no gateway starts.
        scene.pipeline.apply(&json!({})).await?;
        for (change, words) in refused_once_there() {
            let applied = scene.pipeline.apply(&change).await;
            expect_refusal(applied, words).with_context(|| change.to_string())?;
        }
        // After the correction, it is accepted.
        scene.apply_credentials().await?;
        expect_mended(scene).await?;
        // None of these edits affects running gateways.
        let (before, generation) = (running(scene).await?, scene.pipeline.get().await?.metadata.generation);
        for (change, words) in refused().into_iter().chain(refused_once_there()) {
            let applied = scene.pipeline.apply(&change).await;
            expect_refusal(applied, words).with_context(|| change.to_string())?;
            let after = running(scene).await?;
            ensure!(after == before, "{change} changed what ran: {before:?}, {after:?}");
        }
        let after = scene.pipeline.get().await?.metadata.generation;
        ensure!(after == generation, "an edit was refused and taken: {generation:?}, {after:?}");
        // An accepted change is carried out after all earlier events. So an operator that reacts to a rejected one would have done it
        // before.
        scene.change(&json!({"scaling": {"targetLag": "3m"}})).await?;
        let after = running(scene).await?;
        ensure!(after == before, "refused edits changed what ran: {before:?}, {after:?}");
        Ok(())
    })
}

/// The same for an existing pipeline: some fields cannot change.
fn refused_once_there() -> Vec<(Value, &'static str)> {
    let only_copy =
        json!({"delivery": {"commit": "AfterEnqueue"}, "scaling": {"drain": {"onTimeout": "Force"}}});
    vec![
        (at("source.kafka.consumerGroup", "another"), "consumerGroup cannot be changed"),
        (at("queue.mode", "Disabled"), "queue.mode cannot be changed"),
        (at("queue.storageClassName", "Another"), "storageClassName is the name of a StorageClass"),
        (only_copy, "onTimeout Force cannot be used"),
    ]
}

/// Changes that the API server rejects, and its message.
fn refused() -> Vec<(Value, &'static str)> {
    let settings = json!({"async_insert": "1"});
    let to_nothing = json!({"engine": "Null", "ttl": "30d"});
    vec![
        (at("gateway.resources.memory", "100Mi"), "memory is a whole number of Mi or Gi, at least 128Mi"),
        (at("gateway.resources.memory", "256.5Mi"), "memory is a whole number of Mi or Gi"),
        (at("gateway.workers", 0), "spec.gateway.workers"),
        (at("source.kafka.bootstrapServers", json!(["kafka"])), "each of bootstrapServers is host:port"),
        (at("source.kafka.topics", json!([])), "spec.source.kafka.topics"),
        (at("source.kafka.format", "Avro"), "spec.source.kafka.format"),
        (
            at("sink.clickhouse.endpoints", json!(["clickhouse:8123"])),
            "each of endpoints is http://host:port",
        ),
        (at("sink.clickhouse.insert.settings", settings), "settings has a name that the gateway decides"),
        (at("sink.clickhouse.schema", to_nothing), "engine Null stores nothing"),
        (at("queue.size", "1GB"), "size is a whole number of Mi, Gi or Ti"),
        (at("partitionsPerReplica", 0), "spec.partitionsPerReplica"),
    ]
}

fn expect_refusal(applied: Result<()>, words: &str) -> Result<()> {
    let Err(refusal) = applied else { bail!("it was taken") };
    let refusal = format!("{refusal:#}");
    ensure!(refusal.contains(words), "the refusal does not say {words:?}: {refusal}");
    Ok(())
}
