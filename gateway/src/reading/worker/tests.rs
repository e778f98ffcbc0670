use super::*;
use crate::{
    blocks::buffers::{CHUNK_BYTES, Purpose},
    ground::metrics::reference,
};
use crossbeam_channel::bounded;
use sluice_clickhouse::row_frames::FrameStore as _;
use sluice_gateway_config::{ByteSize, Format};
use sluice_kafka::{BatchRemedy, LogMessages, PartitionQueue};
use sluice_ranges::{Committed, Log, Now, Plan, Ranges, Rule, Settings, Version};
use std::cell::RefCell;

const RULE: Rule = Rule { version: Version::Before, bytes: 1_000, messages: 100 };

/// One of two workers, and the other end of its reports.
fn worker(pool: &Arc<Pool>) -> (Worker, Receiver<Report>) {
    let metrics = Arc::new(reference::metrics());
    let config = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 2, memory: {limit: 256MiB}, \
                  source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                  sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";
    let config = sluice_gateway_config::parse::from_yaml(config).unwrap();
    let (reports, reports_in) = bounded(16);
    let (waker, wake) = bounded(1);
    let parts = WorkerDeps {
        ownership: bounded(1).1,
        wake,
        waker,
        // It contacts no broker before the first letter.
        dead_letters: DeadLetters::start(config.source.kafka.as_ref().unwrap(), None, "worker").unwrap(),
        shortage: Shortage::default(),
        blocks: mpsc::channel(1).0,
        reports,
        pool: pool.clone(),
        age_max: BlockAge::of(&config.sink.clickhouse.insert),
        workers: 2,
        route: Route::new(1),
        reader: Reader::new(Format::OtlpProto, ByteSize::mib(1)),
        sizing: reference::sizing(),
        on_missing: OnMissing::Stop,
        columns: TableColumns::default(),
        carrying: None,
        expiry: Arc::default(),
        row_buffers_max: 4,
        account: RowAccount::default(),
        seconds: metrics.worker(0),
        metrics,
    };
    (Worker::new(parts), reports_in)
}

/// A partition that replays up to 90, with a block of this many bytes.
fn replaying(worker: &mut Worker, partition: i32, bytes: usize) -> Reading {
    let plan = Plan {
        offset: 0,
        rule: RULE,
        routing_epoch: 0,
        destination: None,
        horizon: 90,
        topic_id: None,
        cluster: None,
        t0: 1,
        cuts: vec![],
        parted: vec![],
        gaps: vec![],
        doubtful_up_to: 0,
    };
    let metadata = plan.encode();
    let reading = reading(worker, partition, bytes, Some((0, &metadata)));
    assert!(reading.cutter.is_replaying());
    reading
}

/// A partition with this commit, and a block of this many bytes.
fn reading(worker: &mut Worker, partition: i32, bytes: usize, commit: Option<(i64, &str)>) -> Reading {
    let generation = Generation(1);
    let settings =
        Settings { rule: RULE, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
    let committed = Committed { commit, begin: 0, log: Log { start: 0, end: 90 } };
    let now = Now { steady: Duration::ZERO, unix_seconds: 1 };
    let (_, cutter, _) = Ranges::assigned(generation, &committed, settings, now).unwrap();
    let id = PartitionId { topic: "spans".into(), partition };
    let place = Place { id, generation, cluster: "cluster".into() };
    let state = State::Polling;
    let mut reading = Reading {
        place,
        cutter,
        closing: None,
        block: None,
        state,
        lettered: None,
        rejected_in_a_row: 0,
        log_end: 90,
        caught_up: false,
        tail_unasked: false,
    };
    assert!(worker.opens(&mut reading));
    assert_eq!(reading.cutter.take(0, Some(b"value")), None);
    let block = reading.block.as_mut().unwrap();
    block.chunks.store(&worker.parts.pool, Purpose::Fill).append(&vec![1; bytes]).unwrap();
    reading
}

#[test]
fn a_worker_that_finds_room_for_itself_gives_up_what_leaves_none_for_another_one() {
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, _reports) = worker(&pool);
    let half = pool.replay_share(2) / 2 / CHUNK_BYTES * CHUNK_BYTES;
    let readings: Vec<_> = (0..4).map(|partition| replaying(&mut worker, partition, half)).collect();
    assert!(!pool.is_waited_for());
    let waiting = pool.wait();
    assert!(pool.is_waited_for(), "another worker waits");
    // The first may be filled completely; the next two are the worker's share.
    let beyond = worker.beyond_share(readings.iter());
    assert_eq!(beyond, [(3, Renew::Memory)]);
    assert!(!pool.claim_replay(), "the first one has the right");
    drop(waiting);
    assert!(!pool.is_waited_for());
}

