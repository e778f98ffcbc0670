//! `plan` compares its file with the pipeline in the cluster, which it does not change, and does without one.

use crate::{
    api_server::{ApiServer, Script},
    program::{PROGRAM, kubeconfig},
};
use serde_json::{Value, json};
use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
};
use tokio::{io::AsyncWriteExt as _, process};

const GOLDEN: &str = include_str!("../../../plan/tests/golden/tracepipeline.yaml");
const SAMPLE: &str = include_str!("../../../../config/samples/tracepipeline.yaml");

fn pipeline() -> Value {
    let mut pipeline: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    pipeline["metadata"] = json!({"name": "traces", "namespace": "tracing", "uid": "u"});
    pipeline
}

/// The same without a namespace, and with another image.
fn changed() -> String {
    let mut pipeline = pipeline();
    pipeline["metadata"] = json!({"name": "traces"});
    pipeline["spec"]["gateway"]["image"] = "registry.example.com/sluice-gateway:1.2.4".into();
    pipeline.to_string()
}

/// A cluster in which the sample runs with three gateways.
fn running() -> Script {
    let objects: Vec<Value> = serde_saphyr::from_multiple(GOLDEN).unwrap();
    let mut workload = objects.into_iter().find(|object| object["kind"] == "StatefulSet").unwrap();
    workload["spec"]["replicas"] = 3.into();
    workload["status"] = json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "currentRevision": "a",
        "updateRevision": "a"});
    Script { pipeline: Some(pipeline()), workload: Some(workload), ..Script::default() }
}

/// The exit status and standard output of `plan` with this file; nothing is written to standard error.
async fn plan(config: &Path, words: &[&str], file: &str) -> (Option<i32>, String) {
    let mut program = process::Command::new(PROGRAM)
        .args(["plan", "-f", "-"])
        .args(words)
        .env("KUBECONFIG", config)
        .env_remove("SLUICE_GATEWAY_IMAGE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all(file.as_bytes()).await.unwrap();
    drop(input);
    let ended = program.wait_with_output().await.unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    (ended.status.code(), String::from_utf8(ended.stdout).unwrap())
}

#[tokio::test]
async fn plan_says_which_pods_of_the_cluster_restart_and_changes_nothing() {
    let server = ApiServer::new(running());
    let port = server.listen().await;
    let config = kubeconfig("plan-changed", port);
    let words = "3 gateways, one after the other (canary first), because spec.gateway.image changes";
    let (code, out) = plan(&config, &[], &changed()).await;
    assert_eq!(code, Some(0));
    assert!(out.starts_with(&format!("# restarts: {words}\n# not known: ")), "{out}");
    assert!(out.contains(&format!("# compared with: tracing/traces at http://127.0.0.1:{port}")), "{out}");
    assert!(out.contains("\nkind: StatefulSet\n") && out.contains("namespace: tracing\n"), "{out}");

    let (code, out) = plan(&config, &["--json"], &changed()).await;
    let found = serde_json::from_str::<Value>(&out).unwrap()["restarts"].take();
    assert_eq!((code, &found["message"]), (Some(0), &json!(words)));
    assert_eq!(found["gateways"]["because"], json!(["spec.gateway.image"]));

    let (_, out) = plan(&config, &[], &pipeline().to_string()).await;
    assert!(out.starts_with("# restarts: none\n"), "{out}");
    assert_eq!(server.writes(), [""; 0]);
}

#[tokio::test]
async fn a_pipeline_that_the_cluster_lacks_is_new() {
    let config = kubeconfig("plan-new", ApiServer::new(Script::default()).listen().await);
    let (code, out) = plan(&config, &[], &changed()).await;
    assert_eq!(code, Some(0));
    assert!(out.starts_with("# restarts: none (the pipeline is new: it starts 3 gateways)\n"), "{out}");
}

#[tokio::test]
async fn without_a_cluster_the_plan_is_printed_and_restarts_are_not_known() {
    // No server listens at a client's port, and no other program can take the port while the client is connected.
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let config = kubeconfig("plan-gone", client.local_addr().unwrap().port());
    let (code, out) = plan(&config, &[], &changed()).await;
    assert_eq!(code, Some(0));
    assert!(
        out.starts_with("# restarts: not known: cannot read the pipeline traces in the namespace"),
        "{out}"
    );
    assert!(out.contains("\nkind: StatefulSet\n"), "{out}");

    let (code, out) = plan(&config, &["--offline", "--json"], &changed()).await;
    let found = serde_json::from_str::<Value>(&out).unwrap()["restarts"].take();
    assert_eq!((code, &found["outcome"]), (Some(0), &json!("NotKnown")));
    assert_eq!(found["message"], "not known: --offline asks no cluster");
}
