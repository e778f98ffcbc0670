//! A request from its body to its answer.
//!
//! ```text
//!  server (io) -- body --> tenant's limit --> small: split, send -------------------> producer --> acknowledged --> answer
//!                            |                 `-> queue --> split-N: split, send ---'   |
//!                            over: come again      |            |                        not stored: come again
//!                                                  full: again  malformed, too large
//! ```
//!
//! Owner: tasks of `io`, one a request. A task splits a small body itself, and waits for the thread that splits another one. The permit for
//! the body is held until the answer.
//!
//! If the client goes away, the task is dropped where it waits. Until then it has split nothing, or sent all: splitting has no place to wait
//! at. What was sent is stored all the same.
//!
//! A request that gets an error may be stored in part or as a whole: brokers may have a message that was not acknowledged in time. A client
//! that sends it again stores those spans twice. Delivery is at least once.

use crate::{
    edge::{
        metrics::{EdgeMetrics, Refusal},
        splitting::{Job, Refused, Sent, Splitting, Terms},
    },
    intake::{
        in_flight::InFlight,
        json::{self, NoRoom},
        serving::{BUSY_AFTER, NOT_STORED_AFTER},
        tenants::{OverLimit, SharedTenants},
    },
};
use crossbeam_channel::TrySendError;
use sluice_kafka::producer::{NotStored, Producer};
use sluice_otlp_server::{Encoding, Request};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::oneshot,
    time::{Instant as TokioInstant, timeout_at},
};

/// The answer to a request that Kafka has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Spans that were rejected for good.
    pub rejected_spans: u64,
    /// Why; empty without any.
    pub message: String,
}

/// What a request is answered with otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untaken {
    /// It cannot be read.
    Malformed(String),
    /// It is too large.
    TooLarge(String),
    /// Its tenant sends more than it may.
    TenantLimit(OverLimit),
    /// It can be sent again.
    Retry { after: Duration, why: String },
}

/// Why nothing of a request is under way to Kafka.
enum Unsent {
    /// No thread, or no memory, is free.
    Busy(&'static str),
    /// Anything else.
    Untaken(Untaken),
}

/// Takes requests.
pub struct Edge {
    pub producer: Producer,
    pub splitting: Splitting,
    pub tenants: SharedTenants,
    pub metrics: Arc<EdgeMetrics>,
    /// How long a request may take, from its whole body to its answer.
    pub timeout: Duration,
    /// Bytes of the largest request in JSON, which is rewritten within its permit.
    pub json_bytes_max: usize,
}

impl Edge {
    /// Stores a request in Kafka.
    ///
    /// # Errors
    /// [`Untaken`], which decides what the client does next.
    pub async fn take(&self, mut request: Request) -> Result<Taken, Untaken> {
        let (begun, bytes) = (Instant::now(), request.body.len() as u64);
        let deadline = TokioInstant::now() + self.timeout;
        let tenant = request.tenant.take().unwrap_or_default();
        let _in_flight = InFlight::begin(&self.metrics.requests_in_flight);
        let Some(partitions) = self.producer.partitions() else {
            self.metrics.refuse(Refusal::NoTopic);
            let why = self.producer.problem().unwrap_or_else(|| "the topic is not known yet".to_owned());
            return Err(Untaken::Retry { after: NOT_STORED_AFTER, why });
        };
        if let Some(why) = self.producer.away() {
            self.metrics.refuse(Refusal::NoBroker);
            return Err(Untaken::Retry { after: NOT_STORED_AFTER, why });
        }
        self.admit(&tenant, bytes, begun)?;
        let sent = self.send(request, Terms { partitions, deadline }).await;
        let sent = sent.map_err(|unsent| match unsent {
            Unsent::Busy(why) => {
                self.tenants.give_back(&tenant, bytes, 0);
                self.metrics.refuse(Refusal::Busy);
                Untaken::Retry { after: BUSY_AFTER, why: why.to_owned() }
            }
            Unsent::Untaken(untaken) => untaken,
        })?;
        self.tenants.count_spans(&tenant, sent.spans);
        self.metrics.split_seconds.observe(begun.elapsed().as_secs_f64());
        let Sent { receipt, permit: _permit, spans, spans_too_large, messages, made_bytes, .. } = sent;
        let Ok(stored) = timeout_at(deadline, receipt).await else {
            return Err(self.not_stored(&self.producer.timed_out()));
        };
        stored.map_err(|failure| self.not_stored(&failure))?;
        self.metrics.produce_seconds.observe(begun.elapsed().as_secs_f64());
        self.metrics.requests.inc();
        self.metrics.request_bytes.inc_by(bytes);
        self.metrics.spans.inc_by(spans.saturating_sub(spans_too_large));
        self.metrics.messages.inc_by(messages);
        self.metrics.message_bytes.inc_by(made_bytes);
        self.metrics.spans_rejected.with_label_values(&["too_large"]).inc_by(spans_too_large);
        Ok(Taken {
            rejected_spans: spans_too_large,
            message: too_large(spans_too_large, sent.largest_bytes, sent.single_bytes_max),
        })
    }

