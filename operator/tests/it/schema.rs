//! The schema Job: gateways wait for it, one that failed is run again, old ones are removed.

use crate::bench::{Bench, NAMESPACE};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::{controller::Action, reflector::ObjectRef};
use serde_json::{Value, json};
use sluice_operator::reconcile::reconcile;
use std::{ops::RangeInclusive, time::Duration};

/// A pipeline that makes its table.
fn create(bench: &Bench) {
    let mut pipeline = bench.pipeline("prod");
    pipeline["spec"]["sink"]["clickhouse"]["schema"] = json!({"management": "CreateIfMissing"});
    bench.server.put("tracepipelines/prod", pipeline);
}

fn job(bench: &Bench) -> String {
    let jobs = bench.server.list("jobs");
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
    jobs[0]["metadata"]["name"].as_str().unwrap().to_owned()
}

fn ends(bench: &Bench, job: &str, how: &str, since: &str) {
    let condition =
        json!({"type": how, "status": "True", "lastTransitionTime": since, "message": "backoff limit"});
    bench.server.change(&format!("jobs/{job}"), |job| job["status"] = json!({"conditions": [condition]}));
}

fn pod(job: &str, said: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/managed-by": "sluice-operator", "app.kubernetes.io/instance": "prod",
                "app.kubernetes.io/component": "schema",
            },
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": format!("uid-of-jobs/{job}")}],
        },
        "status": {"containerStatuses": [{
            "name": "schema", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 69, "message": said}},
        }]},
    })
}

#[tokio::test]
async fn gateways_wait_until_the_schema_job_has_succeeded() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    assert!(bench.server.get("statefulsets/prod-gateway").is_none());
    ends(&bench, &job, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
}

#[tokio::test]
pub async fn a_failed_job_is_read_and_run_again_and_what_runs_goes_on() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    ends(&bench, &job, "Failed", "2999-01-01T00:00:00Z");
    bench.server.put("pods/p", pod(&job, r#"{"reason": "AuthFailed", "message": "wrong password"}"#));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "SinkReachable"), "False AuthFailed");
    // Long ago: the Job is deleted by one reconcile and made again by the next.
    ends(&bench, &job, "Failed", "2026-01-01T00:00:00Z");
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.list("jobs").is_empty());
    bench.settle("prod").await;
    assert_eq!(self::job(&bench), job);
}

/// By a TTL of the cluster's own, or by a person; here also with `ClickHouse` away, so that no other one would succeed.
#[tokio::test]
async fn a_job_that_succeeded_may_go_and_nothing_waits_for_another() {
    let mut bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    ends(&bench, &job, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert_eq!(status(&bench)["schemaJob"], job);
    let before = status(&bench);
    bench.server.remove(&format!("jobs/{job}"));
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!((status(&bench), bench.server.list("jobs")), (before.clone(), vec![]));
    bench.restart();
    bench.reconcile("prod").await.unwrap();
    assert_eq!((status(&bench), bench.server.list("jobs")), (before, vec![]));
    assert!(bench.server.take_writes().is_empty(), "neither the Job nor the status");
    // Edits and scaling go on.
    let edit = |field: &str, value: Value, generation: i64| {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"][field] = value;
            pipeline["metadata"]["generation"] = generation.into();
        });
    };
    let workload = || bench.server.get("statefulsets/prod-gateway").unwrap()["spec"].clone();
    edit("replicas", 3.into(), 2);
    bench.settle("prod").await;
    assert_eq!((workload()["replicas"].clone(), bench.server.list("jobs")), (3.into(), vec![]));
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let template = workload()["template"].clone();
    edit("gateway", json!({"logLevel": "debug"}), 3);
    bench.settle("prod").await;
    assert_ne!(workload()["template"], template);
    assert_eq!(bench.server.list("jobs"), Vec::<Value>::new());
    // Another table needs another Job, and the table before then needs one again.
    let table = |table: &str, generation: i64| {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["sink"]["clickhouse"]["table"] = table.into();
            pipeline["metadata"]["generation"] = generation.into();
        });
    };
    let first =
        bench.server.get("tracepipelines/prod").unwrap()["spec"]["sink"]["clickhouse"]["table"].clone();
    table("other", 4);
    bench.settle("prod").await;
    assert_ne!(self::job(&bench), job);
    assert!(status(&bench)["schemaJob"].is_null());
    table(first.as_str().unwrap_or("otel_traces"), 5);
    bench.settle("prod").await;
    assert_eq!(self::job(&bench), job);
    assert_eq!(bench.condition("prod", "SchemaReady"), "Unknown JobRunning");
}

