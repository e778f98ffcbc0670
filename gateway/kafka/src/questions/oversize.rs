//! Record batches that are larger than the gateway receives or keeps: warns before one arrives, and logs when one has arrived.
//!
//! Place in the flow: [`crate::questions::topic_limits`] reads the topics' limits (`max.message.bytes`) and warns if they are too large. The poll
//! thread logs that an answer could not be received; librdkafka then closes the connection, again and again. Owner: the calling thread.
//!
//! Limits: one warning per topic and size; one line per [`TELL_INTERVAL`] for answers.

use crate::{
    ground::{settings::received_bytes_max, throttle::Throttle},
    questions::retention::TopicLimits,
};
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode};
use sluice_gateway_config::{
    ByteSize, Kafka, Sizing,
    budget::{RECORD_BATCH_BYTES_MAX, smallest_limit},
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes that brokers count for a batch beside its records: offset and length. The brokers' default limit is 1 MiB plus this.
const BATCH_OVERHEAD_BYTES: u64 = 12;

/// Time between two log lines about an answer that cannot be received. Chosen: librdkafka retries at least every 10 s, and the line must
/// be in the log of the last minutes.
const TELL_INTERVAL: Duration = Duration::from_mins(1);

/// The warning for a topic whose limit for record batches is above `recordBatchBytesMax`. The limit counts compressed bytes; it says
/// nothing about the decompressed size. `memory_limit` gives the smallest `memory.limit` for a `recordBatchBytesMax`.
pub fn batch_warning(
    kafka: &Kafka,
    topic: &str,
    bytes: u64,
    memory_limit: impl Fn(ByteSize) -> ByteSize,
) -> Option<String> {
    let expected = kafka.record_batch_bytes_max;
    if bytes <= expected.get().saturating_add(BATCH_OVERHEAD_BYTES) {
        return None;
    }
    let consequence = if bytes > received_bytes_max(kafka) {
        "breaks the connection to its broker, for all of the broker's partitions"
    } else {
        "stops its partition"
    };
    let enough = ByteSize::mib(ByteSize::bytes(bytes - BATCH_OVERHEAD_BYTES).mib_ceil());
    let remedy = if enough > RECORD_BATCH_BYTES_MAX {
        format!(
            "the largest value is {RECORD_BATCH_BYTES_MAX}: lower max.message.bytes of the topic to at most that"
        )
    } else {
        let limit = memory_limit(enough);
        format!(
            "set {enough} instead of {expected}, for which memory.limit must be at least {limit}, or more if batches are larger when \
             decompressed; or lower max.message.bytes of the topic"
        )
    };
    Some(format!(
        "source.kafka.recordBatchBytesMax: topic {topic} allows record batches of {bytes} bytes (max.message.bytes), and one \
         of that size {consequence}; {remedy}"
    ))
}

/// The topic limits that were warned of.
#[derive(Debug, Default)]
pub(crate) struct Warned(BTreeMap<Arc<str>, u64>);

impl Warned {
    /// The warnings that are due now: one per topic and size.
    pub fn due<'a>(
        &mut self,
        kafka: &Kafka,
        sizing: &Sizing,
        learned: impl IntoIterator<Item = &'a (Arc<str>, TopicLimits)>,
    ) -> Vec<String> {
        let warning = |(topic, limits): &(Arc<str>, TopicLimits)| {
            let bytes = limits.batch_bytes_max?;
            let is_news = self.0.insert(topic.clone(), bytes) != Some(bytes);
            let limit = |batch| smallest_limit(&Sizing { record_batch_bytes_max: batch, ..*sizing });
            is_news.then(|| batch_warning(kafka, topic, bytes, limit))?
        };
        learned.into_iter().filter_map(warning).collect()
    }
}

/// Broker answers that could not be received.
#[derive(Debug)]
pub(crate) struct Unreceived {
    received_bytes_max: u64,
    record_batch_bytes_max: ByteSize,
    line: Throttle,
}

impl Unreceived {
    /// Without any answer yet.
    pub fn of(kafka: &Kafka) -> Self {
        Self {
            received_bytes_max: received_bytes_max(kafka),
            record_batch_bytes_max: kafka.record_batch_bytes_max,
            line: Throttle::every(TELL_INTERVAL),
        }
    }

    /// Whether a consumer error is of this kind. Errors of a batch that was received arrive in its partition's queue instead.
    pub fn is(error: &KafkaError) -> bool {
        error.rdkafka_error_code() == Some(RDKafkaErrorCode::BadMessage)
    }

    /// Logs it, unless that was done a moment ago.
    pub fn tell(&mut self, now: Instant) {
        if self.line.is_due((), now) {
            tracing::error!(received_bytes_max = self.received_bytes_max, "{}", self.advice());
        }
    }

