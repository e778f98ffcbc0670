//! Reads the topics' limits for retention and record batches, at the start and every [`LEARN_INTERVAL`].
//!
//! Place in the flow: the poll thread takes the limits with [`LimitsReader::learned`]. Owner: a thread of its own, since it waits for
//! brokers, which may be away. Without an answer, the estimates of [`crate::questions::retention`] do without limits. This thread also warns of
//! record batches that are too large.
//!
//! Limits: one answer waits for the poll thread; a request takes at most [`ASK_TIMEOUT`].

use crate::questions::{
    oversize::Warned,
    retention::{LimitsError, TopicLimits, read_limits},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sluice_gateway_config::{Kafka, Sizing};
use std::{convert::Infallible, sync::Arc, thread, time::Duration};

/// How often configs are read again, also after brokers did not answer. Chosen: a topic that becomes compacted changes what the gateway
/// promises. Each reading makes a connection of its own and logs in, so that a thousand gateways log in three times a second.
const LEARN_INTERVAL: Duration = Duration::from_mins(5);

/// How long the brokers may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits by topic.
type Learned = Vec<(Arc<str>, TopicLimits)>;

/// The poll thread's handle of the thread, which ends soon after this is dropped.
#[derive(Debug)]
pub struct LimitsReader {
    learned: Receiver<Learned>,
    /// Nothing is ever sent; dropping it wakes the thread.
    _ends: Sender<Infallible>,
}

impl LimitsReader {
    /// Starts the thread.
    pub fn start(kafka: Kafka, sizing: Sizing) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let mut warned = Warned::default();
        let ask = move || {
            let learned = runtime.block_on(read_limits(&kafka, ASK_TIMEOUT))?;
            warned.due(&kafka, &sizing, &learned).into_iter().for_each(|warning| tracing::warn!("{warning}"));
            Ok::<_, LimitsError>(learned)
        };
        Self::start_with(LEARN_INTERVAL, ask)
    }

    fn start_with<E: std::fmt::Display>(
        interval: Duration,
        mut ask: impl FnMut() -> Result<Learned, E> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (learned_out, learned) = bounded(1);
        let (ends, ended) = bounded(0);
        let work = move || {
            let mut is_said = false;
            loop {
                match ask() {
                    Ok(limits) => {
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "on a thread of its own, which asks nothing before that is taken"
                        )]
                        let sent = learned_out.send(limits);
                        if sent.is_err() {
                            return;
                        }
                        is_said = false;
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut is_said, true) {
                            tracing::warn!(%error, "cannot read the topics' retention limits; retention estimates do without them");
                        }
                    }
                }
                if ended.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        };
        thread::Builder::new().name("limits".to_owned()).spawn(work)?;
        Ok(Self { learned, _ends: ends })
    }

    /// The limits that were read since the last call.
    pub fn learned(&self) -> Option<Learned> {
        self.learned.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_waits_and_the_thread_ends_with_its_owner() {
        let (alive, ended) = bounded::<()>(0);
        let limits = TopicLimits { age: Some(Duration::from_secs(1)), ..TopicLimits::default() };
        let reader = LimitsReader::start_with(LEARN_INTERVAL, move || {
            let _alive = &alive;
            Ok::<_, String>(vec![("spans".into(), limits)])
        })
        .unwrap();
        let learned = reader.learned.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(learned, [("spans".into(), limits)]);
        assert_eq!(reader.learned(), None, "the next answer is minutes away");
        drop(reader);
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_topic_that_becomes_compacted_is_learned_also_after_a_time_without_an_answer() {
        let of = |is_compacted| TopicLimits { is_compacted, ..TopicLimits::default() };
        let mut answers = [Ok(of(false)), Err("no broker answers"), Ok(of(true))].into_iter();
        let reader = LimitsReader::start_with(Duration::from_millis(1), move || {
            answers.next().unwrap_or(Err("no more")).map(|limits| vec![("spans".into(), limits)])
        })
        .unwrap();
        let learned = || reader.learned.recv_timeout(Duration::from_secs(10)).unwrap()[0].1;
        assert_eq!((learned(), learned()), (of(false), of(true)));
    }
}