    fn admit(&self, tenant: &str, bytes: u64, now: Instant) -> Result<(), Untaken> {
        let admitted = self.tenants.admit(tenant, bytes, now);
        admitted.map_err(|over| {
            self.metrics.refuse(Refusal::Tenant(over.measure));
            Untaken::TenantLimit(over)
        })
    }

    /// Takes the memory that the request needs, and has a thread split it and pass its messages to the producer.
    async fn send(&self, mut request: Request, terms: Terms) -> Result<Sent, Unsent> {
        if request.encoding == Encoding::Json {
            let room = json::make_room(&mut request, self.json_bytes_max).await;
            room.map_err(|no_room| match no_room {
                NoRoom::TooLarge(words) => Unsent::Untaken(self.too_large(words)),
                NoRoom::Busy(why) => Unsent::Busy(why),
            })?;
        }
        let request = match self.splitting.at_once(request, terms) {
            Ok(worked) => return worked.map_err(|refused| Unsent::Untaken(self.refused(refused))),
            Err(request) => request,
        };
        let (answer, worked) = oneshot::channel();
        let deadline = terms.deadline;
        let job = Job { request, terms, answer };
        match self.splitting.queue(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(Unsent::Busy("too many requests wait for a thread")),
            Err(TrySendError::Disconnected(_)) => return Err(Unsent::Busy("the edge is ending")),
        }
        match timeout_at(deadline, worked).await {
            Ok(Ok(worked)) => worked.map_err(|refused| Unsent::Untaken(self.refused(refused))),
            Ok(Err(_)) => Err(Unsent::Busy("the edge is ending")),
            // All threads wait for room in front of Kafka: nothing else takes this long.
            Err(_) => Err(Unsent::Untaken(self.not_stored(&self.producer.no_room()))),
        }
    }

    fn refused(&self, refused: Refused) -> Untaken {
        match refused {
            Refused::Malformed(why) => {
                self.metrics.refuse(Refusal::Malformed);
                Untaken::Malformed(why)
            }
            Refused::TooLarge(why) => self.too_large(why),
        }
    }

    fn too_large(&self, words: String) -> Untaken {
        self.metrics.refuse(Refusal::TooLarge);
        Untaken::TooLarge(words)
    }

    fn not_stored(&self, failure: &NotStored) -> Untaken {
        self.metrics.refuse_stored(failure);
        let after = match failure {
            // Its producer is replaced by now; the next request is made of smaller messages.
            NotStored::Ended | NotStored::TooLarge { .. } => BUSY_AFTER,
            _ => NOT_STORED_AFTER,
        };
        Untaken::Retry { after, why: failure.to_string() }
    }
}

/// Why spans were rejected; empty if none was.
fn too_large(spans: u64, largest: usize, single_bytes_max: usize) -> String {
    if spans == 0 {
        return String::new();
    }
    let are = if spans == 1 { "span is" } else { "spans are" };
    format!(
        "{spans} {are} larger than the {single_bytes_max} bytes that a Kafka message of this topic may have, with their resource and \
         scope: up to {largest} bytes; send smaller attributes, or increase the topic's max.message.bytes and \
         source.kafka.recordBatchBytesMax"
    )
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