#[test]
fn an_idle_worker_seals_blocks_whose_memory_another_one_waits_for() {
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, _reports) = worker(&pool);
    worker.parts.age_max = worker.parts.age_max.clone().for_shards(1);
    worker.parts.age_max.merges().say(0, true);
    for (partition, bytes) in [(0, 5 * CHUNK_BYTES), (1, 0)] {
        let reading = reading(&mut worker, partition, bytes, None);
        let queue = PartitionQueue::Log(RefCell::new(Box::new(Ended(1))));
        worker.partitions.push(Owned { queue, reading });
    }
    let now = Instant::now();
    let open =
        |worker: &Worker| worker.partitions.iter().filter(|owned| owned.reading.block.is_some()).count();
    worker.advance(now + Duration::from_secs(2));
    assert_eq!(open(&worker), 2, "merges are behind, and blocks become larger");
    let waiting = pool.wait();
    worker.advance(now);
    assert_eq!(open(&worker), 2, "it has just begun");
    worker.advance(now + Duration::from_secs(2));
    assert_eq!(open(&worker), 1, "a block that has no chunk gives nothing to others");
    assert_eq!(pool.free_bytes(), pool.total_bytes());
    drop(waiting);
    worker.advance(now + Duration::from_secs(2));
    assert_eq!(open(&worker), 1);
}

/// A log that has no more messages.
struct Ended(i64);

impl LogMessages for Ended {
    fn poll(&mut self) -> Option<Result<OwnedMessage, KafkaError>> {
        None
    }

    fn position(&self) -> i64 {
        self.0
    }
}

#[test]
fn messages_at_the_end_of_a_log_that_cannot_be_read_do_not_stay_uncommitted() {
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, _reports) = worker(&pool);
    let mut reading = replaying(&mut worker, 0, CHUNK_BYTES);
    // Everything was read, and then came what cannot be.
    (reading.caught_up, reading.tail_unasked) = (true, true);
    let queue = PartitionQueue::Log(RefCell::new(Box::new(Ended(93))));
    worker.partitions.push(Owned { queue, reading });
    worker.look_behind(Instant::now());
    let reading = &worker.partitions[0].reading;
    assert_eq!((reading.log_end, reading.caught_up, reading.tail_unasked), (93, true, false));
}

#[test]
fn others_are_told_while_a_worker_waits_for_room_and_no_longer() {
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, _reports) = worker(&pool);
    for out_of_room in [true, true, false, false, true, false] {
        worker.out_of_room = out_of_room;
        worker.share_room();
        assert_eq!(pool.is_waited_for(), out_of_room);
    }
}

#[test]
fn a_partition_that_stops_gives_back_its_row_buffer_its_chunks_and_its_right() {
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, reports) = worker(&pool);
    let mut reading = replaying(&mut worker, 0, CHUNK_BYTES);
    assert_eq!(worker.beyond_share(std::iter::once(&reading)), []);
    assert_eq!((worker.row_buffers_made, pool.claim_replay()), (1, false));
    let remedy = BatchRemedy::SmallerBatches;
    worker.stop(&mut reading, remedy);
    assert_eq!(worker.row_buffers_made, 0);
    assert_eq!(pool.free_bytes(), pool.total_bytes());
    assert!(pool.claim_replay(), "another partition may replay");
    let Place { id, generation, .. } = reading.place;
    assert_eq!(reports.try_recv(), Ok(Report::Stopped { id, generation, remedy }));
}

#[test]
fn the_time_of_a_worker_without_work_counts_as_what_it_waits_for() {
    const WAITED: Duration = Duration::from_secs(30);
    let pool = Arc::new(Pool::new(64 << 20, 4, 2));
    let (mut worker, _reports) = worker(&pool);
    let waited_for = |worker: &Worker| {
        worker.parts.waker.try_send(()).unwrap();
        worker.wait(Instant::now().checked_sub(WAITED).unwrap());
        let WorkerSeconds { busy, source, buffers, sink } = &worker.parts.seconds;
        let states = [("busy", busy), ("source", source), ("buffers", buffers), ("sink", sink)];
        let grown = states.map(|(state, seconds)| (state, seconds.get() >= WAITED.as_secs_f64()));
        for (_, seconds) in states {
            seconds.reset();
        }
        grown.into_iter().filter_map(|(state, has_grown)| has_grown.then_some(state)).collect::<Vec<_>>()
    };
    assert_eq!(waited_for(&worker), ["source"]);
    worker.parts.metrics.sink_behind.set(1);
    assert_eq!(waited_for(&worker), ["sink"], "there would be messages if blocks were inserted");
    worker.out_of_room = true;
    assert_eq!(waited_for(&worker), ["buffers"], "whatever the sink does");
    worker.parts.metrics.sink_behind.set(0);
    assert_eq!(waited_for(&worker), ["buffers"]);
    worker.out_of_room = false;
    assert_eq!(waited_for(&worker), ["source"]);
}
