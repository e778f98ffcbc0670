//! Closed-loop clients: each sends a request, waits for its answer, and sends the next one.
//!
//! ```text
//! request -> 200: accepted
//!         -> 429, 502, 503, 504, no answer: waits as long as the answer asks, and sends the same request again
//!         -> another answer, or the last time to accept it is over: failed
//! ```
//!
//! Job: send load as OpenTelemetry exporters do, and count the outcome of each request. Place in the flow: before the gateway. Owner: a
//! task for each client. Limits: a client holds one request. Clients share the cores of the machine with the gateway, so times are those of
//! both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use super::otlp_request::{OtlpRequest, OtlpRequests};
use super::tally::{Delivery, Tally};

/// How long a client waits for an answer. Chosen: longer than the 10 s of exporters. If a client stops waiting and sends the request again,
/// its rows may be in the table twice, and that would be no fault of the gateway.
const ANSWER_PATIENCE: Duration = Duration::from_mins(1);

/// How long a client waits before it sends a request again, if the answer does not say, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// How long after the clients' time a request may still be accepted. Chosen: a full volume has room for all clients again within half a
/// minute; meanwhile the gateway asks them to retry after 5 s.
const ACCEPT_PATIENCE: Duration = Duration::from_mins(2);

/// Characters of an answer that are kept for the report.
const ANSWER_CHARS_MAX: usize = 300;

pub struct Clients {
    shared: Arc<Shared>,
    running: JoinSet<Tally>,
    tally: Tally,
}

struct Shared {
    requests: OtlpRequests,
    uri: Uri,
    http: Client<HttpConnector, Full<Bytes>>,
    /// The number of the next request.
    next: AtomicU64,
    /// After this time, no client begins another request.
    end: Instant,
    /// Set when the gateway has ended, so that no request can be accepted any more.
    is_over: AtomicBool,
}

/// An answer, sorted by what the client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// The client sends the request again after this time.
    Again(Duration, String),
    Refused(String),
}

impl Clients {
    /// Starts `count` clients that send to this `host:port` for `time`.
    pub fn start(requests: OtlpRequests, address: &str, (count, time): (u32, Duration)) -> Result<Clients> {
        let uri =
            format!("http://{address}/v1/traces").parse::<Uri>().context("read the gateway's address")?;
        let shared = Arc::new(Shared {
            requests,
            uri,
            http: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            next: AtomicU64::new(0),
            end: Instant::now() + time,
            is_over: AtomicBool::new(false),
        });
        let mut running = JoinSet::new();
        for _ in 0..count {
            let shared = Arc::clone(&shared);
            running.spawn(async move { shared.send_all().await });
        }
        Ok(Clients { shared, running, tally: Tally::default() })
    }

    /// Whether their time is over; some may still retry a request.
    pub fn time_is_over(&self) -> bool {
        Instant::now() >= self.shared.end
    }

    /// Tells the clients that the gateway has ended: they stop retrying and end.
    pub fn give_up(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until all clients have ended, at most this long; `true` if they have.
    pub async fn end_within(&mut self, patience: Duration) -> Result<bool> {
        let deadline = tokio::time::Instant::now() + patience;
        while let Ok(ended) = tokio::time::timeout_at(deadline, self.running.join_next()).await {
            let Some(tally) = ended else { return Ok(true) };
            self.tally.extend(tally.context("the task of a client ended")?);
        }
        Ok(false)
    }

    pub fn tally(self) -> Tally {
        self.tally
    }
}

impl Shared {
    async fn send_all(&self) -> Tally {
        let mut tally = Tally::default();
        while Instant::now() < self.end && !self.is_over.load(Ordering::Relaxed) {
            let request = self.requests.request(self.next.fetch_add(1, Ordering::Relaxed));
            tally.add(self.deliver(request).await);
        }
        tally
    }

    /// Sends a request until it is accepted, finally refused, or too late.
    async fn deliver(&self, request: OtlpRequest) -> Delivery {
        let began = Instant::now();
        let OtlpRequest { numbers, body } = request;
        let mut delivery = Delivery { numbers, tries: 0, took: None, is_in_time: false, refusal: None };
        loop {
            delivery.tries += 1;
            match self.sent(body.clone()).await {
                Answer::Accepted => {
                    delivery.took = Some(began.elapsed());
                    delivery.is_in_time = Instant::now() < self.end;
                    return delivery;
                }
                Answer::Refused(said) => {
                    delivery.refusal.get_or_insert(said);
                    return delivery;
                }
                Answer::Again(after, said) => {
                    delivery.refusal.get_or_insert(said);
                    let is_late = Instant::now() + after >= self.end + ACCEPT_PATIENCE;
                    if is_late || self.is_over.load(Ordering::Relaxed) {
                        return delivery;
                    }
                    tokio::time::sleep(after).await;
                }
            }
        }
    }