/// A person deletes the Job and takes it out of the status, as DAY2.md says, while a look is under way that has read the status before.
#[tokio::test]
async fn a_look_that_began_before_a_reset_does_not_undo_it() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    ends(&bench, &job, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.remove(&format!("jobs/{job}"));
    // There is something to say.
    bench
        .server
        .change("statefulsets/prod-gateway", |workload| workload["status"]["readyReplicas"] = 0.into());
    let world = bench.world();
    let before = world.cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    bench.server.change("tracepipelines/prod", |pipeline| pipeline["status"]["schemaJob"] = Value::Null);
    reconcile(before, bench.reconciler(world)).await.unwrap();
    assert!(status(&bench)["schemaJob"].is_null());
    bench.settle("prod").await;
    assert_eq!(self::job(&bench), job, "it is run again");
}

/// Helm never changes a definition that is there: it may know fewer fields than the operator has.
#[tokio::test]
async fn a_field_that_an_older_definition_drops_is_not_written_at_each_look() {
    let bench = Bench::start().await;
    create(&bench);
    bench.server.drop_from_status("schemaJob");
    bench.settle("prod").await;
    ends(&bench, &job(&bench), "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.take_writes();
    for _ in 0..3 {
        bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(bench.server.take_writes(), []);
}

/// The injected proxy of a mesh runs on after the container has ended, until the Job's deadline.
#[tokio::test]
async fn a_job_beside_an_injected_container_has_ended_with_its_own() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    let mut beside = pod(&job, "");
    beside["status"]["phase"] = "Running".into();
    beside["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 0.into();
    bench.server.put("pods/p", beside);
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some());
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let before = status(&bench);
    // The deadline: the pod is gone, and Kubernetes counts the Job as failed.
    bench.server.remove("pods/p");
    ends(&bench, &job, "Failed", &ago(1));
    bench.settle("prod").await;
    assert_eq!((status(&bench), bench.server.list("jobs")), (before, vec![]));
}

/// A difference that only a person may change is looked at every hour, and `ClickHouse` may be away then.
#[tokio::test]
async fn a_server_that_is_away_at_another_look_keeps_no_edit_waiting() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    bench.server.put("pods/p", pod(&job, r#"{"reason": "SchemaDiffers", "message": "TTL is none"}"#));
    ends(&bench, &job, "Failed", &ago(3_601));
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    bench.server.put("pods/p", pod(&job, r#"{"reason": "Unreachable", "message": "no route"}"#));
    ends(&bench, &job, "Failed", &ago(5));
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["replicas"] = 3.into();
        pipeline["metadata"]["generation"] = 2.into();
    });
    bench.settle("prod").await;
    assert_eq!(bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"], 3);
    assert_eq!(bench.condition("prod", "SinkReachable"), "False Unreachable");
    assert_eq!(bench.condition("prod", "Ready"), "False Progressing", "of the third gateway");
}

#[tokio::test]
async fn another_table_is_another_job_and_the_old_one_goes() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let before = job(&bench);
    ends(&bench, &before, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let workload = bench.server.get("statefulsets/prod-gateway");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["sink"]["clickhouse"]["table"] = "other".into();
        pipeline["metadata"]["generation"] = 2.into();
    });
    bench.settle("prod").await;
    let after = job(&bench);
    assert_ne!(after, before);
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload, "until the table is there");
    ends(&bench, &after, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    assert_ne!(bench.server.get("statefulsets/prod-gateway"), workload);
}

/// A node without CPU keeps the Job's pod from starting until its deadline takes the pod away.
#[tokio::test]
async fn a_job_whose_pod_does_not_start_is_explained_by_the_pod_until_it_starts() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    let mut stuck = pod(&job, "");
    stuck["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu",
    }]});
    bench.server.put("pods/p", stuck);
    bench.settle("prod").await;
    let seen =
        || ["Ready", "Reconciling", "SinkReachable", "SchemaReady"].map(|kind| bench.condition("prod", kind));
    let expected = ["False JobNotStarted", "True Waiting", "Unknown JobNotStarted", "Unknown JobNotStarted"]
        .map(String::from);
    assert_eq!(seen(), expected);
    assert!(message(&bench, "Ready").contains("p: Unschedulable, Insufficient cpu"));
    bench.server.remove("pods/p");
    ends(&bench, &job, "Failed", &ago(5));
    bench.settle("prod").await;
    assert_eq!(seen(), expected, "it is said that no pod started, not that the Job is late");
    assert!(message(&bench, "Ready").contains("p: Unschedulable, Insufficient cpu"));
    assert_eq!(status(&bench)["schema"]["failures"], 1);
    ends(&bench, &job, "Failed", &ago(100));
    bench.reconcile("prod").await.unwrap();
    bench.settle("prod").await;
    assert_eq!(seen(), expected, "it is run again");
    ends(&bench, &job, "Complete", &ago(1));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
}

