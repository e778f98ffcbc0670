//! Encodes messages of all kinds into blocks.

use bytes::Bytes;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData},
};
use proptest::prelude::*;
use prost::Message as _;
use sluice_clickhouse::{
    column::{Layout, TableColumns},
    expiry::ExpiryRule,
    frame,
    json::JSON_PATHS_MAX,
    row_frames::RowFrames,
};
use sluice_gateway::{
    blocks::{
        block::{OpenBlock, Place},
        buffers::Pool,
    },
    ground::account::RowAccount,
    reading::{
        encode::{Encoded, Payload, encode},
        framing::FrameError,
        reader::Reader,
        reject::Reason,
    },
    rows::{
        attributes::RowLimit,
        carry::{Carry, Carrying},
        origin::Origin,
        services::ServiceTally,
        span_row::Scratch,
        span_times::TimeCounts,
    },
};
use sluice_gateway_config::{Attributes, ByteSize, Format, budget::ROW_BUFFER_BYTES};
use sluice_ranges::{Closed, Content, Cut, Fill, Generation, OffsetRange, PartitionId};
use std::time::Instant;

/// A block, and what it takes to fill it.
pub struct Case {
    pool: Pool,
    reader: Reader,
    scratch: Scratch,
    block: OpenBlock,
    expiry: ExpiryRule,
    origin: Origin<'static>,
}

impl Case {
    /// The timestamp of every message.
    pub const TIMESTAMP_NANOS: i64 = 1_600_000_000_000_000_000;

    pub fn new(pool_bytes: u64) -> Self {
        Self::of(pool_bytes, TableColumns::default())
    }

    pub fn of(pool_bytes: u64, columns: TableColumns) -> Self {
        let block = OpenBlock::new(RowFrames::new(), RowAccount::default().open(), Instant::now());
        Self {
            pool: Pool::new(pool_bytes, 1, 1),
            reader: Reader::OtlpProto,
            scratch: Scratch::new(columns),
            block,
            expiry: ExpiryRule::NEVER,
            origin: Origin::default(),
        }
    }

    /// The same, with messages that come from there.
    pub fn of_origin(self, origin: Origin<'static>) -> Self {
        Self { origin, ..self }
    }

    /// One whose messages are OTLP/JSON.
    pub fn of_json() -> Self {
        Self::of_json_for(TableColumns::default())
    }

    /// The same, for a table of these columns.
    pub fn of_json_for(columns: TableColumns) -> Self {
        Self { reader: Reader::new(Format::OtlpJson, ByteSize::mib(1)), ..Self::of(64 << 20, columns) }
    }

    /// The same, for a table whose TTL has expired rows that are older than this.
    pub fn expiring(self, before_nanos: u64) -> Self {
        Self { expiry: ExpiryRule::before(before_nanos.cast_signed()), ..self }
    }

    /// The same, under rules for attributes.
    pub fn carrying(self, attributes: &Attributes) -> Self {
        let carry = Carrying::of(attributes).map(Carry::new);
        Self { scratch: self.scratch.carrying(carry), ..self }
    }

    /// The same, with counts of rows by service.
    pub fn tallying(self, tally: ServiceTally) -> Self {
        Self { scratch: self.scratch.tallying(tally), ..self }
    }

    pub fn add(&mut self, message: &[u8]) -> Encoded {
        let payload = Payload {
            bytes: message,
            timestamp_nanos: Self::TIMESTAMP_NANOS,
            now_nanos: u64::MAX,
            expiry: self.expiry,
            origin: self.origin,
        };
        let encoded = encode(&self.pool, &mut self.reader, &mut self.scratch, &mut self.block, payload);
        if let Encoded::Whole { spans, end_nanos_max, .. } = encoded {
            self.scratch.commit_services(self.block.rows.totals());
            self.block.add_message(0, spans, end_nanos_max);
        }
        encoded
    }

