//! The thread that sends letters: takes them from the queue, ensures that the topic exists, produces, and answers.
//!
//! Owner of the producer, whose callbacks run on this thread while it polls. A letter is answered with "delivered" after the
//! acknowledgement of all in-sync replicas, or with a refusal that needs manual action. Everything else is retried without a time limit;
//! so are refused letters whose worker waits for the manual action.
//!
//! Limits: those of the queue. A producer with a fatal error is replaced; its letters may then exist twice.

use crate::dead_letter::{
    LETTERS_MAX, default_topic,
    letter::Record,
    outcome::{Delivered, Next, Refused, next},
    queue::{Reply, Request},
    topic::{REFUSAL_KEPT, Topics, Unready},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rdkafka::{
    ClientConfig, ClientContext,
    error::KafkaError,
    message::{DeliveryResult, Message as _},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
};
use sluice_login::Renewal;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long a poll for acknowledgements waits while letters are under way.
const POLL_WAIT: Duration = Duration::from_millis(10);

/// How long the thread waits without letters before it serves librdkafka's events.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// How long letters wait after a temporary error.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// A letter on its way.
struct Pending {
    /// Its place among all letters: those of a source partition are sent in the order in which they arrived.
    number: u64,
    record: Record,
    reply: Reply,
    topic: String,
}

/// librdkafka's result for a letter.
struct Outcome {
    pending: Box<Pending>,
    result: Result<(i32, i64), KafkaError>,
}

/// Receives librdkafka's acknowledgements, on the thread that polls.
struct Acknowledgements(crossbeam_channel::Sender<Outcome>);

impl ClientContext for Acknowledgements {}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, mut pending: Box<Pending>) {
        let result = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, message)) => {
                // It may have to be sent again.
                pending.record.value = message.payload().map(<[u8]>::to_vec);
                Err(error.clone())
            }
        };
        self.0.try_send(Outcome { pending, result }).expect("there is room for every letter under way");
    }
}

/// The thread's state.
pub(super) struct Sender {
    config: ClientConfig,
    /// Tokens for the producer, if it logs in with tokens.
    renewal: Renewal,
    /// The topic of all letters; none for a topic beside each source.
    topic: Option<String>,
    requests: Receiver<Request>,
    topics: Topics,
    producer: Option<BaseProducer<Acknowledgements>>,
    outcomes_in: crossbeam_channel::Sender<Outcome>,
    outcomes: Receiver<Outcome>,
    /// Letters so far.
    accepted: u64,
    /// Letters to pass to librdkafka, by number.
    waiting: VecDeque<Box<Pending>>,
    /// Letters that their topic refused, and since when; they are sent again.
    refused: VecDeque<(Instant, Box<Pending>)>,
    /// Letters that librdkafka has.
    in_flight: usize,
    /// No letter is sent before this time.
    not_before: Option<Instant>,
    /// Whether the last attempt failed: one log line at the start of failures, one at the end.
    failing: bool,
}

impl Sender {
    pub(super) fn new(
        config: ClientConfig,
        topic: Option<String>,
        requests: Receiver<Request>,
        renewal: Renewal,
    ) -> Self {
        let (outcomes_in, outcomes) = bounded(LETTERS_MAX);
        Self {
            config,
            renewal,
            topic,
            requests,
            topics: Topics::default(),
            producer: None,
            outcomes_in,
            outcomes,
            accepted: 0,
            waiting: VecDeque::new(),
            refused: VecDeque::new(),
            in_flight: 0,
            not_before: None,
            failing: false,
        }
    }

    /// Sends until all handles are dropped and every letter has its answer.
    pub(super) fn run(mut self) {
        let mut open = true;
        while open || self.has_letters() {
            open = self.take_requests();
            self.send_refused_again(open);
            self.send_waiting();
            if let Some(producer) = &self.producer {
                self.renewal.renew(producer.client());
                producer.poll(if self.in_flight > 0 { POLL_WAIT } else { Duration::ZERO });
            }
            self.take_outcomes();
            self.let_go_of_fatal();
        }
    }

    fn has_letters(&self) -> bool {
        self.in_flight > 0 || !self.waiting.is_empty()
    }

    /// Takes waiting requests; blocks for one if there is nothing else to do. `false` once all handles are dropped.
    fn take_requests(&mut self) -> bool {
        let wait = match (self.in_flight, self.waiting.is_empty()) {
            (0, true) => IDLE_WAIT,
            (0, false) => {
                self.not_before.map_or(Duration::ZERO, |then| then.saturating_duration_since(Instant::now()))
            }
            _ => Duration::ZERO,
        };
        let mut next = self.requests.recv_timeout(wait);
        loop {
            match next {
                Ok(request) => self.accept(request),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => {
                    // Receiving from a channel without senders does not wait.
                    if self.in_flight == 0 && !self.waiting.is_empty() {
                        std::thread::sleep(wait);
                    }
                    return false;
                }
            }
            next = self.requests.recv_timeout(Duration::ZERO);
        }
    }

    fn accept(&mut self, Request { record, reply }: Request) {
        let topic = self.topic.clone().unwrap_or_else(|| default_topic(&record.source));
        let number = self.accepted;
        self.accepted += 1;
        self.waiting.push_back(Box::new(Pending { number, record, reply, topic }));
    }

    /// Puts a letter back to its place among the waiting ones.
    fn put_back(&mut self, pending: Box<Pending>) {
        let place = self.waiting.partition_point(|waiting| waiting.number < pending.number);
        self.waiting.insert(place, pending);
    }

