//! What is said of a schema Job: a pod that does not start explains itself, and ClickHouse is not blamed; while no Job can be made, what the last
//! one said stays.

use crate::{
    statuses::{condition, now, running, said, summary},
    with,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};
use sluice_crds::{Resources, TracePipelineStatus};
use sluice_plan::{Observed, SchemaSeen, SchemaStep, observed::inserts::SinkSeen, plan};

const NAME: &str = "demo-schema-1";
const MADE: &str = "2026-01-01T00:00:00Z";

fn job(conditions: &Value) -> Job {
    let job =
        json!({"metadata": {"name": NAME, "creationTimestamp": MADE}, "status": {"conditions": conditions}});
    serde_json::from_value(job).unwrap()
}

/// At its deadline, Kubernetes takes the pod away.
fn late(at: &str) -> Job {
    job(&json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": at,
        "message": "Job was active longer than specified deadline"}]))
}

fn pod(name: &str, made: &str, status: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": made}, "status": status}))
        .unwrap()
}

fn waits(reason: &str, message: &str) -> Value {
    json!({"containerStatuses": [{"name": "schema", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}}}]})
}

fn unschedulable() -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu."}]})
}

/// As the operator reads it, in the light of the status.
fn seen(job: &Job, pods: &[Pod], second: u8, status: Option<&TracePipelineStatus>) -> SchemaSeen {
    let before = status.and_then(|status| status.schema.as_ref());
    let seen = SchemaSeen::of(Some(job), pods, now(second).0);
    seen.not_started_before(status).remembering(NAME, before).succeeded_before(NAME, status)
}

#[test]
fn what_keeps_the_pod_from_its_start_is_said_at_once() {
    let (_, facts) = running(&json!({}), &[]);
    let changed = with("/spec/sink/clickhouse/table", json!("other"));
    for (status, words) in [
        (waits("ErrImagePull", "not found"), "demo-schema-1-x: ErrImagePull, not found"),
        (waits("InvalidImageName", "no such name"), "demo-schema-1-x: InvalidImageName, no such name"),
        (unschedulable(), "demo-schema-1-x: Unschedulable, 0/1 nodes are available: 1 Insufficient cpu."),
    ] {
        let schema = seen(&job(&json!([])), &[pod("demo-schema-1-x", MADE, &status)], 1, None);
        let status = said(&changed, &Observed { schema, schema_job: Some(NAME.into()), ..facts.clone() });
        assert_eq!(summary(&status), ["False/JobNotStarted", "True/Waiting", "False/Ok"]);
        let ready = &condition(&status, "Ready").message;
        assert!(ready.contains(words) && ready.contains("gateways keep the image"), "{ready}");
        for kind in ["SinkReachable", "SchemaReady"] {
            let found = condition(&status, kind);
            assert_eq!(
                (found.status.as_str(), found.reason.as_str()),
                ("Unknown", "JobNotStarted"),
                "{kind}"
            );
            assert!(found.message.contains(words), "{}", found.message);
        }
        assert_eq!(status.schema, None, "it has not failed");
    }
}

#[test]
fn a_pod_that_starts_runs_or_has_ended_is_nothing_to_explain() {
    let state = |state: Value| {
        json!({"containerStatuses": [{"name": "schema", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state}]})
    };
    for status in [
        json!({}),
        waits("ContainerCreating", ""),
        state(json!({"running": {}})),
        state(json!({"terminated": {"exitCode": 69, "message": "m"}})),
    ] {
        let schema = seen(&job(&json!([])), &[pod("x", MADE, &status)], 1, None);
        assert_eq!(schema, SchemaSeen::Running, "{status}");
    }
    let mut going = pod("x", MADE, &unschedulable());
    going.metadata.deletion_timestamp = Some(now(0));
    assert_eq!(seen(&job(&json!([])), &[going], 1, None), SchemaSeen::Running);
    let pods = [pod("a", MADE, &unschedulable()), pod("b", "2026-01-01T00:00:02Z", &json!({}))];
    assert_eq!(seen(&job(&json!([])), &pods, 3, None), SchemaSeen::Running, "the newest counts");
}

