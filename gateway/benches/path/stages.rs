//! The stages. Each takes the whole load and tells what came out.

use crate::load::Load;
use bytes::Bytes;
use cityhash_rs::cityhash_102_128;
use clap::ValueEnum;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use sluice_clickhouse::{
    column::{Layout, TableColumns},
    expiry::ExpiryRule,
    frame,
    lz4::{Lz4Encoder, block_bytes_max},
    native::{self, NativeShape},
    row_frames::{FRAME_RAW_BYTES, FrameStore, ROW_BUFFER_BYTES, RowFrames, RowMark},
};
use sluice_gateway::{
    blocks::{
        block::{OpenBlock, Place},
        buffers::Pool,
    },
    ground::account::RowAccount,
    reading::{
        encode::{Encoded, Payload},
        reader::Reader,
    },
    rows::{
        carry::{Carry, Carrying},
        origin::Origin,
        raw_limit::RawLimit,
        span_row::{RowError, Scratch, SpanRows},
    },
};
use sluice_gateway_config::{
    AttributeAction, AttributeRule, Attributes, AttributesOf, ByteSize, Format, Insert,
};
use sluice_otlp::{Malformed, Resource, Scope, Span, SpanSink};
use sluice_ranges::{
    Closed, Committed, Cutter, Generation, Log, Now, Offer, PartitionId, Ranges, Rule, Settings,
};
use std::{
    convert::Infallible,
    hint::black_box,
    ops::Range,
    time::{Duration, Instant},
};

/// Kafka's timestamp of every message, in ns; the load's spans have usable ones of their own.
const TIMESTAMP_NANOS: i64 = 1_795_132_800_000_000_000;

/// Row bytes at which `encode` begins anew: one more row of any length up to the buffer's margin still fits a frame, so
/// that none is ever cut.
const ROWS_BYTES_MAX: usize = FRAME_RAW_BYTES - (ROW_BUFFER_BYTES - FRAME_RAW_BYTES);

/// Memory for blocks. Chosen: one block that closes by the default rule takes 4 to 5 MB. With little more than that, the
/// first round, which does not count, has already touched every chunk, as a gateway that has run for a minute has.
const POOL_BYTES: u64 = 8 << 20;

/// One step from message bytes to frames, or all of them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The walk, down to the fields of each span.
    WalkSpans,
    /// The walk to the bottom of every attribute.
    WalkAll,
    /// The walk, and rows with attributes as JSON.
    Encode,
    /// The walk, and rows with attributes as maps of text.
    EncodeMap,
    /// The walk, and rows with attributes in typed groups.
    EncodeNested,
    /// The walk, and rows with attributes as JSON, to which ten rules are applied.
    EncodeRules,
    /// LZ4 of the rows in pieces of 64 KiB.
    #[value(name = "lz4-64k")]
    Lz4In64K,
    /// LZ4 of the rows in pieces of 256 KiB, which is a frame.
    #[value(name = "lz4-256k")]
    Lz4In256K,
    /// LZ4 of the rows in pieces of 512 KiB.
    #[value(name = "lz4-512k")]
    Lz4In512K,
    /// LZ4 of the rows in pieces of 1 MiB.
    #[value(name = "lz4-1m")]
    Lz4In1M,
    /// What `lz4_flex` takes for the rows in pieces of 256 KiB: to compare with.
    #[value(name = "lz4-flex")]
    Lz4Flex,
    /// The hash of the LZ4 blocks.
    Hash,
    /// Reading the frames of the rows back: hash and LZ4.
    Unpack,
    /// Blocks of rows turned into blocks of columns.
    Native,
    /// OTLP/JSON to the wire.
    JsonWire,
    /// OTLP/JSON to rows.
    Json,
    /// Message bytes to sealed blocks.
    Path,
}

impl Stage {
    /// Its name on the command line and in the report.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Bytes that go into it.
    pub fn bytes_in(self, load: &Load) -> u64 {
        match self {
            Self::Lz4In64K | Self::Lz4In256K | Self::Lz4In512K | Self::Lz4In1M | Self::Lz4Flex => {
                load.rows.len() as u64
            }
            Self::Hash => load.block_bytes(),
            Self::Unpack | Self::Native => load.framed_bytes(),
            Self::JsonWire | Self::Json => load.text_bytes(),
            _ => load.message_bytes(),
        }
    }

    /// Whether it wants the messages as JSON.
    pub fn reads_json(self) -> bool {
        matches!(self, Self::JsonWire | Self::Json)
    }

