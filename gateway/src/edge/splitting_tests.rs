//! Who splits a request: the task that has read it, or a thread. No broker answers here.

use super::*;
use crate::edge::samples::{field, request, scope_spans, splitting};
use sluice_gateway_config::{Kafka, parse};
use sluice_kafka::producer::ProducerLimits;
use sluice_otlp_server::ByteBudget;
use std::time::Duration;

const CONFIG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                      source: {kafka: {bootstrapServers: ['127.0.0.1:1'], topics: [spans], consumerGroup: g}}, \
                      sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";

/// A minute: nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(1);

const QUEUE_BYTES: usize = 2 << 20;

struct Scene {
    splitting: Splitting,
    producer: Producer,
    budget: ByteBudget,
}

impl Scene {
    fn open() -> Self {
        let kafka: Kafka = parse::from_yaml(CONFIG).unwrap().source.kafka.unwrap();
        let limits =
            ProducerLimits { queue_bytes: QUEUE_BYTES, batch_bytes_max: 256 << 10, timeout: PATIENCE };
        let producer = Producer::start(&kafka, "spans", "edge", limits, &Handle::current()).unwrap();
        Self { splitting: splitting(&producer), producer, budget: ByteBudget::new(8 << 20) }
    }

    fn request(&self, body: Vec<u8>, encoding: Encoding) -> Request {
        let permit = self.budget.try_take(body.len()).unwrap();
        Request { body: Bytes::from(body), encoding, tenant: None, permit }
    }

    /// Has a task split a request in protobuf.
    fn at_once(&self, body: Vec<u8>) -> Result<Result<Sent, Refused>, Request> {
        self.splitting.at_once(self.request(body, Encoding::Protobuf), terms())
    }

    /// Has a thread split it.
    async fn by_thread(&self, request: Request) -> Result<Sent, Refused> {
        let (answer, worked) = oneshot::channel();
        self.splitting.queue(Job { request, terms: terms(), answer }).unwrap();
        tokio::time::timeout(PATIENCE, worked).await.unwrap().unwrap()
    }
}

fn terms() -> Terms {
    Terms { partitions: 4, deadline: Instant::now() + PATIENCE }
}

#[test]
fn a_key_is_the_trace_id_in_hex() {
    let id = [0, 1, 0x0f, 0xf0, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xab];
    assert_eq!(&key(&id), b"00010ff0ff05060708090a0b0c0d0eab");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_splits_what_is_small_and_a_thread_what_is_not() {
    let scene = Scene::open();
    let sent = scene.at_once(request(&[(1, 900), (2, 900)])).unwrap().unwrap();
    assert_eq!((sent.spans, sent.messages), (2, 2));
    let many: Vec<_> = (1..=64).map(|trace| (trace, 900)).collect();
    assert_eq!(scene.at_once(request(&many)).unwrap().unwrap().messages, 64);
    // One message more; a resource that becomes 800 KB; a request of more than 256 KiB; JSON.
    let many: Vec<_> = (1..=65).map(|trace| (trace, 900)).collect();
    let traces: Vec<_> = (1..=8).map(|trace| (trace, 10)).collect();
    let resource = field(1, &field(15, &vec![7; 100_000]));
    let repeated = field(1, &[resource, scope_spans(&traces)].concat());
    for (body, messages) in [(request(&many), 65), (repeated, 8), (request(&[(1, 300_000)]), 0)] {
        let left = scene.at_once(body).unwrap_err();
        assert_eq!(scene.by_thread(left).await.unwrap().messages, messages);
    }
    let json = scene.request(b"{}".to_vec(), Encoding::Json);
    let left = scene.splitting.at_once(json, terms()).unwrap_err();
    assert_eq!(scene.by_thread(left).await.unwrap().messages, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_refuses_what_cannot_be_read_and_the_permit_is_free() {
    let scene = Scene::open();
    let mut cut_short = request(&[(1, 10)]);
    cut_short.pop();
    let refused = scene.at_once(cut_short).unwrap().unwrap_err();
    assert!(matches!(&refused, Refused::Malformed(why) if why.contains("malformed OTLP")), "{refused:?}");
    assert_eq!((scene.budget.used_bytes(), scene.producer.queued_bytes()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_sends_all_of_a_request_or_leaves_it_to_the_threads() {
    let scene = Scene::open();
    let two = || request(&[(1, 900), (2, 900)]);
    // There is room for one of its two messages.
    let held = scene.producer.room(0, QUEUE_BYTES - 2_500).await;
    let before = scene.producer.queued_bytes();
    let left = scene.at_once(two()).unwrap_err();
    assert_eq!(scene.producer.queued_bytes(), before);
    drop(held);
    assert_eq!(scene.splitting.at_once(left, terms()).unwrap().unwrap().messages, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_takes_no_splitter_that_is_in_use_or_that_a_thread_waits_for() {
    let scene = Scene::open();
    let one = || request(&[(1, 10)]);
    let held: Vec<_> = scene.splitting.seats.iter().map(|seat| seat.worker()).collect();
    assert!(scene.at_once(one()).is_err());
    drop(held);
    assert!(scene.at_once(one()).is_ok());
    let set = |is_awaited| {
        for seat in &scene.splitting.seats {
            seat.is_awaited.store(is_awaited, Ordering::Relaxed);
        }
    };
    set(true);
    assert!(scene.at_once(one()).is_err());
    set(false);
    assert!(scene.at_once(one()).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_a_request_is_split_costs_that_request_alone() {
    let scene = Scene::open();
    for seat in &scene.splitting.seats {
        let seat = seat.clone();
        let panicked = thread::spawn(move || {
            let _worker = seat.worker();
            panic!("a fault while a request is split");
        });
        assert!(panicked.join().is_err());
    }
    assert!(scene.at_once(request(&[(1, 10)])).unwrap().is_ok());
    let request = scene.request(request(&[(1, 10)]), Encoding::Protobuf);
    assert!(scene.by_thread(request).await.is_ok());
}
