//! Counts the rows of many spans in the table.
//!
//! Job: one query about up to hundreds of thousands of spans, whose keys are sent with it as an external table. Place in the flow:
//! `sluice-gateway audit`; never the gateway itself. Owner: the auditing thread, one query at a time.
//!
//! A span's key is its trace id, its span id and the row's `Timestamp`. An id of zeros is asked for as an empty one; tables have it as an empty
//! string, or from other programs as zeros, which count as equal. The server reads these three columns of the rows within the
//! requested [times](TimeSpan), which select parts and granules. It joins the rows with the keys: a hash table of the keys is all that it
//! holds.
//!
//! The conditions on `Timestamp` only select what is read; the join compares the exact times. ClickHouse selects parts by comparing the
//! partition key of a part with that of the condition. A key such as `toDate(Timestamp)` is in the server's time zone, and the part may
//! have been written in another zone. So `Timestamp` is compared with times that are wider by the largest distance of two
//! zones. `toDateTime(Timestamp)` is compared with the seconds themselves: they are the same in every zone, and they select granules by
//! the sorting key of Sluice's and the Collector's tables. The setting `use_partition_pruning` is not used: ClickHouse 26.2 does not know
//! it, and it has no effect on the sorting key.
//!
//! A key on the wire is a row of `RowBinary`:
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 4 | its number in this query, `UInt32` |
//! | 1 + n | trace id, `String`; not hex |
//! | 1 + n | span id |
//! | 8 | `Timestamp`, ns since 1970, `Int64` |
//!
//! Measured (ClickHouse 26.7, two shared EPYC cores): 0.5 s for 250,000 keys among 3 million rows. The join takes 0.3 s of that.
//!
//! Limits: [`LOOKUP_TIMEOUT`]; the caller bounds the keys, which cost about 40 bytes each here and 200 in the server.

use crate::{
    causes::with_causes,
    client::{CONNECT_TIMEOUT, IDLE_TIMEOUT, MESSAGE_CHARS_MAX},
    endpoint::{Authorization, Credentials, Endpoint, UserError},
    exception::{code_of, without_query},
    probe::Probe,
    probe_error::ProbeError,
    rowbinary::{put_i64, put_string},
    settings::{QUESTION_PINNED, WHOLE_PINNED},
    sql::{percent_encoded, table_name},
    tls::Tls,
    zones::ZONES_APART_MAX,
};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// How long the server may take. Chosen: a query takes about a second; the rest is for a busy server.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum number of time ranges in one query; the closest are merged beyond. Chosen: spans of one chunk are close in time, unless clocks
/// are wrong, and each range costs a comparison per row.
pub const TIME_SPANS_MAX: usize = 16;

/// Times further apart than this get separate ranges, ns. Chosen: a minute of rows is cheaper to read than to leave out.
const GAP_NANOS: i64 = 60_000_000_000;

/// One second, ns.
const SECOND_NANOS: i64 = 1_000_000_000;

/// Where a function of a partition key or a sorting key wraps, in ns since 1970: the beginning of `Date` and `DateTime`, the end of
/// `DateTime` in 2106, and the end of `Date` in 2149.
const WRAPS: [i64; 3] = [0, (1 << 32) * SECOND_NANOS, 65_536 * 86_400 * SECOND_NANOS];

/// [`ZONES_APART_MAX`] in ns.
const WIDER_NANOS: i64 = ZONES_APART_MAX.as_secs().cast_signed() * SECOND_NANOS;

/// Settings of this query besides those of all queries: other values in a profile would change the counts.
const PINNED: &[(&str, &str)] = &[
    // A row that is stored twice counts twice.
    ("final", "0"),
    // With `throw`, a row of another century in the same parts would fail the query: `toDateTime(Timestamp)` has 32 bits.
    ("date_time_overflow_behavior", "ignore"),
    ("join_default_strictness", "ALL"),
    // With `break`, keys are left out.
    ("join_overflow_mode", "throw"),
    ("transfer_overflow_mode", "throw"),
];

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The request cannot be created: the user's name is not allowed.
    #[error("preparing to count rows at {endpoint}: {reason}")]
    Request { endpoint: String, reason: String },
    /// No answer, or an incomplete one.
    #[error("counting rows at {endpoint}: cannot reach the server: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// The server refused the query.
    #[error("counting rows at {endpoint}: the server refused the query{}: {reason}", code.map(|code| format!(" (code {code})")).unwrap_or_default())]
    Refused { endpoint: String, code: Option<u32>, reason: String },
    /// The answer does not fit the query.
    #[error("counting rows at {endpoint}: the answer cannot be read: {reason}")]
    Answer { endpoint: String, reason: &'static str },
}

/// A time range in which rows are looked for, ns since 1970, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    pub first: i64,
    pub last: i64,
}

