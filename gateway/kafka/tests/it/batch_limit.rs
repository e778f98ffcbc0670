//! The limit of an uncompressed record batch, against librdkafka's mock cluster.

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};
use sluice_kafka::QueueProblem;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The limit, as `recordBatchBytesMax` sets it.
const LIMIT: usize = 1 << 20;

/// Larger than everything that is produced.
const EVERYTHING: &str = "16777216";

fn produce(mock: &MockCluster<'static, DefaultProducerContext>, partition: i32, bytes: usize) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("compression.type", "none")
        .set("message.max.bytes", EVERYTHING)
        .create()
        .unwrap();
    let value = vec![b'v'; bytes];
    let record: BaseRecord<'_, (), [u8]> = BaseRecord::to("spans").partition(partition).payload(&value);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(TIMEOUT).unwrap();
}

fn consumer(mock: &MockCluster<'static, DefaultProducerContext>) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "g")
        .set("sluice.batch.bytes.max", LIMIT.to_string())
        .set("fetch.max.bytes", EVERYTHING)
        .set("fetch.message.max.bytes", EVERYTHING)
        .set("receive.message.max.bytes", "33554432")
        .set("check.crcs", "true")
        .create()
        .unwrap();
    let mut partitions = TopicPartitionList::new();
    for partition in 0..3 {
        partitions.add_partition_offset("spans", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&partitions).unwrap();
    consumer
}

/// One answer contains all three partitions: the partitions beside the refused one are read normally.
#[test]
fn a_batch_that_is_not_compressed_and_over_the_limit_is_refused_with_its_size_and_alone() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("spans", 3, 1).unwrap();
    produce(&mock, 0, LIMIT - 4_096);
    produce(&mock, 1, 3 * LIMIT);
    produce(&mock, 2, 100);
    let consumer = consumer(&mock);
    let (mut read, mut refused) = (vec![None; 3], 0);
    let begin = Instant::now();
    // The batch is fetched again after each refusal; none of its messages, and none behind it, ever arrives.
    while refused < 3 || read[0].is_none() || read[2].is_none() {
        assert!(begin.elapsed() < TIMEOUT, "read {read:?}, refused {refused}");
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) => {
                let partition = usize::try_from(message.partition()).unwrap();
                assert_eq!(read[partition].replace(message.payload_len()), None, "read twice");
            }
            Some(Err(error)) => match QueueProblem::of(&error, LIMIT as u64) {
                QueueProblem::Undecompressed { bytes: Some(bytes) } => {
                    let bytes = usize::try_from(bytes).unwrap();
                    assert!((3 * LIMIT..3 * LIMIT + 128).contains(&bytes), "{bytes}");
                    refused += 1;
                }
                QueueProblem::Passing => {}
                problem => panic!("{problem:?}: {error}"),
            },
        }
    }
    assert_eq!(read, [Some(LIMIT - 4_096), None, Some(100)]);
}
