//! Counts the rows of many spans in the table.
//!
//! Job: one query about up to hundreds of thousands of spans, whose keys are sent with it as an external table. Place in the flow:
//! `sluice-gateway audit`; never the gateway itself. Owner: the auditing thread, one query at a time.
//!
//! A span's key is its trace id, its span id and the row's `Timestamp`. The server reads these three columns of the rows within the
//! requested [times](TimeSpan), which select parts and granules. It joins the rows with the keys: a hash table of the keys is all that it
//! holds.
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
//! Measured (ClickHouse 26.7, two shared EPYC cores): 0.5 s for 250,000 keys among 3 million rows, of which 0.3 s are the join.
//!
//! Limits: [`LOOKUP_TIMEOUT`]; the caller bounds the keys, which cost about 40 bytes each here and 200 in the server.

use crate::{
    causes::with_causes,
    client::{CONNECT_TIMEOUT, IDLE_TIMEOUT, MESSAGE_CHARS_MAX},
    endpoint::{Authorization, Credentials, Endpoint, UserError},
    exception::code_of,
    rowbinary::{put_i64, put_string},
    settings::{QUESTION_PINNED, WHOLE_PINNED},
    sql::{percent_encoded, table_name},
    tls::Tls,
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

/// Settings of this query besides those of all queries: other values in a profile would change the counts.
const PINNED: &[(&str, &str)] = &[
    // A row that is stored twice counts twice.
    ("final", "0"),
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
            boundary: format!("sluice-{:016x}{:016x}", random(), random()),
        })
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
        let reason = text.trim().chars().take(MESSAGE_CHARS_MAX).collect();
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
        let between = |TimeSpan { first, last }: &TimeSpan| {
            format!(
                "Timestamp BETWEEN fromUnixTimestamp64Nano(toInt64({first})) AND fromUnixTimestamp64Nano(toInt64({last}))"
            )
        };
        let times: Vec<String> = times.iter().map(between).collect();
        format!(
            "SELECT number, count() FROM (SELECT TraceId, SpanId, toUnixTimestamp64Nano(Timestamp) AS at FROM {} WHERE {}) AS stored \
             GLOBAL INNER JOIN (SELECT number, lower(hex(trace)) AS trace, lower(hex(span)) AS span, at FROM keys) AS asked \
             ON stored.TraceId = asked.trace AND stored.SpanId = asked.span AND stored.at = asked.at \
             GROUP BY number FORMAT RowBinary",
            self.table,
            times.join(" OR "),
        )
    }

    fn unreachable(&self, reason: String) -> LookupError {
        LookupError::Unreachable { endpoint: self.endpoint.to_string(), reason }
    }
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
mod tests {
    use super::*;

    #[test]
    fn keys_are_these_bytes() {
        let mut keys = SpanKeys::default();
        keys.push(&[0xaa, 0xbb], &[], -1);
        keys.push(&[], &[0xcc], 258);
        let expected = [
            &[0, 0, 0, 0, 2, 0xaa, 0xbb, 0][..],
            &[0xff; 8],
            &[1, 0, 0, 0, 0, 1, 0xcc],
            &[2, 1, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(keys.body, expected.concat());
        assert_eq!(keys.time_spans(), [TimeSpan { first: -1, last: 258 }]);
        assert_eq!((keys.ids(0), keys.ids(1)), ((&[0xaa, 0xbb][..], &[][..]), (&[][..], &[0xcc][..])));
        keys.push(&[7; 300], &[8; 16_384], 0);
        assert_eq!(keys.ids(2), (&[7; 300][..], &[8; 16_384][..]));
        assert_eq!(SpanKeys::default().time_spans(), []);
    }

    #[test]
    fn times_are_cut_at_the_largest_gaps() {
        let minute = GAP_NANOS;
        let times = [i64::MIN, 0, 5, minute + 5, 3 * minute, 4 * minute + 1];
        let span = |first, last| TimeSpan { first, last };
        let expected = [
            span(i64::MIN, i64::MIN),
            span(0, minute + 5),
            span(3 * minute, 3 * minute),
            span(times[5], times[5]),
        ];
        assert_eq!(time_spans(&times), expected);
        // 40 times, each further from the previous one: the closest are merged.
        let times: Vec<i64> = (1..=40).map(|n| n * n * minute).collect();
        let pieces = time_spans(&times);
        assert_eq!(pieces.len(), TIME_SPANS_MAX);
        assert_eq!(pieces[0], span(minute, times[40 - TIME_SPANS_MAX]));
        assert!(pieces[1..].iter().all(|piece| piece.first == piece.last));
    }

    #[test]
    fn an_answer_is_a_count_for_some_keys() {
        let row = |number: u32, count: u64| [&number.to_le_bytes()[..], &count.to_le_bytes()].concat();
        assert_eq!(counts(&[row(2, 7), row(0, 1)].concat(), 3), Ok(vec![1, 0, 7]));
        assert_eq!(counts(&[], 2), Ok(vec![0, 0]));
        assert!(counts(&row(3, 1), 3).is_err());
        assert!(counts(&row(0, 1)[..11], 3).is_err());
    }

    #[test]
    fn a_table_with_any_name_is_asked_for_between_the_times() {
        let endpoint = Endpoint::parse("http://c:8123").unwrap();
        let credentials = Credentials { user: "u".into(), password: "p".into(), token: None };
        let lookup = Lookup::new(&endpoint, &credentials, "o`t", "t", &Tls::unused()).unwrap();
        let query = lookup.query(&[TimeSpan { first: -1, last: 2 }, TimeSpan { first: 5, last: 6 }]);
        assert!(query.contains(r"FROM `o\`t`.`t` WHERE Timestamp BETWEEN"), "{query}");
        assert!(
            query.contains("(toInt64(2)) OR Timestamp BETWEEN fromUnixTimestamp64Nano(toInt64(5))"),
            "{query}"
        );
        let uri = lookup.request(&SpanKeys::default()).uri().to_string();
        for (name, value) in [("final", "0"), ("limit", "0"), ("timeout_overflow_mode", "throw")] {
            assert!(uri.contains(&format!("&{name}={value}")), "{uri}");
        }
        let refused = Credentials { user: "a:b".into(), ..credentials };
        assert!(Lookup::new(&endpoint, &refused, "d", "t", &Tls::unused()).is_err());
    }
}
