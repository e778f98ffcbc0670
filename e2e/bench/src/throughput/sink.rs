//! The null sink: a server that takes INSERTs and keeps nothing in the end.
//!
//! Job: answer the gateway's queries at its start, for a suitable table. Take every INSERT, check the frames of a sample, and append the
//! body to a file without a name. The rows are counted exactly after the measurement. Place in the flow: in place of ClickHouse, to measure
//! the gateway only. Owner: one thread of its own. Limits: the file has all bodies, about 100 bytes a `rich` span; it is in the temporary
//! folder until the rows are counted.
//!
//! Cost: a copy of the compressed bytes to the page cache, and for one body in [`SAMPLE`] their hash.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::frames;
use super::rows::{Columns, Layout};
use super::tally::{Stored, Tally};
use e2e_fixtures::spans::Run;

/// One body in this many is checked during the run; all are checked afterwards.
const SAMPLE: usize = 16;

/// The version that it reports: that of the local stack's server, which the gateway supports.
const VERSION: &str = "26.7.2.1";

/// The header by which a gateway knows that an answer is the server's own. Its value summarizes an INSERT. The rows are counted only after
/// the measurement; a gateway only needs to know that there were some.
const SUMMARY: (&str, &str) = (
    "X-ClickHouse-Summary",
    r#"{"read_rows":"1","read_bytes":"1","written_rows":"1","written_bytes":"1","total_rows_to_read":"0","elapsed_ns":"1"}"#,
);

/// Error code that clients do not retry.
const NOT_IMPLEMENTED: u16 = 48;

/// `TOO_MANY_SIMULTANEOUS_QUERIES`: nothing was stored, and the gateway tries again later.
const BUSY: u16 = 202;

#[derive(Clone, Debug)]
struct Taken {
    statement: Arc<str>,
    /// The position of its body in the file.
    body: Range<u64>,
}

/// The INSERTs that were taken, in the order in which they came.
struct Spool {
    file: File,
    taken: Vec<Taken>,
}

struct Shared {
    columns: Columns,
    spool: Mutex<Spool>,
    /// Whether INSERTs are refused, as an overloaded server does.
    refuses: AtomicBool,
}

/// A null sink that listens. Ends when dropped.
pub struct NullSink {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// The format that the first INSERT named.
    pub format: String,
    /// Bytes of all bodies, compressed as they came.
    pub bytes: u64,
    pub stored: Stored,
}

impl NullSink {
    /// Listens on a free port of this machine, for a table of these columns.
    pub fn start(columns: Columns) -> Result<NullSink> {
        let spool = Mutex::new(Spool { file: nameless_file()?, taken: Vec::new() });
        let shared = Arc::new(Shared { columns, spool, refuses: AtomicBool::new(false) });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("null-sink")
            .enable_io()
            .build()
            .context("start the null sink's thread")?;
        let listener =
            std::net::TcpListener::bind("127.0.0.1:0").context("listen on a free port for the null sink")?;
        listener.set_nonblocking(true).context("prepare the null sink's port")?;
        let address = listener.local_addr().context("ask for the null sink's port")?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).context("hand the null sink's port to its thread")?;
        drop(entered);
        runtime.spawn(serve(listener, Arc::clone(&shared)));
        Ok(NullSink { address, shared, runtime: Some(runtime) })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, INSERTs are refused or taken.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Checks every frame that was taken and counts the rows, as those of `spans` spans of `run`.
    pub fn count(&self, run: Run, spans: u64) -> Result<Sent> {
        let spool = self.shared.spool.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sent, mut tally) = (Sent::default(), Tally::new(spans));
        let (mut body, mut raw) = (Vec::new(), Vec::new());
        for (index, Taken { statement, body: place }) in spool.taken.iter().enumerate() {
            body.resize(usize::try_from(place.end - place.start)?, 0);
            spool.file.read_exact_at(&mut body, place.start).context("read back what the null sink took")?;
            raw.clear();
            let counted = frames::unpack(&body, &mut raw).and_then(|()| {
                let layout = Layout::of_insert(statement, &self.shared.columns)?;
                layout.walk(&raw, run, |row| tally.add(row.number))
            });
            counted.with_context(|| format!("count the rows of INSERT number {index}"))?;
            sent.bytes += place.end - place.start;
            if sent.format.is_empty() {
                statement.rsplit(' ').next().unwrap_or_default().clone_into(&mut sent.format);
            }
        }
        sent.stored = tally.stored();
        Ok(sent)
    }
}

