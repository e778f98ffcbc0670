//! Clients that send numbered spans to a gateway with `source.otlp`, over OTLP/HTTP.
//!
//! Job: send one request after another, and report which were answered with success. Place in the flow: in place of the producer to Kafka
//! of `source.kafka`; a scene starts and stops them. Owner: tasks of the runtime; they end when [`Clients`] is dropped. Limits: [`CLIENTS`]
//! requests are under way.
//!
//! A request without a success may still be stored, and OTLP has no id to recognise its second try. So each try has new spans: spans of a
//! success must be in the table once, and spans of any other answer at most once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use e2e_fixtures::produce::Sent;
use e2e_fixtures::spans::{Generator, Run, Shape};

/// Clients of a scene. Chosen: requests share records and syncs, and use little of two cores.
pub const CLIENTS: usize = 4;

/// Spans of a request: some 50 KB.
pub const REQUEST_SPANS: u64 = 50;

/// Pause after a request without a success. Chosen: shorter than the pause that gateways ask for, so that a scenario does not wait for it.
const AGAIN: Duration = Duration::from_millis(100);

/// Longest request. Chosen: several times the 8 s within which a gateway answers, so that a busy machine does not cause a missing answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const SECOND_NS: u64 = 1_000_000_000;

/// The media type of OTLP in protobuf.
pub const PROTOBUF: &str = "application/x-protobuf";

pub const PATH: &str = "/v1/traces";

/// Clients that send until they are stopped.
pub struct Clients {
    stop: watch::Sender<bool>,
    tally: Arc<Tally>,
    sending: JoinSet<Sent>,
}

/// The shared counts of all clients.
#[derive(Debug, Default)]
struct Tally {
    /// The next number that no request has used.
    next: AtomicU64,
    /// Requests with a success, by client.
    accepted: [AtomicU64; CLIENTS],
    told_again: AtomicU64,
    broken: AtomicU64,
    /// The first answer that no gateway should give.
    wrong: Mutex<Option<String>>,
}

/// The outcome of a request.
enum Said {
    Stored,
    /// 503 with Retry-After.
    Again,
    /// The answer was missing or incomplete.
    Broken,
    /// Any other answer.
    Wrong(String),
}

impl Clients {
    /// Starts clients that send spans from number `first` on to `address` (`host:port`), at this rate together, or slower if the gateway
    /// is.
    pub fn start(address: &str, run: Run, first: u64, spans_per_second: u64) -> Clients {
        let (stop, stopped) = watch::channel(false);
        let tally = Arc::new(Tally { next: AtomicU64::new(first), ..Tally::default() });
        let spans_in_turn = CLIENTS as u64 * REQUEST_SPANS;
        let every = Duration::from_nanos(SECOND_NS * spans_in_turn / spans_per_second.max(1));
        let mut sending = JoinSet::new();
        for place in 0..CLIENTS {
            let http = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http();
            let url = format!("http://{address}{PATH}");
            let generator = Generator::new(Shape::Numbered, run);
            let client = OneClient { place, http, url, generator, every, tally: Arc::clone(&tally) };
            sending.spawn(client.send_all(stopped.clone()));
        }
        Clients { stop, tally, sending }
    }

    /// Spans of requests with a success.
    pub fn acked(&self) -> u64 {
        self.accepted().iter().sum::<u64>() * REQUEST_SPANS
    }

    /// Requests with a success, by client.
    pub fn accepted(&self) -> [u64; CLIENTS] {
        self.tally.accepted.each_ref().map(|accepted| accepted.load(Ordering::Relaxed))
    }

    /// How often a gateway asked a client to retry.
    pub fn told_again(&self) -> u64 {
        self.tally.told_again.load(Ordering::Relaxed)
    }

    /// Requests without a whole answer.
    pub fn broken(&self) -> u64 {
        self.tally.broken.load(Ordering::Relaxed)
    }

    /// Ends the clients once their requests are answered, and returns what was accepted.
    pub async fn stop(mut self) -> Result<Sent> {
        self.stop.send_replace(true);
        let mut all = Sent::default();
        while let Some(sent) = self.sending.join_next().await {
            all = all.and(sent.context("a client panicked")?);
        }
        let wrong = self.tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).take();
        match wrong {
            Some(words) => bail!("a client was answered with {words}"),
            None => Ok(all),
        }
    }
}

struct OneClient {
    place: usize,
    http: Client<HttpConnector, Full<Bytes>>,
    url: String,
    generator: Generator,
    /// The least time from one request to the next.
    every: Duration,
    tally: Arc<Tally>,
}

