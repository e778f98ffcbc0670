//! Asks the brokers every [`ASK_INTERVAL`] where the logs of assigned partitions begin and end.
//!
//! Why: librdkafka takes both from answers to fetches. For a partition that it no longer fetches they never change, so the partition
//! would seem to be read to its end forever.
//!
//! Place in the flow: the poll thread calls [`LogReader::tend`] with librdkafka's statistics, and uses the later of both values. Owner: a
//! thread of its own, since it waits for leaders, which may be away; commits do not wait for it.
//!
//! Limits: one round is under way at a time. It takes at most [`ROUND_TIMEOUT`] and the time of one answer. Partitions that were not
//! asked by then are first in the next round.

use crate::group::rebalancing::Rebalancing;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use sluice_ranges::{Log, PartitionId};
use std::{
    collections::BTreeMap,
    sync::Weak,
    thread,
    time::{Duration, Instant},
};

/// How often every partition is asked about. Chosen: four times per [`crate::group::watchdog::STILL_MAX`], at two small requests a partition.
pub const ASK_INTERVAL: Duration = Duration::from_secs(15);

/// How long the leader of one partition may take. Chosen: as long as for a partition that starts.
const LOG_TIMEOUT: Duration = Duration::from_secs(3);

/// How long all leaders together may take. Chosen: below [`ASK_INTERVAL`], so that a leader that is away delays no round of the others.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// The answers of a round in the order of the requests: `None` if the leader did not answer. Partitions at the end may be missing: they
/// were not asked.
type Answers = Vec<(PartitionId, Option<Log>)>;

/// The poll thread's handle of the thread, which ends soon after this is dropped.
#[derive(Debug)]
pub struct LogReader {
    requests: Sender<Vec<PartitionId>>,
    answers: Receiver<Answers>,
    /// When the last round began; `None` before the first.
    begun: Option<Instant>,
    is_under_way: bool,
    rounds: u64,
    logs: BTreeMap<PartitionId, Asked>,
}

/// What is known of a partition's log.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// The last round that asked its leader.
    round: u64,
    /// The last answer of its leader.
    log: Option<Log>,
}

/// The thread of a reader that was dropped.
#[derive(Debug)]
pub struct Ending(Receiver<Answers>);

impl Ending {
    /// Waits until the thread has dropped the client, or until `deadline`.
    pub fn wait(self, deadline: Instant) {
        while !matches!(
            self.0.recv_deadline(deadline),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout)
        ) {}
    }
}

impl LogReader {
    /// Starts the thread.
    pub fn start(consumer: Weak<BaseConsumer<Rebalancing>>) -> std::io::Result<Self> {
        // The client reads committed messages only, so the end is the last stable offset.
        Self::start_with(move |id| {
            let (start, end) =
                consumer.upgrade()?.fetch_watermarks(&id.topic, id.partition, LOG_TIMEOUT).ok()?;
            Some(Log { start, end })
        })
    }

    pub(crate) fn start_with(
        mut ask: impl FnMut(&PartitionId) -> Option<Log> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded::<Vec<PartitionId>>(1);
        let (answers_out, answers) = bounded(1);
        let work = move || {
            while let Ok(ids) = requests_in.recv() {
                let deadline = Instant::now() + ROUND_TIMEOUT;
                let goes_on =
                    || Instant::now() < deadline && requests_in.try_recv() != Err(TryRecvError::Disconnected);
                let asked = ids.into_iter().take_while(|_| goes_on());
                let answers = asked.map(|id| (ask(&id), id)).map(|(log, id)| (id, log)).collect();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "on a thread of its own, which asks nothing before its answer is taken"
                )]
                let sent = answers_out.send(answers);
                if sent.is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("logs".to_owned()).spawn(work)?;
        let logs = BTreeMap::new();
        Ok(Self { requests, answers, begun: None, is_under_way: false, rounds: 0, logs })
    }