    async fn sent(&self, body: Bytes) -> Answer {
        match tokio::time::timeout(ANSWER_PATIENCE, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Again(AGAIN, format!("{error:#}")),
            Err(_) => Answer::Again(AGAIN, format!("no answer within {ANSWER_PATIENCE:?}")),
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<Answer> {
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .context("make a request")?;
        let response = self.http.request(request).await.context("send a request")?;
        let (head, body) = response.into_parts();
        let text = body.collect().await.context("read an answer")?.to_bytes();
        let after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        Ok(Answer::of(head.status, after, &String::from_utf8_lossy(&text)))
    }
}

impl Answer {
    /// Sorts an answer as the OTLP specification does; `after` is the value of `Retry-After`.
    fn of(status: StatusCode, after: Option<&str>, text: &str) -> Answer {
        let said = || format!("{status}: {}", text.chars().take(ANSWER_CHARS_MAX).collect::<String>());
        match status.as_u16() {
            200..=299 => Answer::Accepted,
            429 | 502 | 503 | 504 => {
                let seconds = after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                Answer::Again(seconds.unwrap_or(AGAIN).min(AGAIN_MAX), said())
            }
            _ => Answer::Refused(said()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_and_when_a_request_is_sent_again() {
        let of = |status: u16, after| Answer::of(StatusCode::from_u16(status).unwrap(), after, "text");
        let again =
            |seconds, status: &str| Answer::Again(Duration::from_secs(seconds), format!("{status}: text"));
        assert_eq!(of(200, None), Answer::Accepted);
        assert_eq!(of(503, Some("5")), again(5, "503 Service Unavailable"));
        assert_eq!(of(503, None), again(1, "503 Service Unavailable"));
        assert_eq!(of(429, Some("3600")), again(10, "429 Too Many Requests"), "the wait is bounded");
        assert_eq!(of(413, None), Answer::Refused("413 Payload Too Large: text".to_owned()));
    }

    /// A gateway that gives these answers, one per connection; the last one repeats.
    async fn server(answers: &'static [&'static str]) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            for number in 0_usize.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let answer = answers[number.min(answers.len() - 1)];
                // Read the whole request: unread bytes would reset the connection.
                let (mut bytes, mut text) = ([0; 4096], String::new());
                while !text.ends_with("]}]}]}") {
                    let length = stream.read(&mut bytes).await.unwrap();
                    assert!(length > 0, "the client ended its connection");
                    text += std::str::from_utf8(&bytes[..length]).unwrap();
                }
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn tally(answers: &'static [&'static str], give_up: bool) -> Tally {
        use super::super::otlp_request::Weight;
        use e2e_fixtures::spans::Run;
        let requests = OtlpRequests::new(Weight::Light, Run { id: 1, start_ns: 1 });
        let address = server(answers).await;
        // The client begins at least one request, because its time ends only afterwards.
        let mut clients = Clients::start(requests, &address, (1, Duration::from_millis(100))).unwrap();
        if give_up {
            assert!(!clients.end_within(Duration::from_millis(50)).await.unwrap());
            clients.give_up();
        }
        assert!(clients.end_within(Duration::from_secs(20)).await.unwrap());
        clients.tally()
    }

    const OK: &str = "200 OK\r\nConnection: close\r\nContent-Length: 0";
    const BUSY: &str = "503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0";
    const LARGE: &str = "413 Payload Too Large\r\nConnection: close\r\nContent-Length: 0";

    #[tokio::test]
    async fn what_is_told_to_come_again_is_sent_again_and_accepted() {
        let tally = tally(&[BUSY, OK], false).await;
        assert_eq!((tally.requests, tally.accepted_first, tally.retried, tally.failed), (1, 0, 1, 0));
        assert!(tally.refusal.unwrap().starts_with("503"));
    }

    #[tokio::test]
    async fn what_is_refused_is_not_sent_again() {
        let tally = tally(&[LARGE, OK], false).await;
        assert_eq!((tally.failed, tally.retried), (1, 0));
        assert_eq!(tally.requests, tally.accepted_first + 1);
    }

    #[tokio::test]
    async fn clients_end_once_there_is_no_gateway() {
        let tally = tally(&[BUSY], true).await;
        assert_eq!((tally.requests, tally.failed), (1, 1));
    }
}
