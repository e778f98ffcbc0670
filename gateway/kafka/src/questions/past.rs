//! The age of messages that were in the log before this process started, asked of the brokers.
//!
//! Why: [`crate::questions::retention`] derives the age of the message at a position from the ends of the log that this process has seen. After a
//! start it has seen none. The age of a backlog that waits for ClickHouse is then unknown as long as the position does not move: just
//! when retention may delete it.
//!
//! Brokers return the first offset whose message is not older than a given time. The thread asks for times ever closer to the retention
//! limit, each half as far from it as the one before:
//!
//! ```text
//!  now |--------------------------------|---------------|-------|---|-| messages go
//!      0                              1/2             3/4     7/8   ...   of retention.ms
//! ```
//!
//! The estimate errs on the early side: it is at least half of the time that is left, down to 1/4,096 of the retention time. After half
//! of the estimated time, it is [out of date](Past::is_out_of_date) and the brokers are asked again; the estimate was then at least a
//! third of the time that is left. Otherwise the estimate would reach zero when half of the time is still left.
//!
//! Place in the flow: the poll thread asks with [`PastReader::ask`], and takes answers with [`PastReader::take`]. Owner: a thread of its
//! own, since it waits for brokers. It opens a client for each round. Limits: [`STEPS`] small requests a partition, one round at a time,
//! the next one [`ASK_INTERVAL`] later.

use crate::questions::topic_reader::{Patience, ReadError, TopicReader};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use sluice_gateway_config::Kafka;
use sluice_ranges::PartitionId;
use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Number of times that are asked about. Chosen: 1/4,096 of a week is two and a half minutes.
pub const STEPS: u32 = 12;

/// The least time between two rounds. Chosen: brokers that do not answer are asked again before it matters.
const ASK_INTERVAL: Duration = Duration::from_mins(1);

/// Time limit of a round. Partitions that were not asked by then are asked in the next round. Chosen: below [`ASK_INTERVAL`].
const ROUND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long brokers may take for an answer.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(5), message: Duration::from_secs(5) };

/// A partition to ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which one.
    pub id: PartitionId,
    /// The age at which Kafka deletes its messages.
    pub limit: Duration,
    /// Offsets below this one do not matter.
    pub position: i64,
}

/// The ages of a partition's messages at the time of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// When the brokers were asked.
    pub asked: Instant,
    /// The age at which Kafka deleted messages at that time.
    pub limit: Duration,
    /// Pairs of an age and the first offset whose message is not older; youngest first, at most [`STEPS`].
    pub from: Vec<(Duration, i64)>,
}

impl Past {
    /// The maximum age of the message at a position. A message older than all ages asked about counts as being as old as the limit.
    pub fn age_at_most(&self, position: i64, now: Instant) -> Duration {
        self.age_when_asked(position) + now.saturating_duration_since(self.asked)
    }

    /// Whether half of the estimated time is over, and at least the smallest step between two answers.
    pub fn is_out_of_date(&self, position: i64, now: Instant) -> bool {
        let left = self.limit.saturating_sub(self.age_when_asked(position));
        now.saturating_duration_since(self.asked) >= (left / 2).max(self.limit / (1 << STEPS))
    }

    fn age_when_asked(&self, position: i64) -> Duration {
        let known = self.from.iter().find(|(_, first)| *first <= position);
        known.map_or(self.limit, |(age, _)| *age)
    }

    /// Asks `offset_at` for the first offset not older than an age, until that offset is at or below the position.
    fn ask<E>(wanted: &Wanted, offset_at: impl Fn(Duration) -> Result<Option<i64>, E>) -> Result<Self, E> {
        let (asked, limit) = (Instant::now(), wanted.limit);
        let mut from = Vec::new();
        for age in (1..=STEPS).map(|step| limit.saturating_sub(limit / (1 << step))) {
            // `None`: all messages are older.
            let Some(first) = offset_at(age)? else { continue };
            from.push((age, first));
            if first <= wanted.position {
                break;
            }
        }
        Ok(Self { asked, limit, from })
    }
}

/// The answers by partition.
type Answers = Vec<(PartitionId, Past)>;