impl Drop for NullSink {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Blocking until this runtime ends is not allowed on a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// A file without a name, which is removed with its last handle.
fn nameless_file() -> Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let folder = std::env::temp_dir();
    let opened = open(&folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let file = opened.with_context(|| format!("make a file without a name in {}", folder.display()))?;
    Ok(File::from(file))
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // An error of accept means that the machine has no more descriptors; the client gets an error, too.
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            serve_connection(stream, |request| answer(Arc::clone(&shared), request)).await;
        });
    }
}

/// Answers the requests of one connection until it ends.
pub(crate) async fn serve_connection<A>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> A)
where
    A: Future<Output = Result<Response<Full<Bytes>>, hyper::Error>>,
{
    // The client has to notice a broken connection.
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
        .ok();
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let statement = parameter(request.uri().query().unwrap_or_default(), "query");
    let has_length = request.headers().contains_key(CONTENT_LENGTH);
    let body = request.into_body().collect().await?.to_bytes();
    let is_insert = statement.as_ref().is_some_and(|statement| statement.starts_with("INSERT"));
    if is_insert && shared.refuses.load(Ordering::Relaxed) {
        return Ok(refusal(BUSY, "it refuses inserts for now", "TOO_MANY_SIMULTANEOUS_QUERIES"));
    }
    let answered = match statement {
        Some(statement) if is_insert => {
            // A chunked body that is cut short looks complete, so the gateway must never send one.
            let taken = if has_length {
                shared.take(&statement, body)
            } else {
                Err(anyhow::anyhow!("no Content-Length"))
            };
            taken.map(|()| stored())
        }
        other => {
            let asked = other.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
            question(&shared.columns, &asked).map(|bytes| Response::new(Full::new(bytes)))
        }
    };
    Ok(answered.unwrap_or_else(|error| refusal(NOT_IMPLEMENTED, &format!("{error:#}"), "NOT_IMPLEMENTED")))
}

/// The answer to an INSERT that is taken.
pub(crate) fn stored() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let (name, value) = SUMMARY;
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

/// An answer with an exception.
fn refusal(code: u16, why: &str, name: &str) -> Response<Full<Bytes>> {
    let text = format!("Code: {code}. DB::Exception: null sink: {why}. ({name})");
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert("X-ClickHouse-Exception-Code", code.into());
    response
}

impl Shared {
    fn take(&self, statement: &str, mut body: Bytes) -> Result<()> {
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        if spool.taken.len().is_multiple_of(SAMPLE) {
            frames::verify(&body)?;
        }
        let last = spool.taken.last().cloned();
        let start = last.as_ref().map_or(0, |last| last.body.end);
        // Statements differ only if the table changes; equal ones share one text.
        let statement = last
            .map(|last| last.statement)
            .filter(|last| **last == *statement)
            .unwrap_or_else(|| statement.into());
        let place = start..start + body.len() as u64;
        while body.has_remaining() {
            spool.file.write_all(&body).context("keep a body")?;
            body.advance(body.len());
        }
        spool.taken.push(Taken { statement, body: place });
        Ok(())
    }
}

/// Answers a query in `RowBinaryWithNamesAndTypes`, as the `clickhouse` crate asks for it.
fn question(columns: &Columns, question: &str) -> Result<Bytes> {
    let mut answer = Vec::new();
    if question.starts_with("DESCRIBE TABLE") {
        let names = [
            "name",
            "type",
            "default_type",
            "default_expression",
            "comment",
            "codec_expression",
            "ttl_expression",
        ];
        put_header(&mut answer, &names.map(|name| (name, "String")));
        for (name, kind) in &columns.0 {
            for text in [name, kind, "", "", "", "", ""] {
                put_text(&mut answer, text);
            }
        }
    } else if question.starts_with("SELECT version()") {
        put_header(&mut answer, &[("version()", "String")]);
        put_text(&mut answer, VERSION);
    } else if question.starts_with("SELECT engine, engine_full FROM") {
        put_header(&mut answer, &["engine", "engine_full"].map(|name| (name, "String")));
        put_text(&mut answer, "Null");
        put_text(&mut answer, "Null");
    } else {
        let known = question.starts_with("EXISTS TABLE");
        ensure!(known, "it answers DESCRIBE, EXISTS, version() and the engine only, not {question:.100}");
        put_header(&mut answer, &[("result", "UInt8")]);
        answer.push(1);
    }
    Ok(Bytes::from(answer))
}

/// The number of columns, their names, their types.
fn put_header(answer: &mut Vec<u8>, columns: &[(&str, &str)]) {
    put_length(answer, columns.len() as u64);
    for (name, _) in columns {
        put_text(answer, name);
    }
    for (_, kind) in columns {
        put_text(answer, kind);
    }
}

fn put_text(answer: &mut Vec<u8>, text: &str) {
    put_length(answer, text.len() as u64);
    answer.extend_from_slice(text.as_bytes());
}

