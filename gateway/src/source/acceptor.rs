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
        tenants::{OverLimit, SharedTenants},
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
        let (tenant, bytes) = (request.tenant.clone().unwrap_or_default(), request.body.len() as u64);
        let admitted = self.tenants.admit(&tenant, bytes, begun);
        self.metrics.requests.tenants.set(i64::try_from(self.tenants.count()).unwrap_or(i64::MAX));
        admitted.map_err(|over| self.over(&over))?;
        if request.encoding == Encoding::Json {
            let room = json::make_room(&mut request, self.json_bytes_max).await;
            let unstored = room.map_err(|no_room| match no_room {
                NoRoom::TooLarge(words) => Unstored::TooLarge(words),
                NoRoom::Busy(why) => Unstored::Busy(why),
            });
            unstored.map_err(|unstored| self.unstored(unstored, &tenant, bytes))?;
        }
        let (answer, answered) = oneshot::channel();
        let sent = self.checks.try_send(Check { request, entered, begun, answer });
        let unstored = match sent {
            Ok(()) => match timeout(self.timeout, answered).await {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(unstored))) => unstored,
                Ok(Err(_)) => Unstored::Busy("the gateway is ending"),
                Err(_) => return Err(self.slow()),
            },
            Err(TrySendError::Full(_)) => Unstored::Busy("too many requests wait for a thread"),
            Err(TrySendError::Disconnected(_)) => Unstored::Busy("the gateway is ending"),
        };
        Err(self.unstored(unstored, &tenant, bytes))
    }

    /// The answer to a request that is not stored. If the gateway lacks something, the tenant gets back what the request took.
    fn unstored(&self, unstored: Unstored, tenant: &str, bytes: u64) -> Refusal {
        match unstored {
            Unstored::Malformed(words) => {
                self.metrics.requests.refuse(RequestRefusal::Malformed);
                Refusal::Malformed(words)
            }
            Unstored::TooLarge(words) => {
                self.metrics.requests.refuse(RequestRefusal::TooLarge);
                Refusal::TooLarge(words)
            }
            Unstored::Full { why, spans } => {
                self.tenants.give_back(tenant, bytes, spans);
                self.again(RequestRefusal::Full, NOT_STORED_AFTER, why)
            }
            Unstored::Busy(why) => {
                self.tenants.give_back(tenant, bytes, 0);
                self.again(RequestRefusal::Busy, BUSY_AFTER, why.to_owned())
            }
        }
    }

    /// It may be stored all the same, so its tenant gets nothing back.
    fn slow(&self) -> Refusal {
        let seconds = self.timeout.as_secs();
        let why = format!("the queue volume {} has not stored the request within {seconds} s", self.volume);
        self.again(RequestRefusal::Slow, NOT_STORED_AFTER, why)
    }

    fn over(&self, over: &OverLimit) -> Refusal {
        self.metrics.requests.refuse(RequestRefusal::Tenant(over.measure));
        Refusal::TenantLimit { after: over.after, words: over.to_string() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ground::metrics::reference,
        intake::tenants::TenantRates,
        source::{appender::Append, checking},
    };
    use bytes::Bytes;
    use crossbeam_channel::{Receiver, bounded};
    use sluice_kafka::Drain;
    use sluice_otlp_server::ByteBudget;

    const SPAN: &str =
        r#"{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"a"}"#;

    /// An acceptor whose checked requests come to this channel, which holds so many.
    fn acceptor(appends_max: usize) -> (SourceAcceptor, Receiver<Append>) {
        let tenants = Arc::new(SharedTenants::new(TenantRates { spans: Some(1), bytes: Some(1) }));
        let (appends, appends_in) = bounded(appends_max);
        let acceptor = SourceAcceptor {
            checks: checking::start(1, 1 << 20, &tenants, &appends).unwrap(),
            gate: Gate::new(Drain::default()),
            tenants,
            metrics: Arc::new(reference::metrics()),
            json_bytes_max: 1 << 20,
            volume: "/queue".to_owned(),
            timeout: SourceAcceptor::TIMEOUT,
        };
        (acceptor, appends_in)
    }

    /// A request of tenant `a` with twenty spans: more than a full bucket of either limit.
    fn request() -> Request {
        let text =
            format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, [SPAN; 20].join(","));
        let permit = ByteBudget::new(1 << 20).try_take(text.len()).unwrap();
        let (encoding, tenant) = (Encoding::Json, Some("a".to_owned()));
        Request { body: Bytes::from(text), encoding, tenant, permit }
    }

    fn answer_all(appends: Receiver<Append>, outcome: impl Fn(u64) -> Result<(), Unstored> + Send + 'static) {
        std::thread::spawn(move || {
            while let Ok(append) = appends.recv() {
                append.answer.send(outcome(append.spans)).unwrap();
            }
        });
    }

    #[tokio::test]
    async fn a_request_that_finds_no_thread_or_no_room_costs_its_tenant_nothing() {
        // Nothing takes a request: it was checked, and its spans were counted.
        let (busy, _not_taken) = acceptor(0);
        let (full, appends) = acceptor(1);
        answer_all(appends, |spans| Err(Unstored::Full { why: "it is full".to_owned(), spans }));
        for (acceptor, after) in [(busy, BUSY_AFTER), (full, NOT_STORED_AFTER)] {
            for _ in 0..3 {
                let refused = acceptor.take(request()).await.unwrap_err();
                assert!(
                    matches!(&refused, Refusal::Retry { after: said, .. } if *said == after),
                    "{refused:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_no_thread_checks_costs_its_tenant_nothing() {
        let (mut acceptor, _appends) = acceptor(1);
        let (full, _not_taken) = bounded(0);
        acceptor.checks = full;
        for _ in 0..3 {
            let refused = acceptor.take(request()).await.unwrap_err();
            assert!(matches!(&refused, Refusal::Retry { after: BUSY_AFTER, .. }), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_stored_request_is_paid_with_its_spans_and_its_bytes() {
        let (acceptor, appends) = acceptor(1);
        answer_all(appends, |_| Ok(()));
        assert_eq!(acceptor.take(request()).await, Ok(()));
        let refused = acceptor.take(request()).await.unwrap_err();
        assert!(matches!(&refused, Refusal::TenantLimit { .. }), "{refused:?}");
    }
}
