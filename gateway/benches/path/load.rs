//! What the stages are given: messages, the rows that they make, and LZ4 blocks of these rows. Made once, before any
//! clock starts.

use crate::spans::{Encoding, Generator, Run, Shape};
use crate::stages::{Lz4, Worker};
use bytes::Bytes;
use sluice_clickhouse::{frame::FrameEncoder, row_frames::FRAME_RAW_BYTES};

/// A run of its own number, so that every call makes the same bytes. The start is 20 November 2026.
const RUN: Run = Run { id: 0x5106_ce00_0000_0001, start_ns: 1_795_132_800_000_000_000 };

/// Row bytes of a block that is turned into columns. Chosen: about what a block of the default size has, 4 MiB of frames.
const TURNED_RAW_BYTES: usize = 32 << 20;

/// Input of every stage.
pub struct Load {
    /// In Kafka's order.
    pub messages: Vec<Vec<u8>>,
    /// The same messages as OTLP/JSON, if a stage reads them.
    pub texts: Vec<Vec<u8>>,
    /// Spans in all messages.
    pub spans: u64,
    /// The rows of all messages, one after the other.
    pub rows: Vec<u8>,
    /// The rows in LZ4 blocks of a frame's size.
    pub blocks: Vec<Vec<u8>>,
    /// The rows in the frames of whole blocks.
    pub framed: Vec<Vec<Bytes>>,
}

impl Load {
    /// At least this many spans, in whole messages; as JSON too if asked for.
    pub fn new(shape: Shape, spans: u64, with_texts: bool) -> Self {
        let message_spans = shape.message_spans();
        let spans = spans.next_multiple_of(message_spans);
        let encoded = |encoding| -> Vec<_> {
            let mut generator = Generator::new(shape, RUN).encoded_as(encoding);
            (0..spans / message_spans)
                .map(|number| {
                    generator.message(number * message_spans..(number + 1) * message_spans).to_vec()
                })
                .collect()
        };
        let messages = encoded(Encoding::OtlpProto);
        let texts = if with_texts { encoded(Encoding::OtlpJson) } else { Vec::new() };
        let mut rows = Vec::new();
        // Where a block ends, which is between two rows.
        let mut ends = Vec::new();
        let encoded = Worker::new().encode(&messages, |full| {
            if rows.len() + full.len() - ends.last().unwrap_or(&0) > TURNED_RAW_BYTES {
                ends.push(rows.len());
            }
            rows.extend_from_slice(full);
        });
        ends.push(rows.len());
        assert!(encoded == spans, "{encoded} of {spans} spans became rows");
        let mut lz4 = Lz4::new(FRAME_RAW_BYTES);
        let blocks = rows.chunks(FRAME_RAW_BYTES).map(|piece| lz4.compress(piece).to_vec()).collect();
        let mut compressor = FrameEncoder::new(FRAME_RAW_BYTES);
        let mut start = 0;
        let framed = ends.into_iter().map(|end| {
            let block = &rows[std::mem::replace(&mut start, end)..end];
            let frame = |piece| Bytes::copy_from_slice(compressor.encode(piece));
            block.chunks(FRAME_RAW_BYTES).map(frame).collect()
        });
        let framed = framed.collect();
        Self { messages, texts, spans, rows, blocks, framed }
    }

    pub fn message_bytes(&self) -> u64 {
        bytes(&self.messages)
    }

    /// Bytes of all messages as JSON.
    pub fn text_bytes(&self) -> u64 {
        bytes(&self.texts)
    }

    /// Bytes of all LZ4 blocks.
    pub fn block_bytes(&self) -> u64 {
        bytes(&self.blocks)
    }

    /// Bytes of all frames.
    pub fn framed_bytes(&self) -> u64 {
        self.framed.iter().flatten().map(|frame| frame.len() as u64).sum()
    }
}

fn bytes(pieces: &[Vec<u8>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}
