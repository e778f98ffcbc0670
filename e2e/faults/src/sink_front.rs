//! A front for ClickHouse, under a scenario's control.
//!
//! ```text
//! gateway -> front takes an INSERT whole -> Head -> first half -> Middle -> second half -> server
//! gateway <- front <- Answered <- the server's whole answer
//! ```
//!
//! Job: let a scenario hold, cut, refuse or answer an INSERT at each of these steps ([`Gate`]), or change all connections ([`Way`]). Other
//! requests always pass. Place in the flow: between gateway and server; oracles use the server itself. Owner: tasks of the runtime in which
//! it was started; they end when it is dropped. Limits: it holds the body of each insert in flight, a few MiB. It ends connections with a
//! reset.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::front::{Door, Told, Way, opened};
use super::gate::Gate;

/// Header with the code of an exception; an answer without it is no exception.
const CODE_HEADER: &str = "X-ClickHouse-Exception-Code";

/// Header with what an insert has written, as JSON with numbers in quotes.
const SUMMARY_HEADER: &str = "X-ClickHouse-Summary";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// At the front; the server has seen nothing of it.
    Head,
    /// The server has the first half of its body.
    Middle,
    /// The server has answered; the gateway has not seen it yet.
    Answered,
}

/// An INSERT at one of the steps.
#[derive(Clone, Debug)]
pub struct Passage {
    pub leg: Leg,
    /// Rows that the server has written; 0 before the answer, and for a refusal.
    pub written_rows: u64,
    pub body_bytes: usize,
    /// Its deduplication token from the query string, which is the same for each try of a block.
    pub token: String,
}

/// What happens to an INSERT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Pass,
    /// Both connections are ended.
    Reset,
    /// It is forwarded after this time.
    Late(Duration),
    /// The gateway gets this answer; the server gets nothing more of the INSERT.
    Answer(Answer),
}

/// An answer that is not the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// ClickHouse's code of an exception; none for an answer of a proxy.
    pub code: Option<u32>,
    pub text: String,
}

impl Answer {
    /// An exception as the server writes one.
    pub fn exception(status: u16, code: u32, name: &str, message: &str) -> Answer {
        let text = format!("Code: {code}. DB::Exception: {message} ({name}) (version 26.7.2.1)\n");
        Answer { status, code: Some(code), text }
    }

    fn response(&self) -> Result<Response<Full<Bytes>>> {
        let mut response = Response::builder().status(self.status);
        if let Some(code) = self.code {
            response = response.header(CODE_HEADER, code);
        }
        response.body(Full::from(self.text.clone())).context("make an answer")
    }
}

/// Inserts for which the gateway got a success.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored {
    pub inserts: u64,
    /// When the last such answer was sent.
    pub last: Option<Instant>,
}

struct Shared {
    upstream: String,
    gate: Arc<Gate<Passage, Verdict>>,
    stored: watch::Sender<Stored>,
}

pub struct SinkFront {
    door: Door,
    upstream: String,
    gate: Arc<Gate<Passage, Verdict>>,
    stored: watch::Receiver<Stored>,
}

impl SinkFront {
    /// Listens on a free port of this machine, in front of the server at `upstream` (`host:port`).
    pub async fn start(upstream: &str) -> Result<SinkFront> {
        SinkFront::start_on("127.0.0.1", upstream).await
    }

    /// Listens on a free port of this address of the machine, such as one that pods reach.
    pub async fn start_on(host: &str, upstream: &str) -> Result<SinkFront> {
        let (stored_out, stored) = watch::channel(Stored::default());
        let gate: Arc<Gate<Passage, Verdict>> = Arc::default();
        let upstream = upstream.to_owned();
        let shared = Shared { upstream: upstream.clone(), gate: Arc::clone(&gate), stored: stored_out };
        let shared = Arc::new(shared);
        let serve = move |stream: TcpStream, way: Told| serve(stream, way, Arc::clone(&shared));
        let door = Door::open(host, "the sink's front", serve).await?;
        Ok(SinkFront { door, upstream, gate, stored })
    }

    /// Another one in front of the same server.
    pub async fn beside(&self) -> Result<SinkFront> {
        SinkFront::start(&self.upstream).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.door.address())
    }

    pub fn gate(&self) -> &Gate<Passage, Verdict> {
        &self.gate
    }

    /// Sets the behaviour of all connections from now on.
    pub fn go(&self, way: Way) {
        self.door.go(way);
    }

    /// Inserts that it has confirmed to gateways; changes with every insert.
    pub fn stored(&self) -> watch::Receiver<Stored> {
        self.stored.clone()
    }
}

async fn serve(stream: TcpStream, way: Told, shared: Arc<Shared>) {
    let (way, shared) = (&way, &*shared);
    let service = hyper::service::service_fn(move |request| answer(way, shared, request));
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    serving.await.ok();
}

