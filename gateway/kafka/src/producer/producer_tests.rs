//! The producer against librdkafka's mock cluster, which can refuse and be away on demand.

use super::*;
use crate::{
    ground::settings::tests::kafka,
    producer::{
        BATCH_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES, NotStored, Outgoing, Producer, ProducerLimits,
        RequestReceipt, partition_of, request,
    },
};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use std::{collections::BTreeMap, sync::LazyLock};
use tokio::runtime::{Builder, Handle};

/// A mock takes milliseconds; a busy machine some seconds.
const PATIENCE: Duration = Duration::from_mins(1);

const PARTITIONS: u32 = 6;

const LIMITS: ProducerLimits =
    ProducerLimits { queue_bytes: 1 << 20, batch_bytes_max: 256 << 10, timeout: Duration::from_secs(20) };

/// Keys and values by partition.
type Found = BTreeMap<i32, Vec<(Vec<u8>, Vec<u8>)>>;

struct Mock(MockCluster<'static, DefaultProducerContext>);

impl Mock {
    fn new() -> Self {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 6, 1).unwrap();
        Self(mock)
    }

    fn kafka(&self) -> Kafka {
        Kafka { bootstrap_servers: vec![self.0.bootstrap_servers()], ..kafka() }
    }

    fn producer(&self, limits: ProducerLimits) -> Producer {
        let producer = Producer::start(&self.kafka(), "spans", "edge", limits, io()).unwrap();
        wait_until(|| producer.partitions() == Some(PARTITIONS));
        producer
    }

    /// Key and value of this many messages, by partition.
    fn read(&self, messages: usize) -> Found {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .set("group.id", "test")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..6 {
            list.add_partition_offset("spans", partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let (mut found, begun) = (Found::new(), Instant::now());
        while found.values().map(Vec::len).sum::<usize>() < messages {
            assert!(begun.elapsed() < PATIENCE, "{found:?}");
            let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
            let of = |bytes: Option<&[u8]>| bytes.unwrap_or_default().to_vec();
            found.entry(message.partition()).or_default().push((of(message.key()), of(message.payload())));
        }
        found
    }
}

/// The runtime that acknowledgements come on, for all tests but those that look at it.
fn io() -> &'static Handle {
    static IO: LazyLock<Runtime> = LazyLock::new(io_runtime);
    IO.handle()
}

fn io_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap()
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).expect("in time")
}

/// Sends these values as one request.
fn send(producer: &Producer, values: &[(&str, Vec<u8>)]) -> RequestReceipt {
    let (reply, receipt) = request();
    for (key, value) in values {
        let room = block_on(producer.room(key.len(), value.len()));
        let partition = partition_of(key.as_bytes(), PARTITIONS);
        let message = Outgoing { partition, key: key.as_bytes(), value: value.clone(), is_single: true };
        producer.send(message, room, &reply);
    }
    receipt
}

#[test]
fn a_request_is_stored_whole_and_each_key_in_its_partition() {
    let mock = Mock::new();
    let producer = mock.producer(LIMITS);
    assert_eq!(producer.problem(), None);
    let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    let values: Vec<_> = keys.iter().map(|key| (key.as_str(), format!("of {key}").into_bytes())).collect();
    block_on(send(&producer, &values)).unwrap();
    block_on(producer.flushed());
    assert_eq!(producer.queued_bytes(), 0);
    let found = mock.read(40);
    for (partition, messages) in &found {
        for (key, value) in messages {
            assert_eq!(i32::try_from(partition_of(key, PARTITIONS)).unwrap(), *partition);
            assert_eq!(value, format!("of {}", std::str::from_utf8(key).unwrap()).as_bytes());
        }
    }
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 40);
}

