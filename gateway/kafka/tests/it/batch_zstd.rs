//! Batches that are compressed in kept contexts (`src/batch_zstd.c`), against librdkafka's mock cluster.

#![expect(unsafe_code, reason = "what is tested is C")]

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};
use std::{
    ffi::c_int,
    time::{Duration, Instant},
};

// What links it.
use sluice_kafka as _;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Contexts that are kept at most.
const KEPT: c_int = 4;

unsafe extern "C" {
    fn sluice_zstd_contexts() -> c_int;
}

fn contexts() -> c_int {
    // SAFETY: it reads atomics, and has no arguments.
    unsafe { sluice_zstd_contexts() }
}

/// Bytes that repeat, as spans do.
fn text(bytes: usize) -> Vec<u8> {
    let line = b"http.request.method GET url.path /api/v1/orders ";
    line.iter().copied().cycle().take(bytes).collect()
}

/// Bytes that no compression makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[7]
    };
    (0..bytes).map(|_| next()).collect()
}

fn produce(mock: &MockCluster<'static, DefaultProducerContext>, values: &[Vec<u8>]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("compression.type", "zstd")
        .set("compression.level", "1")
        .set("batch.size", "65536")
        .set("linger.ms", "20")
        .create()
        .unwrap();
    for value in values {
        let record: BaseRecord<'_, (), [u8]> = BaseRecord::to("spans").partition(0).payload(value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(TIMEOUT).unwrap();
}

fn read(mock: &MockCluster<'static, DefaultProducerContext>, messages: usize) -> Vec<Vec<u8>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "g")
        .set("check.crcs", "true")
        .create()
        .unwrap();
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset("spans", 0, Offset::Beginning).unwrap();
    consumer.assign(&partitions).unwrap();
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.len() < messages {
        assert!(begun.elapsed() < TIMEOUT, "{} of {messages} messages", found.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        found.push(message.payload().unwrap_or_default().to_vec());
    }
    found
}

/// Batches of one and of several pieces, of bytes that become smaller and that do not, and one that librdkafka compresses itself.
#[test]
fn batches_are_read_as_they_were_sent_and_their_contexts_are_kept() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("spans", 1, 1).unwrap();
    let small = (0..400).map(|number| [text(300), vec![b'a'; number % 7]].concat());
    let others = [text(1), text(60_000), text(70_000), noise(50_000), noise(90_000), text(400_000), text(9)];
    let values: Vec<Vec<u8>> = small.chain(others).collect();
    produce(&mock, &values);
    assert!(read(&mock, values.len()) == values, "bytes differ");
    let kept = contexts();
    assert!((1..=KEPT).contains(&kept), "{kept} contexts are kept");
    produce(&mock, &[text(60_000)]);
    assert!((kept..=KEPT).contains(&contexts()), "{} contexts after one more batch", contexts());
}