async fn answer(way: &Told, shared: &Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    opened(way).await?;
    let (head, body) = request.into_parts();
    let body = body.collect().await.context("take a request")?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    if !is_insert(query) {
        return shared.forward(head, whole(body)).await;
    }
    let token = token(query).to_owned();
    let mut passage = Passage { leg: Leg::Head, written_rows: 0, body_bytes: body.len(), token };
    match shared.pass(passage.clone()).await {
        Verdict::Pass | Verdict::Late(_) => {}
        Verdict::Reset => bail!("reset before the send"),
        Verdict::Answer(answer) => return answer.response(),
    }
    passage.leg = Leg::Middle;
    let (broken, broken_in) = watch::channel(None);
    let halves = halves(body, Arc::clone(&shared.gate), passage.clone(), broken);
    let answered = shared.forward(head, halves).await;
    match broken_in.borrow().clone() {
        None | Some(Verdict::Pass | Verdict::Late(_)) => {}
        Some(Verdict::Reset) => bail!("reset in the middle"),
        Some(Verdict::Answer(answer)) => return answer.response(),
    }
    let response = answered?;
    passage.leg = Leg::Answered;
    passage.written_rows = written_rows(&response);
    match shared.pass(passage).await {
        Verdict::Pass | Verdict::Late(_) => {}
        Verdict::Reset => bail!("reset after the answer"),
        Verdict::Answer(answer) => return answer.response(),
    }
    // If the gateway was killed meanwhile, this task is dropped before this point.
    opened(way).await?;
    if response.status() == StatusCode::OK {
        shared.stored.send_modify(|stored| {
            *stored = Stored { inserts: stored.inserts + 1, last: Some(Instant::now()) };
        });
    }
    Ok(response)
}

/// A body on its way to the server.
type ToServer = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body that nothing stops.
fn whole(body: Bytes) -> ToServer {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// A body that stops between its halves until the gate lets it pass; `broken` is notified if the second half never comes.
fn halves(
    mut body: Bytes,
    gate: Arc<Gate<Passage, Verdict>>,
    passage: Passage,
    broken: watch::Sender<Option<Verdict>>,
) -> ToServer {
    let first = body.split_to(body.len() / 2);
    let second = async move {
        let verdict = gate.pass(passage).await;
        if matches!(verdict, Verdict::Pass | Verdict::Late(_)) {
            return Ok(body);
        }
        broken.send_replace(Some(verdict));
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "cut by a scenario"))
    };
    let halves = stream::iter([Ok(first)]).chain(stream::once(second));
    StreamBody::new(halves.map_ok(Frame::data)).boxed_unsync()
}

impl Shared {
    /// The verdict for a passage; for a late one, this waits.
    async fn pass(&self, passage: Passage) -> Verdict {
        let verdict = self.gate.pass(passage).await;
        if let Verdict::Late(time) = verdict {
            tokio::time::sleep(time).await;
        }
        verdict
    }

    async fn forward(
        &self,
        head: hyper::http::request::Parts,
        body: ToServer,
    ) -> Result<Response<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.upstream).await.context("reach the server")?;
        stream.set_nodelay(true).context("prepare a connection")?;
        // Driven here and not in a task, so that the end of the gateway's connection also ends the server's.
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.context("greet the server")?;
        let answering = async {
            let response = sender.send_request(Request::from_parts(head, body)).await;
            let (head, body) = response.context("ask the server")?.into_parts();
            let body = body.collect().await.context("read the server's answer")?.to_bytes();
            Ok((head, body))
        };
        tokio::pin!(answering);
        tokio::pin!(connection);
        let answered: Result<_> = tokio::select! {
            biased;
            answered = &mut answering => answered,
            over = &mut connection => match over {
                // The answer may be complete although the connection has ended.
                Ok(()) => answering.await,
                Err(error) => Err(anyhow::Error::from(error).context("the connection to the server broke")),
            },
        };
        let (head, body) = answered?;
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = head.status;
        for (name, value) in &head.headers {
            if name.as_str().starts_with("x-clickhouse") || name == "content-type" {
                response.headers_mut().insert(name.clone(), value.clone());
            }
        }
        Ok(response)
    }
}

/// Whether a query string is that of an INSERT. Other queries may have a token, too.
fn is_insert(query: &str) -> bool {
    query.split('&').any(|pair| pair.starts_with("query=INSERT"))
}

/// The deduplication token in the query string of an INSERT; empty without one.
fn token(query: &str) -> &str {
    query.split('&').find_map(|pair| pair.strip_prefix("insert_deduplication_token=")).unwrap_or_default()
}

