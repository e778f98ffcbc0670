//! `kubectl sluice audit` makes a pod, follows it and deletes it, however it ends.

use crate::api_server::{ApiServer, Script};
use clap::Parser as _;
use serde_json::{Value, json};
use sluice_kubectl::{
    Error, Terminal,
    args::{Command, PluginArgs},
    audit_until,
    exit_codes::{EXIT_INTERRUPTED, EXIT_MISSING, EXIT_UNAVAILABLE},
};
use std::{future::pending, time::Duration};

const GOLDEN: &str = include_str!("../../../plan/tests/golden/tracepipeline.yaml");
const SAMPLE: &str = include_str!("../../../../config/samples/tracepipeline.yaml");

const LOG: &str =
    "comparing: spans/3, 20 of 100 offsets done\nKafka against otel.otel_traces, group a\nall 1 2 3\n";

fn pipeline() -> Value {
    let mut pipeline: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    pipeline["metadata"] = json!({"name": "traces", "namespace": "tracing", "uid": "u"});
    pipeline
}

/// A cluster with a pipeline that runs; the pod of the audit has these statuses, one after the other.
fn running(pod: impl IntoIterator<Item = Value>) -> Script {
    let objects: Vec<Value> = serde_saphyr::from_multiple(GOLDEN).unwrap();
    Script {
        pipeline: Some(pipeline()),
        workload: objects.into_iter().find(|object| object["kind"] == "StatefulSet"),
        pod: pod.into_iter().collect(),
        log: LOG,
        ..Script::default()
    }
}

fn container(state: &Value) -> Value {
    let container = json!({"name": "audit", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
    json!({"phase": "Running", "containerStatuses": [container]})
}

fn creating() -> Value {
    container(&json!({"waiting": {"reason": "ContainerCreating"}}))
}

fn runs() -> Value {
    container(&json!({"running": {}}))
}

fn ended(code: i32) -> Value {
    container(
        &json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }}}),
    )
}

/// How an audit ended, what it wrote to standard output and standard error, and what it asked to be changed.
struct Ended {
    result: Result<u8, Error>,
    out: String,
    told: String,
    writes: Vec<String>,
}

impl Ended {
    /// The error, whose exit status must be this.
    fn error(&self, code: u8) -> String {
        let error = self.result.as_ref().unwrap_err();
        assert_eq!(error.exit_code(), code, "{error}");
        error.to_string()
    }

    /// One pod was made, and the same was deleted.
    fn leaves_no_pod(&self) {
        let [made, deleted] = &self.writes[..] else { panic!("{:?}", self.writes) };
        assert_eq!(made, "POST pods");
        assert!(deleted.starts_with("DELETE pods/traces-audit-"), "{deleted}");
    }
}

async fn audit(script: Script, stopped: impl Future<Output = ()>) -> Ended {
    let server = ApiServer::new(script);
    let args = PluginArgs::try_parse_from(["k", "audit", "traces", "--since", "2h"]).unwrap();
    let Command::Audit(asked) = args.command else { panic!() };
    let (mut out, mut told) = (Vec::new(), Vec::new());
    let mut terminal = Terminal { out: &mut out, told: &mut told };
    let result = audit_until(&server.cluster(), &asked, &mut terminal, stopped).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { result, out: text(out), told: text(told), writes: server.writes() }
}

#[tokio::test(start_paused = true)]
async fn it_ends_as_the_audit_does_and_leaves_no_pod() {
    // Between two looks the API server is away once.
    let found = audit(running([creating(), runs(), Value::Null, ended(65)]), pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &65);
    assert_eq!(found.out, "Kafka against otel.otel_traces, group a\nall 1 2 3\n");
    let told: Vec<_> = found.told.lines().collect();
    let [waits, progress, away] = told[..] else { panic!("{told:?}") };
    assert!(waits.ends_with("has not started: ContainerCreating"), "{waits}");
    assert_eq!(progress, "comparing: spans/3, 20 of 100 offsets done");
    assert!(away.contains("etcd is away") && away.ends_with("trying again"), "{away}");
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_start_says_why_and_is_deleted() {
    let script = Script { warnings: vec!["secret \"a\" not found"], ..running([creating()]) };
    let found = audit(script, pending()).await;
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.ends_with("ContainerCreating; FailedMount: secret \"a\" not found"), "{error}");
    assert_eq!(found.told.lines().count(), 1, "the same words are told once: {}", found.told);
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_too_long_says_what_helps() {
    let late = json!({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"});
    let found = audit(running([runs(), late]), pending()).await;
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.contains("DeadlineExceeded: Pod was active too long; set a longer --timeout"), "{error}");
    assert_eq!(found.out, "", "what it wrote before is no result");
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_deletes_the_pod() {
    for pod in [creating(), runs()] {
        let found = audit(running([pod]), tokio::time::sleep(Duration::from_secs(5))).await;
        assert_eq!(found.result.as_ref().unwrap(), &EXIT_INTERRUPTED);
        found.leaves_no_pod();
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_told_in_the_servers_words() {
    let why = "pods \"traces-audit\" is forbidden: exceeded quota: small, requested: memory=384Mi";
    let found = audit(Script { refusal: Some(why), ..running([]) }, pending()).await;
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.contains(why), "{error}");
    assert_eq!(found.writes, ["POST pods"], "there is no pod to delete");
}

#[tokio::test(start_paused = true)]
async fn without_the_rights_no_pod_is_made() {
    let lacking = vec!["create pods", "get pods/log", "delete pods"];
    let found = audit(Script { lacking, ..running([]) }, pending()).await;
    let expected = "you lack rights in the namespace tracing: create pods, get pods/log, delete pods";
    assert_eq!(found.error(EXIT_UNAVAILABLE), expected);
    assert!(found.writes.is_empty(), "{:?}", found.writes);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_named() {
    let found = audit(Script::default(), pending()).await;
    assert_eq!(found.error(EXIT_MISSING), "there is no pipeline traces in the namespace tracing");
    let mut waiting = pipeline();
    let ready = json!({"type": "Ready", "status": "False", "reason": "SecretMissing", "message": "the Secret a is missing",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    waiting["status"] = json!({"conditions": [ready]});
    let found = audit(Script { pipeline: Some(waiting), ..Script::default() }, pending()).await;
    let error = found.error(EXIT_MISSING);
    assert!(error.contains("pipeline traces") && error.ends_with("the Secret a is missing"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_pipeline_is_audited_and_said_to_be_suspended() {
    let mut suspended = pipeline();
    suspended["spec"]["suspend"] = true.into();
    let found = audit(Script { pipeline: Some(suspended), ..running([ended(0)]) }, pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &0);
    assert!(found.told.starts_with("the pipeline traces is suspended: "), "{}", found.told);
    assert!(found.out.starts_with("Kafka against "), "{}", found.out);
}
