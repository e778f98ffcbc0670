//! A worker and its letters with librdkafka's mock cluster, which refuses on demand.

use super::*;
use crate::{
    blocks::{
        batch::BlockAge,
        block::{Block, Place},
        buffers::Pool,
    },
    ground::{account::RowAccount, metrics::Metrics, route::Route},
    reading::{reader::Reader, worker::WorkerDeps},
    rows::{attributes::RowLimit, carry::Carrying},
};
use crossbeam_channel::{Receiver, bounded};
use rdkafka::{
    Timestamp,
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use sluice_clickhouse::column::{Layout, TableColumns};
use sluice_gateway_config::{
    AttributeAction, AttributeRule, Attributes, AttributesOf, CheckedConfig, UnreadableLetters, parse,
};
use sluice_kafka::{
    Shortage,
    dead_letter::{DeadLetters, LETTERS_MAX},
};
use sluice_ranges::{
    Committed, Content, Generation, Log, Now, OffsetRange, PartitionId, Plan, Ranges, Rule, Settings, Token,
};
use std::sync::Arc;
use tokio::sync::mpsc;

mod runs;

/// A mock answers within milliseconds; a refused letter waits ten seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// A span with only its ids.
#[rustfmt::skip]
const GOOD: &[u8] = &[
    0x0a, 32, 0x12, 30, 0x12, 28,
    0x0a, 16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    0x12, 8, 2, 2, 2, 2, 2, 2, 2, 2,
];

const BAD: &[u8] = b"{}";

const DENIED: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;

fn config(broker: &str) -> CheckedConfig {
    let text = format!(
        "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 256MiB}}, \
         source: {{kafka: {{bootstrapServers: ['{broker}'], topics: [spans], consumerGroup: g}}}}, \
         sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t}}}}}}"
    );
    parse::from_yaml(&text).unwrap().check().unwrap()
}

/// A worker and the other ends of its channels.
struct Bench {
    worker: Worker,
    mock: MockCluster<'static, DefaultProducerContext>,
    letters: DeadLetters,
    reports: Receiver<Report>,
    blocks: mpsc::Receiver<Block>,
    account: RowAccount,
    metrics: Arc<Metrics>,
    config: CheckedConfig,
}

impl Bench {
    fn new(on_missing: OnMissing) -> Self {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("spans", 2, 1).unwrap();
        mock.create_topic("spans.dead-letter", 2, 1).unwrap();
        let config = config(&mock.bootstrap_servers());
        let letters =
            DeadLetters::start(config.config().source.kafka.as_ref().unwrap(), None, "letters").unwrap();
        let (reports, reports_in) = bounded(64);
        let (blocks, blocks_in) = mpsc::channel(8);
        let (waker, wake) = bounded(1);
        let account = RowAccount::default();
        let metrics = Arc::new(Metrics::new(config.budget()));
        let kafka = config.config().source.kafka.as_ref().unwrap();
        let worker = Worker::new(WorkerDeps {
            ownership: bounded(1).1,
            wake,
            waker,
            shortage: Shortage::default(),
            blocks,
            reports,
            dead_letters: letters.clone(),
            pool: Arc::new(Pool::new(config.budget().blocks.get(), 3, 1)),
            age_max: BlockAge::of(&config.config().sink.clickhouse.insert),
            workers: 1,
            route: Route::new(1),
            reader: Reader::new(kafka.format, kafka.record_batch_bytes_max),
            sizing: config.config().sizing(),
            on_missing,
            columns: TableColumns::of_layout(Layout::Map),
            carrying: Carrying::of(&config.config().attributes),
            expiry: Arc::default(),
            row_buffers_max: 3,
            account: account.clone(),
            metrics: metrics.clone(),
            seconds: metrics.worker(0),
        });
        Self { worker, mock, letters, reports: reports_in, blocks: blocks_in, account, metrics, config }
    }

    /// A partition from offset 0 on; below `horizon` an earlier owner may have sent ranges.
    fn reading(&self, partition: i32, horizon: Option<i64>) -> Reading {
        let rule = Rule::of(&self.config.config().sink.clickhouse.insert);
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
        let plan = horizon.map(|horizon| {
            let cuts = Vec::new();
            Plan {
                offset: 0,
                rule,
                routing_epoch: 0,
                destination: None,
                horizon,
                topic_id: None,
                cluster: None,
                t0: 1,
                cuts,
                parted: vec![],
                gaps: vec![],
                doubtful_up_to: 0,
            }
            .encode()
        });
        let log = Log { start: 0, end: 10 };
        let committed = Committed { commit: plan.as_deref().map(|plan| (0, plan)), begin: 0, log };
        let now = Now { steady: Duration::ZERO, unix_seconds: 1 };
        let (_, cutter, _) = Ranges::assigned(Generation(1), &committed, settings, now).unwrap();
        let id = PartitionId { topic: "spans".into(), partition };
        let place = Place { id, generation: Generation(1), cluster: "cluster".into() };
        Reading {
            place,
            cutter,
            closing: None,
            block: None,
            state: State::Polling,
            log_end: 10,
            caught_up: false,
            tail_unasked: false,
            lettered: None,
            rejected_in_a_row: 0,
        }
    }

    fn message(reading: &Reading, offset: i64, value: &[u8]) -> OwnedMessage {
        let (topic, partition) = ("spans".to_owned(), reading.place.id.partition);
        OwnedMessage::new(
            Some(value.to_vec()),
            None,
            topic,
            Timestamp::CreateTime(1),
            partition,
            offset,
            None,
        )
    }

    /// Takes a message behind one whose letter is under way. `false` if none would be polled.
    fn take_ahead(&mut self, reading: &mut Reading, offset: i64, value: &[u8]) -> bool {
        let reads = self.worker.reads_ahead(reading);
        if reads {
            let message = Self::message(reading, offset, value);
            self.worker.take_ahead(reading, message);
        }
        reads
    }

    fn take(&mut self, reading: &mut Reading, offset: i64, value: &[u8]) {
        let message = Self::message(reading, offset, value);
        match self.worker.take(reading, &message) {
            Taken::Yes => {}
            Taken::NoRoom => panic!("there is memory"),
            Taken::NoRoomForLetter => self.worker.keep_for_letter(reading, || message),
        }
    }

    /// Checks the letter until a condition holds.
    fn tend_until(&mut self, reading: &mut Reading, holds: impl Fn(&Reading) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(reading) {
            assert!(Instant::now() < deadline, "what is waited for does not come");
            if !self.worker.tend_reading(reading) {
                self.worker.wait(Instant::now());
            }
        }
    }

    fn deny(&self, times: usize) {
        self.mock.request_errors(RDKafkaApiKey::Produce, &vec![DENIED; times]);
    }

    /// Offsets, rows and token of the blocks that were sealed.
    fn sealed(&mut self) -> Vec<(OffsetRange, u64, Token)> {
        let mut sealed = Vec::new();
        while let Ok(block) = self.blocks.try_recv() {
            sealed.push((block.range, block.rows, block.token));
            block.account.settled();
        }
        sealed
    }

    fn waits(&self) -> Vec<bool> {
        let waits = |report| if let Report::Lettering { waits, .. } = report { Some(waits) } else { None };
        self.reports.try_iter().filter_map(waits).collect()
    }
}

fn is_polling(reading: &Reading) -> bool {
    matches!(reading.state, State::Polling)
}

fn is_stopped(reading: &Reading) -> bool {
    matches!(&reading.state, State::PendingLetter(letter) if letter.is_stopped())
}

/// The block of these values at offsets from `first` on.
fn block(reading: &Reading, first: i64, rows: u64, values: &[&[u8]]) -> (OffsetRange, u64, Token) {
    let range = OffsetRange { first, next: first + i64::try_from(values.len()).unwrap() };
    let content = Content::of(values.iter().copied().map(Some));
    (range, rows, Token::of("cluster", &reading.place.id, range, content))
}

#[test]
fn a_message_joins_its_range_once_its_letter_is_delivered() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.take(&mut reading, 0, GOOD);
    bench.take(&mut reading, 1, BAD);
    assert_eq!(reading.cutter.position(), 1, "its letter is under way");
    bench.tend_until(&mut reading, is_polling);
    assert_eq!(reading.cutter.position(), 2);
    bench.take(&mut reading, 2, GOOD);
    bench.worker.flush(&mut reading).unwrap();
    assert_eq!(bench.sealed(), [block(&reading, 0, 2, &[GOOD, BAD, GOOD])]);
    assert_eq!(bench.metrics.dead_letters.with_label_values(&["malformed"]).get(), 1);
    assert_eq!((bench.account.imbalance(), bench.account.in_flight()), (0, 0));
}

