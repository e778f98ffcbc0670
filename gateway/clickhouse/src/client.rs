//! Sends INSERTs over HTTP/1.1.
//!
//! Job: one attempt, from a target and a body to "stored" or a classified error. Place in the flow: delivery's I/O threads; the client
//! holds the connections of all its users and is cheap to clone. Delivery decides whether and when to retry. The client only retries a
//! request that a closing connection never started to read.
//!
//! Limits: [`CONNECT_TIMEOUT`] to connect (without the TLS handshake), the target's timeout for the whole attempt. At most
//! [`ANSWER_BYTES_MAX`] of an answer are read. Idle connections are closed after [`IDLE_TIMEOUT`].

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::body::{Begun, BodyStream, InsertBody, WireFormat};
use crate::causes::with_causes;
use crate::exception::code_of;
use crate::insert::{InsertError, InsertId, InsertTarget, Inserted};
use crate::outcome::{Class, INCORRECT_DATA, NOT_THE_SERVERS, classify, no_answer};
use crate::tls::Tls;

/// How long connecting may take. Chosen: a server in the same network answers within milliseconds, three lost SYN
/// packets take seven seconds, and every one of a dead server's addresses is tried.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be idle. Chosen: below the server's `keep_alive_timeout` (10 s, 3 s on older ones), so that the client
/// closes it first: an INSERT on a connection that the server is closing would be in doubt.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Idle connections kept per server. Chosen: the INSERTs one gateway has in flight are fewer.
pub const IDLE_CONNECTIONS_MAX: usize = 16;

/// TCP keep-alive: detects a server that disappeared while it should store rows.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Maximum bytes of an answer that are read. Chosen: an answer to an INSERT is empty or one exception of a few KiB; the rest of a longer
/// one is not worth the memory.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Characters of the server's message that are kept in an error. Chosen: enough for code, text and row number, and for a missing right on all
/// columns of a table.
pub const MESSAGE_CHARS_MAX: usize = 1_000;

/// Codes with which the server says that it cannot read a body. It gives them for bytes that are no rows at all, such as frames that it was
/// not asked to decompress: which one depends on the bytes.
const UNREADABLE: [u32; 5] = [
    32, // ATTEMPT_TO_READ_AFTER_EOF
    33, // CANNOT_READ_ALL_DATA
    INCORRECT_DATA,
    128, // TOO_LARGE_ARRAY_SIZE
    131, // TOO_LARGE_STRING_SIZE
];

const EXCEPTION_CODE: &str = "X-ClickHouse-Exception-Code";

/// The header that only the server sends, at the end of every INSERT: a block settles only with it. It is final, since the status line
/// waits for the commit (`wait_end_of_query`, [`crate::settings`]). The query id in the answer is not checked: chproxy gives queries ids
/// of its own.
pub const SUMMARY: &str = "X-ClickHouse-Summary";

/// The summary's field with the number of rows read; measured on 26.7.
const READ_ROWS: &str = "\"read_rows\":\"";
const NO_ROWS: &str = "0\"";

/// Connections to ClickHouse servers for INSERTs. Clones share them.
#[derive(Debug, Clone)]
pub struct InsertClient {
    http: Client<HttpsConnector<HttpConnector>, BodyStream>,
}

impl Default for InsertClient {
    fn default() -> Self {
        Self::new()
    }
}

/// A failed attempt, before its target is added.
#[derive(Debug)]
struct Failure {
    class: Class,
    code: Option<u32>,
    http_status: Option<u16>,
    message: String,
}

impl InsertClient {
    /// A client for `http` endpoints, without connections. Must be used on a tokio runtime with time and I/O.
    pub fn new() -> Self {
        Self::secured(&Tls::unused())
    }