    /// Seals the block and returns its rows, decompressed.
    pub fn rows(&mut self) -> (u64, Vec<u8>) {
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        let place = Place { id, generation: Generation(1), cluster: "cluster".into() };
        let closed = Closed {
            range: OffsetRange { first: 0, next: 1 },
            cut: Cut::Time,
            decided: 1,
            fill: Fill::default(),
            content: Content::default(),
            doubtful: false,
            doubtful_up_to: 0,
            incomplete: false,
            rule: sluice_ranges::Rule::of(&sluice_gateway_config::Insert::default()),
        };
        let block = self.block.seal(&self.pool, &place, &closed).unwrap();
        (block.rows, decompressed(&block.frames))
    }
}

fn decompressed(frames: &[Bytes]) -> Vec<u8> {
    let body = frames.concat();
    let (mut rest, mut raw) = (&body[..], Vec::new());
    while !rest.is_empty() {
        let bytes = frame::frame_bytes(rest).unwrap();
        frame::decode(&rest[..bytes], &mut raw).unwrap();
        rest = &rest[bytes..];
    }
    raw
}

/// The rows of one message.
pub fn encoded(message: &[u8]) -> Vec<u8> {
    encoded_for(TableColumns::default(), message)
}

/// The rows of one message for a table of these columns.
pub fn encoded_for(columns: TableColumns, message: &[u8]) -> Vec<u8> {
    let mut case = Case::of(64 << 20, columns);
    assert!(matches!(case.add(message), Encoded::Whole { .. }));
    case.rows().1
}

