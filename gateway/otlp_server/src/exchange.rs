//! One request: from its headers to its answer.
//!
//! [`answer`] is the whole story; [`crate::grpc`] and [`crate::http`] read the body in their ways. Owner: a task of the connection, or of
//! its own (HTTP/2). If the client cancels, it is dropped, wherever it waits.

use crate::{
    activity::Activity,
    answer::{AnswerBody, grpc_accepted, grpc_failed, http_accepted, http_failed},
    body::{
        buffer::{Buffer, Full},
        decompression::{Compression, Decompression, INLINE_BYTES, Progress},
        intake::{BoxedError, Intake},
    },
    byte_budget::{ByteBudget, BytePermit},
    config::TENANT_BYTES_MAX,
    counters::{Counters, Outcome, Protocol},
    credentials::Credentials,
    failure::Failure,
    files::Live,
    grpc, http,
    limits::Limits,
    notices::{NoticeKind, Notices},
    request::{Accepted, Acceptor, Encoding, Request},
};
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Response, Version,
    header::{AUTHORIZATION, CONNECTION, EXPECT},
};
use bytes::Bytes;
use hyper::body::Body;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What the answer to an empty request says: it is a success, and nothing was stored.
const EMPTY: &str = "the request is empty: it has no spans";

/// What all requests share.
pub(crate) struct Desk<A> {
    pub acceptor: A,
    pub limits: Limits,
    pub budget: ByteBudget,
    pub counters: Arc<Counters>,
    pub notices: Arc<Notices>,
    pub credentials: Option<Live<Credentials>>,
    pub tenant_header: Option<HeaderName>,
    /// Turns of requests.
    pub requests: Arc<Semaphore>,
    /// Windows of connections that may be wide.
    pub wide_windows: Semaphore,
    /// Turns of decompressions on blocking threads.
    pub decompressions: Arc<Semaphore>,
    /// The ports, for words that name the other one.
    pub grpc_port: Option<u16>,
    pub http_port: Option<u16>,
}

/// A port's kind of answer to what is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Headers with `grpc-status`.
    Grpc,
    /// A status code of HTTP with a body.
    Http(Encoding),
}

/// What a protocol made of a request.
pub(crate) struct Handled {
    pub form: Form,
    pub result: Result<Accepted, Failure>,
}

/// Counts a request, also if it is dropped.
struct Count {
    counters: Arc<Counters>,
    activity: Arc<Activity>,
    protocol: Protocol,
    outcome: Outcome,
}

impl Count {
    fn begin(counters: Arc<Counters>, activity: Arc<Activity>, protocol: Protocol) -> Self {
        counters.begin_request();
        activity.begin_request();
        Self { counters, activity, protocol, outcome: Outcome::Cancelled }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.counters.end_request(self.protocol, self.outcome);
        self.activity.end_request(self.outcome == Outcome::Cancelled);
    }
}