#[test]
fn values_of_any_size_are_stored_as_they_were_made_and_one_that_is_refused_holds_nothing() {
    let mock = Mock::new();
    let producer = mock.producer(LIMITS);
    let values: Vec<_> = [1, 4_096, 4_097, 70_000, 200_000]
        .map(|bytes| ("k", (0_u32..bytes).map(|at| (at % 251).to_le_bytes()[0]).collect::<Vec<u8>>()))
        .into();
    block_on(send(&producer, &values)).unwrap();
    let found = mock.read(values.len());
    let found: Vec<_> = found.values().flatten().map(|(_, value)| value).collect();
    assert!(found == values.iter().map(|(_, value)| value).collect::<Vec<_>>(), "bytes differ");
    let failure = block_on(send(&producer, &[("k", vec![b'v'; 300 << 10])])).unwrap_err();
    assert_eq!(failure, NotStored::TooLarge { topic: "spans".into(), bytes: 300 << 10 });
    block_on(producer.flushed());
    assert_eq!(producer.queued_bytes(), 0);
}

#[test]
fn acknowledgements_come_without_a_turn_of_the_producers_threads() {
    let mock = Mock::new();
    // What the threads would run does not run.
    let (producer, _upkeep, _watch) = Producer::build(&mock.kafka(), "spans", "edge", LIMITS, io()).unwrap();
    for value in ["v", "w"] {
        block_on(send(&producer, &[("k", value.into())])).unwrap();
    }
    block_on(producer.flushed());
    assert_eq!(producer.queued_bytes(), 0);
}

#[test]
fn a_producer_in_place_of_another_has_its_acknowledgements_and_what_the_other_had_is_answered() {
    let mock = Mock::new();
    let (producer, upkeep, _watch) = Producer::build(&mock.kafka(), "spans", "edge", LIMITS, io()).unwrap();
    mock.0.broker_down(1).unwrap();
    let unanswered = send(&producer, &[("k", b"v".to_vec())]);
    drop(upkeep.replace().unwrap());
    assert_eq!(block_on(unanswered), Err(NotStored::Ended));
    mock.0.broker_up(1).unwrap();
    wait_until(|| block_on(send(&producer, &[("k", b"w".to_vec())])).is_ok());
}

/// More errors than questions for an id in a test.
const IDS_REFUSED: usize = 1_000;

/// Does what the thread `topic` does until the producer has its id.
fn wait_for_id(watch: &mut TopicWatch) {
    wait_until(|| {
        watch.learn();
        watch.look_for_id();
        watch.shared.state.known().id_wait == IdWait::There
    });
    assert!(has_id(watch.shared.current().client()));
}

#[test]
fn the_edge_is_not_ready_before_its_first_producer_has_its_id() {
    let mock = Mock::new();
    let loading = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS;
    mock.0.request_errors(RDKafkaApiKey::InitProducerId, &vec![loading; IDS_REFUSED]);
    let (producer, _upkeep, mut watch) =
        Producer::build(&mock.kafka(), "spans", "edge", LIMITS, io()).unwrap();
    assert_eq!(producer.awaits_id(), None, "no broker has answered, which is the reason until then");
    wait_until(|| {
        watch.learn();
        producer.partitions() == Some(PARTITIONS)
    });
    let reason = producer.awaits_id().unwrap();
    assert!(
        reason.contains(&mock.0.bootstrap_servers()) && reason.contains("topic spans its id"),
        "{reason}"
    );
    assert_eq!(producer.problem(), None, "requests are taken, and wait");
    assert!(watch.look_for_id().is_some() && !has_id(watch.shared.current().client()));
    mock.0.clear_request_errors(RDKafkaApiKey::InitProducerId);
    wait_for_id(&mut watch);
    assert_eq!((producer.awaits_id(), watch.look_for_id()), (None, None));
    block_on(send(&producer, &[("k", b"v".to_vec())])).unwrap();
}