/// The image of a change cannot be had, say. Scaling depends on the template that runs.
#[tokio::test]
async fn gateways_are_added_and_removed_while_the_schema_job_of_a_change_runs_or_has_failed() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    ends(&bench, &job(&bench), "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let workload = || bench.server.get("statefulsets/prod-gateway").unwrap()["spec"].clone();
    let template = workload()["template"].clone();
    let edit = |table: &str, replicas: u32, generation: i64| {
        bench.server.change("tracepipelines/prod", |pipeline| {
            pipeline["spec"]["sink"]["clickhouse"]["table"] = table.into();
            pipeline["spec"]["replicas"] = replicas.into();
            pipeline["metadata"]["generation"] = generation.into();
        });
    };
    for (replicas, generation, has_failed) in [(4, 2, false), (3, 3, false), (1, 4, true), (2, 5, true)] {
        edit("other", replicas, generation);
        if has_failed {
            ends(&bench, &job(&bench), "Failed", &ago(5));
        }
        bench.settle("prod").await;
        let found = workload();
        assert_eq!(found["replicas"], replicas);
        assert_eq!(found["template"], template, "the other table is not there yet");
        bench.gateways_become_ready("prod");
    }
    ends(&bench, &job(&bench), "Complete", &ago(1));
    bench.settle("prod").await;
    assert_ne!(workload()["template"], template);
}

#[tokio::test]
async fn a_number_that_another_client_has_set_stays_while_the_schema_job_of_a_change_runs() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    ends(&bench, &job(&bench), "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.server.scale_by("kubectl", "statefulsets/prod-gateway", 5);
    bench.gateways_become_ready("prod");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["sink"]["clickhouse"]["table"] = "other".into();
        pipeline["spec"]["replicas"] = 3.into();
        pipeline["metadata"]["generation"] = 2.into();
    });
    bench.settle("prod").await;
    assert_eq!(bench.server.get("statefulsets/prod-gateway").unwrap()["spec"]["replicas"], 5);
}

#[tokio::test]
async fn an_edit_of_the_schema_runs_one_job_and_a_difference_is_named_while_gateways_run() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let before = job(&bench);
    ends(&bench, &before, "Complete", "2026-01-01T00:00:00Z");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    let workload = bench.server.get("statefulsets/prod-gateway");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["spec"]["sink"]["clickhouse"]["schema"]["ttl"] = "30d".into();
        pipeline["metadata"]["generation"] = 2.into();
    });
    bench.settle("prod").await;
    let after = job(&bench);
    assert_ne!(after, before);
    let said = r#"{"reason": "SchemaDiffers", "message": "TTL is none, wanted: 30 days"}"#;
    bench.server.put("pods/p", pod(&after, said));
    ends(&bench, &after, "Failed", &ago(600));
    bench.settle("prod").await;
    assert_eq!(job(&bench), after);
    assert_eq!(bench.condition("prod", "SchemaReady"), "False SchemaDiffers");
    assert_eq!(bench.condition("prod", "SinkReachable"), "True Ok");
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload, "no gateway is restarted");
    // An hour later it is looked at again, while gateways and conditions stay as they are.
    ends(&bench, &after, "Failed", &ago(3_601));
    bench.reconcile("prod").await.unwrap();
    assert!(bench.server.list("jobs").is_empty());
    bench.settle("prod").await;
    assert_eq!(job(&bench), after, "made again");
    for (kind, condition) in
        [("SchemaReady", "False SchemaDiffers"), ("SinkReachable", "True Ok"), ("Ready", "True Running")]
    {
        assert_eq!(bench.condition("prod", kind), condition);
    }
    ends(&bench, &after, "Complete", &ago(1));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok", "somebody has changed the table");
    assert_eq!(bench.server.get("statefulsets/prod-gateway"), workload, "no gateway is restarted");
}

