//! A table that is dropped while gateways run: the schema Job runs again, once, and the status says so.

use crate::{
    bench::{Bench, NAMESPACE},
    gateway_report::ONCE,
    pods::Pods,
    scaling::pass,
};
use serde_json::{Value, json};

/// A pipeline with this `schema.management` and two gateways that run. Its schema Job has succeeded, unless there is none.
async fn running(management: &str) -> (Bench, Pods) {
    let bench = Bench::start().await;
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["schema"] = json!({"management": management});
    bench.server.put("tracepipelines/prod", pipeline);
    bench.settle("prod").await;
    jobs_succeed(&bench);
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    let mut pods = Pods::of(&bench.server, "prod");
    pods.become_ready(2, 8).await;
    for ordinal in 0..2 {
        bench.server.change(&format!("pods/prod-gateway-{ordinal}"), |pod| {
            pod["metadata"]["labels"]["controller-revision-hash"] = "a".into();
        });
    }
    inserts(&pods, 0);
    bench.settle("prod").await;
    (bench, pods)
}

fn jobs_succeed(bench: &Bench) {
    for job in bench.server.list("jobs") {
        let name = job["metadata"]["name"].as_str().unwrap();
        bench.server.change(&format!("jobs/{name}"), |job| {
            job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        });
    }
}

/// No insert comes through, and so many have failed.
fn inserts(pods: &Pods, failed: u64) {
    pods.each(|gateway| {
        gateway.is_behind = true;
        gateway.insert_failures = failed;
        gateway.more = format!("{ONCE}sluice_gateway_blocks_inserted_total 5\n");
    });
}

async fn look(bench: &Bench) {
    pass(30);
    bench.reconcile("prod").await.unwrap();
}

/// ClickHouse knows no such table, or database, at the next four looks: two until inserts count as failing, and a minute more.
async fn fail(bench: &Bench, pods: &Pods, code: u32) {
    let error = json!({"class": "halt", "code": code, "message": "Table otel.otel_traces does not exist"});
    pods.each(|gateway| gateway.insert_error = Some(error.clone()));
    for failed in 1..=4 {
        inserts(pods, failed);
        look(bench).await;
    }
}

fn told(bench: &Bench) -> Vec<Value> {
    let events = bench.server.take_events().into_iter();
    events.filter(|event| event["reason"] == "SchemaJobRunsAgain").collect()
}

fn schema_job(bench: &Bench) -> Value {
    bench.server.get("tracepipelines/prod").unwrap()["status"]["schemaJob"].clone()
}

#[tokio::test]
async fn a_table_that_gateways_miss_has_the_schema_job_run_again_once() {
    let (mut bench, pods) = running("CreateIfMissing").await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
    let job = schema_job(&bench);
    bench.server.take_events();
    fail(&bench, &pods, 60).await;
    assert!(bench.server.list("jobs").is_empty(), "it is deleted to run again");
    assert_eq!(
        (bench.condition("prod", "SchemaReady").as_str(), told(&bench).len()),
        ("False TableMissing", 1)
    );
    assert!(schema_job(&bench).is_null());
    bench.settle("prod").await;
    assert_eq!(bench.server.list("jobs")[0]["metadata"]["name"], job);
    // It has made the table, and gateways have not tried again yet.
    jobs_succeed(&bench);
    bench.settle("prod").await;
    assert_eq!(
        (bench.condition("prod", "SchemaReady").as_str(), schema_job(&bench)),
        ("False TableMissing", job.clone())
    );
    bench.restart();
    look(&bench).await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "False TableMissing", "a new operator knows less");
    pods.each(|gateway| gateway.more = format!("{ONCE}sluice_gateway_blocks_inserted_total 6\n"));
    look(&bench).await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
    assert_eq!((bench.server.list("jobs").len(), told(&bench).len()), (1, 0));
}

