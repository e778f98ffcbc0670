//! The thread `produce`: takes librdkafka's acknowledgements, gives it new tokens, and replaces a producer after a fatal error.
//!
//! Owner of the polls: callbacks of messages and of errors run here. Limits: messages under way are bounded before they come to librdkafka.

use crate::{
    ground::security::ConnectionProblem,
    producer::{NotStored, reply::Ticket, sender::Shared, topic_watch::TopicState},
};
use crossbeam_channel::{Receiver, TryRecvError};
use rdkafka::{
    ClientConfig, ClientContext,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseProducer, Producer as _, ProducerContext},
};
use sluice_gateway_config::Kafka;
use sluice_login::Renewal;
use std::{
    convert::Infallible,
    sync::{Arc, PoisonError},
    time::Duration,
};

/// How long one poll waits; acknowledgements end it earlier. So late the thread notices that its producer is dropped.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// How long to wait before a producer is replaced again, if there is none.
const REPLACE_AGAIN: Duration = Duration::from_secs(1);

/// Receives librdkafka's acknowledgements and errors, on the thread that polls.
#[derive(Clone)]
pub(super) struct Acknowledgements {
    topic: Arc<str>,
    kafka: Arc<Kafka>,
    state: Arc<TopicState>,
}

impl Acknowledgements {
    pub(super) fn new(topic: &str, kafka: &Kafka, state: &Arc<TopicState>) -> Self {
        Self { topic: Arc::from(topic), kafka: Arc::new(kafka.clone()), state: state.clone() }
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

/// The thread's state.
pub(super) struct Pump {
    pub(super) shared: Arc<Shared>,
    pub(super) config: ClientConfig,
    pub(super) context: Acknowledgements,
    pub(super) renewal: Renewal,
    pub(super) ended: Receiver<Infallible>,
}

impl Pump {
    /// Polls until all handles are dropped.
    pub(super) fn run(self) {
        let mut replaced = Vec::new();
        self.renewal.begin(self.shared.current().client());
        while self.ended.try_recv() != Err(TryRecvError::Disconnected) {
            drop_unused(&mut replaced);
            let producer = self.shared.current();
            self.renewal.renew(producer.client());
            producer.poll(POLL_WAIT);
            if let Some((code, why)) = producer.client().fatal_error() {
                tracing::warn!(%code, why, topic = self.shared.topic, "replacing the producer after a fatal error");
                replaced.extend(self.replace());
            }
        }
    }

    /// Puts a new producer in place of one that can do nothing more, and returns that. Its messages are answered when it is dropped.
    fn replace(&self) -> Option<Arc<BaseProducer<Acknowledgements>>> {
        match self.config.create_with_context(self.context.clone()) {
            Ok(producer) => {
                let producer: Arc<BaseProducer<Acknowledgements>> = Arc::new(producer);
                self.renewal.begin(producer.client());
                let mut current = self.shared.producer.write().unwrap_or_else(PoisonError::into_inner);
                Some(std::mem::replace(&mut *current, producer))
            }
            Err(error) => {
                tracing::error!(%error, topic = self.shared.topic, "cannot create a producer; trying again");
                std::thread::sleep(REPLACE_AGAIN);
                None
            }
        }
    }
}

/// Drops what was replaced, once no sender has it any more. A producer takes half a second or more to end, which must not be on a thread
/// that sends, such as one of `io`.
fn drop_unused<T>(replaced: &mut Vec<Arc<T>>) {
    replaced.retain(|unused| Arc::strong_count(unused) > 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_ends_here_once_no_sender_has_it() {
        let (unused, sent_with) = (Arc::new(1), Arc::new(2));
        let sender = sent_with.clone();
        let mut replaced = vec![unused, sent_with];
        drop_unused(&mut replaced);
        assert_eq!(replaced, [Arc::new(2)]);
        drop(sender);
        drop_unused(&mut replaced);
        assert!(replaced.is_empty());
    }
}