/// A length, as `RowBinary` and Protobuf write it: seven bits a byte, the least significant first.
pub(crate) fn put_length(out: &mut Vec<u8>, mut length: u64) {
    while length >= 0x80 {
        out.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    out.push(length.to_le_bytes()[0]);
}

/// A parameter of a query string, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut decoded = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { id: 0xabcd, start_ns: 1 };

    const INSERT: &str = "INSERT INTO `d`.`t` (`TraceId`, `SpanAttributes`) FORMAT RowBinary";

    /// The body of an insert of a row for each of `numbers`, in one frame.
    fn insert_of(numbers: Range<i64>) -> Bytes {
        let mut raw = Vec::new();
        for number in numbers {
            put_text(&mut raw, "000000000000abcd0000000000000001");
            raw.push(1);
            put_text(&mut raw, e2e_fixtures::spans::NUMBER_KEY);
            raw.push(0x0a);
            raw.extend_from_slice(&number.to_le_bytes());
        }
        let block = lz4_flex::block::compress(&raw);
        let size = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
        let covered = [&[0x82], &size(block.len() + 9)[..], &size(raw.len())[..], &block].concat();
        let checksum = cityhash_rs::cityhash_102_128(&covered).rotate_left(64).to_le_bytes();
        Bytes::from([&checksum[..], &covered].concat())
    }

    fn sink() -> NullSink {
        let columns = [("TraceId", "String"), ("SpanAttributes", "JSON")];
        let column = |(name, kind): (&str, &str)| (name.to_owned(), kind.to_owned());
        NullSink::start(Columns(columns.map(column).to_vec())).unwrap()
    }

    #[test]
    fn an_insert_that_is_swallowed_is_lost_and_one_that_came_again_is_doubled() {
        let sink = sink();
        for numbers in [0..100, 100..250, 250..300] {
            sink.shared.take(INSERT, insert_of(numbers)).unwrap();
        }
        let counts = || {
            let Stored { rows, lost, doubled, foreign } = sink.count(RUN, 300).unwrap().stored;
            (rows, lost, doubled, foreign)
        };
        assert_eq!(counts(), (300, 0, 0, 0));
        let swallowed = sink.shared.spool.lock().unwrap().taken.remove(1);
        assert_eq!(counts(), (150, 150, 0, 0));
        sink.shared.spool.lock().unwrap().taken.extend([swallowed.clone(), swallowed]);
        assert_eq!(counts(), (450, 0, 150, 0));
    }

    #[tokio::test]
    async fn a_sink_that_refuses_takes_nothing_and_says_so_until_it_takes_again() {
        let sink = sink();
        let url = format!("{}/?query={}", sink.url(), INSERT.replace(' ', "%20").replace('`', "%60"));
        let send = async || {
            let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
            let request = Request::post(&url).body(Full::new(insert_of(0..100))).unwrap();
            let answer = client.build_http().request(request).await.unwrap();
            let said = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            (said("X-ClickHouse-Exception-Code"), said(SUMMARY.0))
        };
        sink.refuse(true);
        assert_eq!(send().await, (Some("202".to_owned()), None));
        assert_eq!(sink.count(RUN, 100).unwrap().stored.rows, 0);
        sink.refuse(false);
        assert_eq!(send().await, (None, Some(SUMMARY.1.to_owned())));
        assert_eq!(sink.count(RUN, 100).unwrap().stored.lost, 0);
    }

    #[test]
    fn a_damaged_insert_is_refused_in_the_sample_and_found_by_the_count_elsewhere() {
        let sink = sink();
        let mut damaged = insert_of(0..10).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let damaged = Bytes::from(damaged);
        assert!(sink.shared.take(INSERT, damaged.clone()).is_err());
        sink.shared.take(INSERT, insert_of(0..10)).unwrap();
        sink.shared.take(INSERT, damaged).unwrap();
        assert!(sink.count(RUN, 10).unwrap_err().to_string().contains("number 1"));
    }

    #[test]
    fn a_parameter_is_found_and_decoded() {
        let query = "database=d&query=INSERT%20INTO%20%60t%60+(a)&x=1";
        assert_eq!(parameter(query, "query").as_deref(), Some("INSERT INTO `t` (a)"));
        assert_eq!(parameter(query, "quer"), None);
        assert_eq!(parameter("query=%2", "query"), None);
    }

    #[test]
    fn the_version_is_answered_with_name_and_type() {
        let answer = question(&Columns::default(), "SELECT version()").unwrap();
        assert_eq!(&answer[..], b"\x01\x09version()\x06String\x0826.7.2.1");
        assert!(question(&Columns::default(), "SELECT 2").is_err());
    }
}
