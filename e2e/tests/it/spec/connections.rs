//! Two pipelines use one connection. A change of the connection replaces the gateways of both, each by the pipeline's own rollout. A change
//! without an effect replaces none. If the connection is deleted, the status reports it and the gateways run on. Pipelines whose connection
//! was deleted first are drained and deleted. Numbered spans flow the whole time.

use futures::future::try_join_all;

use crate::prelude::*;

const MAIN: &str = "main";

const OTHER_TABLE: &str = "other_traces";

#[test]
#[ignore = "group spec"]
fn pipelines_share_a_connection_and_follow_its_changes() -> Result<()> {
    scene::run("connections", Uses::Servers, 2, async |scene: &mut Scene| {
        let settings = Settings {
            name: "other".into(),
            topic: format!("{}.other", scene.topic.name()),
            ..scene.pipeline.settings().clone()
        };
        let topic = Topic::create(&scene.environment.kafka.host, &settings.topic, 2).await?;
        let group = settings.consumer_group();
        let other = Pipeline::new(&scene.namespace, settings);
        let played = play(scene, &other).await;
        // The group has no members after its pipeline is deleted.
        let removed = topic.delete().await.and(topic.delete_group(&group).await);
        played.and(removed)
    })
}

async fn play(scene: &Scene, other: &Pipeline) -> Result<()> {
    scene.apply_credentials().await?;
    let both = [&scene.pipeline, other];
    // The pipelines first: they report that the connection is missing, and then find it.
    scene.pipeline.apply(&referring(None)).await?;
    other.apply(&referring(Some(OTHER_TABLE))).await?;
    for pipeline in both {
        let missing = ("False", reason::CONNECTION_MISSING);
        let words = format!("there is no TraceConnection \"{MAIN}\"");
        pipeline.wait_told(kind::READY, missing, READY, &words).await?;
    }
    scene.namespace.apply(&connection(scene, &scene.pipeline.settings().clickhouse)).await?;
    try_join_all(both.map(|pipeline| pipeline.wait_ready(READY))).await?;
    counted(&scene.namespace, 2).await?;

    let load = scene.load(FEW_PER_SECOND);
    let before = uids(&both).await?;
    // The same server under another name: both get another config.
    let usual = &scene.pipeline.settings().clickhouse;
    let server = format!("{}/", usual.trim_end_matches('/'));
    ensure!(server != *usual, "{usual} is in these words already");
    change(scene, &json!({"clickhouse": {"endpoints": [server]}})).await?;
    until("both pipelines with other gateways", READY, async || {
        let after = uids(&both).await?;
        let is_replaced = before
            .iter()
            .zip(&after)
            .all(|(before, after)| !after.is_empty() && after.iter().all(|uid| !before.contains(uid)));
        Ok(Seen::when(is_replaced, || format!("{before:?}, then {after:?}")))
    })
    .await?;
    try_join_all(both.map(|pipeline| pipeline.wait_ready(READY))).await?;
    let rolled = uids(&both).await?;

    // The spec gets the values of the connection in place of the reference: no gateway is replaced.
    let inline = json!({"sink": {"clickhouse": {"endpoints": [server]}}});
    scene.pipeline.apply(&inline).await?;
    counted(&scene.namespace, 1).await?;
    scene.pipeline.wait_ready(READY).await?;
    scene.pipeline.apply(&referring(None)).await?;
    counted(&scene.namespace, 2).await?;
    scene.pipeline.wait_ready(READY).await?;
    ensure!(uids(&both).await? == rolled, "a switch between both forms replaced a gateway");

    gone_first(scene, &both, &rolled).await?;
    scene.namespace.apply(&connection(scene, &server)).await?;
    try_join_all(both.map(|pipeline| pipeline.wait_ready(READY))).await?;
    ensure!(uids(&both).await? == rolled, "a connection that came back replaced a gateway");
    scene.end(load).await?;

    // As a tool may delete a folder: the connection before the pipelines.
    delete_connection(scene).await?;
    tokio::try_join!(scene.pipeline.delete(FLOW), other.delete(FLOW))?;
    Ok(())
}

/// The connection is deleted at once, and both pipelines report it while their gateways read on.
async fn gone_first(scene: &Scene, both: &[&Pipeline; 2], rolled: &[Vec<String>]) -> Result<()> {
    delete_connection(scene).await?;
    for pipeline in both {
        pipeline.wait_false(kind::READY, reason::CONNECTION_MISSING, READY).await?;
    }
    let rows = scene.oracle().rows().await?;
    scene.wait_rows(rows + 2 * FEW_PER_SECOND, READY).await.context("while the connection is gone")?;
    ensure!(uids(both).await? == rolled, "a connection that went replaced a gateway");
    Ok(())
}

async fn delete_connection(scene: &Scene) -> Result<()> {
    let connections: Api<TraceConnection> = scene.namespace.api();
    connections.delete(MAIN, &DeleteParams::default()).await.context("delete the connection")?;
    wait_gone(&connections, MAIN, READY).await
}

/// A spec with references in place of the usual values.
fn referring(table: Option<&str>) -> Value {
    let named = json!({"name": MAIN});
    let mut spec = json!({
        "source": {"kafka": {"bootstrapServers": null, "connectionRef": named}},
        "sink": {"clickhouse": {"endpoints": null, "credentials": null, "connectionRef": named}},
    });
    if let Some(table) = table {
        spec["sink"]["clickhouse"]["table"] = json!(table);
    }
    spec
}

/// The servers of the usual pipeline, with this URL for `ClickHouse`.
fn connection(scene: &Scene, server: &str) -> Value {
    json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TraceConnection", "metadata": {"name": MAIN},
        "spec": {
            "kafka": {"bootstrapServers": scene.pipeline.settings().brokers},
            "clickhouse": {
                "endpoints": [server],
                "credentials": {"secretRef": {"name": CREDENTIALS}},
            },
        },
    })
}

async fn change(scene: &Scene, spec: &Value) -> Result<()> {
    merge(&scene.namespace.api::<TraceConnection>(), MAIN, json!({"spec": spec})).await
}

/// Waits until the connection's status has this number of pipelines.
pub async fn counted(namespace: &Namespace, pipelines: u32) -> Result<()> {
    let connections: Api<TraceConnection> = namespace.api();
    until(&format!("a count of {pipelines}"), READY, async || {
        let found = connections.get(MAIN).await.context("get the connection")?;
        let status = found.status.unwrap_or_default();
        Ok(Seen::when(status.pipelines == Some(pipelines), || format!("{status:?}")))
    })
    .await
}

/// Uids of the gateways of each pipeline.
async fn uids(pipelines: &[&Pipeline]) -> Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for pipeline in pipelines {
        all.push(pipeline.gateways().uids().await?.into_values().collect());
    }
    Ok(all)
}
