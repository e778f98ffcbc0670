//! What is waited for once everything runs, and how it all ends.
//!
//! Owner: the first thread. Limits: the time to leave (`shutdown.deadline`), [`LATE_MAX`] and [`CLOSE_WAIT`] behind it.

use super::Event;
use crate::{signals::health::Status, volume::spool::Spool};
use anyhow::Context as _;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use sluice_kafka::Stop;
use std::{sync::Arc, thread, time::Duration};
use tokio::runtime::Runtime;

/// How often it is said what leaving waits for, and looked whether it is late.
const SAY_INTERVAL: Duration = Duration::from_secs(2);

/// How long after the deadline the poll thread may still end by itself. The operator leaves 10 s between the deadline and the end of
/// the grace period.
const LATE_MAX: Duration = Duration::from_secs(3);

/// How long before the deadline what is not inserted begins to go to the queue volume. Chosen: the whole pool of chunks takes less, on a
/// disk of 100 MB/s.
const SPILL_BEFORE: Duration = Duration::from_secs(3);

/// How long the queue volume may take to make everything durable when the process leaves.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The threads.
pub(super) struct Running {
    pub(super) status: Arc<Status>,
    pub(super) stop: Stop,
    /// How long leaving may take.
    pub(super) leave_wait: Duration,
    pub(super) spool: Option<Spool>,
    pub(super) workers: Vec<thread::JoinHandle<()>>,
}

impl Running {
    /// Has what is not inserted [`SPILL_BEFORE`] the deadline moved to the queue volume, where the next run finds it.
    fn keep_rest(&self, io: &Runtime) {
        let Some(spool) = self.spool.clone() else { return };
        let wait = self.leave_wait.saturating_sub(SPILL_BEFORE);
        io.spawn(async move {
            tokio::time::sleep(wait).await;
            spool.spill_everything();
        });
    }

    fn close_volume(&self) {
        let Some(spool) = &self.spool else { return };
        let is_closed = spool.close(CLOSE_WAIT);
        let usage = spool.usage();
        if usage.blocks > 0 {
            let (blocks, rows) = (usage.blocks, usage.rows);
            tracing::info!(is_closed, blocks, rows, "blocks stay on the queue volume for the next run");
        }
    }

    /// Waits until the threads have ended, and says why.
    pub(super) fn wait(self, events: &Receiver<Event>, io: Runtime) -> anyhow::Result<()> {
        let (mut changed, mut made_anew, mut is_asked) = (None, None, false);
        let result = loop {
            match next(events)? {
                Some(Event::Ended(result)) => break result,
                // The second one is impatience: nothing is waited for any more, nor the volume closed.
                Some(Event::Signal) if is_asked => {
                    self.status.say("ended at once, as the second signal asks");
                    io.shutdown_background();
                    anyhow::bail!(
                        "ended before everything that was read is in; what is not committed is read again"
                    );
                }
                Some(Event::Signal) => {
                    is_asked = true;
                    self.status.say("leaving: what was read is inserted and committed");
                    self.stop.request(self.leave_wait);
                    self.keep_rest(&io);
                }
                Some(Event::VolumeFailed(fatal)) => {
                    // What was written of late may be gone, and must not be relied on: Kafka has it, and the next start reads it again.
                    io.shutdown_background();
                    return Err(anyhow::Error::new(fatal).context("the queue volume has failed"));
                }
                Some(Event::TopicMadeAnew(found)) => {
                    tracing::error!("leaving: {found}");
                    self.stop.request(self.leave_wait);
                    // Nobody else has what was read of the topic that is gone.
                    self.keep_rest(&io);
                    made_anew = Some(found);
                }
                Some(Event::TableChanged(found)) => {
                    tracing::error!("leaving: {found}");
                    self.stop.request(self.leave_wait);
                    changed = Some(found);
                }
                None if self.is_late() => {
                    self.status.say("given up: the time to leave is over");
                    anyhow::bail!("the poll thread did not end in time; what is not committed is read again");
                }
                None if self.stop.is_requested() => self.status.say("leaving"),
                None => {}
            }
        };
        if let Some(changed) = changed {
            // Blocks for the old columns cannot go in; they are not committed, so their messages are read again.
            io.shutdown_background();
            return Err(changed.into());
        }
        self.close_volume();
        if result.is_ok() {
            for worker in self.workers {
                if worker.join().is_err() {
                    anyhow::bail!("a worker thread has panicked");
                }
            }
            self.status.say("left: everything that was read is in and committed");
        } else {
            self.status.say("left");
        }
        // What is still in flight is given up; it is not committed, so it is read again.
        io.shutdown_background();
        result.context("not everything that was read is in; the rest is read again by the next owner")?;
        made_anew.map_or(Ok(()), |found| Err(found.into()))
    }

    /// Whether the poll thread should have ended by now.
    fn is_late(&self) -> bool {
        self.stop.deadline().is_some_and(|deadline| deadline.elapsed() >= LATE_MAX)
    }
}

/// The next event; `None` after [`SAY_INTERVAL`] without one.
fn next(events: &Receiver<Event>) -> anyhow::Result<Option<Event>> {
    match events.recv_timeout(SAY_INTERVAL) {
        Ok(event) => Ok(Some(event)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => anyhow::bail!("every thread has gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::watch_signals, blocks::buffers::Pool, signals::metrics::Metrics};
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

    #[test]
    fn the_second_signal_ends_it_at_once_whatever_a_worker_does() {
        let (work, works) = bounded::<()>(0);
        let worker = thread::spawn(move || assert!(works.recv().is_err(), "nobody sends"));
        let stop = Stop::default();
        let leave_wait = Duration::from_hours(1);
        let running =
            Running { status: status(), stop: stop.clone(), leave_wait, spool: None, workers: vec![worker] };
        let (events, events_in) = bounded(2);
        for _ in 0..2 {
            events.send(Event::Signal).unwrap();
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
