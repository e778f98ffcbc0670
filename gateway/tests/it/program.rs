//! Tests of the program as a process.

use sluice_gateway::exit_codes::EXIT_CONFIG;
use sluice_gateway_config::parse;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
};

/// A config with a mistake in each of these places.
const WRONG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 0, memory: {limit: 20MiB}, \
                     source: {kafka: {bootstrapServers: ['k:9092'], topics: [], consumerGroup: g}}, \
                     sink: {clickhouse: {endpoints: ['k:8123'], database: d, table: t, \
                     insert: {settings: {async_insert: '1'}}}}}";

const WRONG_PATHS: [&str; 5] = [
    "source.kafka.topics",
    "sink.clickhouse.endpoints",
    "sink.clickhouse.insert.settings.async_insert",
    "workers",
    "memory.limit",
];

/// The program with a config that it reads from its standard input.
pub fn start(command: &str, config: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
        .args([command, "--config", "/dev/stdin"])
        // Memory of glibc's, if any were used, would all be in the one place that has a name.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    child
}

fn ended(command: &str, config: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = start(command, config).wait_with_output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_config_that_does_not_fit_ends_the_program_with_64_and_every_violation_by_its_path() {
    let violations = parse::from_yaml(WRONG).unwrap().check().unwrap_err();
    let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
    assert_eq!(paths, WRONG_PATHS, "{violations}");
    for command in ["run", "check"] {
        let (code, said, complained) = ended(command, WRONG);
        assert_eq!((code, said.as_str()), (Some(EXIT_CONFIG.into()), ""), "{command}: {complained}");
        for violation in &violations {
            assert!(complained.contains(&violation.to_string()), "{command}: {complained}");
        }
    }
}

#[test]
fn a_config_that_is_none_ends_the_program_with_64_and_the_path_of_what_cannot_be_read() {
    let unknown = WRONG.replace("topics: []", "topics: [t], topix: 1");
    for command in ["run", "check"] {
        let (code, _, complained) = ended(command, &unknown);
        assert_eq!(code, Some(EXIT_CONFIG.into()), "{command}: {complained}");
        assert!(
            complained.contains("source.kafka") && complained.contains("topix"),
            "{command}: {complained}"
        );
    }
}

/// The config of an edge in front of a port that nothing listens on, with more in `listen`.
pub fn edge(listen: &str) -> String {
    format!(
        "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 192MiB}}, \
         listen: {{http: '127.0.0.1:0'{listen}}}, kafka: {{bootstrapServers: ['127.0.0.1:1'], topic: spans}}, \
         admin: {{listen: '127.0.0.1:0'}}, log: {{level: info, format: Text}}}}"
    )
}

#[test]
fn an_edge_ends_with_64_if_its_config_or_a_file_of_it_is_wrong_and_names_the_file() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let tokens = folder.join(format!("tokens-{}", std::process::id()));
    fs::write(&tokens, "one\nBearer sesame\n").unwrap();
    let with_tokens = format!(", authentication: {{bearerTokensFile: '{}'}}", tokens.display());
    let named = format!("{}: line 2 has a space", tokens.display());
    for (config, expected) in [
        (edge(", tls: {certificateFile: /no/cert, keyFile: /no/key}"), "the certificate from /no/cert"),
        (edge(&with_tokens), named.as_str()),
        (edge(", htpp: x"), "the config /dev/stdin cannot be used:\nlisten.htpp"),
        (edge("").replace("workers: 1", "workers: 0"), "the config /dev/stdin is wrong:\nworkers: 0"),
        (edge("").replace("Version: 1", "Version: 9"), "this edge reads version 1"),
        (
            edge("").replace("topic: spans", "topic: spans, properties: {acks: '1'}"),
            "kafka.properties.acks: cannot be set here: the edge decides",
        ),
        (edge("").replace("topic: spans", "topic: spans, tls: {caFile: /no/ca}"), "/no/ca"),
    ] {
        let (code, _, complained) = ended("edge", &config);
        assert!(complained.contains(expected), "{expected}: {complained}");
        assert_eq!(code, Some(EXIT_CONFIG.into()), "{complained}");
        assert!(!complained.contains("sesame"), "{complained}");
    }
    fs::remove_file(tokens).unwrap();
}

/// Whether any memory of a process is glibc's: with one arena for all threads it takes it from the heap of the process.
fn has_heap_of_glibc(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/maps")).unwrap().contains("[heap]")
}

#[test]
fn librdkafka_has_its_memory_of_the_allocator_that_rust_has() {
    let broker = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 256MiB}}, \
         source: {{kafka: {{bootstrapServers: ['{}'], topics: [t], consumerGroup: g}}}}, \
         sink: {{clickhouse: {{endpoints: ['http://127.0.0.1:1'], database: d, table: t}}}}}}",
        broker.local_addr().unwrap()
    );
    let mut child = start("check", &config);
    // Who connects is librdkafka, with a client, threads and brokers by then.
    drop(broker.accept().unwrap());
    let has_heap = has_heap_of_glibc(&child.id().to_string());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!has_heap, "jemalloc maps its memory: what is on the heap is of another allocator");
    assert!(has_heap_of_glibc("self"), "this test has glibc's, and would see it");
}

/// With port 0 the system chooses a free port, so several gateways can run on one machine.
#[test]
fn a_gateway_on_any_port_says_in_its_log_where_it_listens() {
    let config = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                  source: {kafka: {bootstrapServers: ['127.0.0.1:1'], topics: [t], consumerGroup: g}}, \
                  sink: {clickhouse: {endpoints: ['http://127.0.0.1:1'], database: d, table: t}}, \
                  queue: {mode: Disabled}, admin: {listen: '127.0.0.1:0'}, log: {level: info, format: Text}}";
    let mut child = start("run", config);
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = log.find(|line| line.contains("the gateway starts")).unwrap();
    let listen = line.split("listen=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let mut stream = TcpStream::connect(listen).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
