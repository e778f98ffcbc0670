//! `kubectl sluice audit` makes a pod, follows it and deletes it, however it ends.

use crate::{
    api_server::{ApiServer, Script},
    program::{PROGRAM, kubeconfig},
};
use clap::Parser as _;
use serde_json::{Value, json};
use sluice_kubectl::{
    Error, Terminal,
    args::{Command, PluginArgs},
    audit_until,
    exit_codes::{EXIT_INTERRUPTED, EXIT_MISSING, EXIT_UNAVAILABLE},
};
use std::{future::pending, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process,
    time::Instant,
};

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
        logs: [Ok(LOG)].into(),
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

/// The same status of a pod to which a webhook has added a container, which runs.
fn with_sidecar(mut status: Value) -> Value {
    let sidecar = json!({"name": "istio-proxy", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
        "state": {"running": {}}});
    status["containerStatuses"].as_array_mut().unwrap().insert(0, sidecar);
    status
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

    fn leaves_no_pod(&self) {
        one_pod_came_and_went(&self.writes);
    }

    /// How often a text was written to standard error.
    fn told_times(&self, text: &str) -> usize {
        self.told.matches(text).count()
    }
}

/// One pod was made, and the same was deleted.
fn one_pod_came_and_went(writes: &[String]) {
    let [made, deleted] = writes else { panic!("{writes:?}") };
    assert_eq!(made, "POST pods");
    assert!(deleted.starts_with("DELETE pods/traces-audit-"), "{deleted}");
}

async fn audit(script: Script, stopped: impl Future<Output = ()>) -> Ended {
    audit_with(&["--since", "2h"], script, stopped).await
}

async fn audit_with(options: &[&str], script: Script, stopped: impl Future<Output = ()>) -> Ended {
    let server = ApiServer::new(script);
    let args = PluginArgs::try_parse_from([&["k", "audit", "traces"], options].concat()).unwrap();
    let Command::Audit(asked) = args.command else { panic!() };
    let (mut out, mut told) = (Vec::new(), Vec::new());
    let mut terminal = Terminal { out: &mut out, told: &mut told };
    let result = Box::pin(audit_until(&server.cluster(), &asked, &mut terminal, stopped)).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { result, out: text(out), told: text(told), writes: server.writes() }
}

