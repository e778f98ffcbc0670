//! The state that a gateway reports.

use super::*;
use crate::ground::metrics::reference::metrics;
use crate::source::{gate::Gate, keeper::OnFatal, unreadable::Reader};
use crate::volume::{
    spool::Ended,
    test_volume::{TestTable, Volume as Folder, damage},
};
use sluice_gateway_config::ByteSize;
use sluice_kafka::{BatchRemedy, OpenTransaction, watchdog::Reason};
use sluice_otlp_server::ByteBudget;
use sluice_ranges::PartitionId;

/// What a gateway reports that holds nothing.
const NOTHING: Remaining = Remaining {
    blocks: 0,
    bytes: 0,
    uncommitted: 0,
    damaged: Some(false),
    unreadable: false,
    draining: Some(false),
    control: None,
};

fn still(partition: i32, reason: Reason, is_stuck: bool) -> Still {
    let id = PartitionId { topic: "spans".into(), partition };
    Still { id, reason, since: Duration::from_secs(125), is_stuck }
}

fn status() -> (Status, Arc<ConsumerStats>) {
    let status = Status::new(Arc::new(metrics()), Arc::new(Pool::new(1 << 20, 1, 1)), None);
    let consumer = Arc::new(ConsumerStats::default());
    status.consumes(consumer.clone());
    (status, consumer)
}

/// Gives it no logs, and takes no request.
fn accept(status: &Status) -> Arc<SourceNumbers> {
    let numbers = Arc::new(SourceNumbers::new(ByteBudget::new(1)));
    let gate = Gate::new(Drain::default());
    gate.close();
    let fails: OnFatal = Arc::new(|fatal| panic!("{fatal}"));
    let keeper = Keeper::new([0; 16], Vec::new(), gate, numbers.clone(), fails);
    status.accepts(numbers.clone(), Arc::new(keeper));
    numbers.is_accepting.store(true, Ordering::Relaxed);
    numbers
}

