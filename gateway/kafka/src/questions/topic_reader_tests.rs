//! Against librdkafka's mock cluster: what is read, and that reading ends.

use super::*;
use crate::ground::settings::tests::kafka;
use rdkafka::{
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};
use sluice_gateway_config::{OAuth, Sasl, SaslMechanism};

const TIMEOUT: Duration = Duration::from_secs(30);

const PATIENCE: Patience = Patience { answer: TIMEOUT, message: TIMEOUT };

struct Topic {
    mock: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
}

impl Topic {
    fn new() -> Self {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 2, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", mock.bootstrap_servers());
        Self { producer: config.create().unwrap(), mock }
    }

    fn produce(&self, partition: i32, value: &str) {
        let record: BaseRecord<'_, (), str> = BaseRecord::to("spans").partition(partition).payload(value);
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
        self.producer.flush(TIMEOUT).unwrap();
    }

    fn kafka(&self) -> Kafka {
        Kafka { bootstrap_servers: vec![self.mock.bootstrap_servers()], ..kafka() }
    }

    fn reader(&self) -> TopicReader {
        TopicReader::new(&self.kafka(), "test", PATIENCE).unwrap()
    }

    /// The values of a partition from an offset on, up to the end of the log when the reading began.
    fn read(&self, partition: i32, first: i64) -> Vec<String> {
        let reader = self.reader();
        let next = reader.bounds("spans", partition).unwrap().next;
        // Messages that arrive later are neither waited for nor read.
        self.produce(partition, "later");
        let mut values = Vec::new();
        let end = reader.read(("spans", partition), OffsetRange { first, next }, |message| {
            values.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
            Ok::<_, ReadError>(ControlFlow::Continue(()))
        });
        assert_eq!(end.unwrap(), next);
        values
    }
}

#[test]
fn a_partition_is_read_up_to_where_it_ended() {
    let topic = Topic::new();
    assert_eq!(topic.read(0, 0), [""; 0]);
    for value in ["a", "b", "c"] {
        topic.produce(1, value);
    }
    assert_eq!(topic.read(1, 0), ["a", "b", "c"]);
    assert_eq!(topic.read(1, 2), ["c", "later"]);
}

#[test]
fn who_wants_no_more_gets_no_more() {
    let topic = Topic::new();
    for value in ["a", "b"] {
        topic.produce(1, value);
    }
    let mut count = 0;
    let end = topic.reader().read(("spans", 1), OffsetRange { first: 0, next: 2 }, |_| {
        count += 1;
        Ok::<_, ReadError>(ControlFlow::Break(()))
    });
    assert_eq!((end.unwrap(), count), (1, 1));
}

#[test]
fn partitions_are_asked_for() {
    let topic = Topic::new();
    let reader = topic.reader();
    assert_eq!(reader.partitions("spans").unwrap(), [0, 1]);
    assert_eq!(reader.bounds("spans", 1).unwrap(), OffsetRange { first: 0, next: 0 });
}

#[test]
fn messages_are_fetched_by_their_offsets_one_after_another() {
    let topic = Topic::new();
    topic.produce(1, "b");
    topic.produce(1, "c");
    let reader = topic.reader();
    let fetch = |partition, offset| reader.message(&PartitionId { topic: "spans".into(), partition }, offset);
    for (offset, value) in [(1, b"c"), (0, b"b"), (1, b"c")] {
        assert_eq!(fetch(1, offset).unwrap().unwrap().payload(), Some(&value[..]));
    }
    assert!(fetch(1, 2).unwrap().is_none());
    assert!(fetch(1, -5).unwrap().is_none());
    assert!(fetch(0, 0).unwrap().is_none());
    assert!(matches!(fetch(7, 0), Err(ReadError::Missing { partition: Some(7), .. })));
}

#[test]
fn a_batch_above_the_limit_is_named_with_its_size_and_the_limit() {
    let topic = Topic::new();
    topic.produce(1, "a");
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", topic.mock.bootstrap_servers());
    config.set("compression.type", "none").set("message.max.bytes", "16777216");
    let producer: BaseProducer = config.create().unwrap();
    let value = "v".repeat(3 << 20);
    let record: BaseRecord<'_, (), str> = BaseRecord::to("spans").partition(1).payload(&value);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(TIMEOUT).unwrap();
    topic.produce(0, "b");
    let reader = topic.reader();
    let mut count = 0;
    let mut read = |partition, next| {
        reader.read(("spans", partition), OffsetRange { first: 0, next }, |_| {
            count += 1;
            Ok::<_, ReadError>(ControlFlow::Continue(()))
        })
    };
    let error = read(1, 2).unwrap_err();
    let text = error.to_string();
    let ReadError::Batch { offset: 1, problem: QueueProblem::Undecompressed { bytes: Some(bytes) }, .. } =
        error
    else {
        panic!("{text}");
    };
    assert!(bytes > 3 << 20, "{bytes}");
    assert!(
        text.starts_with("reading spans/1: cannot read the record batch at offset 1: it holds"),
        "{text}"
    );
    assert!(text.contains("source.kafka.recordBatchBytesMax"), "{text}");
    // Up to the batch, and beside it, the reader goes on.
    assert_eq!((read(1, 1).unwrap(), read(0, 1).unwrap()), (1, 1));
    assert_eq!(count, 3);
}

#[test]
fn brokers_that_are_away_end_the_reading() {
    let topic = Topic::new();
    topic.mock.broker_down(1).unwrap();
    let id = PartitionId { topic: "spans".into(), partition: 0 };
    let soon = Duration::from_millis(300);
    let reader = TopicReader::new(&topic.kafka(), "test", Patience { answer: soon, message: soon }).unwrap();
    let error = reader.message(&id, 0).unwrap_err();
    assert!(matches!(error, ReadError::Ask { .. }), "{error}");
}

#[test]
fn without_a_token_the_error_says_why_there_is_none() {
    let oauth = OAuth {
        client_credentials: None,
        token_file: Some("/no/such/token".to_owned()),
        aws_msk_iam: None,
        extensions: BTreeMap::new(),
    };
    let sasl = Sasl {
        mechanism: SaslMechanism::OAuthBearer,
        username: None,
        username_file: None,
        password_file: None,
        oauth: Some(oauth),
    };
    let bootstrap_servers = vec!["127.0.0.1:1".to_owned()];
    let kafka = Kafka { bootstrap_servers, sasl: Some(sasl), ..kafka() };
    let refused = TopicReader::new(&kafka, "test", PATIENCE).map(drop).unwrap_err().to_string();
    assert!(
        refused.starts_with("cannot log in to Kafka: ") && refused.contains("/no/such/token"),
        "{refused}"
    );
}
