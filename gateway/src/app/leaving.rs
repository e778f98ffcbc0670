//! Waits while the gateway runs, and stops it.
//!
//! Owner: the main thread. Limits: `shutdown.deadline`, then [`LATE_MAX`] and [`CLOSE_WAIT`].

use super::{Event, accepting::Accepting};
use crate::{
    admin::health::Status,
    volume::spool::{Spool, Usage},
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use sluice_gateway_config::edge::ENDPOINTS_WAIT;
use sluice_kafka::{Rest, Stop};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::runtime::Runtime;

/// How often the log says what the shutdown waits for, and how often the deadline is checked.
const SAY_INTERVAL: Duration = Duration::from_secs(2);

/// How long after the deadline the poll thread may take to end. The operator leaves 10 s between the deadline and the end of the grace
/// period.
const LATE_MAX: Duration = Duration::from_secs(3);

/// How long the queue volume may take to sync during the shutdown.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The running threads.
pub(super) struct Running {
    pub(super) status: Arc<Status>,
    pub(super) stop: Stop,
    /// How long the shutdown may take.
    pub(super) leave_wait: Duration,
    /// Whether blocks that are not inserted by then are moved to the queue volume.
    pub(super) keeps: Arc<AtomicBool>,
    pub(super) spool: Option<Spool>,
    /// The source, if it is OTLP.
    pub(super) accepting: Option<Accepting>,
    pub(super) workers: Vec<thread::JoinHandle<()>>,
}

impl Running {
    /// Starts the shutdown. What cannot be inserted in time is moved to the queue volume, where the next run finds it.
    fn leave_and_keep(&mut self, io: &Runtime) {
        self.keeps.store(true, Ordering::Release);
        self.leave(io);
    }

    /// Starts the shutdown. With `source.otlp`, requests are still accepted at first: the deadline begins after that.
    fn leave(&mut self, io: &Runtime) {
        let mut within = self.leave_wait;
        if let Some(accepting) = &mut self.accepting {
            accepting.begin_to_end(io);
            within += ENDPOINTS_WAIT.to_std();
        }
        self.stop.request(within);
    }

    /// Syncs the queue volume and returns how many blocks stay there.
    fn close_volume(&self) -> anyhow::Result<u64> {
        let Some(spool) = &self.spool else { return Ok(0) };
        let is_closed = spool.close(CLOSE_WAIT);
        let Usage { blocks, rows, .. } = spool.usage();
        if !is_closed && blocks == 0 {
            // What was not synced says only that blocks are inserted. The next start may send them again, under the same tokens.
            tracing::warn!(
                seconds = CLOSE_WAIT.as_secs(),
                "the queue volume did not sync in time; it holds no block"
            );
        } else if !is_closed {
            anyhow::bail!(
                "the queue volume did not sync in time: {blocks} blocks with {rows} rows may be missing at the next start"
            );
        }
        if blocks > 0 {
            tracing::info!(
                blocks,
                rows,
                "blocks stay on the queue volume: the next start continues with them"
            );
        }
        Ok(blocks)
    }

    /// Waits until the threads have ended; an error says why they did.
    pub(super) fn wait(mut self, events: &Receiver<Event>, io: Runtime) -> anyhow::Result<()> {
        let (mut changed, mut made_anew, mut is_asked) = (None, None, false);
        let result = loop {
            match next(events)? {
                Some(Event::Ended(result)) => break result,
                // A second signal means that the sender does not wait: stop without waiting for inserts or syncing the volume.
                Some(Event::Signal) if is_asked => {
                    self.status.say("second signal: stopping at once");
                    io.shutdown_background();
                    anyhow::bail!(
                        "stopped before everything that was read is inserted; messages that are not committed are read again"
                    );
                }
                Some(Event::Signal) => {
                    is_asked = true;
                    self.status.say("stopping: inserting and committing what was read");
                    self.leave_and_keep(&io);
                }
                Some(Event::VolumeFailed(fatal)) => {
                    // The last writes may be missing from the volume, so it must not be relied on. Kafka has the messages, or their requests got
                    // no success; the next start reads what is there again.
                    io.shutdown_background();
                    return Err(volume_failed(fatal));
                }
                Some(Event::TopicMadeAnew(found)) => {
                    tracing::error!("stopping: {found}");
                    // This process has the only copy of what it read from the deleted topic.
                    self.leave_and_keep(&io);
                    made_anew = Some(found);
                }
                Some(Event::TableChanged(found)) => {
                    tracing::error!("stopping: {found}");
                    self.leave(&io);
                    changed = Some(found);
                }
                None if self.is_late() => {
                    self.status.say("giving up: shutdown.deadline is over");
                    anyhow::bail!(
                        "the poll thread did not end in time; messages that are not committed are read again"
                    );
                }
                None if self.stop.is_requested() => self.status.say("leaving"),
                None => {}
            }
        };
        if let Some(changed) = changed {
            // Blocks for the old columns cannot be inserted. They are not committed, so their messages are read again.
            io.shutdown_background();
            return Err(changed.into());
        }
        let kept = self.close_volume();
        if result.is_ok() {
            for worker in self.workers {
                if worker.join().is_err() {
                    anyhow::bail!("a worker thread has panicked");
                }
            }
        }
        let accepted = self.accepting.take().map_or(Ok(()), |accepting| accepting.end(&io));
        self.status.say(match (&result, &kept) {
            (Ok(()), Ok(0)) => "stopped: everything that was read is inserted and committed",
            (Ok(()), Ok(_)) => {
                "stopped: what was read is inserted and committed, or on the queue volume for the next start"
            }
            _ => "left",
        });
        // What is still in flight is dropped. It is not committed, so it is read again.
        io.shutdown_background();
        match result {
            // Offsets of a recreated topic cannot be committed. The error to report is that it was recreated.
            Err(sluice_kafka::Error::NotCommitted { .. }) if made_anew.is_some() => {}
            result => result.map_err(not_left)?,
        }
        kept?;
        accepted?;
        made_anew.map_or(Ok(()), |found| Err(found.into()))
    }

    /// Whether the poll thread should have ended by now.
    fn is_late(&self) -> bool {
        self.stop.deadline().is_some_and(|deadline| deadline.elapsed() >= LATE_MAX)
    }
}

/// The error of a volume that has failed.
pub(super) fn volume_failed(fatal: sluice_spool::Fatal) -> anyhow::Error {
    anyhow::Error::new(fatal).context("the queue volume has failed")
}

/// The context of an error with which the poll thread ended.
fn not_left(error: sluice_kafka::Error) -> anyhow::Error {
    let meaning = match error {
        sluice_kafka::Error::NotCommitted { .. } => {
            "not everything that is inserted is committed; the next owner sends it again, and the server drops what it still remembers"
        }
        _ => "not everything that was read is inserted; the next owner reads the rest again",
    };
    anyhow::Error::new(error).context(meaning)
}

/// Moves what is not settled to the queue volume, once `keeps` is set.
pub(super) fn rest(spool: &Spool, keeps: &Arc<AtomicBool>) -> Rest {
    let (asked, looked, keeps) = (spool.clone(), spool.clone(), keeps.clone());
    let keep = move || {
        if keeps.load(Ordering::Acquire) {
            asked.spill_everything();
        }
    };
    Rest { keep: Box::new(keep), is_kept: Box::new(move || looked.is_everything_kept()) }
}

/// The next event; `None` after [`SAY_INTERVAL`] without one.
fn next(events: &Receiver<Event>) -> anyhow::Result<Option<Event>> {
    match events.recv_timeout(SAY_INTERVAL) {
        Ok(event) => Ok(Some(event)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all threads have ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::watch_signals,
        blocks::buffers::Pool,
        ground::metrics::Metrics,
        volume::test_volume::{TestTable, Volume},
    };
    use crossbeam_channel::bounded;
    use std::process::Command;

    fn status() -> Arc<Status> {
        let config = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                      source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                      sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";
        let checked = sluice_gateway_config::parse::from_yaml(config).unwrap().check().unwrap();
        let metrics = Arc::new(Metrics::new(checked.budget()));
        Arc::new(Status::new(metrics, Arc::new(Pool::new(1 << 20, 1, 1)), None))
    }

    fn running(spool: Option<Spool>) -> Running {
        let (stop, keeps) = (Stop::default(), Arc::default());
        let (accepting, workers) = (None, Vec::new());
        Running { status: status(), stop, leave_wait: Duration::ZERO, keeps, spool, accepting, workers }
    }

    /// The end of a gateway with nothing left to settle.
    fn ended(spool: Option<Spool>) -> anyhow::Result<()> {
        let (events, events_in) = bounded(1);
        events.try_send(Event::Ended(Ok(()))).unwrap();
        running(spool).wait(&events_in, Runtime::new().unwrap())
    }

    #[test]
    fn what_is_kept_on_the_volume_is_no_failure_and_a_volume_that_does_not_close_is() {
        assert!(ended(None).is_ok());
        let volume = Volume::new("left-kept");
        let spool = volume.open(64 << 20);
        let mut test = TestTable::new(&spool);
        let frames = test.add(0);
        assert!(test.spill(&frames));
        assert!(ended(Some(spool.clone())).is_ok());
        assert_eq!(volume.open(64 << 20).usage().blocks, 1);
        // Its thread has ended and answers no request.
        let error = ended(Some(spool)).unwrap_err();
        assert!(error.to_string().contains("did not sync in time"), "{error}");
        let other = Volume::new("left-empty");
        let empty = other.open(64 << 20);
        assert!(empty.close(CLOSE_WAIT));
        assert!(ended(Some(empty)).is_ok(), "nothing is on it that could be missing");
    }

    #[test]
    fn a_last_commit_that_failed_is_a_failure_and_is_not_said_to_lack_rows() {
        let (events, events_in) = bounded(1);
        events.try_send(Event::Ended(Err(sluice_kafka::Error::NotCommitted { offsets: 7 }))).unwrap();
        let error = running(None).wait(&events_in, Runtime::new().unwrap()).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.starts_with("not everything that is inserted is committed") && text.contains("7 offsets"),
            "{text}"
        );
    }

    #[test]
    fn only_who_may_keep_what_is_left_does() {
        let (volume, keeps) = (Volume::new("left-rest"), Arc::new(AtomicBool::new(false)));
        let spool = volume.open(64 << 20);
        let rest = rest(&spool, &keeps);
        (rest.keep)();
        assert!(!spool.spills_everything(), "the table has other columns");
        keeps.store(true, Ordering::Release);
        (rest.keep)();
        assert!(spool.spills_everything() && !(rest.is_kept)());
        spool.everything_is_kept(spool.times_asked());
        assert!((rest.is_kept)());
    }

    #[test]
    fn the_second_signal_ends_it_at_once_whatever_a_worker_does() {
        let (work, works) = bounded::<()>(0);
        let worker = thread::spawn(move || assert!(works.recv().is_err(), "nobody sends"));
        let stop = Stop::default();
        let leave_wait = Duration::from_hours(1);
        let running = Running { stop: stop.clone(), leave_wait, workers: vec![worker], ..running(None) };
        let (events, events_in) = bounded(2);
        for _ in 0..2 {
            events.try_send(Event::Signal).unwrap();
        }
        let error = running.wait(&events_in, Runtime::new().unwrap()).unwrap_err();
        assert!(error.to_string().contains("not committed"), "{error}");
        assert!(stop.is_requested());
        drop(work);
    }

    #[test]
    fn every_signal_is_told() {
        let io = Runtime::new().unwrap();
        let (events, events_in) = bounded(2);
        watch_signals(&io, events).unwrap();
        for _ in 0..2 {
            let kill = format!("kill -INT {}", std::process::id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
            let event = events_in.recv_timeout(Duration::from_mins(1)).unwrap();
            assert!(matches!(event, Event::Signal));
        }
    }
}
