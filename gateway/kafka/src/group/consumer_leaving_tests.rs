//! A process that ends, as the other members of its group see it: with a mock of Kafka, which keeps a static member for its session.

use super::*;
use crate::ground::settings::tests::kafka as settings;
use rdkafka::mocking::MockCluster;
use sluice_gateway_config::{ByteSize, Format, InsertFormat, SESSION_SECONDS};
use sluice_ranges::Version;

fn member(name: &str) -> Identity {
    Identity { client_id: name.to_owned(), instance_id: Some(name.to_owned()), rack: None }
}

fn limits() -> Limits {
    let sizing = Sizing {
        limit: ByteSize::mib(256),
        workers: 1,
        partitions_active_max: 8,
        record_batch_bytes_max: ByteSize::mib(1),
        format: Format::OtlpProto,
        insert_concurrency: 1,
        insert_format: InsertFormat::RowBinary,
    };
    Limits {
        rule: Rule { version: Version::Before, bytes: 100, messages: 10 },
        routing_epoch: 0,
        revoke_wait: Duration::ZERO,
        leave_wait: Duration::from_secs(1),
        sizing,
    }
}

#[test]
fn a_process_that_ends_while_it_drains_leaves_its_partitions_to_others_before_its_session_is_over() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("spans", 2, 1).unwrap();
    let kafka = Kafka { bootstrap_servers: vec![mock.bootstrap_servers()], ..settings() };
    // Its worker never gives the partitions back, as one that waits for ClickHouse.
    let ((ownership, gained), (wake, _woken)) = (bounded(16), bounded(1));
    let inbox = Inbox { ownership, wake, shortage: Shortage::default() };
    let leaving =
        Consumer::new(&kafka, &member("pod-0"), vec![inbox], Box::new(|_| Ok(())), limits()).unwrap();
    let (stop, drain, stats) = (Stop::default(), Drain::default(), leaving.stats());
    let (asked, drains) = (stop.clone(), drain.clone());
    let running = std::thread::spawn(move || leaving.run(&asked, &drains, |_| {}));
    let begun = Instant::now();
    while !stats.joined.load(Ordering::Acquire) {
        assert!(begun.elapsed() < Duration::from_mins(1), "it does not join");
        std::thread::sleep(Duration::from_millis(1));
    }
    drain.request();
    stop.request(Duration::from_secs(1));
    let ended = running.join().unwrap();
    assert!(matches!(ended, Ok(()) | Err(Error::NotDrained { .. })), "{ended:?}");
    drop(gained);
    let mut config = ClientConfig::new();
    let other = member("pod-1");
    for (name, value) in consumer_settings(&kafka, &other).unwrap() {
        config.set(name, value);
    }
    let other: BaseConsumer = config.create().unwrap();
    other.subscribe(&["spans"]).unwrap();
    // After a session it would have the partitions in any case.
    let (begun, patience) = (Instant::now(), Duration::from_secs(u64::from(SESSION_SECONDS) / 2));
    while other.assignment().unwrap().count() < 2 {
        assert!(begun.elapsed() < patience, "the group still waits for the one that has ended");
        assert!(!matches!(other.poll(POLL_INTERVAL), Some(Ok(_))), "the topic is empty");
    }
}