    /// Does it once for the whole load; the bytes that came out, if that is what it is about.
    pub fn run(self, load: &Load, worker: &mut Worker) -> Option<u64> {
        match self {
            Self::WalkSpans => walk_spans(load),
            Self::WalkAll => walk_all(load),
            Self::Encode => return Some(worker.encode_layout(load, Layout::Json)),
            Self::EncodeMap => return Some(worker.encode_layout(load, Layout::Map)),
            Self::EncodeNested => return Some(worker.encode_layout(load, Layout::Nested)),
            Self::EncodeRules => return Some(worker.encode_rules(load)),
            Self::Lz4In64K => return Some(lz4(load, 64 << 10)),
            Self::Lz4In256K => return Some(lz4(load, FRAME_RAW_BYTES)),
            Self::Lz4In512K => return Some(lz4(load, 512 << 10)),
            Self::Lz4In1M => return Some(lz4(load, 1 << 20)),
            Self::Lz4Flex => return Some(lz4_flex(load)),
            Self::Hash => hash(load),
            Self::Unpack => return Some(unpack(load)),
            Self::Native => return Some(native(load)),
            Self::JsonWire => return Some(json_wire(load, worker)),
            Self::Json => {
                let mut bytes = 0;
                worker.encode_json(&load.texts, |rows| bytes += black_box(rows).len() as u64);
                return Some(bytes);
            }
            Self::Path => return Some(worker.path(load)),
        }
        None
    }
}

fn walk_spans(load: &Load) {
    let mut sink = TopLevel(0);
    let spans: u64 = load
        .messages
        .iter()
        .map(|message| read_in_order(sluice_otlp::walk_in_order(message, &mut sink)))
        .sum();
    black_box(sink.0);
    assert!(spans == load.spans, "{spans} of {} spans were walked over", load.spans);
}

fn walk_all(load: &Load) {
    let spans: u64 = load.messages.iter().map(|message| read(sluice_otlp::validate(message))).sum();
    assert!(spans == load.spans, "{spans} of {} spans were walked over", load.spans);
}

fn read<T, E: std::fmt::Debug>(outcome: Result<T, E>) -> T {
    outcome.expect("the generator's messages can be read")
}

fn read_in_order<E: std::fmt::Debug>(outcome: Result<Option<u64>, E>) -> u64 {
    read(outcome).expect("the generator's messages have resource and scope in front of the spans")
}

/// Adds up what stands in the fields of each span, so that they have to be read.
struct TopLevel(u64);

impl SpanSink for TopLevel {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        self.0 += resource.attributes.len() as u64;
        Ok(())
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        self.0 += (scope.name.len() + scope.version.len()) as u64;
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        let ids = span.trace_id.len() + span.span_id.len() + span.parent_span_id.map_or(0, |id| id.len());
        let texts = span.trace_state.len() + span.name.len() + span.status_message.len();
        let lists = span.attributes.len() + span.events.len() + span.links.len();
        let codes = span.kind.cast_unsigned() ^ span.status_code.cast_unsigned();
        self.0 = self.0.wrapping_add((ids + texts + lists) as u64 + u64::from(codes));
        self.0 ^= span.start_time_unix_nano ^ span.end_time_unix_nano;
        Ok(())
    }
}

/// Rewrites the messages; the bytes on the wire.
fn json_wire(load: &Load, worker: &mut Worker) -> u64 {
    let wires = load.texts.iter().map(|text| black_box(read(worker.json.wire(text))).len() as u64);
    wires.sum()
}

/// What a worker thread keeps from message to message.
pub struct Worker {
    pool: Pool,
    /// Reads messages in JSON.
    json: Reader,
    scratch: Scratch,
    block: OpenBlock,
}

impl Worker {
    /// One that has seen no message.
    pub fn new() -> Self {
        let block = OpenBlock::new(RowFrames::new(), RowAccount::default().open(), Instant::now());
        let json = Reader::new(Format::OtlpJson, ByteSize::mib(16));
        Self { pool: Pool::new(POOL_BYTES, 1, 1), json, scratch: Scratch::default(), block }
    }

    /// Writes the rows of the messages; gives `take` what the buffer holds each time that it is full, and behind each message.
    /// Returns the spans.
    pub fn encode(&mut self, messages: &[Vec<u8>], mut take: impl FnMut(&[u8])) -> u64 {
        messages
            .iter()
            .map(|message| rows_alone(&mut self.scratch, &mut self.block, message, &mut take))
            .sum()
    }

