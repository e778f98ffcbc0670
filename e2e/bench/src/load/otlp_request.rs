//! Requests of OTLP/JSON that are cheap to make: texts that are written once. Each request copies one and writes its ids and numbers into
//! it.
//!
//! Job: bodies of an exact size whose spans are numbered, so that lost and doubled spans are exact counts. Place in the flow: before the
//! clients. Limits: making a request copies its text, and writes 58 bytes a span.
//!
//! | carried in | |
//! | --- | --- |
//! | attribute `sluice.seq` | the span's number, of ten digits |
//! | trace id | the run's id; then the scrambled number of the trace's first span |
//! | span id | the scrambled number |

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;

use e2e_fixtures::spans::{Dice, NUMBER_KEY, Run};

/// The number of the first span: all numbers have [`DIGITS`] digits, so that they fit their places in a text.
const NUMBER_FIRST: u64 = 1_000_000_000;
const DIGITS: usize = 10;

/// Digits of a span id, and of the second half of a trace id; the first half is the run's id.
const ID_DIGITS: usize = 16;

/// An odd number: multiplying by it maps numbers one to one. It is 2^64 divided by the golden ratio.
const SCRAMBLE: u64 = 0x9e37_79b9_7f4a_7c15;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Bytes of the first text of a heavy span; the second one fills the span up.
const INPUT_BYTES: usize = 3_000;

/// One word in this many is a random number, so that the text compresses like prose and not like repeated words.
const PLAIN_WORDS: u64 = 6;

/// The end of a span, behind its last text.
const SPAN_END: &str = r#""}}],"status":{}}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// 50 traces with 467 spans: 3.6 MB.
    Heavy,
    /// A trace with 6 to 8 spans: 8 KB.
    Light,
}

impl Weight {
    /// Its name, the first half of a case's.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Heavy => "heavy",
            Weight::Light => "light",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Weight::Heavy => "50 traces, 467 spans and 3.6 MB a request",
            Weight::Light => "one trace, 6 to 8 spans and 8 KB a request",
        }
    }

    /// For each text, the spans of each of its traces.
    fn texts(self) -> Vec<Vec<u64>> {
        match self {
            Weight::Heavy => vec![(0..50).map(|trace| (trace + 1) * 467 / 50 - trace * 467 / 50).collect()],
            Weight::Light => vec![vec![6], vec![7], vec![8]],
        }
    }

    /// Bytes of a span. With the resource of each trace, requests have 3.6 MB and 8 KB.
    fn span_bytes(self) -> usize {
        match self {
            Weight::Heavy => 7_685,
            Weight::Light => 1_100,
        }
    }
}

#[derive(Clone, Debug)]
pub struct OtlpRequest {
    pub numbers: Range<u64>,
    pub body: Bytes,
}

#[derive(Debug)]
pub struct OtlpRequests {
    /// The texts, used in turn.
    texts: Vec<Text>,
    /// Spans of all texts together.
    spans: u64,
}

/// A text, and the places where a request writes.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    places: Vec<SpanPlaces>,
    /// Spans of the texts before it.
    spans_before: u64,
}

/// Where a span's ids and its number are in the text, and to which spans of the request the ids belong.
#[derive(Clone, Copy, Debug)]
struct SpanPlaces {
    trace_id: usize,
    span_id: usize,
    parent_id: Option<usize>,
    number: usize,
    /// The request's span, from 0, that is the first of this trace.
    root: u64,
    /// The request's span, from 0, that is the parent.
    parent: u64,
}

impl OtlpRequests {
    pub fn new(weight: Weight, run: Run) -> OtlpRequests {
        let (mut texts, mut spans) = (Vec::new(), 0);
        for traces in weight.texts() {
            let text = TextWriter::new(weight, run, spans).written(&traces);
            spans += text.places.len() as u64;
            texts.push(text);
        }
        OtlpRequests { texts, spans }
    }

    /// The request of this number, from 0. Its spans' numbers follow those of the request before.
    pub fn request(&self, index: u64) -> OtlpRequest {
        let count = self.texts.len() as u64;
        let text = &self.texts[usize::try_from(index % count).unwrap_or(0)];
        let first = NUMBER_FIRST + index / count * self.spans + text.spans_before;
        let mut body = text.bytes.clone();
        for (number, places) in (first..).zip(&text.places) {
            put_hex(&mut body[places.trace_id..][..ID_DIGITS], scrambled(first + places.root));
            put_hex(&mut body[places.span_id..][..ID_DIGITS], scrambled(number));
            if let Some(at) = places.parent_id {
                put_hex(&mut body[at..][..ID_DIGITS], scrambled(first + places.parent));
            }
            put_decimal(&mut body[places.number..][..DIGITS], number);
        }
        OtlpRequest { numbers: first..first + text.places.len() as u64, body: Bytes::from(body) }
    }
}