    fn advice(&self) -> String {
        format!(
            "cannot receive a broker's answer, so that none of its partitions is read: a record batch is larger than {} bytes, \
             the limit with source.kafka.recordBatchBytesMax: {}; increase it to the topics' max.message.bytes, which \
             `sluice-gateway check` prints, or lower max.message.bytes and delete the batch",
            self.received_bytes_max, self.record_batch_bytes_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::settings::tests::kafka as of_one_mib;
    use rdkafka::{
        ClientConfig, Offset, TopicPartitionList,
        consumer::{BaseConsumer, Consumer as _},
        mocking::MockCluster,
        producer::{BaseProducer, BaseRecord, Producer as _},
    };
    use sluice_gateway_config::{Format, InsertFormat};

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn kafka(batch_mib: u64) -> Kafka {
        Kafka { record_batch_bytes_max: ByteSize::mib(batch_mib), ..of_one_mib() }
    }

    fn sizing() -> Sizing {
        Sizing {
            limit: ByteSize::mib(192),
            workers: 2,
            partitions_active_max: 8,
            record_batch_bytes_max: ByteSize::mib(1),
            format: Format::OtlpProto,
            insert_concurrency: 2,
            insert_format: InsertFormat::RowBinary,
            requests: None,
        }
    }

    fn limit(batch: ByteSize) -> ByteSize {
        smallest_limit(&Sizing { record_batch_bytes_max: batch, ..sizing() })
    }

    #[test]
    fn a_topic_of_larger_batches_than_are_expected_is_warned_of_with_the_value_that_would_do() {
        // The broker's own default fits the gateway's.
        assert_eq!(batch_warning(&kafka(1), "t", 1_048_588, limit), None);
        let warning = |batch, bytes| batch_warning(&kafka(batch), "t", bytes, limit).unwrap();
        let stops = warning(1, 8 << 20);
        assert!(stops.contains("stops its partition; set 8MiB instead of 1MiB"), "{stops}");
        let breaks = warning(1, (16 << 20) + 12);
        assert!(breaks.contains("breaks the connection to its broker"), "{breaks}");
        assert!(breaks.contains("; set 16MiB instead of 1MiB"), "{breaks}");
        assert_eq!(batch_warning(&kafka(16), "t", (16 << 20) + 12, limit), None, "what would do does");
        let needed = format!(
            "8MiB instead of 1MiB, for which memory.limit must be at least {}",
            limit(ByteSize::mib(8))
        );
        assert!(stops.contains(&needed), "{stops}");
        let beyond = warning(1, (512 << 20) + 12);
        assert!(beyond.contains("the largest value is 256MiB: lower max.message.bytes"), "{beyond}");
    }

    #[test]
    fn a_batch_up_to_what_is_received_does_not_break_a_connection() {
        let most = received_bytes_max(&kafka(1));
        assert!(batch_warning(&kafka(1), "t", most, limit).unwrap().contains("stops its partition"));
        assert!(batch_warning(&kafka(1), "t", most + 1, limit).unwrap().contains("breaks"));
    }

    #[test]
    fn a_topic_is_warned_of_once_for_each_size() {
        let learned = |bytes| {
            let limits = TopicLimits { batch_bytes_max: bytes, ..TopicLimits::default() };
            [("small".into(), TopicLimits::default()), ("large".into(), limits)]
        };
        let mut warned = Warned::default();
        assert_eq!(warned.due(&kafka(1), &sizing(), &learned(None)).len(), 0);
        let due = warned.due(&kafka(1), &sizing(), &learned(Some(8 << 20)));
        assert!(due.len() == 1 && due[0].contains("topic large"), "{due:?}");
        assert_eq!(warned.due(&kafka(1), &sizing(), &learned(Some(8 << 20))).len(), 0);
        assert_eq!(warned.due(&kafka(1), &sizing(), &learned(Some(9 << 20))).len(), 1);
    }

    #[test]
    fn an_answer_that_cannot_be_received_is_told_with_its_limit_once_a_minute() {
        let (mut unreceived, now) = (Unreceived::of(&kafka(1)), Instant::now());
        let mut is_due = |at| unreceived.line.is_due((), at);
        assert!(is_due(now) && !is_due(now + TELL_INTERVAL / 2) && is_due(now + TELL_INTERVAL));
        let advice = unreceived.advice();
        let limit = received_bytes_max(&kafka(1)).to_string();
        assert!(advice.contains(&limit) && advice.contains("recordBatchBytesMax: 1MiB"), "{advice}");
    }

    #[test]
    fn librdkafka_reports_an_answer_that_is_too_large_as_one_that_cannot_be_received() {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 1, 1).unwrap();
        let client = |settings: &[(&str, &str)]| {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", mock.bootstrap_servers());
            for (name, value) in settings {
                config.set(*name, *value);
            }
            config
        };
        let producer: BaseProducer = client(&[("message.max.bytes", "4194304")]).create().unwrap();
        let value = vec![b'v'; 3 << 20];
        let record: BaseRecord<'_, (), [u8]> = BaseRecord::to("spans").partition(0).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(TIMEOUT).unwrap();
        let small = [("group.id", "g"), ("fetch.max.bytes", "1000000"), ("message.max.bytes", "1000000")];
        let mut config = client(&small);
        config.set("receive.message.max.bytes", "2000000");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset("spans", 0, Offset::Beginning).unwrap();
        consumer.assign(&partitions).unwrap();
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < TIMEOUT, "nothing was reported");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Err(error)) if Unreceived::is(&error) => return,
                Some(Ok(_)) => panic!("it was received"),
                _ => {}
            }
        }
    }
}