#[test]
fn a_range_of_bad_messages_alone_settles_without_a_block() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.take(&mut reading, 0, BAD);
    bench.tend_until(&mut reading, is_polling);
    assert!(reading.block.is_some(), "whose age is that of the range");
    bench.worker.flush(&mut reading).unwrap();
    let settled = bench.reports.try_iter().find_map(|report| match report {
        Report::Closed { closed, has_rows: false, .. } => Some(closed.range),
        _ => None,
    });
    assert_eq!(settled, Some(OffsetRange { first: 0, next: 1 }));
    assert!(bench.sealed().is_empty());
}

#[test]
fn a_refused_letter_stops_its_partition_alone_until_it_is_taken() {
    let mut bench = Bench::new(OnMissing::Stop);
    let (mut reading, mut other) = (bench.reading(0, None), bench.reading(1, None));
    bench.deny(1);
    bench.take(&mut reading, 0, GOOD);
    bench.take(&mut reading, 1, BAD);
    bench.tend_until(&mut reading, is_stopped);
    assert_eq!(bench.metrics.partitions_stopped.get(), 1);
    assert_eq!(bench.waits(), [true]);
    assert_eq!(bench.sealed(), [block(&reading, 0, 1, &[GOOD])], "what was before is inserted");
    bench.take(&mut other, 0, GOOD);
    assert_eq!(other.cutter.position(), 1);

    bench.tend_until(&mut reading, is_polling);
    assert_eq!((bench.metrics.partitions_stopped.get(), bench.waits()), (0, vec![false]));
    bench.take(&mut reading, 2, GOOD);
    bench.worker.flush(&mut reading).unwrap();
    assert_eq!(bench.sealed(), [block(&reading, 1, 1, &[BAD, GOOD])]);
    assert_eq!(bench.metrics.dead_letters_refused.with_label_values(&["not_authorized"]).get(), 1);
}