pub fn attribute(key: &str, value: Option<AnyValue>) -> KeyValue {
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

pub fn resource(attributes: Vec<KeyValue>) -> Resource {
    Resource { attributes, ..Resource::default() }
}

pub fn span(attributes: Vec<KeyValue>) -> Span {
    Span {
        trace_id: (0..16).collect(),
        span_id: (0..8).collect(),
        name: "name".into(),
        kind: 2,
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_005,
        attributes,
        ..Span::default()
    }
}

pub fn message(resource: Resource, spans: Vec<Span>) -> Vec<u8> {
    let scope =
        InstrumentationScope { name: "scope".into(), version: "1".into(), ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    TracesData { resource_spans }.encode_to_vec()
}

/// A message of this many spans with an attribute of this many bytes each, which do not compress.
fn noise(spans: usize, bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let value = (0..bytes).map(|_| random()).collect::<Vec<u8>>();
    let value = Some(AnyValue { value: Some(Value::BytesValue(value)) });
    message(resource(vec![]), vec![span(vec![attribute("noise", value)]); spans])
}

/// A message field whose content is these fields, one after the other.
fn field(key: u8, fields: &[Vec<u8>]) -> Vec<u8> {
    let content = fields.concat();
    let mut bytes = vec![key];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// Makes a valid message end in the middle of its last span.
fn broken(mut message: Vec<u8>) -> Vec<u8> {
    message.truncate(message.len() - 3);
    message
}

#[test]
fn the_row_buffers_are_what_the_budget_counts() {
    assert!(RowFrames::new().memory_bytes() as u64 <= ROW_BUFFER_BYTES);
}

#[test]
fn an_empty_message_has_no_rows() {
    let mut case = Case::new(64 << 20);
    let nothing =
        Encoded::Whole { spans: 0, end_nanos_max: 0, times: TimeCounts::default(), headers_cut: false };
    assert_eq!(case.add(b""), nothing);
    assert_eq!(case.rows(), (0, vec![]));
}

#[test]
fn a_row_that_is_too_large_rejects_its_message() {
    let mut case = Case::new(128 << 20);
    assert!(matches!(case.add(&noise(1, 1 << 20, 1)), Encoded::Whole { .. }));
    assert_eq!(case.add(&noise(1, 7 << 20, 2)), Encoded::Rejected(Reason::RowTooLarge(RowLimit::Bytes)));
    assert_eq!(case.rows().0, 1);
}

#[test]
fn a_message_that_passes_the_block_is_taken_back() {
    let mut case = Case::new(128 << 20);
    let small = noise(1, 100, 3);
    assert!(matches!(case.add(&small), Encoded::Whole { .. }));
    // 30 spans share one random megabyte, but it lies further back than LZ4 looks.
    assert_eq!(case.add(&noise(30, 1 << 20, 4)), Encoded::BlockFull);
    assert_eq!(case.rows(), (1, encoded(&small)));
}

#[test]
fn a_message_without_room_is_taken_back_and_fits_later() {
    let mut case = Case::new(2 << 20);
    let (first, second) = (noise(1, 300_000, 5), noise(8, 200_000, 6));
    assert!(matches!(case.add(&first), Encoded::Whole { .. }));
    assert_eq!(case.add(&second), Encoded::NoRoom);
    assert_eq!(case.rows(), (1, encoded(&first)));
    assert_eq!(case.pool.free_bytes(), case.pool.total_bytes());
}

#[test]
fn a_resource_and_a_scope_behind_their_spans_give_the_same_rows() {
    let value = |text: &str| Some(AnyValue { value: Some(Value::StringValue(text.into())) });
    let resource = resource(vec![attribute("service.name", value("shop")), attribute("host", value("h"))]);
    let scope = InstrumentationScope { name: "scope".into(), ..InstrumentationScope::default() };
    let long = InstrumentationScope { name: "x".repeat(7 << 20), ..InstrumentationScope::default() };
    // ResourceSpans: resource is field 1, scope_spans is field 2; so it is with the scope and the spans of ScopeSpans.
    let resource = field(0x0A, &[resource.encode_to_vec()]);
    let [scope, long] = [scope, long].map(|scope| field(0x0A, &[scope.encode_to_vec()]));
    let spans = field(0x12, &[span(vec![attribute("a", value("b"))]).encode_to_vec()]);
    let encoded_of = |resource_spans: &[Vec<u8>]| encoded(&field(0x0A, resource_spans));
    let in_order = encoded_of(&[resource.clone(), field(0x12, &[scope.clone(), spans.clone()])]);
    assert!(in_order.windows(4).any(|bytes| bytes == b"shop"));
    let table: [&[Vec<u8>]; 4] = [
        &[field(0x12, &[scope.clone(), spans.clone()]), resource.clone()],
        &[resource.clone(), field(0x12, &[spans.clone(), scope.clone()])],
        &[field(0x12, &[spans.clone(), scope.clone()]), resource.clone()],
        // A row with the first scope's name would be too large, but the second name is the scope's.
        &[resource, field(0x12, &[long, spans, scope])],
    ];
    for fields in table {
        assert_eq!(encoded_of(fields), in_order);
    }
}

#[test]
fn a_message_in_json_has_the_rows_of_protobuf_or_none() {
    let attributes = vec![attribute("k", Some(AnyValue { value: Some(Value::StringValue("v".into())) }))];
    let protobuf = message(resource(vec![]), vec![span(attributes)]);
    let json =
        br#"{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{"name":"scope","version":"1"},"spans":[{
        "traceId":"000102030405060708090A0B0C0D0E0F","spanId":"0001020304050607","name":"name","kind":2,
        "startTimeUnixNano":"1700000000000000000","endTimeUnixNano":1700000000000000005,
        "attributes":[{"key":"k","value":{"stringValue":"v"}}]}]}]}]}"#;
    let mut case = Case::of_json();
    assert!(matches!(case.add(json), Encoded::Whole { spans: 1, .. }));
    let cut = case.add(&json[..json.len() - 1]);
    assert!(matches!(cut, Encoded::Rejected(Reason::MalformedJson(at)) if at.position() == json.len() - 1));
    assert!(matches!(case.add(&protobuf), Encoded::Rejected(Reason::MalformedJson(_))));
    assert_eq!(case.add(&vec![b' '; (1 << 20) + 1]), Encoded::Rejected(Reason::MessageTooLong));
    assert_eq!(case.rows(), (1, encoded(&protobuf)));
}