#[tokio::test]
async fn a_server_that_never_got_the_table_is_named_and_asked_again_while_gateways_run() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    let said = r#"{"reason": "ServersNotReached", "message": "not reached: http://b:8123"}"#;
    bench.server.put("pods/p", pod(&job, said));
    ends(&bench, &job, "Failed", &ago(5));
    bench.settle("prod").await;
    assert!(bench.server.get("statefulsets/prod-gateway").is_some(), "the others have the table");
    assert_eq!(bench.condition("prod", "SchemaReady"), "False ServersNotReached");
    assert!(message(&bench, "SchemaReady").contains("http://b:8123"));
    bench.gateways_become_ready("prod");
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    for failures in 2..4 {
        ends(&bench, &job, "Failed", &ago(1_000 * failures));
        bench.reconcile("prod").await.unwrap();
        assert!(bench.server.list("jobs").is_empty(), "deleted, to be run again");
        bench.settle("prod").await;
        assert_eq!(bench.condition("prod", "SchemaReady"), "False ServersNotReached");
        assert_eq!(status(&bench)["schema"]["failures"], failures);
    }
    ends(&bench, &job, "Complete", &ago(1));
    bench.settle("prod").await;
    assert_eq!(bench.condition("prod", "SchemaReady"), "True Ok");
    assert!(status(&bench)["schema"].is_null());
}

#[tokio::test]
async fn a_sink_that_stays_away_is_said_once_and_asked_less_and_less_often() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    bench.server.put("pods/p", pod(&job, r#"{"reason": "Unreachable", "message": "no route"}"#));
    ends(&bench, &job, "Failed", &ago(10));
    bench.settle("prod").await;
    bench.server.take_events();
    let seen =
        || ["Ready", "Reconciling", "SinkReachable", "SchemaReady"].map(|kind| bench.condition("prod", kind));
    let before = seen();
    assert_eq!(before[2], "False Unreachable");
    // After the second failure the wait is 60 s, after the third 120 s, after the fourth 240 s and then 300 s.
    for (due, too_soon) in [(60, 100), (240, 250)] {
        ends(&bench, &job, "Failed", &ago(due));
        bench.reconcile("prod").await.unwrap();
        assert!(bench.server.list("jobs").is_empty());
        assert_eq!(seen(), before, "deleted");
        bench.settle("prod").await;
        assert_eq!(seen(), before, "at work again");
        ends(&bench, &job, "Failed", &ago(too_soon));
        bench.settle("prod").await;
        assert_eq!(bench.server.list("jobs").len(), 1, "not yet");
        assert_eq!(seen(), before, "failed again");
    }
    assert_eq!(bench.server.take_events(), Vec::<Value>::new());
    // An operator that starts goes on where the other was.
    let failures = status(&bench)["schema"]["failures"].clone();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(status(&bench)["schema"]["failures"], failures);
}

/// A look at a Job that is at work, or fails, asks Kafka and takes a place among the reconciles, and what happens to the Job is seen.
#[tokio::test]
async fn a_job_that_does_not_end_well_is_looked_at_less_and_less_often_but_in_time_to_be_run_again() {
    let bench = Bench::start().await;
    create(&bench);
    bench.settle("prod").await;
    let job = job(&bench);
    let happens = || bench.world().concerned(&ObjectRef::new("prod").within(NAMESPACE));
    let looks_after = async |seconds: RangeInclusive<u64>| {
        let action = bench.reconcile("prod").await.unwrap();
        let is_so = seconds.clone().any(|seconds| action == Action::requeue(Duration::from_secs(seconds)));
        assert!(is_so, "{action:?} instead of {seconds:?} s");
    };
    happens();
    for seconds in [5, 10, 20, 40, 60, 60] {
        looks_after(seconds..=seconds).await;
    }
    ends(&bench, &job, "Failed", &ago(14));
    happens();
    looks_after(5..=5).await;
    looks_after(10..=10).await;
    // The first failure is to be followed by another run half a minute later.
    looks_after(1..=17).await;
}

fn status(bench: &Bench) -> Value {
    bench.server.get("tracepipelines/prod").unwrap()["status"].clone()
}

fn message(bench: &Bench, kind: &str) -> String {
    let status = status(bench);
    let found = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind);
    found.unwrap()["message"].as_str().unwrap().to_owned()
}

/// The time this many seconds before now.
fn ago(seconds: i64) -> String {
    let now = Timestamp::now().as_second();
    Timestamp::from_second(now - seconds).unwrap().to_string()
}
