//! Logs in memory, and a worker that settles each range that may be sent.

use super::*;
use crate::group::consumer::Shortage;
use crate::group::partition::{Order, Ownership, Partition};
use crossbeam_channel::Receiver;
use rdkafka::{
    error::{KafkaError, KafkaResult},
    message::{OwnedMessage, Timestamp},
};
use sluice_gateway_config::{ByteSize, Format, InsertFormat, Sizing};
use sluice_ranges::{Log, Rule, Version};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicI64},
};

/// One log without bytes: each message is empty.
#[derive(Default)]
struct Keeper {
    end: AtomicI64,
    committed: Mutex<Option<(i64, String)>>,
    polled: AtomicI64,
    may_append: AtomicBool,
    is_unreadable: AtomicBool,
}

fn id() -> PartitionId {
    PartitionId { topic: "otlp".into(), partition: 0 }
}

impl LogKeeper for Arc<Keeper> {
    fn logs(&self) -> Vec<LogState> {
        let committed = self.committed.lock().unwrap().as_ref().map(|(offset, _)| *offset);
        vec![LogState {
            id: id(),
            start: 0,
            end: self.end.load(Ordering::Acquire),
            absent: 0,
            committed,
            polled: self.polled.load(Ordering::Acquire),
            is_unreadable: self.is_unreadable.load(Ordering::Acquire),
        }]
    }

    fn beginning(&self, _: &PartitionId) -> Beginning {
        let commit = self.committed.lock().unwrap().clone();
        let log = Log { start: 0, end: self.end.load(Ordering::Acquire) };
        Beginning { commit, log, cluster: "volume".into(), topic_id: Some([7; 16]), is_new: false }
    }

    fn commit(&self, _: &PartitionId, commit: &Commit) -> bool {
        *self.committed.lock().unwrap() = Some((commit.offset, commit.metadata.clone()));
        true
    }

    fn messages(
        &self,
        _: &PartitionId,
        position: i64,
        _: Box<dyn Fn() + Send + Sync>,
    ) -> Box<dyn LogMessages> {
        Box::new(Messages { keeper: self.clone(), position, told: false })
    }

    fn may_append(&self) -> bool {
        self.may_append.load(Ordering::Acquire)
    }
}

struct Messages {
    keeper: Arc<Keeper>,
    position: i64,
    told: bool,
}

impl LogMessages for Messages {
    fn poll(&mut self) -> Option<KafkaResult<OwnedMessage>> {
        if self.keeper.is_unreadable.load(Ordering::Acquire) {
            return None;
        }
        if self.position >= self.keeper.end.load(Ordering::Acquire) {
            let is_told = std::mem::replace(&mut self.told, true);
            return (!is_told).then_some(Err(KafkaError::PartitionEOF(0)));
        }
        (self.position, self.told) = (self.position + 1, false);
        self.keeper.polled.store(self.position, Ordering::Release);
        let timestamp = Timestamp::CreateTime(1);
        Some(Ok(OwnedMessage::new(Some(vec![]), None, "otlp".into(), timestamp, 0, self.position - 1, None)))
    }

    fn position(&self) -> i64 {
        self.position
    }
}

/// Reads its logs, makes a range of what there is, and settles it once it may be sent.
fn worker(ownership: &Receiver<Ownership>, orders: &Receiver<Order>, reports: &Sender<Report>) {
    let mut logs: Vec<Partition> = Vec::new();
    let tell = |report: Report| assert!(reports.try_send(report).is_ok(), "there is room");
    loop {
        match ownership.recv_timeout(Duration::from_millis(1)) {
            Ok(Ownership::Gained(partition)) => logs.push(*partition),
            Ok(Ownership::Lost { id, generation, .. }) => {
                logs.retain(|log| log.id != id);
                tell(Report::Released { id, generation, renew: None });
            }
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
        }
        for log in &mut logs {
            let (id, generation) = (log.id.clone(), log.generation);
            while let Some(Ok(_)) = log.queue.poll(Duration::ZERO) {
                let offset = log.queue.position().unwrap() - 1;
                assert_eq!(log.cutter.take(offset, Some(b"")), None);
            }
            if let Some(closed) = log.cutter.flush() {
                tell(Report::Closed { id, generation, closed, has_rows: true });
            }
        }
        while let Ok(order) = orders.try_recv() {
            if let Order::Send { id, generation, release } = order {
                tell(Report::Settled { id, generation, range: release.range });
            }
        }
    }
}

struct Scene {
    keeper: Arc<Keeper>,
    stop: Stop,
    drain: Drain,
    stats: Arc<ConsumerStats>,
    ended: std::thread::JoinHandle<Result<(), Error>>,
}

impl Scene {
    fn start(keeper: Arc<Keeper>) -> Self {
        Self::start_with(keeper, Stop::default(), Drain::default())
    }

