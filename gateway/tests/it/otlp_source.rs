//! A gateway with `source.otlp` as a process, with ClickHouse away: what it answers, what is there after a kill, and how it ends.

use crate::program::start;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, ChildStderr},
    thread,
    time::{Duration, Instant},
};

/// How long each step may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(25);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A volume in a folder of its own.
struct Volume(PathBuf);

impl Volume {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-otlp-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn config(&self) -> String {
        format!(
            "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 2, memory: {{limit: 256MiB}}, \
             source: {{otlp: {{listen: {{http: '127.0.0.1:0'}}, deadLetterBytesMax: 2MiB}}}}, \
             queue: {{path: {}, maxBytes: 34MiB}}, shutdown: {{deadline: 5s}}, \
             sink: {{clickhouse: {{endpoints: ['http://127.0.0.1:1'], database: d, table: t}}}}, \
             admin: {{listen: '127.0.0.1:0'}}, log: {{level: info, format: Text}}}}",
            self.0.display()
        )
    }

    /// The same pipeline with Kafka, which is away.
    fn kafka_config(&self) -> String {
        self.config().replace(
            "otlp: {listen: {http: '127.0.0.1:0'}, deadLetterBytesMax: 2MiB}",
            "kafka: {bootstrapServers: ['127.0.0.1:1'], topics: [t], consumerGroup: g}",
        )
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The lines of its log.
type Log = std::iter::MapWhile<Lines<BufReader<ChildStderr>>, fn(std::io::Result<String>) -> Option<String>>;

/// A gateway; it is killed if a test fails.
struct Gateway {
    child: Child,
    log: Log,
    admin: String,
    http: String,
    /// Requests that it found on the volume.
    found: u64,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{name} in {line}"));
    rest.split_whitespace().next().unwrap()
}

impl Gateway {
    fn start(volume: &Volume) -> Self {
        Self::start_with(&volume.config())
    }

    fn start_with(config: &str) -> Self {
        let mut child = start("run", config);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = lines.map_while(Result::ok as fn(std::io::Result<String>) -> Option<String>);
        let mut find = |words: &str| log.find(|line| line.contains(words)).expect("the log has it");
        let admin = field(&find("the gateway starts"), "listen").to_owned();
        let found = field(&find("the logs on the queue volume are open"), "messages").parse().unwrap();
        let http = field(&find("accepting OTLP requests"), "http").to_owned();
        Self { child, log, admin, http, found }
    }

    fn asked(address: &str, request: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        Self::asked(&self.admin, request.as_bytes())
    }

    fn send(&self, body: &[u8]) -> (u16, String) {
        Self::asked(&self.http, &post("Connection: close\r\n", body))
    }

    fn send_of(&self, tenant: &str, body: &[u8]) -> (u16, String) {
        let headers = format!("Connection: close\r\nx-tenant: {tenant}\r\n");
        Self::asked(&self.http, &post(&headers, body))
    }
}

#[test]
fn a_tenant_over_its_limit_is_told_so_and_others_are_stored() {
    let volume = Volume::new("tenants");
    let gateway = Gateway::start_with(&with_tenants(&volume, "bytesPerSecond: 1KiB"));
    // Its time is 15 s, more than the test takes.
    let large = request("a".repeat(20_000));
    let send = |tenant: &str| gateway.send_of(tenant, &large);
    assert_eq!(send("a").0, 200, "a request above the burst is taken");
    let (status, answer) = send("a");
    assert_eq!(status, 429, "{answer}");
    assert!(answer.to_lowercase().contains("retry-after"), "{answer}");
    assert!(answer.contains("more than the limit of 1024 bytes a second"), "{answer}");
    assert_eq!(send("b").0, 200, "another tenant");
    let (_, metrics) = gateway.get("/metrics");
    for line in [
        "sluice_gateway_otlp_requests_refused_total{reason=\"tenant_bytes\"} 1",
        "sluice_gateway_otlp_tenants 2",
        "sluice_gateway_otlp_requests_total 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(metrics.contains("sluice_gateway_server_answers_total{outcome=\"tenant_limit\""), "{metrics}");
}

#[test]
fn a_tenant_over_its_limit_of_spans_is_told_so_and_others_are_stored() {
    let volume = Volume::new("tenant-spans");
    let gateway = Gateway::start_with(&with_tenants(&volume, "spansPerSecond: 1"));
    // The time of its spans is 35 s, more than the test takes. Its bytes have no limit.
    let many = spans(&vec!["a".repeat(1_000); 40]);
    let send = |tenant: &str| gateway.send_of(tenant, &many);
    assert_eq!(send("a").0, 200, "a request above the burst is taken");
    let (status, answer) = send("a");
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("more than the limit of 1 spans a second"), "{answer}");
    assert_eq!(send("b").0, 200, "another tenant");
    let (_, metrics) = gateway.get("/metrics");
    for line in [
        "sluice_gateway_otlp_requests_refused_total{reason=\"tenant_spans\"} 1",
        "sluice_gateway_otlp_requests_refused_total{reason=\"tenant_bytes\"} 0",
        "sluice_gateway_otlp_requests_total 2",
        "sluice_gateway_otlp_spans_total 80",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// The config with limits of tenants.
fn with_tenants(volume: &Volume, limit: &str) -> String {
    let limits = format!("deadLetterBytesMax: 2MiB, tenants: {{header: x-tenant, {limit}}}");
    volume.config().replace("deadLetterBytesMax: 2MiB", &limits)
}

/// A request over HTTP/1.1, with more headers.
fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: gateway\r\n{headers}Content-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A request with one span of this name.
fn request(name: String) -> Vec<u8> {
    spans(&[name])
}

/// A request with spans of these names.
fn spans(names: &[String]) -> Vec<u8> {
    let span = |name: &String| Span {
        trace_id: vec![7; 16],
        span_id: vec![7; 8],
        name: name.clone(),
        ..Span::default()
    };
    let spans = names.iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
        .encode_to_vec()
}

/// Letters that a log does not compress.
fn noise(letters: usize) -> String {
    let mut state = 1_u64;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from(state >> 58).unwrap())
    };
    (0..letters).map(letter).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(ASK_AGAIN);
    }
}

