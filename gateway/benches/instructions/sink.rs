//! In place of ClickHouse: answers the gateway's questions about a table that fits, and counts the rows of each INSERT.
//!
//! Owner: a thread of its own, which is not counted. Limits: one body per connection in memory.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, header::HeaderValue, service::service_fn};
use hyper_util::rt::TokioIo;
use sluice_clickhouse::{
    column::{Layout, TableColumns},
    frame::{self, FrameError},
    header,
    rowbinary::{put_string, put_varuint},
};
use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The version that it reports: one that the gateway supports.
const VERSION: &str = "26.7.2.1";

/// The header by which the gateway knows ClickHouse's own answers. It reads only that rows were written.
const SUMMARY: (&str, &str) = (
    "X-ClickHouse-Summary",
    r#"{"read_rows":"1","read_bytes":"1","written_rows":"1","written_bytes":"1","total_rows_to_read":"0","elapsed_ns":"1"}"#,
);

/// `NOT_IMPLEMENTED`: after it, the gateway does not repeat a question.
const NOT_IMPLEMENTED: u16 = 48;

/// The columns of `DESCRIBE TABLE`'s answer.
const DESCRIBED: [&str; 7] =
    ["name", "type", "default_type", "default_expression", "comment", "codec_expression", "ttl_expression"];

/// The table's engine, and that engine with everything behind it.
const ENGINE: [&str; 2] =
    ["MergeTree", "MergeTree ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 10000"];

/// A sink that listens.
struct Sink {
    columns: TableColumns,
    /// Uncompressed bytes before the rows of each INSERT.
    header_bytes: u64,
    /// Row bytes that have not arrived yet.
    missing_bytes: AtomicU64,
    /// Called when every row has arrived.
    all_in: Box<dyn Fn() + Send + Sync>,
}

/// Listens on a free port of this machine, and calls `all_in` when `rows_bytes` have arrived. Ends with the process.
pub fn start(rows_bytes: u64, all_in: impl Fn() + Send + Sync + 'static) -> Result<SocketAddr> {
    let columns = TableColumns::of_layout(Layout::Json);
    let mut header = Vec::new();
    frame::decode(&header::frame(&columns), &mut header).context("read a header's frame")?;
    let (header_bytes, missing_bytes) = (header.len() as u64, AtomicU64::new(rows_bytes));
    let sink = Arc::new(Sink { columns, header_bytes, missing_bytes, all_in: Box::new(all_in) });
    let listener = TcpListener::bind("127.0.0.1:0").context("listen on a free port for the sink")?;
    listener.set_nonblocking(true).context("prepare the sink's port")?;
    let address = listener.local_addr().context("ask for the sink's port")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("start the sink")?;
    std::thread::spawn(move || runtime.block_on(serve(listener, sink)));
    Ok(address)
}

async fn serve(listener: TcpListener, sink: Arc<Sink>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("hand the sink its port")?;
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        let sink = sink.clone();
        tokio::spawn(async move {
            let answers = service_fn(|request| answer(sink.clone(), request));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answers);
            // The gateway reports broken connections.
            connection.await.ok();
        });
    }
}

async fn answer(sink: Arc<Sink>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let known = if query.contains("INSERT") { sink.take(&body).ok() } else { sink.answer_to(&query, &body) };
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    headers.insert(SUMMARY.0, HeaderValue::from_static(SUMMARY.1));
    if let Some(known) = known {
        *response.body_mut() = Full::from(known);
    } else {
        headers.insert("X-ClickHouse-Exception-Code", NOT_IMPLEMENTED.into());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        *response.body_mut() = Full::from("Code: 48. DB::Exception: unknown to the mock. (NOT_IMPLEMENTED)");
    }
    Ok(response)
}

impl Sink {
    /// Counts the bytes of an INSERT.
    fn take(&self, mut body: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut raw = Vec::new();
        while !body.is_empty() {
            body = &body[frame::decode(body, &mut raw)?..];
        }
        let rows_bytes = raw.len() as u64 - self.header_bytes;
        if self.missing_bytes.fetch_sub(rows_bytes, Ordering::Relaxed) == rows_bytes {
            (self.all_in)();
        }
        Ok(Vec::new())
    }

    /// The answer to a question, in `RowBinaryWithNamesAndTypes`, as the `clickhouse` crate asks for it.
    fn answer_to(&self, query: &str, body: &[u8]) -> Option<Vec<u8>> {
        let asked =
            |what: &str| query.contains(what) || body.windows(what.len()).any(|text| text == what.as_bytes());
        let mut out = Vec::new();
        if asked("DESCRIBE") {
            put_header(&mut out, &DESCRIBED, "String");
            for (name, type_name) in self.columns.names_and_types() {
                for text in [&*name, &*type_name, "", "", "", "", ""] {
                    put_string(&mut out, text.as_bytes());
                }
            }
        } else if asked("version()") {
            put_header(&mut out, &["version()"], "String");
            put_string(&mut out, VERSION.as_bytes());
        } else if asked("engine_full") {
            put_header(&mut out, &["engine", "engine_full"], "String");
            for text in ENGINE {
                put_string(&mut out, text.as_bytes());
            }
        } else if asked("EXISTS") {
            put_header(&mut out, &["result"], "UInt8");
            out.push(1);
        } else {
            return None;
        }
        Some(out)
    }
}

/// The number of columns, their names, their types.
fn put_header(out: &mut Vec<u8>, names: &[&str], type_name: &str) {
    put_varuint(out, names.len() as u64);
    for name in names {
        put_string(out, name.as_bytes());
    }
    for _ in names {
        put_string(out, type_name.as_bytes());
    }
}