#[test]
fn the_id_of_a_producer_in_place_of_another_is_asked_for_at_once_and_the_edge_stays_ready() {
    let mock = Mock::new();
    let (producer, upkeep, mut watch) =
        Producer::build(&mock.kafka(), "spans", "edge", LIMITS, io()).unwrap();
    wait_for_id(&mut watch);
    assert!(watch.shared.state.wakes.1.is_empty());
    drop(upkeep.replace().unwrap());
    assert_eq!(watch.shared.state.wakes.1.len(), 1);
    assert!(watch.wait(PATIENCE), "the wake ends it");
    assert_eq!(producer.awaits_id(), None);
    wait_for_id(&mut watch);
}

#[test]
fn the_task_and_the_threads_end_with_the_last_handle() {
    let mock = Mock::new();
    let runtime = io_runtime();
    let producer = Producer::start(&mock.kafka(), "spans", "edge", LIMITS, runtime.handle()).unwrap();
    drop(producer.clone());
    block_on(send(&producer, &[("k", b"v".to_vec())])).unwrap();
    assert_eq!(runtime.metrics().num_alive_tasks(), 1);
    drop(producer);
    // The thread ends last: it tells the task that all else is gone.
    wait_until(|| runtime.metrics().num_alive_tasks() == 0);
}

#[test]
fn an_error_that_passes_is_retried_and_stores_once() {
    let mock = Mock::new();
    let producer = mock.producer(LIMITS);
    let passing = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
    ];
    mock.0.request_errors(RDKafkaApiKey::Produce, &passing);
    block_on(send(&producer, &[("k", b"v".to_vec())])).unwrap();
    assert_eq!(mock.read(1).values().map(Vec::len).sum::<usize>(), 1);
}

#[test]
fn brokers_that_are_away_are_named_and_what_was_not_acknowledged_is_an_error() {
    let mock = Mock::new();
    let producer = mock.producer(ProducerLimits { timeout: Duration::from_secs(1), ..LIMITS });
    mock.0.broker_down(1).unwrap();
    let failure = block_on(send(&producer, &[("k", b"v".to_vec())])).unwrap_err();
    assert_eq!(failure.label(), "timed_out", "{failure}");
    let (text, broker) = (failure.to_string(), mock.0.bootstrap_servers());
    let port = broker.rsplit(':').next().unwrap();
    assert!(text.contains("topic spans") && text.contains(port), "it names the broker {broker}: {text}");
    assert_eq!(producer.problem(), None, "brokers that are away make no pod unready");
    // The next requests need not wait for their whole time to learn it.
    wait_until(|| producer.away().is_some());
    let away = producer.away().unwrap();
    assert!(away.contains(port) && away.contains("topic spans"), "{away}");
    assert_eq!(producer.problem(), None);
    mock.0.broker_up(1).unwrap();
    wait_until(|| producer.away().is_none());
    // The client connects again a while later; meanwhile requests fail, and are sent again.
    wait_until(|| block_on(send(&producer, &[("k", b"w".to_vec())])).is_ok());
}

#[test]
fn there_is_room_for_so_many_bytes_and_no_more() {
    let mock = Mock::new();
    let producer = mock.producer(ProducerLimits { queue_bytes: 300 << 10, ..LIMITS });
    let room = block_on(producer.room(1, 200 << 10));
    assert!(producer.queued_bytes() > 200 << 10);
    let waits = async { tokio::time::timeout(Duration::from_millis(50), producer.room(1, 200 << 10)).await };
    assert!(block_on(waits).is_err());
    drop(room);
    drop(block_on(producer.room(1, 200 << 10)));
    assert_eq!(producer.queued_bytes(), 0);
}