#[test]
fn requests_are_kept_while_clickhouse_is_away_and_are_there_after_a_kill() {
    let volume = Volume::new("kept");
    let mut gateway = Gateway::start(&volume);
    assert_eq!(gateway.found, 0);
    assert_eq!(gateway.get("/readyz").0, 200, "clients get answers, whatever ClickHouse does");
    for number in 0..10 {
        let (status, text) = gateway.send(&request(format!("span {number}")));
        assert_eq!(status, 200, "{text}");
    }
    let (status, text) = gateway.send(b"no protobuf");
    assert_eq!(status, 400, "{text}");
    let (_, left) = gateway.get("/drainz");
    assert!(left.contains("\"uncommitted\":10"), "{left}");
    let (_, metrics) = gateway.get("/metrics");
    for line in [
        "sluice_gateway_otlp_requests_total 10",
        "sluice_gateway_otlp_spans_total 10",
        "sluice_gateway_otlp_requests_refused_total{reason=\"malformed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    drop(gateway);

    let mut gateway = Gateway::start(&volume);
    assert_eq!(gateway.found, 10);
    assert_eq!(gateway.send(&request("one more".to_owned())).0, 200);
    kill_process(Pid::from_child(&gateway.child), Signal::TERM).unwrap();
    wait_until("it is not ready", || gateway.get("/readyz").1.contains("the gateway is ending"));
    assert_eq!(
        gateway.send(&request("late".to_owned())).0,
        200,
        "the cluster has not learnt yet that it ends"
    );
    let code = gateway.child.wait().unwrap().code();
    let stays = gateway.log.find(|line| line.contains("requests stay on the queue volume"));
    assert_eq!((code, field(&stays.unwrap(), "messages")), (Some(0), "12"));
    drop(gateway);
    assert_eq!(Gateway::start(&volume).found, 12);
}

#[test]
fn a_full_volume_is_named_with_its_size_and_clients_are_told_to_come_again() {
    let volume = Volume::new("full");
    let gateway = Gateway::start(&volume);
    let body = request(noise(3 << 20));
    let mut stored = 0;
    let text = loop {
        match gateway.send(&body) {
            (200, _) => stored += 1,
            (503, text) => break text,
            (status, text) => panic!("{status}: {text}"),
        }
    };
    assert!((8..=10).contains(&stored), "{stored} of 3 MiB fit 32 MiB");
    let path = volume.0.display().to_string();
    assert!(text.contains("retry-after: 5") && text.contains(&path) && text.contains("33554432"), "{text}");
    assert_eq!(gateway.get("/readyz").0, 200);
    let (_, state) = gateway.get("/state");
    assert!(
        state.contains("\"volumeFull\":{\"seconds\":0,\"bytesMax\":33554432,\"limit\":\"bytes\"}"),
        "{state}"
    );
    let (_, metrics) = gateway.get("/metrics");
    assert!(metrics.contains("sluice_gateway_otlp_requests_refused_total{reason=\"full\"} 1"), "{metrics}");
    assert!(metrics.contains("sluice_gateway_log_bytes_max 33554432"), "{metrics}");
}

#[test]
fn a_drained_gateway_takes_no_requests_and_says_what_is_left() {
    let volume = Volume::new("drained");
    let gateway = Gateway::start(&volume);
    assert!(gateway.get("/drainz").1.contains("\"uncommitted\":1"), "a request may be on its way");
    assert_eq!(gateway.send(&request("a".to_owned())).0, 200);
    let drain = b"POST /drain HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(Gateway::asked(&gateway.admin, drain).0, 200);
    let (status, text) = gateway.send(&request("b".to_owned()));
    assert!(status == 503 && text.contains("drained") && text.contains("retry-after"), "{text}");
    // A client that keeps its connection would come back to this gateway: the connection ends.
    let (status, text) = Gateway::asked(&gateway.http, &post("", &request("c".to_owned())));
    assert!(status == 503 && text.contains("connection: close"), "{text}");
    assert!(gateway.get("/drainz").1.contains("\"uncommitted\":1"), "ClickHouse does not have it");
    assert_eq!(gateway.get("/readyz").0, 503);
    drop(gateway);

    // The command empties volumes of gateways that read Kafka.
    let refused = refused("drain", &volume.kafka_config());
    assert!(refused.contains("requests of a gateway with source.otlp"), "{refused}");
}

/// What a command says that fails.
fn refused(command: &str, config: &str) -> String {
    let output = start(command, config).wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    text
}

#[test]
fn no_command_calls_a_volume_empty_on_which_the_other_kind_of_gateway_has_left_something() {
    for (file, what) in [
        ("log-00/segment-0000000000000001.spool", "requests"),
        ("log-00/segment-0000000000000001.damaged", "damaged segments"),
        ("dead-letters/segment-0000000000000001.spool", "dead letters"),
        ("dead-letters/segment-0000000000000001.damaged", "damaged segments"),
    ] {
        let volume = Volume::new("of-otlp");
        let path = volume.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, b"a record").unwrap();
        let refused = refused("drain", &volume.kafka_config());
        assert!(refused.contains(&format!("has {what} of a gateway with source.otlp")), "{refused}");
        assert!(path.exists(), "{file} stays");
    }
    for file in ["segment-0000000000000001.spool", "segment-0000000000000001.damaged"] {
        let volume = Volume::new("of-kafka");
        let path = volume.0.join(file);
        std::fs::write(&path, b"a block").unwrap();
        let refused = refused("drain", &volume.config());
        assert!(refused.contains("has blocks of a gateway with source.kafka"), "{refused}");
        assert!(path.exists(), "{file} stays");
    }
}

#[test]
fn an_empty_gateway_that_is_drained_says_that_nothing_is_left() {
    let volume = Volume::new("empty");
    let gateway = Gateway::start(&volume);
    let drain = b"POST /drain HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(Gateway::asked(&gateway.admin, drain).0, 200);
    wait_until("nothing is left", || gateway.get("/drainz").1.contains("\"uncommitted\":0"));
}