/// The poll thread's handle of the thread, which ends soon after this is dropped.
#[derive(Debug)]
pub struct PastReader {
    requests: Sender<Vec<Wanted>>,
    answers: Receiver<Answers>,
    /// When the last round began; `None` before the first.
    begun: Option<Instant>,
    is_under_way: bool,
    rounds: usize,
}

impl PastReader {
    /// Starts the thread.
    pub fn start(kafka: Kafka) -> std::io::Result<Self> {
        Self::start_with(move || {
            // Retention deletes messages of open transactions too. A reader of committed messages gets no offset for a position in front
            // of an open transaction, whatever the age: as if its message were to be deleted now.
            let reader = TopicReader::of_uncommitted(&kafka, "retention", PATIENCE)?;
            Ok::<_, ReadError>(move |wanted: &Wanted| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Past::ask(wanted, |age| {
                    let millis = now.saturating_sub(age).as_millis();
                    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
                    reader.offset_at(&wanted.id.topic, wanted.id.partition, millis)
                })
            })
        })
    }

    /// `open` creates the function that asks, once per round.
    fn start_with<E: std::fmt::Display, A: FnMut(&Wanted) -> Result<Past, E>>(
        open: impl Fn() -> Result<A, E> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded::<Vec<Wanted>>(1);
        let (answers_out, answers) = bounded(1);
        let work = move || {
            let mut is_told = false;
            while let Ok(wanted) = requests_in.recv() {
                let deadline = Instant::now() + ROUND_TIMEOUT;
                let goes_on =
                    || Instant::now() < deadline && requests_in.try_recv() != Err(TryRecvError::Disconnected);
                let mut said = Vec::with_capacity(wanted.len());
                if let Err(error) = round(&open, wanted, goes_on, &mut said)
                    && !std::mem::replace(&mut is_told, true)
                {
                    tracing::warn!(%error, "cannot find out the age of waiting messages; retrying");
                }
                #[expect(
                    clippy::disallowed_methods,
                    reason = "on a thread of its own, which asks nothing before its answer is taken"
                )]
                let sent = answers_out.send(said);
                if sent.is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("past".to_owned()).spawn(work)?;
        Ok(Self { requests, answers, begun: None, is_under_way: false, rounds: 0 })
    }

    /// Asks about these partitions, unless a round is under way or has just ended.
    pub fn ask(&mut self, mut wanted: Vec<Wanted>, now: Instant) {
        let is_soon = self.begun.is_some_and(|begun| now.saturating_duration_since(begun) < ASK_INTERVAL);
        if wanted.is_empty() || self.is_under_way || is_soon {
            return;
        }
        self.begun = Some(now);
        // Each round starts with another partition, so that a slow one cannot keep the others waiting forever.
        let first = self.rounds % wanted.len();
        wanted.rotate_left(first);
        self.rounds += 1;
        // The thread ends early only by a panic. Estimates then do without it.
        self.is_under_way = self.requests.try_send(wanted).is_ok();
    }

    /// The answers since the last call.
    pub fn take(&mut self) -> Answers {
        let Ok(answers) = self.answers.try_recv() else { return Vec::new() };
        self.is_under_way = false;
        answers
    }
}