impl OneClient {
    async fn send_all(mut self, mut stopped: watch::Receiver<bool>) -> Sent {
        let mut sent = Sent::default();
        while !*stopped.borrow() {
            let began = Instant::now();
            let is_stored = self.send_one(&mut sent).await;
            let next = began + if is_stored { self.every } else { AGAIN };
            tokio::select! {
                _ = stopped.changed() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        sent
    }

    /// Sends a request with new spans; returns whether it was accepted.
    async fn send_one(&mut self, sent: &mut Sent) -> bool {
        let first = self.tally.next.fetch_add(REQUEST_SPANS, Ordering::Relaxed);
        let numbers: Range<u64> = first..first + REQUEST_SPANS;
        let body = Bytes::copy_from_slice(self.generator.message(numbers.clone()));
        let bytes = body.len() as u64;
        let tally = &self.tally;
        match self.post(body).await {
            Said::Stored => {
                sent.acked.insert(numbers);
                sent.messages += 1;
                sent.bytes += bytes;
                tally.accepted[self.place].fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Said::Again => {
                tally.told_again.fetch_add(1, Ordering::Relaxed);
            }
            Said::Broken => {
                tally.broken.fetch_add(1, Ordering::Relaxed);
            }
            Said::Wrong(words) => {
                tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(words);
            }
        }
        sent.doubtful.insert(numbers);
        false
    }

    async fn post(&self, body: Bytes) -> Said {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(body)).await {
            Ok(Ok(said)) => said,
            // A gateway that is killed ends its connections; one that is not running refuses them.
            Ok(Err(_)) => Said::Broken,
            Err(_) => Said::Wrong(format!("nothing within {REQUEST_TIMEOUT:?}")),
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<Said> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header(CONTENT_TYPE, PROTOBUF)
            .body(Full::new(body))
            .context("make a request")?;
        let response = self.http.request(request).await.context("send a request")?;
        let status = response.status();
        let is_again =
            status == StatusCode::SERVICE_UNAVAILABLE && response.headers().contains_key(RETRY_AFTER);
        let text = response.into_body().collect().await.context("read an answer")?.to_bytes();
        Ok(match status {
            StatusCode::OK => Said::Stored,
            _ if is_again => Said::Again,
            _ => Said::Wrong(format!("{status}: {}", String::from_utf8_lossy(&text))),
        })
    }
}

#[cfg(test)]
mod tests {
    use e2e_fixtures::cluster::{Seen, until};
    use hyper::Response;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    const RUN: Run = Run { id: 7, start_ns: 7 };

    /// A server that gives these answers in turn; 0 ends the connection.
    async fn server(answers: &'static [u16]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let turn = Arc::new(AtomicU64::new(0));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let turn = Arc::clone(&turn);
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let turn = usize::try_from(turn.fetch_add(1, Ordering::Relaxed)).unwrap();
                    async move {
                        request.into_body().collect().await?;
                        let status = answers[turn % answers.len()];
                        anyhow::ensure!(status > 0, "it ends");
                        let response = Response::builder().status(status);
                        let response = if status == 503 { response.header(RETRY_AFTER, 5) } else { response };
                        response.body(Full::new(Bytes::from("words"))).context("make an answer")
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { connection.await.ok() });
            }
        });
        address
    }

    async fn wait(clients: &Clients, is_so: impl Fn(&Clients) -> bool) {
        let look = async || {
            let counts = || format!("{:?}", (clients.accepted(), clients.told_again(), clients.broken()));
            Ok(Seen::when(is_so(clients), counts))
        };
        until("answers to the clients", Duration::from_secs(20), look).await.unwrap();
    }

    #[tokio::test]
    async fn each_try_has_spans_of_its_own_and_only_a_success_is_accepted() {
        let clients = Clients::start(&server(&[200, 503, 0]).await, RUN, 100, 1_000_000);
        wait(&clients, |clients| clients.acked() >= 4 * REQUEST_SPANS).await;
        wait(&clients, |clients| clients.told_again() > 0 && clients.broken() > 0).await;
        let sent = clients.stop().await.unwrap();
        assert_eq!(sent.acked.count(), sent.messages * REQUEST_SPANS);
        assert!(sent.messages >= 4 && sent.doubtful.count() >= 2 * REQUEST_SPANS, "{sent:?}");
        let mut all = sent.acked.clone();
        all.extend(&sent.doubtful);
        assert_eq!(all.count(), sent.acked.count() + sent.doubtful.count(), "no number twice");
        assert_eq!(all.ranges().first().map(|range| range.start), Some(100));
        assert_eq!(all.ranges().len(), 1);
    }

    #[tokio::test]
    async fn another_answer_is_a_failure_with_its_words() {
        let clients = Clients::start(&server(&[200, 400]).await, RUN, 0, 1_000_000);
        wait(&clients, |clients| clients.acked() >= 4 * REQUEST_SPANS).await;
        let failure = clients.stop().await.unwrap_err().to_string();
        assert!(failure.contains("400") && failure.contains("words"), "{failure}");
    }
}
