//! Foreign bytes through the whole path of a request, without a socket.

use super::*;
use hyper::body::Frame;
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

/// A body of chunks; it may fail at its end.
#[derive(Debug)]
struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    fails: bool,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let this = &mut *self;
        Poll::Ready(match this.chunks.pop_front() {
            Some(chunk) => Some(Ok(Frame::data(chunk.into()))),
            None if std::mem::take(&mut this.fails) => Some(Err("reset")),
            None => None,
        })
    }
}

/// Takes everything, and looks at the most that requests ever hold.
struct Taker {
    budget: ByteBudget,
    most: Arc<AtomicU64>,
}

impl Acceptor for Taker {
    async fn accept(&self, request: Request) -> Result<Accepted, crate::Refusal> {
        assert!(!request.body.is_empty() && request.permit.bytes() >= request.body.len());
        self.most.fetch_max(self.budget.used_bytes(), Ordering::Relaxed);
        Ok(Accepted::default())
    }
}

const BUDGET: u64 = 600 << 10;

fn desk(most: &Arc<AtomicU64>) -> Arc<Desk<Taker>> {
    let budget = ByteBudget::new(BUDGET);
    let limits = Limits { body_bytes_max: 20_000, decompressed_bytes_max: 100_000, ..Limits::default() };
    Arc::new(Desk {
        acceptor: Taker { budget: budget.clone(), most: most.clone() },
        budget,
        counters: Arc::default(),
        notices: Arc::new(Notices::new(Arc::new(|_| {}), Duration::ZERO)),
        credentials: None,
        tenant_header: Some(HeaderName::from_static("x-tenant")),
        requests: Arc::new(Semaphore::new(limits.requests_max)),
        wide_windows: Semaphore::new(1),
        decompressions: Arc::new(Semaphore::new(1)),
        grpc_port: Some(4317),
        http_port: Some(4318),
        limits,
    })
}

/// Bytes as an attacker or a broken client sends them.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let gzipped = (0_usize..200_000, any::<u8>()).prop_map(|(size, byte)| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &vec![byte; size]).unwrap();
        encoder.finish().unwrap()
    });
    prop_oneof![vec(any::<u8>(), 0..200), vec(any::<u8>(), 0..30_000), gzipped]
}

fn framed() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![Just(None), any::<u32>().prop_map(Some), (0_u32..300).prop_map(Some)];
    (select(vec![0_u8, 1, 1, 2, 255]), length, body()).prop_map(|(flag, length, body)| {
        let length = length.unwrap_or(u32::try_from(body.len()).unwrap());
        [&[flag], &length.to_be_bytes()[..], &body].concat()
    })
}

fn request() -> impl Strategy<Value = ::http::Request<Chunks>> {
    let content_types = ["application/grpc", "application/x-protobuf", "application/json", "text/plain"];
    let paths = ["/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/"];
    let encodings = ["gzip", "zstd", "identity", "br"];
    let names =
        (select(content_types.to_vec()), select(paths.to_vec()), option::of(select(encodings.to_vec())));
    let length = option::of(prop_oneof![0_u64..30_000, any::<u64>()]);
    let bytes = (prop_oneof![body(), framed()], vec(1_usize..5_000, 0..8), any::<bool>());
    let others = (length, any::<bool>(), option::of(vec(32_u8..=255, 0..300)));
    (names, others, bytes).prop_map(|((content_type, path, encoding), (length, is_http2, tenant), bytes)| {
        let mut request = ::http::Request::post(path)
            .version(if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 })
            .header("content-type", content_type);
        for name in ["content-encoding", "grpc-encoding"] {
            if let Some(encoding) = encoding {
                request = request.header(name, encoding);
            }
        }
        request = match length {
            Some(length) => request.header("content-length", length),
            None => request.header("transfer-encoding", "chunked"),
        };
        if let Some(Ok(tenant)) = tenant.map(::http::HeaderValue::try_from) {
            request = request.header("x-tenant", tenant);
        }
        let (mut rest, cuts, fails) = bytes;
        let mut chunks = VecDeque::new();
        for cut in cuts {
            let tail = rest.split_off(cut.min(rest.len()));
            chunks.push_back(std::mem::replace(&mut rest, tail));
        }
        chunks.push_back(rest);
        request.body(Chunks { chunks, fails }).unwrap()
    })
}

proptest! {
    #[test]
    fn any_bytes_are_answered_and_hold_no_memory_afterwards(request in request(), is_grpc: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let most = Arc::new(AtomicU64::new(0));
        let desk = desk(&most);
        let protocol = if is_grpc { Protocol::Grpc } else { Protocol::Http };
        let activity = Arc::new(Activity::new(1));
        let answer = runtime.block_on(answer(desk.clone(), activity, protocol, request));
        let known = [200, 400, 404, 405, 413, 415, 503];
        prop_assert!(known.contains(&answer.status().as_u16()), "{answer:?}");
        prop_assert_eq!(desk.counters.requests_in_flight(), 0);
        drop(answer);
        drop(runtime);
        prop_assert_eq!(desk.budget.used_bytes(), 0);
        prop_assert!(most.load(Ordering::Relaxed) <= BUDGET);
    }
}
