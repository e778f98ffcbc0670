//! The program as a shell sees it: its exit code, its standard output and its standard error.

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-sluice");

/// What a run came to: its status, standard output and standard error.
type Ended = (Option<i32>, String, String);

fn sample() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/samples/tracepipeline.yaml")
}

/// The sample, with too little memory for its partitions.
fn wrong() -> String {
    fs::read_to_string(sample())
        .unwrap()
        .replace("limits: {memory: 256Mi}", "limits: {memory: 128Mi}, requests: {cpu: 16}")
}

fn run(mut command: Command, input: &str) -> Ended {
    command.env_remove("SLUICE_GATEWAY_IMAGE");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // Who reads nothing may be gone already.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn kubectl_sluice(words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words);
    command
}

#[test]
fn plan_answers_on_standard_output_and_says_what_is_wrong_on_standard_error() {
    let sample = sample();
    let sample = sample.to_str().unwrap();
    let plan =
        |words: &[&str], input: &str| run(kubectl_sluice(&[&["plan", "--offline"], words].concat()), input);

    let (code, out, told) = plan(&["-f", sample], "");
    assert_eq!((code, told.as_str()), (Some(0), ""));
    assert!(out.contains("kind: StatefulSet") && out.contains("image: sluice-gateway:"), "{out}");
    assert!(out.starts_with("# restarts: not known: --offline asks no cluster\n"), "{out}");

    let (code, out, told) = plan(&["-f", "-"], &wrong());
    assert_eq!((code, out.as_str()), (Some(64), ""));
    assert!(told.contains("spec.gateway.resources.limits.memory"), "{told}");

    let (code, out, told) = plan(&["-f", "-", "--json"], &wrong());
    assert_eq!((code, told.as_str()), (Some(64), ""));
    assert!(serde_json::from_str::<Value>(&out).unwrap().to_string().contains("memory"), "{out}");

    let (code, out, told) = plan(&["-f", "/no/such/file"], "");
    assert_eq!((code, out.as_str()), (Some(66), ""));
    assert!(told.contains("cannot read /no/such/file"), "{told}");

    let (code, out, told) = plan(&["--no-such-word"], "");
    assert_eq!((code, out.as_str()), (Some(64), ""));
    assert!(told.contains("--no-such-word"), "{told}");
}

/// A kubeconfig whose API server is at this port.
pub fn kubeconfig(name: &str, port: u16) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let cluster = json!({"name": "a", "cluster": {"server": format!("http://127.0.0.1:{port}")}});
    let context = json!({"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "tracing"}});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [cluster],
        "contexts": [context], "users": [{"name": "a", "user": {}}],
    });
    fs::write(&file, config.to_string()).unwrap();
    file
}

/// An API server that gives this answer to one request, whatever it is; its port.
fn answers_once(answer: &Value) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (port, body) = (listener.local_addr().unwrap().port(), answer.to_string());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = BufReader::new(stream.try_clone().unwrap()).lines();
        assert!(head.map_while(Result::ok).any(|line| line.is_empty()), "a request without an end");
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
        stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    });
    port
}

#[test]
fn status_ends_with_whether_all_is_well_and_whether_the_cluster_can_be_reached() {
    let mut pipeline: Value = serde_saphyr::from_str(&fs::read_to_string(sample()).unwrap()).unwrap();
    pipeline["metadata"] = json!({"name": "demo", "namespace": "tracing", "generation": 1});
    let listed = |status: &str| {
        let mut pipeline = pipeline.clone();
        let ready = json!({"type": "Ready", "status": status, "reason": "Running", "message": "as it is",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        pipeline["status"] = json!({"observedGeneration": 1, "conditions": [ready]});
        json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipelineList", "metadata": {},
            "items": [pipeline]})
    };
    for (status, expected) in [("True", 0), ("False", 1)] {
        let config = kubeconfig(&format!("ready-{status}"), answers_once(&listed(status)));
        let mut command = kubectl_sluice(&["status"]);
        command.env("KUBECONFIG", config);
        let (code, out, told) = run(command, "");
        assert_eq!((code, told.as_str()), (Some(expected), ""), "{out}");
        assert!(out.starts_with("tracing/demo: "), "{out}");
    }
    // No server listens at a client's port, and no other program can take the port while the client is connected.
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let mut command = kubectl_sluice(&["status"]);
    command.env("KUBECONFIG", kubeconfig("gone", client.local_addr().unwrap().port()));
    let (code, out, told) = run(command, "");
    assert_eq!((code, out.as_str()), (Some(69), ""));
    assert!(!told.is_empty());
}
