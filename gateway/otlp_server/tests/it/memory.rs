//! What connections hold beside the permits, as the kernel counts it, against what [`Limits`] say. In a process of its own: the memory of
//! other tests would count as well.
//!
//! Clients write frames of HTTP/2 by hand, and hold nothing themselves.

use sluice_otlp_server::{
    Accepted, Acceptor, ByteBudget, ConnectionEnd, Counters, Limits, Refusal, Request, Server, ServerConfig,
};
use std::{
    fs,
    io::{ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

const CONNECTIONS: usize = 40;
const STREAMS: u32 = 32;
const REQUESTS: u64 = 1_280;
const HEADER_BYTES: u32 = 16 << 10;

/// How much more than the limits the process may have. Chosen: what the allocator keeps of what is free, and its fragments.
const SLACK_KIB: u64 = 8 << 10;

const PATIENCE: Duration = Duration::from_mins(1);
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

fn kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// How much the peak of memory rises while this runs.
fn rise_kib(run: impl FnOnce()) -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = kib("VmRSS");
    run();
    kib("VmHWM").saturating_sub(before)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn begin() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A literal of HPACK: its length in 7 bits or more, and its bytes.
fn text(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match value.len().checked_sub(0x7F) {
        None => out.push(u8::try_from(value.len()).unwrap()),
        Some(mut left) => {
            out.push(0x7F);
            while left > 0x7F {
                out.push(u8::try_from(left & 0x7F).unwrap() | 0x80);
                left >>= 7;
            }
            out.push(u8::try_from(left).unwrap());
        }
    }
    out.extend_from_slice(value.as_bytes());
    out
}

/// The headers of a request of gRPC, one of them large.
fn headers(path: &str, large: usize) -> Vec<u8> {
    let (post, http, of_path, of_authority) = (0x83, 0x86, 0x04, 0x01);
    let mut block = vec![post, http, of_path];
    block.extend(text(path));
    block.push(of_authority);
    block.extend(text("otlp"));
    for (name, value) in
        [("content-type", "application/grpc"), ("te", "trailers"), ("x-large", &"x".repeat(large))]
    {
        block.push(0);
        block.extend(text(name));
        block.extend(text(value));
    }
    block
}

struct Never;

impl Acceptor for Never {
    async fn accept(&self, _: Request) -> Result<Accepted, Refusal> {
        Ok(Accepted::default())
    }
}

struct World {
    address: SocketAddr,
    counters: Arc<Counters>,
    limits: Limits,
    _runtime: Runtime,
}

impl World {
    fn start() -> Self {
        let limits = Limits {
            connections_max: CONNECTIONS,
            concurrent_streams_max: STREAMS,
            requests_max: usize::try_from(REQUESTS).unwrap(),
            header_bytes_max: HEADER_BYTES,
            body_pause_max: PATIENCE,
            ..Limits::default()
        };
        let mut config = ServerConfig::new(ByteBudget::new(1 << 30), Arc::new(|_| {}));
        config.limits = limits.clone();
        config.grpc = Some((Ipv4Addr::LOCALHOST, 0).into());
        let counters = config.counters.clone();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(Server::bind(config, Never)).unwrap();
        let address = server.grpc_address().unwrap();
        runtime.spawn(server.serve(std::future::pending()));
        Self { address, counters, limits, _runtime: runtime }
    }

    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(&begin()).unwrap();
        stream
    }

    fn wait(&self, requests: u64) {
        let begun = Instant::now();
        while self.counters.requests_in_flight() < requests {
            assert!(begun.elapsed() < PATIENCE, "{} requests", self.counters.requests_in_flight());
            sleep(Duration::from_millis(10));
        }
    }
}

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Every connection has all of its streams, every request large headers, and no body comes.
fn all_requests_with_large_headers(world: &World) {
    all_requests(world, 15_000);
}

/// The same with usual ones: what requests hold whose headers are free.
fn all_requests_with_small_headers(world: &World) {
    all_requests(world, 0);
}

fn all_requests(world: &World, large: usize) {
    let block = headers(EXPORT, large);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = world.connect();
        for number in 0..STREAMS {
            stream.write_all(&frame(HEADERS, END_HEADERS, number * 2 + 1, &block)).unwrap();
        }
        open.push(stream);
    }
    world.wait(REQUESTS);
}

/// Clients send on and never read an answer, until the server reads no more.
fn answers_that_nobody_reads(world: &World) {
    let block = headers(&format!("/{}", "a".repeat(1_000)), 0);
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = world.connect();
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let ended = (0..100_000_u32).find_map(|number| {
            let sent = stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, number * 2 + 1, &block));
            sent.err().map(|error| error.kind())
        });
        // It closes the connection of a client with more streams than it may have, or it reads no more.
        let kinds =
            [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(ended.is_some_and(|kind| kinds.contains(&kind)), "{ended:?}");
        open.push(stream);
    }
}

/// Bodies in frames of one byte: h2 ends such a connection, which costs more than it brings.
fn bodies_in_frames_of_one_byte(world: &World) {
    let head = frame(HEADERS, END_HEADERS, 1, &headers(EXPORT, 0));
    let message = frame(DATA, 0, 1, &[0, 0, 16, 0, 0]);
    let bytes = frame(DATA, 0, 1, &[0]).repeat(60_000);
    let burst = [head, message, bytes].concat();
    let mut open: Vec<_> = (0..CONNECTIONS).map(|_| world.connect()).collect();
    for stream in &mut open {
        // It may be closed before it has all.
        drop(stream.write_all(&burst));
    }
    let begun = Instant::now();
    let ended = || world.counters.connection_ends(ConnectionEnd::Broken);
    while ended() < u64::try_from(CONNECTIONS).unwrap() {
        assert!(begun.elapsed() < PATIENCE, "{} have ended", ended());
        sleep(Duration::from_millis(10));
    }
}

/// Set in the process that measures.
const ALONE: &str = "SLUICE_TEST_ALONE";

/// Measured in a process of its own, which no other test's memory disturbs.
#[test]
fn what_connections_hold_is_within_their_limits() {
    if std::env::var_os(ALONE).is_some() {
        return measure();
    }
    let this = ["--exact", "memory::what_connections_hold_is_within_their_limits", "--nocapture"];
    let out = Command::new(std::env::current_exe().unwrap()).args(this).env(ALONE, "1").output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    eprintln!("{said}");
}

fn measure() {
    for (name, run) in [
        ("all requests with small headers", all_requests_with_small_headers as fn(&World)),
        ("all requests with large headers", all_requests_with_large_headers),
        ("answers that nobody reads", answers_that_nobody_reads),
        ("bodies in frames of one byte", bodies_in_frames_of_one_byte),
    ] {
        let world = World::start();
        let rise = rise_kib(|| run(&world));
        let most = world.limits.outside_budget_bytes_max() >> 10;
        eprintln!("{name}: {rise} KiB of {most} KiB");
        assert!(rise <= most + SLACK_KIB, "{name}: {rise} KiB are more than {most} KiB");
    }
}