#[test]
fn a_message_in_a_frame_has_the_rows_of_the_message() {
    let bare = noise(3, 100, 5);
    let framed = |indexes: &[u8], payload: &[u8]| [&[0, 0, 0, 0, 7][..], indexes, payload].concat();
    for indexes in [&[0][..], &[2, 0]] {
        let mut case = Case::new(64 << 20);
        assert!(matches!(case.add(&framed(indexes, &bare)), Encoded::Whole { spans: 3, .. }));
        assert_eq!(case.rows(), (3, encoded(&bare)));
    }
    let mut case = Case::of_json();
    assert!(matches!(case.add(&framed(&[], b"{}")), Encoded::Whole { spans: 0, .. }));
    for (case, magic) in [(&mut case, 1), (&mut Case::new(64 << 20), 7)] {
        let outcome = case.add(&[&[magic][..], &bare].concat());
        assert_eq!(outcome, Encoded::Rejected(Reason::Framing(FrameError::MagicUnknown(magic))));
    }
    let cut = Case::new(64 << 20).add(&[0, 0, 0]);
    assert_eq!(cut, Encoded::Rejected(Reason::Framing(FrameError::CutShort)));
}

#[test]
fn a_time_in_json_that_64_bits_do_not_hold_costs_this_time_and_not_the_message() {
    let json = |start: &str| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"000102030405060708090A0B0C0D0E0F",
            "spanId":"0001020304050607","name":"n","startTimeUnixNano":{start}}}]}}]}}]}}"#
        )
    };
    for start in ["-5", r#""-5""#, "1e300", r#""1e300""#, "18446744073709551616"] {
        let mut case = Case::of_json();
        let Encoded::Whole { spans, times, .. } = case.add(json(start).as_bytes()) else {
            panic!("{start} rejects the message")
        };
        assert_eq!((spans, times.starts_replaced), (1, 1), "{start}");
    }
    let mut case = Case::of_json();
    let Encoded::Rejected(reason) = case.add(json("1e400").as_bytes()) else { panic!("no double holds it") };
    assert!(reason.to_string().contains("beyond the range of a double"), "{reason}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever comes before and after, a message leaves all of its rows or none.
    #[test]
    fn a_message_is_encoded_whole_or_not_at_all(
        messages in prop::collection::vec((1usize..40, 0usize..60_000, any::<u64>(), any::<bool>()), 1..12)
    ) {
        let mut case = Case::new(64 << 20);
        let (mut rows, mut expected) = (0, Vec::new());
        for (spans, bytes, seed, whole) in messages {
            let good = noise(spans, bytes, seed);
            if whole {
                let outcome = case.add(&good);
                prop_assert!(matches!(outcome, Encoded::Whole { .. }), "{:?}", outcome);
                rows += spans as u64;
                expected.extend(encoded(&good));
            } else {
                let outcome = case.add(&broken(good));
                prop_assert!(matches!(outcome, Encoded::Rejected(Reason::Malformed(_))), "{:?}", outcome);
            }
        }
        prop_assert_eq!(case.rows(), (rows, expected));
    }
}

#[test]
fn a_row_has_all_of_its_attributes_or_there_is_none() {
    let with = |count: usize| {
        let attribute = |n| KeyValue {
            key: format!("{n}"),
            value: Some(AnyValue { value: Some(Value::IntValue(1)) }),
            ..KeyValue::default()
        };
        // Without a usable start the row would have one attribute more.
        let attributes = (0..count).map(attribute).collect();
        let start = Case::TIMESTAMP_NANOS.unsigned_abs();
        let span = Span { start_time_unix_nano: start, ..span(attributes) };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
            .encode_to_vec()
    };
    let (all, too_many) = (with(JSON_PATHS_MAX), with(JSON_PATHS_MAX + 1));
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let mut case = Case::of(64 << 20, TableColumns::of_layout(layout));
        assert!(matches!(case.add(&all), Encoded::Whole { spans: 1, .. }), "{layout:?}");
        assert_eq!(
            case.add(&too_many),
            Encoded::Rejected(Reason::RowTooLarge(RowLimit::Attributes)),
            "{layout:?}"
        );
    }
}