#[test]
fn a_refused_letter_is_passed_over_where_that_is_asked_for() {
    let mut bench = Bench::new(OnMissing::Skip);
    let mut reading = bench.reading(0, None);
    bench.deny(1);
    bench.take(&mut reading, 0, BAD);
    bench.tend_until(&mut reading, is_polling);
    assert_eq!((reading.cutter.position(), bench.letters.waiting()), (1, 0));
    assert_eq!(bench.metrics.messages_skipped.with_label_values(&["malformed"]).get(), 1);
    assert_eq!(bench.metrics.partitions_stopped.get(), 0);
}

#[test]
fn what_may_not_end_in_front_of_a_refused_letter_is_given_back_and_read_again() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, Some(5));
    bench.deny(1);
    bench.take(&mut reading, 0, GOOD);
    bench.take(&mut reading, 1, BAD);
    bench.tend_until(&mut reading, is_stopped);
    assert!(reading.block.is_none() && bench.sealed().is_empty());
    assert_eq!((bench.account.abandoned(), bench.account.imbalance()), (1, 0));
    bench.tend_until(&mut reading, |reading| matches!(reading.state, State::Leaving(Renew::Letter)));
    assert_eq!(reading.closing, None, "a range without the rows that were given back must not settle");
    assert_eq!(bench.metrics.partitions_stopped.get(), 0);
}

#[test]
fn what_may_not_end_in_front_of_a_letter_that_takes_its_time_is_kept() {
    let mut bench = Bench::new(OnMissing::Stop);
    let (mut replays, mut reads) = (bench.reading(0, Some(5)), bench.reading(1, None));
    bench.mock.broker_down(1).unwrap();
    for reading in [&mut replays, &mut reads] {
        bench.take(reading, 0, GOOD);
        bench.take(reading, 1, BAD);
    }
    let is_told =
        |reading: &Reading| matches!(&reading.state, State::PendingLetter(letter) if letter.is_told);
    bench.tend_until(&mut replays, is_told);
    bench.tend_until(&mut reads, is_told);
    assert_eq!((bench.waits(), bench.metrics.partitions_stopped.get()), (vec![true, true], 0));
    assert_eq!(bench.sealed(), [block(&reads, 0, 1, &[GOOD])]);
    bench.mock.broker_up(1).unwrap();
    bench.tend_until(&mut replays, is_polling);
    assert_eq!((replays.cutter.position(), replays.block.is_some()), (2, true));
    assert_eq!(bench.account.abandoned(), 0);
}