/// Answers a request that came to the port of this protocol.
pub(crate) async fn answer<A, B>(
    desk: Arc<Desk<A>>,
    activity: Arc<Activity>,
    protocol: Protocol,
    request: ::http::Request<B>,
) -> Response<AnswerBody>
where
    A: Acceptor,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxedError>,
{
    let mut count = Count::begin(desk.counters.clone(), activity.clone(), protocol);
    let (parts, body) = request.into_parts();
    let is_http_2 = parts.version == Version::HTTP_2;
    let is_asked = parts.headers.contains_key(EXPECT);
    let mut intake = Intake::new(body, &desk.limits, desk.counters.clone(), protocol);
    let Handled { form, result } = match protocol {
        Protocol::Grpc => grpc::handle(&desk, parts, &mut intake).await,
        Protocol::Http => http::handle(&desk, parts, &mut intake).await,
    };
    count.outcome = match &result {
        Ok(accepted) if accepted.rejected_spans > 0 => Outcome::Partial,
        Ok(_) => Outcome::Accepted,
        Err(failure) => failure.outcome,
    };
    tell(&desk.notices, &result, count.outcome);
    if result.as_ref().is_err_and(|failure| failure.leaves) {
        activity.leave();
    }
    let is_closing = activity.is_closing();
    if !is_http_2 && (intake.is_unread() || (intake.is_untouched() && !is_asked)) {
        discard(intake, desk.limits.body_bytes_max, activity);
    }
    let mut answer = match (&result, form) {
        (Ok(accepted), Form::Grpc) => grpc_accepted(accepted),
        (Ok(accepted), Form::Http(encoding)) => http_accepted(accepted, encoding),
        (Err(failure), Form::Grpc) => grpc_failed(failure),
        (Err(failure), Form::Http(encoding)) => http_failed(failure, encoding),
    };
    if !is_http_2 && is_closing {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn tell(notices: &Notices, result: &Result<Accepted, Failure>, outcome: Outcome) {
    let words = match result {
        Ok(accepted) if accepted.rejected_spans > 0 => &accepted.message,
        Err(failure) if outcome != Outcome::Cancelled => &failure.words,
        _ => return,
    };
    notices.tell(NoticeKind::Request(outcome), || words.clone());
}

/// Reads the rest of a body that was answered before it was read, so that the client gets the answer. A client that waits for
/// `100 Continue` sends none, unless it is asked.
fn discard<B>(intake: Intake<B>, bytes_max: u32, activity: Arc<Activity>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxedError>,
{
    // One for a connection, which takes no other request before; it ends at the deadline of the body.
    activity.begin_request();
    tokio::spawn(async move {
        intake.discard(bytes_max).await;
        activity.end_request(false);
    });
}

impl<A: Acceptor> Desk<A> {
    /// Checks the credentials of a request, and takes the name of its tenant.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Option<String>, Failure> {
        if let Some(credentials) = &self.credentials {
            credentials.get().check(headers.get(AUTHORIZATION))?;
        }
        let Some(name) = &self.tenant_header else { return Ok(None) };
        let Some(value) = headers.get(name) else { return Ok(None) };
        let text = value.to_str().ok().filter(|text| text.len() <= TENANT_BYTES_MAX);
        let text = text.ok_or_else(|| {
            Failure::malformed(format!(
                "the header {name} is not the name of a tenant: up to {TENANT_BYTES_MAX} characters of visible ASCII"
            ))
        })?;
        Ok(Some(text.to_owned()))
    }

    /// A request's turn, held until its answer.
    pub fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = self.requests.clone().try_acquire_owned();
        turn.map_err(|_| Failure::busy(self.limits.requests_max, self.limits.retry_after))
    }

    /// An empty buffer for a body of this length.
    pub async fn buffer(&self, bytes: usize) -> Result<Buffer, Failure> {
        let bytes_max = usize::try_from(self.limits.body_bytes_max).unwrap_or(usize::MAX);
        let made = Buffer::within(&self.budget, bytes, bytes_max, self.limits.permit_wait).await;
        made.map_err(|full| self.full(full, 0))
    }

    /// A buffer for a received body cannot have what it needs, beside the bytes that it holds.
    pub fn full(&self, full: Full, held: usize) -> Failure {
        match full {
            Full::Limit => Failure::body_too_large(None, self.limits.body_bytes_max),
            Full::Budget(no_room) => Failure::no_room(no_room, held, &self.budget, self.limits.retry_after),
        }
    }

    /// Has a body stored, as it was received.
    pub async fn store(&self, received: Received) -> Result<Accepted, Failure> {
        let Received { body, compression, encoding, tenant, protocol } = received;
        let (body, permit) = match compression {
            Some(compression) if body.len() > 0 => self.decompress(compression, body).await?,
            _ => body.into_parts(),
        };
        self.counters.decompress(protocol, body.len());
        if body.is_empty() {
            return match encoding {
                // A message without fields, which a client may send to see whether the server answers.
                Encoding::Protobuf => Ok(Accepted { rejected_spans: 0, message: EMPTY.to_owned() }),
                Encoding::Json => {
                    Err(Failure::malformed("the body is empty; {} is the request without spans"))
                }
            };
        }
        let request = Request { body, encoding, tenant, permit };
        self.acceptor.accept(request).await.map_err(Failure::from)
    }

    async fn decompress(
        &self,
        compression: Compression,
        body: Buffer,
    ) -> Result<(Bytes, BytePermit), Failure> {
        let mut work = Decompression::begin(compression, body, &self.budget, &self.limits).await?;
        if work.is_small() && work.run(INLINE_BYTES)? == Progress::Done {
            return Ok(work.finish());
        }
        let ending = || Failure::ending(self.limits.retry_after);
        let turn = self.decompressions.clone().acquire_owned().await.map_err(|_| ending())?;
        let worked = tokio::task::spawn_blocking(move || {
            while work.run(usize::MAX)? == Progress::More {}
            // The client may have gone, but the thread was busy until here.
            drop(turn);
            Ok(work.finish())
        });
        match worked.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(ending()),
        }
    }
}

/// A body, as it was received.
pub(crate) struct Received {
    pub body: Buffer,
    pub compression: Option<Compression>,
    pub encoding: Encoding,
    pub tenant: Option<String>,
    pub protocol: Protocol,
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
