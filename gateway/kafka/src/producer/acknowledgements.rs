//! Takes librdkafka's acknowledgements and errors, on a task of `io`: no thread is woken between a broker's answer and the requests that wait.
//!
//! Owner of the polls: callbacks of messages and of errors run here. They compute, and hold locks that no thread keeps while it waits.
//! Limits: messages under way are bounded before they come to librdkafka; a turn serves [`EVENTS_PER_TURN`].

use crate::{
    ground::security::ConnectionProblem,
    producer::{
        NotStored,
        reply::Ticket,
        sender::Shared,
        signal::{Signal, has_events},
        topic_watch::TopicState,
    },
};
use rdkafka::{
    ClientContext,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseProducer, Producer as _, ProducerContext},
};
use sluice_gateway_config::Kafka;
use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{io::unix::AsyncFd, task::yield_now};

/// Events that are served before other tasks of `io` have their turn. Chosen: an event has the acknowledgements of one batch of a
/// partition, whose messages have up to 256 KiB together. A task of a request takes longer than these events.
const EVENTS_PER_TURN: usize = 16;

/// Receives librdkafka's acknowledgements and errors.
#[derive(Clone)]
pub(super) struct Acknowledgements {
    topic: Arc<str>,
    kafka: Arc<Kafka>,
    state: Arc<TopicState>,
    signal: Signal,
}

impl Acknowledgements {
    pub(super) fn new(topic: &str, kafka: &Kafka, state: &Arc<TopicState>, signal: Signal) -> Self {
        Self { topic: Arc::from(topic), kafka: Arc::new(kafka.clone()), state: state.clone(), signal }
    }

    /// What is raised when some wait.
    pub(super) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl ClientContext for Acknowledgements {
    fn error(&self, error: KafkaError, reason: &str) {
        self.state.note_error(&error, reason);
        if let Some(problem) = ConnectionProblem::of(&error) {
            let advice = problem.with(&self.kafka).advice(&self.kafka);
            self.state.login_refused(format!("a broker refuses the connection: {reason}; {advice}"));
        }
    }
}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let answer = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => {
                self.state.refuse(error, &ticket);
                let bytes = ticket.value().len();
                Err(NotStored::of(error, &self.topic, bytes, || self.state.unacknowledged()))
            }
        };
        ticket.answer(answer);
    }
}

/// Serves the producer's events until all handles are dropped, or the runtime ends. A replaced producer is not served: its messages are
/// answered when it is dropped.
pub(super) async fn serve(signal: AsyncFd<Signal>, shared: Weak<Shared>) {
    while let Some(producer) = shared.upgrade().map(|shared| shared.current()) {
        let has_more = turn(&producer);
        // Not kept while the task waits: the thread `upkeep` drops a producer that it alone has.
        drop(producer);
        if has_more {
            yield_now().await;
        } else if raised(&signal).await.is_err() {
            return;
        }
    }
}

/// Serves some events. Returns whether more may wait; if not, the next one raises the signal.
fn turn(producer: &BaseProducer<Acknowledgements>) -> bool {
    for _ in 0..EVENTS_PER_TURN {
        if !has_events(producer.client()) {
            return false;
        }
        // Without a wait, a poll serves one event.
        producer.poll(Duration::ZERO);
    }
    true
}

/// Waits for the signal, and takes it.
///
/// # Errors
/// If the runtime ends.
async fn raised(signal: &AsyncFd<Signal>) -> io::Result<()> {
    let mut ready = signal.readable().await?;
    signal.get_ref().lower();
    // This forgets what was known at the return of `readable`. A signal that was raised meanwhile stays known.
    ready.clear_ready();
    Ok(())
}