/// The time range to compare `Timestamp` with: wider by the largest distance of two time zones, but not across a wrap of a key. Where the
/// range itself is on both sides of a wrap, so is the wider one.
fn widened(TimeSpan { first, last }: TimeSpan) -> TimeSpan {
    let least = WRAPS.into_iter().filter(|wrap| *wrap <= first).max().unwrap_or(i64::MIN);
    let most = WRAPS.into_iter().filter(|wrap| *wrap > last).min().map_or(i64::MAX, |wrap| wrap - 1);
    TimeSpan {
        first: first.saturating_sub(WIDER_NANOS).max(least),
        last: last.saturating_add(WIDER_NANOS).min(most),
    }
}

/// The range in seconds since 1970, both ends included; `None` if it is not within `DateTime`.
fn whole_seconds(TimeSpan { first, last }: TimeSpan) -> Option<(u32, u32)> {
    let second = |nanos: i64| u32::try_from(nanos.div_euclid(SECOND_NANOS)).ok();
    Some((second(first)?, second(last)?))
}

/// The keys of a query, numbered from 0 in the order of their addition.
#[derive(Debug, Default)]
pub struct SpanKeys {
    body: Vec<u8>,
    /// Where each key begins.
    starts: Vec<usize>,
}

impl SpanKeys {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Removes all keys, but keeps their memory.
    pub fn clear(&mut self) {
        self.body.clear();
        self.starts.clear();
    }

    /// Adds a key.
    ///
    /// # Panics
    /// If there are `u32::MAX` already.
    pub fn push(&mut self, trace_id: &[u8], span_id: &[u8], timestamp_nanos: i64) {
        let number = u32::try_from(self.starts.len()).expect("a question has fewer keys than 4 billion");
        self.starts.push(self.body.len());
        self.body.extend_from_slice(&number.to_le_bytes());
        put_string(&mut self.body, trace_id);
        put_string(&mut self.body, span_id);
        put_i64(&mut self.body, timestamp_nanos);
    }

    /// The trace id and the span id of a key.
    ///
    /// # Panics
    /// If there is no key with this number.
    pub fn ids(&self, number: usize) -> (&[u8], &[u8]) {
        let key = &self.body[self.starts[number] + size_of::<u32>()..];
        let (trace_id, rest) = split_string(key);
        (trace_id, split_string(rest).0)
    }

    /// The times of all keys, as at most [`TIME_SPANS_MAX`] ranges.
    pub fn time_spans(&self) -> Vec<TimeSpan> {
        let ends = self.starts.iter().skip(1).copied().chain((!self.is_empty()).then_some(self.body.len()));
        let mut times: Vec<i64> = ends
            .map(|end| {
                let bytes = self.body[..end].last_chunk().expect("a key ends with its timestamp");
                i64::from_le_bytes(*bytes)
            })
            .collect();
        times.sort_unstable();
        time_spans(&times)
    }
}

/// A `String` that [`put_string`] has written, and the bytes behind it.
fn split_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (mut len, mut at) = (0, 0);
    loop {
        let byte = bytes[at];
        len |= usize::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte < 0x80 {
            return bytes[at..].split_at(len);
        }
    }
}

/// Ranges of sorted times, without the largest gaps between them.
fn time_spans(times: &[i64]) -> Vec<TimeSpan> {
    let gap = |index: &usize| times[*index].saturating_sub(times[*index - 1]);
    let mut cuts: Vec<usize> = (1..times.len()).filter(|index| gap(index) > GAP_NANOS).collect();
    if cuts.len() >= TIME_SPANS_MAX {
        cuts.sort_unstable_by_key(|index| std::cmp::Reverse(gap(index)));
        cuts.truncate(TIME_SPANS_MAX - 1);
        cuts.sort_unstable();
    }
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([times.len()]);
    starts
        .zip(ends)
        .filter(|(start, end)| start < end)
        .map(|(start, end)| TimeSpan { first: times[start], last: times[end - 1] })
        .collect()
}

/// Counts rows of one table at one server.
#[derive(Debug, Clone)]
pub struct Lookup {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Endpoint,
    authorization: Authorization,
    table: String,
    /// Whether seconds select granules.
    by_seconds: bool,
    /// Separates the parts of a request's body: random text, since senders choose the ids in the keys.
    boundary: String,
}

impl Lookup {
    /// Sends nothing yet. Must be used on a tokio runtime with time and I/O.
    pub fn new(
        endpoint: &Endpoint,
        credentials: &Credentials,
        database: &str,
        table: &str,
        tls: &Tls,
    ) -> Result<Self, LookupError> {
        let refused = |error: UserError| LookupError::Request {
            endpoint: endpoint.to_string(),
            reason: error.to_string(),
        };
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(tls.connector(connector));
        Ok(Self {
            http,
            endpoint: endpoint.clone(),
            authorization: credentials.authorization().map_err(refused)?,
            table: table_name(database, table),
            by_seconds: true,
            boundary: format!("sluice-{:016x}{:016x}", random(), random()),
        })
    }

    /// With the answer of [`Probe::nests_seconds`] for this table.
    #[must_use]
    pub fn nesting_seconds(self, nests: bool) -> Self {
        Self { by_seconds: !nests, ..self }
    }