#[test]
fn a_partition_that_goes_takes_its_letter_out_of_the_counts() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.deny(1);
    bench.take(&mut reading, 0, BAD);
    bench.tend_until(&mut reading, is_stopped);
    bench.worker.release(reading, None);
    assert_eq!(bench.metrics.partitions_stopped.get(), 0);
    let deadline = Instant::now() + PATIENCE;
    while bench.letters.waiting() > 0 {
        assert!(Instant::now() < deadline, "the letter keeps its room");
        std::thread::yield_now();
    }
}

#[test]
fn one_message_a_worker_waits_for_room_among_the_letters_and_others_are_read_again() {
    let mut bench = Bench::new(OnMissing::Stop);
    let (mut first, mut second) = (bench.reading(0, None), bench.reading(1, None));
    bench.mock.broker_down(1).unwrap();
    let message = OwnedMessage::new(None, None, "spans".to_owned(), Timestamp::NotAvailable, 0, 0, None);
    let letter = Letter::of_message(&message, bench.worker.parts.sizing.format, "malformed", "");
    let receipts: Vec<_> = (0..LETTERS_MAX).map(|_| bench.letters.send(&letter).unwrap()).collect();
    bench.take(&mut first, 0, BAD);
    bench.take(&mut second, 0, BAD);
    assert!(!bench.worker.tend_reading(&mut first) && !bench.worker.tend_reading(&mut second));
    assert!(bench.worker.letters.holds_message);
    bench.mock.broker_up(1).unwrap();
    bench.tend_until(&mut first, is_polling);
    assert!(!bench.worker.letters.holds_message);
    bench.tend_until(&mut second, |reading| matches!(reading.state, State::Leaving(Renew::Letter)));
    assert_eq!(second.cutter.position(), 0);
    drop(receipts);
}

/// `TracesData` of a resource with the attribute `secret`, which is empty.
#[rustfmt::skip]
const SECRET: &[u8] = &[0x0a, 12, 0x0a, 10, 0x0a, 8, 0x0a, 6, b's', b'e', b'c', b'r', b'e', b't'];

#[test]
fn a_letter_has_no_attribute_that_rules_drop_as_far_as_attributes_can_be_found() {
    let mut bench = Bench::new(OnMissing::Stop);
    let reading = bench.reading(0, None);
    let rule = AttributeRule {
        action: AttributeAction::Drop,
        keys: vec!["secret".to_owned()],
        sets: AttributesOf::ALL.to_vec(),
    };
    for (unreadable_letters, is_withheld) in
        [(UnreadableLetters::Original, false), (UnreadableLetters::WithoutValue, true)]
    {
        let attributes =
            Attributes { rules: vec![rule.clone()], unreadable_letters, ..Attributes::default() };
        bench.worker.parts.carrying = Carrying::of(&attributes);
        let content = |reason: reject::Reason, value: &[u8]| {
            let rejected = Rejected::of(&Bench::message(&reading, 0, value), &reason);
            bench.worker.letter_content(&rejected, value)
        };
        let unreadable = reject::Reason::Malformed(sluice_otlp::validate(BAD).unwrap_err());
        assert_eq!(matches!(content(unreadable, BAD), LetterContent::Withheld), is_withheld);
        let LetterContent::Edited(edited) = content(reject::Reason::RowTooLarge(RowLimit::Bytes), SECRET)
        else {
            panic!("the letter has the attribute")
        };
        assert_eq!(edited, [0x0a, 2, 0x0a, 0]);
        // It is too large, and broken behind the place where that was found.
        assert!(matches!(content(reject::Reason::MessageTooLarge, BAD), LetterContent::Withheld));
    }
    bench.worker.parts.carrying = None;
    let rejected =
        Rejected::of(&Bench::message(&reading, 0, SECRET), &reject::Reason::RowTooLarge(RowLimit::Bytes));
    assert!(matches!(bench.worker.letter_content(&rejected, SECRET), LetterContent::Original));
}