    /// Sends letters again that were refused a while ago, and drops those that no worker waits for.
    fn send_refused_again(&mut self, open: bool) {
        self.refused.retain(|(_, pending)| open && !pending.reply.is_given_up());
        while let Some((_, pending)) = self.refused.pop_front_if(|(since, _)| since.elapsed() >= REFUSAL_KEPT)
        {
            self.put_back(pending);
        }
    }

    fn send_waiting(&mut self) {
        if self.not_before.is_some_and(|then| Instant::now() < then) {
            return;
        }
        self.not_before = None;
        while let Some(pending) = self.waiting.pop_front() {
            if self.not_before.is_some() {
                self.waiting.push_front(pending);
                return;
            }
            self.send(pending);
        }
    }

    /// Passes a letter to librdkafka, answers it, or puts it back.
    fn send(&mut self, pending: Box<Pending>) {
        let Self { config, renewal, topics, outcomes_in, .. } = self;
        let producer = match &mut self.producer {
            Some(producer) => &*producer,
            none => match config.create_with_context(Acknowledgements(outcomes_in.clone())) {
                Ok(producer) => {
                    let producer = &*none.insert(producer);
                    renewal.begin(producer.client());
                    producer
                }
                Err(error) => return self.retry(pending, &error),
            },
        };
        let partitions = match topics.partitions(producer.client(), &pending.topic, &pending.record.source) {
            Ok(partitions) => partitions,
            Err(Unready::Refused(refused)) => return self.refuse(pending, refused),
            Err(Unready::Unanswered(error)) => return self.retry(pending, &error),
        };
        match produce(producer, pending, partitions) {
            Ok(()) => self.in_flight += 1,
            Err((error, pending)) => self.failed(pending, &error),
        }
    }

    fn take_outcomes(&mut self) {
        while let Ok(Outcome { pending, result }) = self.outcomes.try_recv() {
            self.in_flight -= 1;
            match result {
                Ok((partition, offset)) => self.delivered(*pending, partition, offset),
                Err(error) => self.failed(pending, &error),
            }
        }
    }

    /// Drops a producer with a fatal error; the next letter creates another one.
    fn let_go_of_fatal(&mut self) {
        let fatal = self.producer.as_ref().and_then(|producer| producer.client().fatal_error());
        let Some((code, why)) = fatal else { return };
        // Its letters come back as outcomes, to be sent again.
        self.producer = None;
        self.take_outcomes();
        if next(Some(code)) == Next::NotAuthorized {
            for pending in std::mem::take(&mut self.waiting) {
                let refused = Refused::NotAuthorized { topic: pending.topic.clone(), why: why.clone() };
                self.refuse(pending, refused);
            }
        } else {
            tracing::warn!(%code, why, "replacing the dead-letter producer after a fatal error");
        }
    }

    fn delivered(&mut self, pending: Pending, partition: i32, offset: i64) {
        if std::mem::take(&mut self.failing) {
            tracing::info!(topic = pending.topic, "dead letters are delivered again");
        }
        let left_out = pending.record.kept != super::letter::Trim::All;
        pending.reply.answer(Ok(Delivered { topic: pending.topic, partition, offset, left_out }));
    }

    fn failed(&mut self, mut pending: Box<Pending>, error: &KafkaError) {
        let why = error.to_string();
        let topic = pending.topic.clone();
        let refused = match next(error.rdkafka_error_code()) {
            Next::Again => return self.retry(pending, error),
            Next::FindTopic => {
                self.topics.forget(&topic);
                return self.retry(pending, error);
            }
            Next::Trim => match pending.record.kept.less() {
                Some(less) => {
                    pending.record.trim(less);
                    return self.put_back(pending);
                }
                // Other letters may be smaller: the topic itself is not refused.
                None => return self.refuse(pending, Refused::TooLarge { topic }),
            },
            Next::NotAuthorized => Refused::NotAuthorized { topic, why },
            Next::Unfit => Refused::Unfit { topic, why },
        };
        self.topics.refuse(&pending.topic, refused.clone());
        self.refuse(pending, refused);
    }

    /// Answers a refused letter, or keeps it for later.
    fn refuse(&mut self, mut pending: Box<Pending>, refused: Refused) {
        if pending.reply.keeps(&refused) {
            self.refused.push_back((Instant::now(), pending));
        } else {
            pending.reply.answer(Err(refused));
        }
    }

    /// Puts a letter back, to be sent after a while.
    fn retry(&mut self, pending: Box<Pending>, error: &KafkaError) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(topic = pending.topic, %error, "cannot deliver dead letters; retrying");
        }
        self.put_back(pending);
        self.not_before = Some(Instant::now() + RETRY_WAIT);
    }
}

/// Passes a letter to librdkafka, which copies its value; this copy is freed then.
fn produce(
    producer: &BaseProducer<Acknowledgements>,
    mut pending: Box<Pending>,
    partitions: i32,
) -> Result<(), (KafkaError, Box<Pending>)> {
    let value = pending.record.value.take();
    let (topic, headers) = (pending.topic.clone(), pending.record.headers());
    let key = pending.record.key().map(<[u8]>::to_vec);
    let partition = pending.record.source_partition.rem_euclid(partitions.max(1));
    let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(&topic, pending);
    record.payload = value.as_deref();
    record.key = key.as_deref();
    let sent = producer.send(record.partition(partition).headers(headers));
    let refused = sent.map_err(|(error, record)| (error, record.delivery_opaque));
    refused.map_err(|(error, mut pending)| {
        pending.record.value = value;
        (error, pending)
    })
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