    /// A client for `http` and `https` endpoints.
    pub fn secured(tls: &Tls) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        // The body is written in large pieces: waiting to fill packets would only delay the last one.
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(tls.connector(connector));
        Self { http }
    }

    /// Makes one attempt to insert `body`. If the future is dropped, the rows are in doubt.
    ///
    /// # Errors
    /// [`InsertError`], whose class says what to do next.
    pub async fn insert(
        &self,
        target: &InsertTarget,
        body: &InsertBody,
        id: InsertId<'_>,
    ) -> Result<Inserted, InsertError> {
        let started = Instant::now();
        let (stream, begun) = body.stream(&target.header_of(body.format()));
        let attempt = self.attempt(request(target, body.format(), stream, &id), &begun);
        let outcome = match tokio::time::timeout(target.timeout(), attempt).await {
            // The gateway never sends a block without rows.
            Ok(Ok(Read::Nothing)) => Err(Failure::no_body()),
            Ok(outcome) => outcome.map(drop),
            Err(_) => Err(Failure::connection(&begun, format!("no answer within {:?}", target.timeout()))),
        };
        match outcome {
            Ok(()) => Ok(Inserted { elapsed: started.elapsed() }),
            Err(failure) if failure.is_unreadable() => {
                Err(self.whose(failure, target, id.query_id).await.at(target))
            }
            Err(failure) => Err(failure.at(target)),
        }
    }

    /// Makes an INSERT of no rows: names and types of the columns, in a compressed frame like every body. It stores nothing.
    ///
    /// # Errors
    /// [`InsertError`] if the server does not accept it. If it cannot read even that, a proxy changes the body, or removes the parameter
    /// that says how to read it; the message says so.
    pub async fn insert_no_rows(&self, target: &InsertTarget, query_id: &str) -> Result<(), InsertError> {
        let outcome = self.no_rows(target, query_id).await;
        outcome.map_err(|failure| {
            let failure = if failure.is_unreadable() { Failure::changed(&failure) } else { failure };
            failure.at(target)
        })
    }

    /// Whether rows are the cause if the server cannot read a body: they are not if it cannot read one without rows either.
    async fn whose(&self, failure: Failure, target: &InsertTarget, query_id: &str) -> Failure {
        // Answers about attempts are looked up by the beginning of their ids.
        match self.no_rows(target, &format!("no-rows-{query_id}")).await {
            Ok(()) => failure,
            Err(empty) if empty.is_unreadable() => Failure::changed(&empty),
            Err(empty) if empty.class == Class::RefreshSchema => empty,
            // Whether rows are the cause is unknown. The server has stored no row.
            Err(empty) => Failure { class: Class::Retry, code: None, ..empty },
        }
    }

    async fn no_rows(&self, target: &InsertTarget, query_id: &str) -> Result<(), Failure> {
        let format = WireFormat::RowBinary;
        let (stream, begun) = InsertBody::new(Vec::new()).stream(&target.header_of(format));
        let id = InsertId { token: None, query_id };
        let attempt = self.attempt(request(target, format, stream, &id), &begun);
        let outcome = tokio::time::timeout(target.timeout(), attempt).await;
        let late = |_| Err(Failure::connection(&begun, format!("no answer within {:?}", target.timeout())));
        outcome.unwrap_or_else(late).map(drop)
    }

    async fn attempt(&self, request: Request<BodyStream>, begun: &Begun) -> Result<Read, Failure> {
        let answer = self
            .http
            .request(request)
            .await
            .map_err(|error| Failure::connection(begun, with_causes(&error)))?;
        let http_status = answer.status().as_u16();
        let header_code = exception_code(answer.headers());
        let read = Read::of(answer.headers());
        let text = text_of(answer).await.map_err(|reason| Failure::connection(begun, reason))?;
        // Since the status comes after the commit, an exception after a 200 is not expected; if there is one, the answer is not a
        // success.
        let said = header_code.or_else(|| code_of(&text));
        let is_claimed = said.is_none() && (200..300).contains(&http_status);
        let code = if is_claimed && read.is_none() { Some(NOT_THE_SERVERS) } else { said };
        let class = match classify(code, http_status, &text) {
            Class::Done if code.is_none() && !text.is_empty() => Class::InDoubt,
            class => class,
        };
        if class == Class::Done {
            return Ok(read.unwrap_or(Read::Something));
        }
        let message = match code {
            Some(NOT_THE_SERVERS) => Failure::claimed(&text, http_status),
            _ => message(&text, http_status),
        };
        Err(Failure { class, code, http_status: Some(http_status), message })
    }
}