/// Asks about one partition after another. Partitions without an answer are asked again in the next round. Returns the last error.
fn round<E, A: FnMut(&Wanted) -> Result<Past, E>>(
    open: impl Fn() -> Result<A, E>,
    wanted: Vec<Wanted>,
    goes_on: impl Fn() -> bool,
    said: &mut Answers,
) -> Result<(), E> {
    let mut ask = open()?;
    let mut outcome = Ok(());
    for one in wanted.into_iter().take_while(|_| goes_on()) {
        match ask(&one) {
            Ok(past) => said.push((one.id, past)),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const HOUR: Duration = Duration::from_hours(1);

    fn wanted(partition: i32, position: i64) -> Wanted {
        let id = PartitionId { topic: "spans".into(), partition };
        Wanted { id, limit: 64 * HOUR, position }
    }

    /// A log that got a message a minute for this many hours, until a while ago: the offset is the minute of its message.
    fn past(position: i64, hours: i64, ended_hours: i64) -> (Past, u32) {
        let asked = Cell::new(0);
        let offset_at = |age: Duration| {
            asked.set(asked.get() + 1);
            let first = (hours + ended_hours) * 60 - i64::try_from(age.as_secs() / 60).unwrap();
            Ok::<_, String>((first < hours * 60).then_some(first.max(0)))
        };
        let past = Past::ask(&wanted(0, position), offset_at).unwrap();
        (past, asked.get())
    }

    #[test]
    fn half_of_what_is_left_is_said_at_the_least_and_no_more_than_is_left() {
        for (ended, age) in [(0, 1), (0, 40), (0, 62), (2, 3), (50, 60)] {
            let position = (70 + ended - age) * 60;
            let (past, _) = past(position, 70, ended);
            let said = (64 * HOUR).saturating_sub(past.age_at_most(position, past.asked));
            let left = (64 - u32::try_from(age).unwrap()) * HOUR;
            assert!(
                said <= left && said >= left / 2,
                "{age} h old, ended {ended} h ago: {said:?} of {left:?}"
            );
        }
    }

    #[test]
    fn what_the_position_passes_is_younger_and_all_grow_older() {
        let (past, _) = past(0, 60, 0);
        let now = past.asked + HOUR;
        let hours = [0, 30, 59].map(|hour| past.age_at_most(hour * 60, now).as_secs() / 3_600);
        assert_eq!(hours, [61, 33, 33]);
    }

    #[test]
    fn what_was_said_is_out_of_date_once_half_of_the_time_left_is_over() {
        let (past, _) = past(0, 30, 0);
        let is_out_of_date = |after| past.is_out_of_date(0, past.asked + after);
        assert_eq!(past.age_at_most(0, past.asked), 32 * HOUR);
        assert!(!is_out_of_date(15 * HOUR) && is_out_of_date(16 * HOUR));
    }

    #[test]
    fn what_may_go_at_any_moment_is_not_asked_about_without_end() {
        let (past, _) = past(0, 70, 0);
        let step = past.limit / (1 << STEPS);
        let is_out_of_date = |after| past.is_out_of_date(0, past.asked + after);
        assert!(!is_out_of_date(step / 2) && is_out_of_date(step));
    }

    #[test]
    fn what_is_older_than_the_limit_may_go_at_any_moment() {
        let (past, asked) = past(0, 70, 0);
        assert_eq!((past.age_at_most(0, past.asked), asked), (64 * HOUR, STEPS));
        assert_eq!(past.from.len(), STEPS as usize);
    }

    #[test]
    fn no_more_is_asked_than_the_position_needs() {
        let (past, asked) = past(69 * 60, 70, 0);
        assert_eq!((past.from.len(), asked), (1, 1));
    }

    #[test]
    fn who_does_not_answer_is_asked_again_and_the_thread_ends_with_its_owner() {
        let (alive, ended) = bounded::<()>(0);
        let mut reader = PastReader::start_with(move || {
            let _alive = &alive;
            Ok(|wanted: &Wanted| match wanted.id.partition {
                1 => Err("away"),
                _ => Past::ask(wanted, |_| Ok(None)),
            })
        })
        .unwrap();
        let start = Instant::now();
        let finish = |reader: &mut PastReader| loop {
            let said = reader.take();
            if !reader.is_under_way {
                break said.into_iter().map(|(id, _)| id.partition).collect::<Vec<_>>();
            }
            thread::yield_now();
        };
        reader.ask(vec![wanted(0, 0), wanted(1, 0), wanted(2, 0)], start);
        assert_eq!(finish(&mut reader), [0, 2]);
        reader.ask(vec![wanted(2, 0)], start + ASK_INTERVAL / 2);
        assert!(!reader.is_under_way, "it was asked just now");
        reader.ask(vec![wanted(0, 0), wanted(2, 0)], start + ASK_INTERVAL);
        assert_eq!(finish(&mut reader), [2, 0], "another one is asked first");
        drop(reader);
        assert!(ended.recv_timeout(Duration::from_secs(10)).is_err_and(|error| error.is_disconnected()));
    }
}