#[test]
fn that_the_pod_never_started_is_still_said_when_the_job_has_failed_of_it_and_is_run_again() {
    let (_, facts) = running(&json!({}), &[]);
    let mut pipeline = with("/spec/sink/clickhouse/table", json!("other"));
    let facts = |schema| Observed { schema, schema_job: Some(NAME.into()), ..facts.clone() };
    let stuck = [pod("demo-schema-1-x", MADE, &unschedulable())];
    let first = said(&pipeline, &facts(seen(&job(&json!([])), &stuck, 1, None)));
    let failed = late("2026-01-01T00:00:05Z");
    let schema = seen(&failed, &[], 6, Some(&first));
    assert_eq!(SchemaStep::Failed, step(&pipeline, &facts(schema.clone())), "it is run again later");
    pipeline.status = Some(first.clone());
    let second = said(&pipeline, &facts(schema));
    assert_eq!(summary(&second), summary(&first));
    assert_eq!(condition(&second, "Ready").message, condition(&first, "Ready").message);
    let remembered = second.schema.clone().unwrap();
    assert_eq!((remembered.failures, remembered.reason.as_str()), (1, "JobNotStarted"));
    // The next look, the next Job before it has a pod, and its pod.
    pipeline.status = Some(second.clone());
    for schema in [
        seen(&failed, &[], 7, Some(&second)),
        seen(&job(&json!([])), &[], 8, Some(&second)),
        seen(&job(&json!([])), &stuck, 9, Some(&second)),
    ] {
        assert_eq!(said(&pipeline, &facts(schema)), second);
    }
    // Now it starts, and says what it finds.
    let ended = json!({"containerStatuses": [{"name": "schema", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 69, "message": r#"{"reason": "AuthFailed", "message": "wrong"}"#,
            "finishedAt": "2026-01-01T00:00:20Z"}}}]});
    let schema =
        seen(&late("2026-01-01T00:00:20Z"), &[pod("demo-schema-1-y", MADE, &ended)], 21, Some(&second));
    let third = said(&pipeline, &facts(schema));
    assert_eq!(summary(&third), ["False/SinkUnavailable", "True/Waiting", "False/Ok"]);
    assert_eq!(condition(&third, "SchemaReady").reason, "AuthFailed");
}

fn step(pipeline: &sluice_crds::TracePipeline, facts: &Observed) -> SchemaStep {
    plan(pipeline, facts, &crate::defaults()).unwrap().ready().unwrap().schema_step()
}

#[test]
fn a_pod_that_kubernetes_does_not_create_is_explained() {
    let refused = SchemaSeen::Running.without_pod(Some("exceeded quota"));
    let failure = refused.failure().unwrap();
    assert_eq!(failure.reason, "JobNotStarted");
    assert!(
        failure.message.ends_with("Kubernetes does not create its pod: exceeded quota"),
        "{}",
        failure.message
    );
    assert_eq!(SchemaSeen::Running.without_pod(None), SchemaSeen::Running);
    assert_eq!(SchemaSeen::Succeeded.without_pod(Some("exceeded quota")), SchemaSeen::Succeeded);
}

#[test]
fn what_the_schema_job_said_stays_while_none_can_be_planned() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.metadata.generation = Some(1);
    let well = Observed { schema_job: Some("demo-schema-1".into()), ..facts.clone() };
    let before = said(&pipeline, &well);
    pipeline.metadata.generation = Some(2);
    pipeline.spec.gateway.resources = Resources::default().with_memory("64Mi");
    let unseen = Observed { schema: SchemaSeen::NotStarted, ..facts };
    let of = |status: &TracePipelineStatus| {
        ["SinkReachable", "SchemaReady"].map(|kind| condition(status, kind).clone())
    };
    let words =
        |status: &TracePipelineStatus| of(status).map(|said| format!("{}/{}", said.status, said.reason));
    assert_eq!(words(&said(&pipeline, &unseen)), ["Unknown/NotProbed"; 2], "nothing was ever said");
    pipeline.status = Some(before.clone());
    let refused = said(&pipeline, &unseen);
    assert_eq!(summary(&refused)[0], "False/SpecInvalid");
    assert_eq!((of(&refused), words(&refused)), (of(&before), ["True/Ok", "True/Ok"].map(Into::into)));
    assert_eq!(of(&refused)[0].observed_generation, Some(1), "it was said of the spec before");
    // The refused spec names another table or other servers. No Job is made for them, and gateways keep the table and servers from before.
    let another = Observed { schema_job: Some("demo-schema-2".into()), ..unseen.clone() };
    assert_eq!(of(&said(&pipeline, &another)), of(&before));
    // Another Job is planned, and has not run: what the one before said is of another table.
    let mut accepted = pipeline.clone();
    accepted.spec.gateway.resources = Resources::default().with_memory("256Mi");
    assert_eq!(words(&said(&accepted, &another)), ["Unknown/NotProbed"; 2]);
    accepted.spec.suspend = true;
    let rests = said(&accepted, &another);
    assert_eq!(words(&rests), ["Unknown/NotProbed"; 2]);
    assert_eq!(of(&rests)[1].message, "the schema Job runs when the pipeline resumes");
    // What gateways insert is seen to fail, whatever the Job said.
    let failing = Observed { sink: SinkSeen::Failing { all: true }, ..unseen.clone() };
    assert_eq!(words(&said(&pipeline, &failing))[0], "False/InsertsFailing");
    // A table with management None was not compared.
    for said_before in &mut pipeline.status.as_mut().unwrap().conditions {
        said_before.reason = "NotManaged".into();
    }
    assert_eq!(words(&said(&pipeline, &unseen)), ["Unknown/NotProbed"; 2]);
}