/// `RENAME`, `INSERT SELECT` and `RENAME` back within a minute: another table of that name would stand in the way.
#[tokio::test]
async fn a_table_that_is_away_for_less_than_a_minute_gets_no_job() {
    let (bench, pods) = running("CreateIfMissing").await;
    bench.server.take_events();
    let error = json!({"class": "halt", "code": 60, "message": "Table otel.otel_traces does not exist"});
    pods.each(|gateway| gateway.insert_error = Some(error.clone()));
    for failed in 1..=4 {
        inserts(&pods, failed);
        pass(15);
        bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((bench.server.list("jobs").len(), told(&bench).len()), (1, 0));
    pods.each(|gateway| gateway.more = format!("{ONCE}sluice_gateway_blocks_inserted_total 6\n"));
    look(&bench).await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
    assert_eq!((bench.server.list("jobs").len(), told(&bench).len()), (1, 0));
}

#[tokio::test]
async fn a_job_that_does_not_help_runs_less_and_less_often() {
    let (bench, pods) = running("CreateIfMissing").await;
    bench.server.take_events();
    fail(&bench, &pods, 60).await;
    let is_run = || u32::from(bench.server.list("jobs").is_empty());
    let mut runs = is_run();
    for failed in 5..45 {
        bench.settle("prod").await;
        jobs_succeed(&bench);
        inserts(&pods, failed);
        look(&bench).await;
        runs += is_run();
    }
    assert_eq!(runs, 3, "at once, after 5 min and after 15 min");
}

/// A server without the database may be another one. With `None`, the operator leaves the table alone.
#[tokio::test]
async fn no_job_runs_again_for_a_missing_database_nor_without_management() {
    for (management, code, schema_ready) in
        [("CreateIfMissing", 81, "False DatabaseMissing"), ("None", 60, "True NotManaged")]
    {
        let (bench, pods) = running(management).await;
        let jobs = bench.server.list("jobs");
        bench.server.take_events();
        fail(&bench, &pods, code).await;
        assert_eq!(bench.condition("prod", "SinkReachable"), "False InsertsFailing");
        assert_eq!(bench.condition("prod", "SchemaReady"), schema_ready);
        assert_eq!((bench.server.list("jobs"), told(&bench)), (jobs, Vec::new()));
    }
}

/// One address may lead to several servers. The schema Job would make database and table on the foreign one.
#[tokio::test]
async fn no_job_runs_again_if_any_gateway_misses_the_database() {
    let (bench, pods) = running("CreateIfMissing").await;
    let jobs = bench.server.list("jobs");
    bench.server.take_events();
    for (gateway, code) in pods.all.iter().zip([60, 81]) {
        let error = json!({"class": "halt", "code": code, "message": "it does not exist"});
        gateway.behaviour.lock().unwrap().insert_error = Some(error);
    }
    for failed in 1..=6 {
        inserts(&pods, failed);
        look(&bench).await;
    }
    assert_eq!(bench.condition("prod", "SchemaReady"), "False DatabaseMissing");
    assert_eq!((bench.server.list("jobs"), told(&bench)), (jobs, Vec::new()));
}

/// The second gateway has started, is not ready, and says this of the table for which it waits.
async fn waits(bench: &Bench, pods: &Pods, sample: Value) {
    let pod = bench.server.get("pods/prod-gateway-1").unwrap();
    let state = json!({"version": 1,
        "pod": {"namespace": NAMESPACE, "name": "prod-gateway-1", "uid": pod["metadata"]["uid"]},
        "readiness": {"ready": false, "reasons": ["waits for the table: it cannot be used"]},
        "sample": sample, "remaining": {"blocks": 0, "damaged": false, "draining": false}});
    pods.all[1].behaviour.lock().unwrap().strange = Some(state.to_string());
    pods.is_unready(1);
    bench.gateways_are_ready("prod", 1);
    look(bench).await;
}

/// Only a missing table may be made: the others need a person.
#[tokio::test]
async fn what_keeps_a_gateway_from_its_table_at_the_start_is_a_condition_and_runs_no_job() {
    for (error, sink, schema) in [
        ("DatabaseMissing", "True Ok", "False DatabaseMissing"),
        ("ColumnMismatch", "True Ok", "False ColumnMismatch"),
        ("AuthFailed", "False AuthFailed", "True Ok"),
        ("Unreachable", "False Unreachable", "True Ok"),
    ] {
        let (bench, pods) = running("CreateIfMissing").await;
        let jobs = bench.server.list("jobs");
        bench.server.take_events();
        waits(&bench, &pods, json!({"tableError": error})).await;
        let conditions = || ["SinkReachable", "SchemaReady"].map(|kind| bench.condition("prod", kind));
        assert_eq!(conditions(), ["True Ok", "True Ok"], "it may just start");
        for _ in 0..4 {
            look(&bench).await;
        }
        assert_eq!(conditions(), [sink, schema]);
        pods.falls_silent(1);
        look(&bench).await;
        assert_eq!(conditions(), [sink, schema], "it does not answer this look");
        assert_eq!((bench.server.list("jobs"), told(&bench)), (jobs, Vec::new()));
    }
}

/// Gateways that started while the table was missing wait for it, and are not ready.
#[tokio::test]
async fn gateways_that_wait_for_a_missing_table_have_the_schema_job_run_again() {
    let (bench, pods) = running("CreateIfMissing").await;
    bench.server.take_events();
    waits(&bench, &pods, json!({"tableMissing": true})).await;
    assert_eq!((bench.server.list("jobs").len(), told(&bench).len()), (1, 0), "it may just start");
    for _ in 0..2 {
        assert_eq!(bench.server.list("jobs").len(), 1);
        look(&bench).await;
    }
    assert_eq!(bench.condition("prod", "SchemaReady"), "False TableMissing");
    look(&bench).await;
    assert_eq!((bench.server.list("jobs").len(), told(&bench).len()), (0, 1));
    assert_eq!(bench.condition("prod", "SchemaReady"), "False TableMissing");
}
