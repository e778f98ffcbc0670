//! Against librdkafka's cluster of mocks: what is read, and that reading ends.

use super::*;
use crate::settings::tests::kafka;
use rdkafka::{
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};

const TIMEOUT: Duration = Duration::from_secs(30);

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

    fn read(&self, from: ReadFrom) -> Vec<String> {
        let mut reader = BoundedReader::open(&self.kafka(), "spans", from, TIMEOUT).unwrap();
        // What comes later is not waited for.
        self.produce(0, "later");
        let mut values = Vec::new();
        while let Some(message) = reader.next_message().unwrap() {
            values.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
        assert_eq!(reader.left(), 0);
        values.sort();
        values
    }
}

#[test]
fn a_topic_is_read_up_to_where_it_ended() {
    let topic = Topic::new();
    assert_eq!(topic.read(ReadFrom::Earliest), [""; 0]);
    topic.produce(0, "a");
    topic.produce(1, "b");
    topic.produce(1, "c");
    assert_eq!(topic.read(ReadFrom::Earliest), ["a", "b", "c", "later"]);
    assert_eq!(topic.read(ReadFrom::Partition(1)), ["b", "c"]);
    assert_eq!(topic.read(ReadFrom::Offset(1, 1)), ["c"]);
    assert_eq!(topic.read(ReadFrom::Offset(1, 2)), [""; 0]);
}

#[test]
fn a_message_is_fetched_by_its_offset() {
    let topic = Topic::new();
    topic.produce(1, "b");
    topic.produce(1, "c");
    let fetch = |partition, offset| {
        let id = PartitionId { topic: "spans".into(), partition };
        fetch_message(&topic.kafka(), &id, offset, TIMEOUT)
    };
    assert_eq!(fetch(1, 1).unwrap().unwrap().payload(), Some(&b"c"[..]));
    assert!(fetch(1, 2).unwrap().is_none());
    assert!(fetch(1, -5).unwrap().is_none());
    assert!(fetch(0, 0).unwrap().is_none());
    assert!(matches!(fetch(7, 0), Err(ReadError::Missing { partition: Some(7), .. })));
}

#[test]
fn brokers_that_are_away_end_the_reading() {
    let topic = Topic::new();
    topic.mock.broker_down(1).unwrap();
    let id = PartitionId { topic: "spans".into(), partition: 0 };
    let error = fetch_message(&topic.kafka(), &id, 0, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, ReadError::Ask { .. }), "{error}");
}