    /// The number of rows of each key, by the key's number.
    pub async fn count(&self, keys: &SpanKeys) -> Result<Vec<u64>, LookupError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, self.answer(self.request(keys)));
        let bytes = match answer.await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.unreachable(format!("no answer within {LOOKUP_TIMEOUT:?}"))),
        };
        counts(&bytes, keys.len())
            .map_err(|reason| LookupError::Answer { endpoint: self.endpoint.to_string(), reason })
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Bytes, LookupError> {
        let answer =
            self.http.request(request).await.map_err(|error| self.unreachable(with_causes(&error)))?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let bytes = body.map_err(|error| self.unreachable(with_causes(&error)))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let reason = without_query(&text).trim().chars().take(MESSAGE_CHARS_MAX).collect();
        Err(LookupError::Refused { endpoint: self.endpoint.to_string(), code: code_of(&text), reason })
    }

    fn request(&self, keys: &SpanKeys) -> Request<Full<Bytes>> {
        let question = self.query(&keys.time_spans());
        let parameters = [
            ("query", &*question),
            ("keys_format", "RowBinary"),
            ("keys_structure", "number UInt32, trace String, span String, at Int64"),
            // An answer is complete, or an error with an error status.
            ("wait_end_of_query", "1"),
        ];
        let parameters = parameters.iter().chain(QUESTION_PINNED).chain(WHOLE_PINNED).chain(PINNED);
        let query: Vec<String> =
            parameters.map(|(name, value)| format!("{name}={}", percent_encoded(value))).collect();
        let uri: Uri = format!("{}/?{}", self.endpoint.url(), query.join("&"))
            .parse()
            .expect("an endpoint with an encoded query is a URI");
        let content_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={}", self.boundary))
            .expect("a boundary is made of letters and digits");
        let mut request = Request::new(Full::new(multipart(&self.boundary, &keys.body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.now());
        headers.insert(CONTENT_TYPE, content_type);
        request
    }

    /// `GLOBAL` sends the keys to all servers of a distributed table, and has no other effect.
    fn query(&self, times: &[TimeSpan]) -> String {
        let between = |times: &TimeSpan| {
            let TimeSpan { first, last } = widened(*times);
            let wide = format!(
                "Timestamp BETWEEN fromUnixTimestamp64Nano(toInt64({first})) AND fromUnixTimestamp64Nano(toInt64({last}))"
            );
            match whole_seconds(*times).filter(|_| self.by_seconds) {
                Some((first, last)) => format!(
                    "({wide} AND toDateTime(Timestamp) BETWEEN toDateTime(toUInt32({first})) AND toDateTime(toUInt32({last})))"
                ),
                None => format!("({wide})"),
            }
        };
        let times: Vec<String> = times.iter().map(between).collect();
        format!(
            "SELECT number, count() FROM (SELECT if(TraceId = repeat('0', 32), '', TraceId) AS trace, \
             if(SpanId = repeat('0', 16), '', SpanId) AS span, toUnixTimestamp64Nano(Timestamp) AS at FROM {} WHERE {}) AS stored \
             GLOBAL INNER JOIN (SELECT number, lower(hex(trace)) AS trace, lower(hex(span)) AS span, at FROM keys) AS asked \
             ON stored.trace = asked.trace AND stored.span = asked.span AND stored.at = asked.at \
             GROUP BY number FORMAT RowBinary",
            self.table,
            times.join(" OR "),
        )
    }

    fn unreachable(&self, reason: String) -> LookupError {
        LookupError::Unreachable { endpoint: self.endpoint.to_string(), reason }
    }
}

impl Probe {
    /// Whether a partition key or a sorting key of the table applies another function to `toDateTime(Timestamp)`, as
    /// `toDate(toDateTime(Timestamp))`: a condition on the seconds would then be compared in the server's time zone. The keys behind a
    /// `Distributed` table are not seen.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the table does not exist.
    pub async fn nests_seconds(&self, table: &str) -> Result<bool, ProbeError> {
        Ok(nests_seconds(&self.engine_row(table).await?.engine_full))
    }
}

fn nests_seconds(engine_full: &str) -> bool {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut calls = engine_full.match_indices("(toDateTime(Timestamp)");
    calls.any(|(at, _)| engine_full[..at].ends_with(is_word))
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn multipart(boundary: &str, keys: &[u8]) -> Bytes {
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"keys\"; filename=\"keys\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    [head.as_bytes(), keys, tail.as_bytes()].concat().into()
}

/// Reads pairs of `number UInt32, count UInt64`. A missing number has no row.
fn counts(bytes: &[u8], keys: usize) -> Result<Vec<u64>, &'static str> {
    let mut counts = vec![0; keys];
    let (pairs, rest) = bytes.as_chunks::<12>();
    if !rest.is_empty() {
        return Err("it ends within a row");
    }
    for pair in pairs {
        let (number, count) = pair.split_at(4);
        let number = u32::from_le_bytes(number.try_into().expect("four bytes of twelve"));
        let count = u64::from_le_bytes(count.try_into().expect("eight bytes of twelve"));
        *counts.get_mut(number as usize).ok_or("it counts a key that was not in the request")? = count;
    }
    Ok(counts)
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