    /// The same for messages in JSON.
    fn encode_json(&mut self, texts: &[Vec<u8>], mut take: impl FnMut(&[u8])) -> u64 {
        let Self { json, scratch, block, .. } = self;
        texts.iter().map(|text| rows_alone(scratch, block, read(json.wire(text)), &mut take)).sum()
    }

    /// Writes the rows of all messages in a layout, which are forgotten; their bytes.
    fn encode_layout(&mut self, load: &Load, layout: Layout) -> u64 {
        self.encode_with(load, Scratch::new(TableColumns::of_layout(layout)))
    }

    /// The same with attributes as JSON, to which [`rules`] are applied.
    fn encode_rules(&mut self, load: &Load) -> u64 {
        let carry = Carrying::of(&rules()).map(Carry::new);
        self.encode_with(load, Scratch::new(TableColumns::of_layout(Layout::Json)).carrying(carry))
    }

    /// Writes the rows of all messages with these buffers, which are forgotten; their bytes.
    fn encode_with(&mut self, load: &Load, mut scratch: Scratch) -> u64 {
        std::mem::swap(&mut scratch, &mut self.scratch);
        let mut bytes = 0;
        self.encode(&load.messages, |rows| bytes += black_box(rows).len() as u64);
        self.scratch = scratch;
        bytes
    }

    /// What the worker does with each message, without Kafka and without sending the blocks; the bytes of all blocks.
    fn path(&mut self, load: &Load) -> u64 {
        let mut cutter = cutter();
        let messages = i64::try_from(load.messages.len()).expect("messages in memory can be counted");
        let (mut rows, mut bytes) = (0, 0);
        for (message, offset) in load.messages.iter().zip(0..) {
            while let Offer::Close(closed) = cutter.offer(offset, message.len() as u64) {
                self.seal(&closed, &mut rows, &mut bytes);
            }
            let payload = Payload {
                bytes: message,
                timestamp_nanos: TIMESTAMP_NANOS,
                now_nanos: u64::MAX,
                expiry: ExpiryRule::NEVER,
                origin: Origin::default(),
            };
            match sluice_gateway::reading::encode::encode(
                &self.pool,
                &mut Reader::OtlpProto,
                &mut self.scratch,
                &mut self.block,
                payload,
            ) {
                Encoded::Whole { spans, end_nanos_max, .. } => {
                    self.block.add_message(0, spans, end_nanos_max);
                }
                other => panic!("the generator's messages can be read and fit a block: {other:?}"),
            }
            let mut closed = cutter.take(offset, Some(message));
            if offset + 1 == messages {
                closed = closed.or_else(|| cutter.flush());
            }
            if let Some(closed) = closed {
                self.seal(&closed, &mut rows, &mut bytes);
            }
        }
        assert!(rows == load.spans, "{rows} of {} spans are in blocks", load.spans);
        bytes
    }

    fn seal(&mut self, closed: &Closed, rows: &mut u64, bytes: &mut u64) {
        let sealed =
            self.block.seal(&self.pool, &place(), closed).expect("the pool holds more than one block");
        *rows += sealed.rows;
        *bytes += black_box(sealed).bytes as u64;
    }
}

/// Ten rules as a platform team writes them: three name keys that many `rich` spans have and drop them, one keeps a key from a later
/// rule, and six name keys that no span has. None hashes: SHA-256 costs what the hashed bytes cost, and not what a rule costs.
fn rules() -> Attributes {
    let rule = |action, key: &str| AttributeRule {
        action,
        keys: vec![key.to_owned()],
        sets: AttributesOf::ALL.to_vec(),
    };
    let drop = |key| rule(AttributeAction::Drop, key);
    let rules = vec![
        drop("user_agent.original"),
        drop("network.protocol.version"),
        drop("thread.name"),
        rule(AttributeAction::Keep, "http.request.method"),
        drop("http.request.header.*"),
        drop("http.response.header.*"),
        drop("db.query.parameter.*"),
        drop("enduser.id"),
        drop("client.address"),
        drop("messaging.message.envelope"),
    ];
    Attributes { rules, ..Attributes::default() }
}

/// Where ranges end in a partition that no gateway has read before, by the rule of the defaults.
fn cutter() -> Cutter {
    let settings = Settings {
        rule: Rule::of(&Insert::default()),
        routing_epoch: 0,
        destination: None,
        topic_id: None,
        cluster: None,
    };
    let committed = Committed { commit: None, begin: 0, log: Log { start: 0, end: 0 } };
    let now = Now { steady: Duration::ZERO, unix_seconds: 0 };
    let begun = Ranges::assigned(Generation(1), &committed, settings, now);
    begun.expect("nothing is found that could halt").1
}