    fn start_with(keeper: Arc<Keeper>, stop: Stop, drain: Drain) -> Self {
        let (ownership, ownership_in) = bounded(8);
        let (orders, orders_in) = bounded(1_024);
        let inbox = Inbox { ownership, wake: bounded(1).0, shortage: Shortage::default() };
        let sizing = Sizing {
            limit: ByteSize::mib(256),
            workers: 1,
            partitions_active_max: 1,
            record_batch_bytes_max: ByteSize::mib(1),
            format: Format::OtlpProto,
            insert_concurrency: 1,
            insert_format: InsertFormat::RowBinary,
            requests: None,
        };
        let limits = Limits {
            rule: Rule { version: Version::CURRENT, bytes: 1 << 20, messages: 1_000 },
            routing_epoch: 0,
            revoke_wait: Duration::ZERO,
            leave_wait: Duration::from_secs(30),
            sizing,
        };
        let give = Box::new(move |order| {
            orders.try_send(order).map_err(crossbeam_channel::TrySendError::into_inner)
        });
        let consumer = LogConsumer::new(Arc::new(keeper.clone()), vec![inbox], give, limits).unwrap();
        let (reports, stats) = (consumer.reports(), consumer.stats());
        std::thread::spawn(move || worker(&ownership_in, &orders_in, &reports));
        let asked = (stop.clone(), drain.clone());
        let ended = std::thread::spawn(move || consumer.run(&asked.0, &asked.1));
        Self { keeper, stop, drain, stats, ended }
    }

    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !holds(self) {
            assert!(Instant::now() < until, "{what}: {:?}", self.keeper.committed.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn committed(&self) -> i64 {
        self.keeper.committed.lock().unwrap().as_ref().map_or(-1, |(offset, _)| *offset)
    }
}

#[test]
fn what_is_appended_is_read_planned_and_committed() {
    let keeper = Arc::new(Keeper::default());
    keeper.may_append.store(true, Ordering::Release);
    keeper.end.store(3, Ordering::Release);
    let scene = Scene::start(keeper.clone());
    scene.wait("three", |scene| scene.committed() == 3);
    keeper.end.store(10, Ordering::Release);
    scene.wait("ten", |scene| scene.committed() == 10);
    assert_eq!(scene.stats.phase(), Phase::Member);
    keeper.may_append.store(false, Ordering::Release);
    scene.stop.request(Duration::from_secs(30));
    scene.ended.join().unwrap().unwrap();
    // The next run goes on behind it.
    keeper.end.store(12, Ordering::Release);
    let scene = Scene::start(keeper);
    scene.wait("twelve", |scene| scene.committed() == 12);
    scene.stop.request(Duration::from_secs(30));
    scene.ended.join().unwrap().unwrap();
}

#[test]
fn what_is_in_a_log_is_inserted_though_it_is_to_end_or_to_drain_from_the_start() {
    for drains in [false, true] {
        let keeper = Arc::new(Keeper::default());
        keeper.end.store(3, Ordering::Release);
        let (stop, drain) = (Stop::default(), Drain::default());
        if drains {
            drain.request();
        } else {
            stop.request(Duration::from_secs(30));
        }
        let scene = Scene::start_with(keeper, stop, drain);
        scene.wait("three", |scene| scene.committed() == 3);
        scene.wait("away", |scene| !drains || scene.stats.phase() == Phase::Away);
        scene.stop.request(Duration::from_secs(30));
        scene.ended.join().unwrap().unwrap();
    }
}

#[test]
fn a_log_that_cannot_be_read_holds_up_neither_a_drain_nor_the_end_and_is_not_committed() {
    for drains in [false, true] {
        let keeper = Arc::new(Keeper::default());
        keeper.end.store(2, Ordering::Release);
        let scene = Scene::start(keeper.clone());
        scene.wait("two", |scene| scene.committed() == 2);
        keeper.is_unreadable.store(true, Ordering::Release);
        keeper.end.store(5, Ordering::Release);
        if drains {
            scene.drain.request();
            scene.wait("away", |scene| scene.stats.phase() == Phase::Away);
        }
        let begun = Instant::now();
        scene.stop.request(Duration::from_hours(1));
        assert!(scene.ended.join().unwrap().is_ok());
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert_eq!(keeper.committed.lock().unwrap().as_ref().map(|(offset, _)| *offset), Some(2));
    }
}

#[test]
fn it_is_drained_once_nothing_is_accepted_and_everything_is_in() {
    let keeper = Arc::new(Keeper::default());
    keeper.may_append.store(true, Ordering::Release);
    keeper.end.store(2, Ordering::Release);
    let scene = Scene::start(keeper.clone());
    scene.wait("two", |scene| scene.committed() == 2);
    scene.drain.request();
    scene.wait("draining", |scene| scene.stats.phase() == Phase::Draining);
    // A request that was under way.
    keeper.end.store(5, Ordering::Release);
    scene.wait("five", |scene| scene.committed() == 5);
    assert_eq!(scene.stats.phase(), Phase::Draining, "requests may still be under way");
    keeper.may_append.store(false, Ordering::Release);
    scene.wait("away", |scene| scene.stats.phase() == Phase::Away);
    assert_eq!(scene.stats.uncommitted.load(Ordering::Relaxed), 0);
    // And it can be resumed.
    keeper.may_append.store(true, Ordering::Release);
    keeper.end.store(6, Ordering::Release);
    scene.drain.resume();
    scene.wait("six", |scene| scene.committed() == 6);
    keeper.may_append.store(false, Ordering::Release);
    scene.stop.request(Duration::from_secs(30));
    scene.ended.join().unwrap().unwrap();
}