    /// Takes the answers, and starts a round for these partitions if one is due. Forgets all others.
    pub fn tend(&mut self, given: &[PartitionId], now: Instant) {
        self.take();
        self.logs.retain(|id, _| given.contains(id));
        let is_due = self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= ASK_INTERVAL);
        if self.is_under_way || !is_due || given.is_empty() {
            return;
        }
        let mut ids = given.to_vec();
        ids.sort_by_key(|id| self.logs.get(id).map_or(0, |asked| asked.round));
        self.begun = Some(now);
        self.rounds += 1;
        // The thread ends early only by a panic. The known values then stay.
        self.is_under_way = self.requests.try_send(ids).is_ok();
    }

    fn take(&mut self) {
        let Ok(answers) = self.answers.try_recv() else { return };
        self.is_under_way = false;
        for (id, log) in answers {
            let asked = self.logs.entry(id).or_default();
            *asked = Asked { round: self.rounds, log: log.or(asked.log) };
        }
    }

    /// The log of a partition by its leader's last answer.
    pub fn log(&self, id: &PartitionId) -> Option<Log> {
        self.logs.get(id)?.log
    }

    /// Ends the thread.
    pub fn end(self) -> Ending {
        Ending(self.answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    /// Tends until the running round is over.
    fn finish(reader: &mut LogReader, owned: &[PartitionId], now: Instant) {
        while reader.is_under_way {
            reader.tend(owned, now);
            thread::yield_now();
        }
    }

    #[test]
    fn every_partition_is_asked_about_once_an_interval_and_what_was_said_stays() {
        let (asked_out, asked) = bounded(16);
        let mut rounds = BTreeMap::<PartitionId, i64>::new();
        let mut reader = LogReader::start_with(move |id| {
            asked_out.try_send(id.partition).unwrap();
            let round = rounds.entry(id.clone()).or_default();
            *round += 1;
            // The leader of partition 1 answers once.
            (id.partition == 0 || *round == 1).then_some(Log { start: *round, end: 10 * *round })
        })
        .unwrap();
        let (owned, start) = ([id(0), id(1)], Instant::now());
        assert_eq!(reader.log(&id(0)), None);
        for (seconds, ends) in [(0, [10, 10]), (14, [10, 10]), (15, [20, 10])] {
            let now = start + Duration::from_secs(seconds);
            reader.tend(&owned, now);
            finish(&mut reader, &owned, now);
            assert_eq!([0, 1].map(|partition| reader.log(&id(partition)).unwrap().end), ends);
        }
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [0, 1, 0, 1]);
        reader.tend(&owned[1..], start + Duration::from_secs(16));
        assert_eq!(reader.log(&id(0)), None, "it is another owner's");
    }

    #[test]
    fn who_was_not_asked_is_asked_first() {
        let mut reader = LogReader::start_with(|_| None).unwrap();
        reader.rounds = 1;
        reader.logs.insert(id(0), Asked { round: 1, log: None });
        let (requests, requests_in) = bounded(1);
        reader.requests = requests;
        reader.tend(&[id(0), id(1)], Instant::now());
        assert_eq!(requests_in.try_recv(), Ok(vec![id(1), id(0)]));
    }

    #[test]
    fn the_thread_ends_in_the_middle_of_a_round() {
        let (alive, ended) = bounded::<()>(0);
        let (asks, asked) = bounded(0);
        let mut reader = LogReader::start_with(move |_| {
            let _alive = &alive;
            // Blocks until the test receives; the second partition is asked after that.
            asks.send_timeout((), Duration::from_secs(10)).ok()?;
            None
        })
        .unwrap();
        reader.tend(&[id(0), id(1), id(2)], Instant::now());
        asked.recv().unwrap();
        let ending = reader.end();
        drop(asked);
        ending.wait(Instant::now() + Duration::from_secs(10));
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Err(RecvTimeoutError::Disconnected));
    }
}