/// Writes the rows of one message, as a worker does: with a sink for all of it. Returns the spans.
fn rows_alone(
    scratch: &mut Scratch,
    block: &mut OpenBlock,
    message: &[u8],
    take: &mut impl FnMut(&[u8]),
) -> u64 {
    let empty = block.rows.mark(&NoFrames);
    let limit = RawLimit::of_message(message.len());
    let rows = SpanRows::new(scratch, &mut block.rows, NoFrames, TIMESTAMP_NANOS, limit);
    let mut sink = RowsAlone { rows, empty, take };
    let spans = read_in_order(sluice_otlp::walk_in_order(message, &mut sink));
    sink.begin_anew();
    spans
}

/// Rows as the gateway writes them, taken back before a frame is full.
struct RowsAlone<'a, T> {
    rows: SpanRows<'a, NoFrames>,
    empty: RowMark,
    take: &'a mut T,
}

impl<T: FnMut(&[u8])> RowsAlone<'_, T> {
    fn begin_anew(&mut self) {
        let rows = self.rows.rows();
        (self.take)(rows.row());
        rows.rewind(&mut NoFrames, self.empty).expect("without frames there is none to read back");
    }
}

impl<T: FnMut(&[u8])> SpanSink for RowsAlone<'_, T> {
    type Error = RowError<Infallible>;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error> {
        self.rows.resource(resource)
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Self::Error> {
        self.rows.scope(scope)
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error> {
        if self.rows.rows().row().len() > ROWS_BYTES_MAX {
            self.begin_anew();
        }
        self.rows.span(span)
    }
}

/// A store that is never given a frame.
struct NoFrames;

impl FrameStore for NoFrames {
    type Error = Infallible;

    fn append(&mut self, frame: &[u8]) -> Result<(), Infallible> {
        panic!("rows are taken back before they fill a frame, and here is one of {} bytes", frame.len());
    }

    fn len(&self) -> usize {
        0
    }

    fn truncate(&mut self, _len: usize) {}

    fn read(&self, _range: Range<usize>, _out: &mut Vec<u8>) {}
}

/// LZ4 with the buffers of a frame encoder, without header and hash.
pub struct Lz4 {
    out: Vec<u8>,
    encoder: Lz4Encoder,
}

impl Lz4 {
    /// For pieces of up to `raw_bytes`.
    pub fn new(raw_bytes: usize) -> Self {
        Self { out: vec![0; block_bytes_max(raw_bytes)], encoder: Lz4Encoder::new() }
    }

    /// The LZ4 block of `raw`.
    pub fn compress(&mut self, raw: &[u8]) -> &[u8] {
        let bytes = self.encoder.encode(raw, &mut self.out);
        &self.out[..bytes]
    }
}

fn lz4(load: &Load, piece_bytes: usize) -> u64 {
    let mut lz4 = Lz4::new(piece_bytes);
    load.rows.chunks(piece_bytes).map(|piece| black_box(lz4.compress(piece)).len() as u64).sum()
}

fn lz4_flex(load: &Load) -> u64 {
    let mut out = vec![0; get_maximum_output_size(FRAME_RAW_BYTES)];
    let mut table = CompressTable::large();
    let mut compress = |piece| {
        compress_into_with_table(piece, &mut out, &mut table)
            .expect("the output buffer has LZ4's maximum output size") as u64
    };
    load.rows.chunks(FRAME_RAW_BYTES).map(|piece| black_box(compress(piece))).sum()
}

fn hash(load: &Load) {
    for block in &load.blocks {
        black_box(cityhash_102_128(black_box(block)));
    }
}

/// Reads all frames back; their raw bytes.
fn unpack(load: &Load) -> u64 {
    let mut raw = Vec::with_capacity(FRAME_RAW_BYTES);
    let mut unpacked = |bytes: &Bytes| {
        raw.clear();
        read(frame::decode(bytes, &mut raw));
        black_box(&raw).len() as u64
    };
    load.framed.iter().flatten().map(&mut unpacked).sum()
}

/// Turns every block into columns; the bytes of their frames.
fn native(load: &Load) -> u64 {
    let shape = read(NativeShape::of(&TableColumns::of_layout(Layout::Json)));
    let turned = |block: &Vec<Bytes>| read(native::turned(&shape, block));
    load.framed.iter().flat_map(turned).map(|frame| black_box(frame).len() as u64).sum()
}

fn place() -> Place {
    let id = PartitionId { topic: "spans".into(), partition: 0 };
    Place { id, generation: Generation(1), cluster: "cluster".into() }
}