#[test]
fn messages_of_a_request_have_room_together_or_none_has() {
    let mock = Mock::new();
    let producer = mock.producer(ProducerLimits { queue_bytes: 300 << 10, ..LIMITS });
    assert!(producer.room_now(1, [200 << 10, 200 << 10].into_iter()).is_none());
    assert_eq!(producer.queued_bytes(), 0);
    let mut room = producer.room_now(1, [100 << 10, 50 << 10].into_iter()).unwrap();
    let [one, two] = [100 << 10, 50 << 10].map(|value| room.part(1, value).unwrap());
    assert!(room.part(0, 0).is_none(), "all of it is given");
    drop(one);
    assert_eq!(producer.queued_bytes(), 1 + (50 << 10) + MESSAGE_OVERHEAD_BYTES);
    drop(two);
    assert_eq!(producer.queued_bytes(), 0);
}

#[test]
fn a_message_that_the_topic_refuses_for_its_size_lowers_the_limit_of_shared_messages_alone() {
    let mock = Mock::new();
    let producer = mock.producer(LIMITS);
    assert_eq!(producer.size_limits().single_bytes_max, (256 << 10) - BATCH_OVERHEAD_BYTES);
    mock.0.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let failure = block_on(send(&producer, &[("k", vec![b'v'; 9_000])])).unwrap_err();
    assert_eq!(failure, NotStored::TooLarge { topic: "spans".into(), bytes: 9_000 });
    let limits = producer.size_limits();
    assert!(limits.shared_bytes_max <= 9_000, "{limits:?}");
    assert_eq!(limits.single_bytes_max, (256 << 10) - BATCH_OVERHEAD_BYTES, "no span is rejected for it");
    block_on(send(&producer, &[("k", b"v".to_vec())])).unwrap();
}

#[test]
fn a_topic_that_does_not_exist_is_a_problem_and_one_that_is_made_is_none() {
    let mock = Mock::new();
    mock.0.topic_error("spans", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let producer = Producer::start(&mock.kafka(), "spans", "edge", LIMITS, io()).unwrap();
    wait_until(|| producer.problem().is_some_and(|problem| problem.contains("does not exist: create it")));
    assert_eq!(producer.partitions(), None);
    mock.0.topic_error("spans", RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    wait_until(|| producer.partitions() == Some(PARTITIONS));
    assert_eq!(producer.problem(), None);
}

#[test]
fn an_answer_about_the_topic_decides_whether_the_edge_is_ready() {
    let state = TopicState::new(&["k:9092".to_owned()], 1 << 20);
    let expected = "no broker of k:9092 has answered about topic spans yet";
    assert!(state.problem("spans").unwrap().contains(expected));
    state.learn(Asked::Unanswered("all brokers down".into()));
    assert!(state.problem("spans").unwrap().contains("all brokers down"));
    let refused = "k:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused";
    state.note_error(&KafkaError::Global(Code::BrokerTransportFailure), refused);
    state.learn(Asked::Unanswered("BrokerTransportFailure".into()));
    assert_eq!(state.problem("spans").unwrap(), format!("{expected}: {refused}"));
    assert_eq!(state.unacknowledged(), refused);
    state.login_refused("a broker refuses the connection: no".into());
    state.learn(Asked::Unanswered("all brokers down".into()));
    assert_eq!(state.problem("spans").unwrap(), "a broker refuses the connection: no");
    state.learn(Asked::Partitions(3));
    assert_eq!((state.problem("spans"), state.partitions()), (None, Some(3)));
    assert!(state.unacknowledged().contains("k:9092"), "{}", state.unacknowledged());
    state.learn(Asked::Unanswered("all brokers down".into()));
    assert_eq!((state.problem("spans"), state.partitions()), (None, Some(3)));
    let away = state.away("spans").unwrap();
    assert_eq!(away, "no broker of k:9092 answers about topic spans: all brokers down");
    state.learn(Asked::Partitions(3));
    assert_eq!(state.away("spans"), None);
    state.learn(Asked::Refused("Broker: Topic authorization failed".into()));
    assert!(state.problem("spans").unwrap().contains("allow the edge's user to describe and write it"));
    state.learn(Asked::Missing);
    assert_eq!(state.partitions(), None);
}