/// What the server says it has read of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// No rows. If the whole body is lost on its way, or everything behind the header, it is a valid INSERT of no rows. A body cut
    /// elsewhere is not.
    Nothing,
    /// Rows. The number proves nothing: it may include rows of views.
    Something,
}

impl Read {
    /// `None`: the answer is not from the server.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let (_, rows) = headers.get(SUMMARY)?.to_str().ok()?.split_once(READ_ROWS)?;
        Some(if rows.starts_with(NO_ROWS) { Self::Nothing } else { Self::Something })
    }
}

impl Failure {
    /// The server reports success for an INSERT of no rows.
    fn no_body() -> Self {
        let message = "the server read no rows: the body of the INSERT was lost on the way".to_owned();
        Self { class: Class::Retry, code: None, http_status: Some(200), message }
    }

    /// The server cannot read a body without rows.
    fn changed(empty: &Self) -> Self {
        let said = &empty.message;
        let message = format!(
            "the server cannot read even an INSERT without rows: a proxy removes the parameter decompress, or changes the body. Let it pass \
             both unchanged. The server said: {said}"
        );
        Self { class: Class::Retry, code: None, http_status: empty.http_status, message }
    }

    /// Whether the server could not read the body. Rows may be the cause, or what happened to the body on its way. If it says so of the types
    /// in front of the rows, the table is another one.
    fn is_unreadable(&self) -> bool {
        let names_types = self.code == Some(INCORRECT_DATA) && self.class == Class::RefreshSchema;
        self.code.is_some_and(|code| UNREADABLE.contains(&code)) && !names_types
    }

    /// The error for a success that only a proxy can have sent.
    fn claimed(text: &str, http_status: u16) -> String {
        let said = if text.is_empty() { "nothing" } else { text };
        let whole = format!(
            "HTTP status {http_status} without {SUMMARY}, so it is not from ClickHouse; it says {said}"
        );
        message(&whole, http_status)
    }

    /// The answer is missing or incomplete.
    fn connection(begun: &Begun, message: String) -> Self {
        Self { class: no_answer(begun.get()), code: None, http_status: None, message }
    }

    fn at(self, target: &InsertTarget) -> InsertError {
        InsertError {
            class: self.class,
            code: self.code,
            http_status: self.http_status,
            message: self.message,
            endpoint: target.endpoint().to_string(),
            table: target.table().to_owned(),
        }
    }
}

fn request(
    target: &InsertTarget,
    format: WireFormat,
    stream: BodyStream,
    id: &InsertId<'_>,
) -> Request<BodyStream> {
    let mut request = Request::new(stream);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri(format, id);
    let headers = request.headers_mut();
    headers.insert(AUTHORIZATION, target.authorization());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    request
}

fn exception_code(headers: &HeaderMap) -> Option<u32> {
    headers.get(EXCEPTION_CODE)?.to_str().ok()?.parse().ok()
}

/// The first [`ANSWER_BYTES_MAX`] bytes of an answer as text. After a longer answer the connection is closed.
async fn text_of(answer: Response<Incoming>) -> Result<String, String> {
    let mut body = answer.into_body();
    let mut text: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let data: Bytes = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => return Err(format!("reading the answer: {}", with_causes(&error))),
        };
        let room = ANSWER_BYTES_MAX - text.len();
        text.extend_from_slice(&data[..data.len().min(room)]);
        if text.len() == ANSWER_BYTES_MAX {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

fn message(text: &str, http_status: u16) -> String {
    if text.is_empty() {
        return format!("HTTP status {http_status} without a message");
    }
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