fn scrambled(number: u64) -> u64 {
    number.wrapping_mul(SCRAMBLE)
}

fn put_hex(digits: &mut [u8], value: u64) {
    let halves = value.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (digit, half) in digits.iter_mut().zip(halves) {
        *digit = HEX[usize::from(half)];
    }
}

fn put_decimal(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = HEX[usize::try_from(value % 10).unwrap_or(0)];
        value /= 10;
    }
}

struct TextWriter {
    weight: Weight,
    run: Run,
    dice: Dice,
    words: Vec<&'static str>,
    text: String,
    places: Vec<SpanPlaces>,
    spans_before: u64,
}

impl TextWriter {
    fn new(weight: Weight, run: Run, spans_before: u64) -> TextWriter {
        let dice = Dice::new(run.id, spans_before);
        let words = WORDS.split(' ').collect();
        TextWriter { weight, run, dice, words, text: String::new(), places: Vec::new(), spans_before }
    }

    fn written(mut self, traces: &[u64]) -> Text {
        self.text.push_str(r#"{"resourceSpans":["#);
        let mut root = 0;
        for spans in traces {
            if root > 0 {
                self.text.push(',');
            }
            self.resource();
            for number in 0..*spans {
                if number > 0 {
                    self.text.push(',');
                }
                self.span(root, number);
            }
            self.text.push_str("]}]}");
            root += spans;
        }
        self.text.push_str("]}");
        Text { bytes: self.text.into_bytes(), places: self.places, spans_before: self.spans_before }
    }

    /// The resource of a trace, up to the list of its spans.
    fn resource(&mut self) {
        let service = self.dice.pick(&["checkout", "search", "assistant", "catalogue", "payment"]);
        let pod = self.dice.below(20);
        self.put(format_args!(
            r#"{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{service}"}}}},"#
        ));
        self.put(format_args!(r#"{{"key":"k8s.pod.name","value":{{"stringValue":"{service}-{pod}"}}}},"#));
        self.text.push_str(r#"{"key":"deployment.environment.name","value":{"stringValue":"load"}}]},"#);
        self.text.push_str(r#""scopeSpans":[{"scope":{"name":"load","version":"1"},"spans":["#);
    }

    /// A span of the trace whose first span is `root`; `number` counts from there.
    fn span(&mut self, root: u64, number: u64) {
        let end = self.text.len() + self.weight.span_bytes();
        let run = self.run.id;
        self.put(format_args!(r#"{{"traceId":"{run:016x}"#));
        let trace_id = self.place(ID_DIGITS);
        self.text.push_str(r#"","spanId":""#);
        let span_id = self.place(ID_DIGITS);
        self.text.push('"');
        let parent_id = (number > 0).then(|| {
            self.text.push_str(r#","parentSpanId":""#);
            let at = self.place(ID_DIGITS);
            self.text.push('"');
            at
        });
        let operation = self.dice.pick(&["plan", "retrieve", "complete", "rank", "store"]);
        let start = self.run.start_ns + self.dice.below(1_000_000_000);
        let stop = start + self.dice.below(1_000_000_000);
        self.put(format_args!(r#","name":"{operation}","kind":2,"startTimeUnixNano":"{start}","#));
        self.put(format_args!(r#""endTimeUnixNano":"{stop}","attributes":["#));
        self.put(format_args!(r#"{{"key":"{NUMBER_KEY}","value":{{"intValue":""#));
        let at = self.place(DIGITS);
        let parent = root + number.saturating_sub(1) / 2;
        self.places.push(SpanPlaces { trace_id, span_id, parent_id, number: at, root, parent });
        self.attributes(end);
    }

    /// The attributes behind the number, and the span's end: at the length `end` of the text.
    fn attributes(&mut self, end: usize) {
        let (status, tokens) = (200 + self.dice.below(5), self.dice.below(4_000));
        self.text.push_str(r#""}},{"key":"http.request.method","value":{"stringValue":"POST"}},"#);
        self.put(format_args!(r#"{{"key":"http.response.status_code","value":{{"intValue":"{status}"}}}},"#));
        self.put(format_args!(
            r#"{{"key":"gen_ai.usage.output_tokens","value":{{"intValue":"{tokens}"}}}},"#
        ));
        if self.weight == Weight::Heavy {
            self.text.push_str(r#"{"key":"input.value","value":{"stringValue":""#);
            self.prose(INPUT_BYTES);
            self.text.push_str(r#""}},"#);
        }
        self.text.push_str(r#"{"key":"output.value","value":{"stringValue":""#);
        self.prose(end.saturating_sub(self.text.len() + SPAN_END.len()));
        self.text.push_str(SPAN_END);
    }

    /// Writes this many bytes of words and numbers.
    fn prose(&mut self, bytes: usize) {
        let end = self.text.len() + bytes;
        while self.text.len() < end {
            if self.dice.below(PLAIN_WORDS) == 0 {
                let number = self.dice.below(1 << 40);
                self.put(format_args!("{number:x} "));
            } else {
                let word = self.dice.pick(&self.words);
                self.put(format_args!("{word} "));
            }
        }
        self.text.truncate(end);
    }

    /// Reserves a place for this many digits; returns its position.
    fn place(&mut self, digits: usize) -> usize {
        let at = self.text.len();
        self.text.extend(std::iter::repeat_n('0', digits));
        at
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.text.write_fmt(arguments).expect("a string takes every text");
    }
}

const WORDS: &str = "the customer asked for a refund of order and delivery was late by three days because warehouse \
    had no stock left please summarise this conversation in two sentences answer politely with references";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const RUN: Run = Run { id: 0xab, start_ns: 1_700_000_000_000_000_000 };

    /// The spans of a body, trace by trace.
    fn traces(body: &Bytes) -> Vec<Vec<Value>> {
        let text: Value = serde_json::from_slice(body).unwrap();
        let resources = text["resourceSpans"].as_array().unwrap().iter();
        resources.map(|it| it["scopeSpans"][0]["spans"].as_array().unwrap().clone()).collect()
    }

    fn number(span: &Value) -> u64 {
        assert_eq!(span["attributes"][0]["key"], NUMBER_KEY);
        span["attributes"][0]["value"]["intValue"].as_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_heavy_request_has_the_size_of_the_published_benchmark() {
        let request = OtlpRequests::new(Weight::Heavy, RUN).request(0);
        let traces = traces(&request.body);
        assert_eq!((traces.len(), traces.iter().map(Vec::len).sum::<usize>()), (50, 467));
        let bytes = request.body.len();
        assert!((3_550_000..3_650_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn light_requests_have_one_trace_of_six_to_eight_spans() {
        let requests = OtlpRequests::new(Weight::Light, RUN);
        let (mut spans, mut bytes) = (BTreeSet::new(), 0);
        for index in 0..6 {
            let request = requests.request(index);
            let traces = traces(&request.body);
            assert_eq!(traces.len(), 1);
            spans.insert(traces[0].len());
            bytes += request.body.len();
        }
        assert_eq!(spans, BTreeSet::from([6, 7, 8]));
        assert!((7_800 * 6..8_300 * 6).contains(&bytes), "{bytes}");
    }

    #[test]
    fn numbers_follow_each_other_over_all_requests() {
        for weight in [Weight::Heavy, Weight::Light] {
            let requests = OtlpRequests::new(weight, RUN);
            let mut next = NUMBER_FIRST;
            for index in 0..7 {
                let request = requests.request(index);
                let found: Vec<u64> = traces(&request.body).iter().flatten().map(number).collect();
                assert_eq!(request.numbers.start, next);
                assert_eq!(found, request.numbers.clone().collect::<Vec<_>>());
                next = request.numbers.end;
            }
        }
    }

    #[test]
    fn no_id_comes_twice_and_parents_are_in_their_trace() {
        for weight in [Weight::Heavy, Weight::Light] {
            let requests = OtlpRequests::new(weight, RUN);
            let (mut of_traces, mut of_spans) = (BTreeSet::new(), BTreeSet::new());
            for index in 0..4 {
                for trace in traces(&requests.request(index).body) {
                    let trace_id = trace[0]["traceId"].as_str().unwrap();
                    assert!(trace_id.len() == 32 && trace_id.starts_with(&RUN.trace_id_prefix()));
                    assert!(of_traces.insert(trace_id.to_owned()), "{trace_id}");
                    let mut before: Vec<&Value> = Vec::new();
                    for span in &trace {
                        assert_eq!(span["traceId"], trace_id);
                        let parent = span.get("parentSpanId");
                        assert!(parent.map_or(before.is_empty(), |parent| before.contains(&parent)));
                        before.push(&span["spanId"]);
                        assert!(of_spans.insert(span["spanId"].as_str().unwrap().to_owned()));
                    }
                }
            }
        }
    }
}
