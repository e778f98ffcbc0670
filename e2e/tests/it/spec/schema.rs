//! The operator's Job changes the table to match the spec. It makes allowed changes, and the status names the others. No gateway is
//! replaced.

use crate::prelude::*;

#[test]
#[ignore = "group spec"]
fn the_table_follows_the_spec_and_what_may_not_be_done_is_named() -> Result<()> {
    scene::run("the_table_follows_the_spec", Uses::Servers, 2, async |scene: &mut Scene| {
        scene.start(&schema(&json!({"layout": "Json", "views": ["TraceTimes"]}))).await?;
        let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..1_000).await?;
        scene.assert_nothing_lost(&sent).await?;
        ensure!(count(scene, "uniqExact(TraceId)", "_trace_id_ts").await? == 10, "a trace has no time");
        let (gateways, before) = (scene.pipeline.gateways().uids().await?, job(scene).await?);

        let grown = json!({"layout": "Json", "views": ["TraceTimes", "Operations"],
            "columns": [{"name": "Host", "type": "String", "default": "concat(ServiceName, '@')"}]});
        scene.pipeline.apply(&schema(&grown)).await?;
        scene.pipeline.wait_true(kind::SCHEMA_READY, reason::OK, READY).await?;
        let after = job(scene).await?;
        ensure!(after != before, "the Job {before} was not followed by another");
        ensure!(
            count(scene, "countIf(endsWith(Host, '@'))", "").await? == 1_000,
            "old rows have no new column"
        );
        let then = scene.producer.produce(&scene.feed(Shape::Numbered, None), 1_000..2_000).await?;
        let sent = sent.and(then);
        // Rows are visible in the table before they are in its views. Committed rows are in both.
        scene.assert_nothing_lost(&sent).await?;
        ensure!(count(scene, "count() > 0", "_operations").await? == 1, "no operation was seen");

        let mut expiring = grown;
        expiring["ttl"] = json!("3000d");
        scene.pipeline.apply(&schema(&expiring)).await?;
        let differs = ("False", reason::SCHEMA_DIFFERS);
        scene.pipeline.wait_told(kind::SCHEMA_READY, differs, READY, "MODIFY TTL").await?;
        let status = scene.pipeline.wait_ready(READY).await?;
        let schema_ready = condition(&status, kind::SCHEMA_READY).map(|found| found.status.clone());
        ensure!(schema_ready.as_deref() == Some("False"), "Ready took the difference away: {schema_ready:?}");
        assert_state(&scene.pipeline, "table-differs").await?;
        scene.assert_same_gateways(&gateways).await
    })
}

fn schema(schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["management"] = json!("Evolve");
    json!({"sink": {"clickhouse": {"schema": schema}}})
}

/// A count for the table, or for a table that a view fills.
async fn count(scene: &Scene, what: &str, of_view: &str) -> Result<u64> {
    let query = format!("SELECT toUInt64({what}) FROM `{}`.`{TABLE}{of_view}`", scene.database.name());
    Ok(scene.environment.server.text(&query, "TSV").await?.trim().parse()?)
}

/// The name of the only Job.
async fn job(scene: &Scene) -> Result<String> {
    let jobs = scene.namespace.api::<Job>().list(&ListParams::default()).await?.items;
    ensure!(jobs.len() == 1, "{} schema Jobs", jobs.len());
    Ok(jobs[0].name_any())
}