#[test]
fn a_stuck_partition_makes_the_gateway_not_ready_and_is_named() {
    let (status, consumer) = status();
    status.table_fits();
    assert!(status.ready().unwrap_err().contains("assigned"));
    consumer.joined.store(true, Ordering::Release);
    assert_eq!(status.ready(), Ok(()));

    consumer.publish_still(vec![still(3, Reason::Sink, false), still(4, Reason::NoFetch, false)]);
    assert_eq!(status.ready(), Ok(()), "it is looked into");
    consumer.publish_still(vec![still(3, Reason::Sink, false), still(4, Reason::NoFetch, true)]);
    let expected = "partition spans/4 stands still: no message is fetched from it";
    assert_eq!(status.ready(), Err(expected.to_owned()));
    status.refresh();
    let text = status.metrics.text().unwrap();
    for line in [
        r#"sluice_gateway_partition_still{partition="3",reason="sink",topic="spans"} 1"#,
        r#"sluice_gateway_partition_still{partition="4",reason="no_fetch",topic="spans"} 1"#,
        "sluice_gateway_ready 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }

    consumer.publish_still(Vec::new());
    assert_eq!(status.ready(), Ok(()));
}

#[test]
fn a_partition_that_stands_at_a_large_batch_names_the_settings_that_read_it() {
    let (status, consumer) = status();
    status.table_fits();
    consumer.joined.store(true, Ordering::Release);
    let remedy =
        BatchRemedy::Settings { record_batch_bytes_max: ByteSize::mib(5), memory_limit: ByteSize::mib(256) };
    consumer.publish_still(vec![still(4, Reason::StoppedByMessage(remedy), true)]);
    let expected = "partition spans/4 stands still: its next record batch cannot be read; set \
                    source.kafka.recordBatchBytesMax: 5Mi with memory.limit: 256Mi (in a TracePipeline: \
                    gateway.resources.limits.memory)";
    assert_eq!(status.ready(), Err(expected.to_owned()));
    assert_eq!(status.state().sample.topics[0].partitions[0].still.as_deref(), Some("stopped_by_message"));
}

#[test]
fn one_that_waits_for_its_table_says_why() {
    let (status, consumer) = status();
    consumer.joined.store(true, Ordering::Release);
    assert_eq!(status.ready().unwrap_err(), "the gateway has not checked the table yet");
    let said = || {
        let sample = status.state().sample;
        (sample.table_error, sample.table_missing)
    };
    status.waits_for_table("Table otel.otel_traces does not exist", Some("TableMissing"));
    assert_eq!(status.ready().unwrap_err(), "waits for the table: Table otel.otel_traces does not exist");
    assert_eq!(said(), (Some("TableMissing".to_owned()), Some(true)));
    status.waits_for_table("Database otel does not exist", Some("DatabaseMissing"));
    assert_eq!(said(), (Some("DatabaseMissing".to_owned()), None));
    status.waits_for_table("the table otel.otel_traces is a Null: it stores no rows", None);
    assert_eq!(said(), (None, None));
    status.table_fits();
    assert_eq!(said(), (None, None));
    assert_eq!(status.ready(), Ok(()));
}

#[test]
fn a_member_that_its_group_does_not_take_back_is_not_ready() {
    let (status, consumer) = status();
    status.table_fits();
    consumer.joined.store(true, Ordering::Release);
    let ago = |time| Instant::now().checked_sub(time).expect("the machine runs for longer");
    consumer.see_group("up", "wait-join", ago(OUTSIDE_MAX / 2));
    assert_eq!(status.ready(), Ok(()), "a rebalance");
    consumer.see_group("up", "steady", Instant::now());
    consumer.see_group("up", "wait-join", ago(OUTSIDE_MAX + Duration::from_secs(1)));
    let why = status.ready().unwrap_err();
    assert!(why.starts_with("out of the consumer group for more than 120 s: nothing is read"), "{why}");
    consumer.see_group("up", "steady", Instant::now());
    assert_eq!(status.ready(), Ok(()));
}

#[test]
fn one_that_drains_is_not_ready_and_one_that_resumes_is() {
    let (status, consumer) = status();
    status.table_fits();
    consumer.joined.store(true, Ordering::Release);
    for _ in 0..2 {
        status.drain();
        assert!(status.drain_asked().is_requested() && status.remaining().draining == Some(true));
        assert!(status.ready().unwrap_err().contains("drain"));
    }
    for _ in 0..2 {
        status.resume();
        assert_eq!(status.ready(), Ok(()));
        assert!(status.remaining().draining == Some(false));
    }
}

#[test]
fn what_is_held_is_told() {
    let (status, consumer) = status();
    assert_eq!(status.remaining(), NOTHING);
    consumer.uncommitted.store(7, Ordering::Relaxed);
    status.metrics.blocks_in_flight.set(2);
    assert_eq!(status.remaining(), Remaining { blocks: 2, uncommitted: 7, ..NOTHING });
    assert_eq!(status.uncommitted_offsets(), 7);
}

#[test]
fn a_volume_with_dead_letters_or_damage_must_stay() {
    let status = Status::new(Arc::new(metrics()), Arc::new(Pool::new(1 << 20, 1, 1)), None);
    let numbers = accept(&status);
    assert_eq!(status.remaining(), NOTHING);
    numbers.letter_bytes.store(9, Ordering::Relaxed);
    assert_eq!(status.remaining(), Remaining { damaged: Some(true), ..NOTHING });
    numbers.letter_bytes.store(0, Ordering::Relaxed);
    numbers.is_damaged.store(true, Ordering::Relaxed);
    assert_eq!(status.remaining(), Remaining { damaged: Some(true), ..NOTHING });
    numbers.is_damaged.store(false, Ordering::Relaxed);
    numbers.unreadable.add(3, Reader::Worker);
    assert_eq!(status.remaining(), Remaining { damaged: Some(true), unreadable: true, ..NOTHING });
    let topics = status.state().sample.topics;
    let stills =
        topics.iter().flat_map(|topic| &topic.partitions).map(|log| (log.partition, log.still.as_deref()));
    assert_eq!(stills.collect::<Vec<_>>(), [(3, Some("unreadable"))]);
    status.refresh();
    let still = status.metrics.partition_still.with_label_values(&["otlp", "3", "unreadable"]).get();
    assert_eq!((topics[0].name.as_str(), still), ("otlp", 1));
    assert_eq!(status.metrics.requests.damaged.get(), 1);
}

#[test]
fn a_gateway_whose_ports_are_not_open_yet_is_not_ready() {
    let status = Status::new(Arc::new(metrics()), Arc::new(Pool::new(1 << 20, 1, 1)), None);
    let numbers = accept(&status);
    assert_eq!(status.ready(), Ok(()));
    numbers.is_accepting.store(false, Ordering::Relaxed);
    assert_eq!(status.ready(), Err("the ports of OTLP are not open yet".to_owned()));
}

#[test]
fn one_that_takes_requests_says_that_its_table_cannot_be_used() {
    let status = Status::new(Arc::new(metrics()), Arc::new(Pool::new(1 << 20, 1, 1)), None);
    accept(&status);
    let error = |status: &Status| status.state().sample.insert_error.and_then(|error| error.message);
    assert_eq!(error(&status), None, "it has not looked yet");
    for failures in 1..3 {
        status.waits_for_table("Table otel.otel_traces does not exist", Some("TableMissing"));
        assert_eq!(status.ready(), Ok(()), "clients get answers");
        let said = status.state().sample;
        assert_eq!((said.insert_failures, said.sink_behind), (failures, Some(true)));
        let expected = "waits for the table: Table otel.otel_traces does not exist";
        assert_eq!(error(&status).as_deref(), Some(expected));
    }
    status.table_fits();
    let said = status.state().sample;
    assert_eq!((said.insert_failures, said.sink_behind, error(&status)), (2, Some(false), None));
}

/// The blocks of an earlier run before the volume is opened.
#[tokio::test]
async fn a_volume_that_is_not_open_yet_does_not_count_as_empty() {
    let folder = Folder::new("not-open");
    let pool = Arc::new(Pool::new(4 << 20, 1, 1));
    let of = |volume: Volume| Status::new(Arc::new(metrics()), pool.clone(), Some(volume));
    let claim = || Volume::claim(folder.path(), &sluice_spool::Identity::of("a", "b")).unwrap();

    assert_eq!(of(claim()).remaining(), NOTHING, "nothing was ever there");
    let spool = folder.open(64 << 20);
    let mut test = TestTable::new(&spool);
    for first in [0, 10] {
        let frames = test.add(first);
        assert!(test.spill(&frames));
    }
    assert!(spool.close(Duration::from_mins(1)));

    let status = of(claim());
    assert_eq!(status.remaining().blocks, 1, "nobody knows how many");
    status.spools(folder.open(64 << 20));
    assert_eq!(status.remaining().blocks, 2);
    assert_eq!(status.remaining().damaged, Some(false));
}

#[tokio::test]
async fn a_volume_with_something_that_cannot_be_read_says_so() {
    let folder = Folder::new("says-damaged");
    let pool = Arc::new(Pool::new(4 << 20, 1, 1));
    let spool = folder.open(64 << 20);
    let mut test = TestTable::new(&spool);
    let mut frames = test.add(0);
    assert!(test.spill(&frames));
    test.arrive().await;
    let status = Status::new(Arc::new(metrics()), pool, None);
    status.spools(spool.clone());
    assert_eq!(status.remaining().damaged, Some(false));
    damage(&folder.files()[0]);
    assert!(test.load(&mut frames).await.is_err(), "it was read");
    test.table.end(frames.number(), Ended::Damaged);
    // Closing waits until the spool thread has handled that.
    spool.close(Duration::from_mins(1));
    assert!(status.remaining().damaged == Some(true), "{:?}", status.remaining());
}

#[test]
fn an_answer_names_some_and_counts_the_rest() {
    let many = (0..20).map(|partition| still(partition, Reason::NoTurn, true)).collect();
    let text = Stuck::of(many).unwrap().to_string();
    assert!(text.len() < 1_024 && text.ends_with("; and 12 more"), "{text}");
    assert_eq!(Stuck::of(vec![still(0, Reason::Sink, false)]), None);
}

#[test]
fn what_waits_behind_an_open_transaction_is_told_until_it_ends() {
    let (status, consumer) = status();
    let open = OpenTransaction { first_offset: 120, messages: 1_234, age: Duration::from_millis(961_500) };
    consumer.publish_open_transactions([(still(3, Reason::Sink, false).id, open)].into());
    status.refresh();
    let text = status.metrics.text().unwrap();
    for line in [
        r#"sluice_gateway_open_transaction_messages{partition="3",topic="spans"} 1234"#,
        r#"sluice_gateway_open_transaction_seconds{partition="3",topic="spans"} 961.5"#,
        r#"sluice_gateway_open_transaction_first_offset{partition="3",topic="spans"} 120"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    consumer.publish_open_transactions([].into());
    status.refresh();
    let text = status.metrics.text().unwrap();
    assert!(!text.contains("sluice_gateway_open_transaction"), "{text}");
}

#[test]
fn what_was_lost_and_what_is_missed_is_told() {
    let (status, consumer) = status();
    consumer.messages_lost.store(7, Ordering::Relaxed);
    consumer.fresh_starts.store(2, Ordering::Relaxed);
    consumer.rule_changes.store(8, Ordering::Relaxed);
    consumer.doubtful_ranges.store(3, Ordering::Relaxed);
    consumer.partitions_halted.store(4, Ordering::Relaxed);
    consumer.publish_seconds_left([(still(1, Reason::Sink, false).id, 2.5)].into());
    consumer.publish_overtaken([(still(2, Reason::Sink, false).id, 6)].into());
    let mut open = status.account().open();
    open.walked(5);
    drop(open.seal(5));
    for _ in 0..2 {
        status.refresh();
        let text = status.metrics.text().unwrap();
        for line in [
            "sluice_gateway_messages_lost_total 7",
            "sluice_gateway_fresh_starts_total 2",
            "sluice_gateway_rule_changes_total 8",
            "sluice_gateway_doubtful_ranges_total 3",
            "sluice_gateway_partitions_halted 4",
            "sluice_gateway_ledger_imbalance_rows 5",
            r#"sluice_gateway_retention_seconds_left{partition="1",topic="spans"} 2.5"#,
            r#"sluice_gateway_messages_overtaken{partition="2",topic="spans"} 6"#,
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