fn written_rows(response: &Response<Full<Bytes>>) -> u64 {
    let summary = response.headers().get(SUMMARY_HEADER).and_then(|value| value.to_str().ok());
    let summary: Option<serde_json::Value> = summary.and_then(|text| serde_json::from_str(text).ok());
    let rows = summary.as_ref().and_then(|summary| summary["written_rows"].as_str()?.parse().ok());
    rows.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);
    const INSERT: &str = "/?query=INSERT&insert_deduplication_token=abc";
    const BODY: &str = "0123456789";

    /// A server that records the received bodies, complete or not, and reports two written rows.
    async fn server() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let got: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&got);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let noted = Arc::clone(&noted);
                tokio::spawn(async move {
                    let mut text = String::new();
                    let mut bytes = [0; 1024];
                    while !text.ends_with(BODY) {
                        match stream.read(&mut bytes).await {
                            Ok(length) if length > 0 => {
                                text += std::str::from_utf8(&bytes[..length]).unwrap();
                            }
                            _ => break,
                        }
                    }
                    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
                    noted.lock().unwrap().push(body);
                    let summary = r#"X-ClickHouse-Summary: {"written_rows":"2"}"#;
                    let answer = format!("HTTP/1.1 200 OK\r\n{summary}\r\nContent-Length: 2\r\n\r\nok");
                    stream.write_all(answer.as_bytes()).await.ok();
                });
            }
        });
        (address, got)
    }

    /// The status line and body of the answer; empty if the connection ended without one.
    async fn post(front: SocketAddr, target: &str) -> String {
        let mut stream = TcpStream::connect(front).await.unwrap();
        let length = BODY.len();
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{BODY}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn the_token_of_an_insert_is_read() {
        assert_eq!(token("query=INSERT&insert_deduplication_token=t%2F0&x=1"), "t%2F0");
        assert_eq!(token("query=INSERT&x=1"), "");
    }

    #[tokio::test]
    async fn an_insert_passes_and_is_counted() {
        let (server, got) = server().await;
        let front = SinkFront::start(&server).await.unwrap();
        let answer = post(front.door.address(), INSERT).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
        assert_eq!((*got.lock().unwrap()).as_slice(), [BODY]);
        assert_eq!(front.stored().borrow().inserts, 1);
        post(front.door.address(), "/?query=SELECT").await;
        assert_eq!(front.stored().borrow().inserts, 1, "a question is no insert");
    }

    #[tokio::test]
    async fn what_is_refused_at_its_head_never_reaches_the_server() {
        let (server, got) = server().await;
        let front = SinkFront::start(&server).await.unwrap();
        let answer = Answer::exception(500, 241, "MEMORY_LIMIT_EXCEEDED", "Memory limit (total) exceeded.");
        let rule = front.gate().rule(1, Verdict::Answer(answer), |passage| passage.leg == Leg::Head);
        let said = post(front.door.address(), INSERT).await;
        assert!(said.starts_with("HTTP/1.1 500") && said.contains("exception-code: 241"), "{said}");
        assert!(said.contains("Code: 241. DB::Exception: Memory limit"), "{said}");
        assert_eq!(rule.applied(), 1);
        assert!(got.lock().unwrap().is_empty());
        assert_eq!(front.stored().borrow().inserts, 0);
    }

    #[tokio::test]
    async fn the_server_has_half_of_what_is_caught_in_the_middle() {
        let (server, got) = server().await;
        let front = SinkFront::start(&server).await.unwrap();
        let trap = front.gate().trap("middle", |passage| passage.leg == Leg::Middle);
        let posting = tokio::spawn(post(front.door.address(), INSERT));
        trap.caught(PATIENCE).await.unwrap().decide(Verdict::Reset);
        assert_eq!(posting.await.unwrap(), "");
        let trap = front.gate().trap("middle", |passage| passage.leg == Leg::Middle);
        let posting = tokio::spawn(post(front.door.address(), INSERT));
        trap.caught(PATIENCE).await.unwrap().decide(Verdict::Pass);
        assert!(posting.await.unwrap().ends_with("ok"));
        let got = got.lock().unwrap();
        assert_eq!(got.as_slice(), [&BODY[..BODY.len() / 2], BODY]);
    }

    #[tokio::test]
    async fn an_answer_can_be_lost_after_the_commit() {
        let (server, got) = server().await;
        let front = SinkFront::start(&server).await.unwrap();
        let trap = front.gate().trap("answer", |passage| passage.leg == Leg::Answered);
        let posting = tokio::spawn(post(front.door.address(), INSERT));
        let caught = trap.caught(PATIENCE).await.unwrap();
        assert_eq!(caught.passage.written_rows, 2);
        caught.decide(Verdict::Answer(Answer { status: 502, code: None, text: "gone".into() }));
        let answer = posting.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 502") && answer.ends_with("gone"), "{answer}");
        assert_eq!((*got.lock().unwrap()).as_slice(), [BODY]);
        assert_eq!(front.stored().borrow().inserts, 0, "the gateway was not told");
    }

    #[tokio::test]
    async fn what_is_refused_has_no_connection() {
        let (server, _got) = server().await;
        let front = SinkFront::start(&server).await.unwrap();
        front.go(Way::Refused);
        assert_eq!(post(front.door.address(), INSERT).await, "");
        front.go(Way::Open);
        assert!(post(front.door.address(), INSERT).await.ends_with("ok"));
    }
}
