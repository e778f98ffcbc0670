//! A request from its body to its answer.
//!
//! Owner: tasks of `io`, one a request. They wait, and do no work on the body. The server's permit for the body is held until the request is durable,
//! also if its client has gone meanwhile.
//!
//! A request that gets an error may be stored all the same: if the disk is slow, the answer comes before the sync is over. A client
//! that sends it again stores its spans twice. Delivery from the client is at least once; from the log on, it is as from Kafka.

use crate::{
    ground::metrics::{Metrics, RequestRefusal},
    intake::{
        ending::ANSWER_TIMEOUT,
        in_flight::InFlight,
        json::{self, NoRoom},
        serving::{BUSY_AFTER, NOT_STORED_AFTER},
        tenants::{Measure, OverLimit, SharedTenants},
    },
    source::{appender::Unstored, checking::Check, gate::Gate},
};
use crossbeam_channel::{Sender, TrySendError};
use sluice_otlp_server::{Accepted, Acceptor, Encoding, Refusal, Request};
use std::{sync::Arc, time::Duration, time::Instant};
use tokio::{sync::oneshot, time::timeout};

/// Takes requests from the server.
pub struct SourceAcceptor {
    pub checks: Sender<Check>,
    pub gate: Gate,
    pub tenants: Arc<SharedTenants>,
    pub metrics: Arc<Metrics>,
    /// Bytes of the largest request in JSON, which is rewritten within its permit.
    pub json_bytes_max: usize,
    /// The volume's path.
    pub volume: String,
    /// How long a request may take, from its whole body to its answer.
    pub timeout: Duration,
}

impl SourceAcceptor {
    /// With the time that requests usually have.
    pub const TIMEOUT: Duration = ANSWER_TIMEOUT;

    async fn take(&self, mut request: Request) -> Result<(), Refusal> {
        let begun = Instant::now();
        let _in_flight = InFlight::begin(&self.metrics.requests.in_flight);
        let Some(entered) = self.gate.enter() else {
            self.metrics.requests.refuse(RequestRefusal::Draining);
            // A Service has no new connections for this pod, and the client keeps its own until it is ended.
            return Err(Refusal::Elsewhere {
                after: NOT_STORED_AFTER,
                words: "this gateway is drained and takes no requests; others of the pipeline do".to_owned(),
            });
        };
        let tenant = request.tenant.as_deref().unwrap_or_default();
        let admitted = self.tenants.admit(tenant, request.body.len() as u64, begun);
        self.metrics.requests.tenants.set(i64::try_from(self.tenants.count()).unwrap_or(i64::MAX));
        admitted.map_err(|over| self.over(&over))?;
        if request.encoding == Encoding::Json {
            json::make_room(&mut request, self.json_bytes_max).await.map_err(|no_room| match no_room {
                NoRoom::TooLarge(words) => self.too_large(words),
                NoRoom::Busy(why) => self.busy(why),
            })?;
        }
        let (answer, answered) = oneshot::channel();
        match self.checks.try_send(Check { request, entered, begun, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(self.busy("too many requests wait for a thread")),
            Err(TrySendError::Disconnected(_)) => return Err(self.busy("the gateway is ending")),
        }
        match timeout(self.timeout, answered).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(unstored))) => Err(self.unstored(unstored)),
            Ok(Err(_)) => Err(self.busy("the gateway is ending")),
            Err(_) => {
                let seconds = self.timeout.as_secs();
                let why =
                    format!("the queue volume {} has not stored the request within {seconds} s", self.volume);
                Err(self.again(RequestRefusal::Slow, NOT_STORED_AFTER, why))
            }
        }
    }

    fn unstored(&self, unstored: Unstored) -> Refusal {
        match unstored {
            Unstored::Malformed(words) => {
                self.metrics.requests.refuse(RequestRefusal::Malformed);
                Refusal::Malformed(words)
            }
            Unstored::TooLarge(words) => self.too_large(words),
            Unstored::Full(words) => self.again(RequestRefusal::Full, NOT_STORED_AFTER, words),
            Unstored::Busy(why) => self.busy(why),
        }
    }

    fn over(&self, over: &OverLimit) -> Refusal {
        self.metrics.requests.refuse(match over.measure {
            Measure::Spans => RequestRefusal::TenantSpans,
            Measure::Bytes => RequestRefusal::TenantBytes,
        });
        Refusal::TenantLimit { after: over.after, words: over.to_string() }
    }

    fn too_large(&self, words: String) -> Refusal {
        self.metrics.requests.refuse(RequestRefusal::TooLarge);
        Refusal::TooLarge(words)
    }

    fn busy(&self, why: &str) -> Refusal {
        self.again(RequestRefusal::Busy, BUSY_AFTER, why.to_owned())
    }

    fn again(&self, refusal: RequestRefusal, after: Duration, words: String) -> Refusal {
        self.metrics.requests.refuse(refusal);
        Refusal::Retry { after, words }
    }
}

impl Acceptor for SourceAcceptor {
    async fn accept(&self, request: Request) -> Result<Accepted, Refusal> {
        self.take(request).await.map(|()| Accepted::default())
    }
}