#[tokio::test(start_paused = true)]
async fn it_ends_as_the_audit_does_and_leaves_no_pod() {
    // Between two looks the API server is away once.
    let found = audit(running([creating(), runs(), json!(500), ended(65)]), pending()).await;
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
        let found = Box::pin(audit(running([pod]), tokio::time::sleep(Duration::from_secs(5)))).await;
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

#[tokio::test(start_paused = true)]
async fn an_added_container_hides_neither_the_log_nor_the_end() {
    // It runs before the audit does, and still does after it.
    let pod = [creating(), runs(), ended(65)].map(with_sidecar);
    let found = audit(running(pod), pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &65);
    assert_eq!(found.out, "Kafka against otel.otel_traces, group a\nall 1 2 3\n");
    assert!(found.told.contains("has not started: ContainerCreating\n"), "{}", found.told);
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanishes_is_no_finding() {
    let found = audit(running([runs(), json!(404)]), pending()).await;
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.ends_with("the pod was deleted"), "{error}");
    assert_eq!(found.out, "", "what it wrote before is no result");
    assert!(found.told.ends_with("Kafka against otel.otel_traces, group a\nall 1 2 3\n"), "{}", found.told);
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn the_log_of_an_ended_audit_may_fail_for_a_minute() {
    let begun = Instant::now();
    let script = Script { logs: [Err(500)].into(), ..running([runs(), ended(65)]) };
    let found = audit(script, pending()).await;
    let seconds = begun.elapsed().as_secs();
    assert!((60..70).contains(&seconds), "{seconds} s");
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.starts_with("the audit ended with code 65, but its log cannot be read: "), "{error}");
    assert!(error.contains("the kubelet is away (status 500)"), "{error}");
    assert!(
        error.contains("kubectl logs traces-audit-") && error.contains(" -c audit -n tracing"),
        "{error}"
    );
    assert_eq!(found.told_times("trying again"), 1, "{}", found.told);
    assert_eq!(found.writes, ["POST pods"], "only the pod has the result");

    // A refusal does not go away.
    let begun = Instant::now();
    let script = Script { logs: [Err(403)].into(), ..running([ended(65)]) };
    let found = audit(script, pending()).await;
    let error = found.error(EXIT_UNAVAILABLE);
    assert!(error.starts_with("the audit ended with code 65") && error.contains("(status 403)"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 0);

    let script = Script { logs: [Err(500), Err(429), Ok(LOG)].into(), ..running([ended(0)]) };
    let found = audit(script, pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &0);
    assert_eq!(found.out, "Kafka against otel.otel_traces, group a\nall 1 2 3\n");
    found.leaves_no_pod();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_to_show_the_pod_ends_the_command_and_a_failure_is_told_once() {
    for code in [401, 403] {
        let begun = Instant::now();
        let found = audit(running([runs(), json!(code)]), pending()).await;
        let error = found.error(EXIT_UNAVAILABLE);
        assert!(error.contains(&format!("(status {code})")), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{code}");
        found.leaves_no_pod();
    }
    let away = [json!(500), json!(500), json!(500), json!(429), ended(0)];
    let found = audit(running(away), pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &0);
    assert_eq!(
        (found.told_times("(status 500)"), found.told_times("(status 429)")),
        (1, 1),
        "{}",
        found.told
    );
}

#[tokio::test]
async fn a_terminal_that_closes_deletes_the_pod() {
    let server = ApiServer::new(running([creating()]));
    let config = kubeconfig("hangup", server.listen().await);
    let mut program = process::Command::new(PROGRAM)
        .args(["audit", "traces"])
        .env("KUBECONFIG", config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(program.stderr.take().unwrap()).lines();
    // After this line the pod exists.
    let waits = told.next_line().await.unwrap().unwrap();
    assert!(waits.ends_with("has not started: ContainerCreating"), "{waits}");
    let hang_up = format!("kill -HUP {}", program.id().unwrap());
    assert!(process::Command::new("sh").args(["-c", &hang_up]).status().await.unwrap().success());
    let status = program.wait().await.unwrap();
    assert_eq!(status.code(), Some(i32::from(EXIT_INTERRUPTED)), "{status}");
    one_pod_came_and_went(&server.writes());
}

#[tokio::test(start_paused = true)]
async fn a_line_that_the_connection_cuts_is_read_again() {
    let logs = [
        Ok("comparing: spans/3, 20 of 100 offsets done\n{\"group\":"),
        Ok("comparing: spans/3, 20 of 100 offsets done\n{\"group\":\"a\"}\n"),
    ];
    let script = Script { logs: logs.into(), ..running([runs(), ended(0)]) };
    let found = audit_with(&["--json"], script, pending()).await;
    assert_eq!(found.result.as_ref().unwrap(), &0);
    assert_eq!(found.out, "{\"group\":\"a\"}\n");
    assert_eq!(found.told, "comparing: spans/3, 20 of 100 offsets done\n");

    // After the end nothing comes that would end the line.
    let script = Script { logs: [Ok("all 1 2 3")].into(), ..running([runs(), ended(0)]) };
    let found = audit(script, pending()).await;
    assert_eq!(found.out, "all 1 2 3\n");
}

#[tokio::test(start_paused = true)]
async fn a_code_whose_result_is_not_in_the_log_is_an_error() {
    for (log, code) in [("\"spans\":3}]}\n", 0), ("{\"first\":1},{\"first\":9}]}\n", 65), ("", 66)] {
        let script = Script { logs: [Ok(log)].into(), ..running([ended(code)]) };
        let found = audit_with(&["--json"], script, pending()).await;
        let error = found.error(EXIT_UNAVAILABLE);
        let expected =
            format!("the log is incomplete: the audit ended with code {code}, but the log has no result");
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(found.out, "");
        found.leaves_no_pod();
    }
}
