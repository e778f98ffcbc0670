//! The rows of a sealed block, and the body of some of them.
//!
//! Job: finds every row in a block's frames, and builds the body of an INSERT of a window of rows. Place in the flow: delivery bisects a
//! block that the server refuses. Owner: the delivering thread.
//!
//! Frames that lie completely within the window are sent from the memory they are in. The first and the last are cut and compressed
//! again. So every frame of the body except the last ends inside a row, like those of the block.
//!
//! ```text
//! rows    |-- 0 --|---- 1 ----|-- 2 --|---- 3 ----|-- 4 --|---- 5 ----|
//! frames  |===== A =====|======= B =======|====== C ======|==== D ====|
//! body of rows 1 to 4:
//!                 |= A' =|======= B =======|====== C =====|              A' is compressed again; B and C are the block's own
//! ```
//!
//! Limits: one frame and the row that crosses its end are decompressed at a time: [`FRAME_RAW_BYTES`] and [`ROW_BYTES_MAX`]. A body needs
//! memory for two frames of its own: [`MEMORY_BYTES_MAX`] in total. Each call reads the block from its start to the last row of the
//! window.

use bytes::Bytes;
use std::ops::Range;

use crate::frame::{self, FRAME_HEADER_BYTES, FrameEncoder, FrameError, frame_bytes_max};
use crate::row_ends::{NoRow, NotARow, RowShape, names_and_types_bytes};
use crate::row_frames::FRAME_RAW_BYTES;

/// Maximum length of a row. Specified: the gateway's limit for a row, which the config crate defines too.
pub const ROW_BYTES_MAX: usize = 4 << 20;

/// Maximum size of a block. Specified like that of a row.
pub const BLOCK_BYTES_MAX: usize = 24 << 20;

/// Maximum length of the header before the rows. Chosen: names and types of the gateway's columns take 2 KiB, each declared path its
/// name.
const HEADER_BYTES_MAX: usize = FRAME_RAW_BYTES;

/// Maximum raw bytes of a frame; one with the header has the header before the rows.
const FRAME_RAW_BYTES_MAX: usize = FRAME_RAW_BYTES + HEADER_BYTES_MAX;

/// Raw bytes that are decompressed at a time: the beginning of a row, and the next frame.
pub(crate) const RAW_BYTES_MAX: usize = ROW_BYTES_MAX + FRAME_RAW_BYTES_MAX;

/// Maximum number of frames of a block. Specified: LZ4 compresses at most 255 bytes to one, so a full frame takes more than 1 KiB.
const FRAMES_MAX: usize = BLOCK_BYTES_MAX >> 10;

/// Memory besides the block while rows are found and a body is built, for a block without a header: raw bytes, the positions of the
/// frames, and five frames: the one being read, the sources of a part's first and last frame, the encoder's buffer, and both results.
pub const MEMORY_BYTES_MAX: usize =
    RAW_BYTES_MAX + FRAMES_MAX * size_of::<FrameAt>() + 5 * frame_bytes_max(FRAME_RAW_BYTES + 1);

/// Why a block's rows cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A frame cannot be read.
    #[error("reading frame {number} of a block: {source}")]
    Frame { number: usize, source: FrameError },
    /// A frame is larger than the gateway writes.
    #[error(
        "reading frame {number} of a block: its {bytes} bytes are more than the gateway writes into a frame"
    )]
    FrameTooLarge { number: usize, bytes: usize },
    /// Bytes are not a row of the block's columns.
    #[error("reading row {row} of a block: {source}")]
    Row { row: u64, source: NotARow },
    /// A row has no end within [`ROW_BYTES_MAX`].
    #[error("reading row {row} of a block: it has no end within {ROW_BYTES_MAX} bytes")]
    RowTooLong { row: u64 },
    /// The block ends within a row.
    #[error("reading row {row} of a block: the block ends within it")]
    CutShort { row: u64 },
    /// The block has fewer rows than requested.
    #[error("the block has {rows} rows, fewer than the {wanted} requested")]
    TooFew { rows: u64, wanted: u64 },
}

/// The header before the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Nothing: `RowBinary`.
    None,
    /// Names and types: `RowBinaryWithNamesAndTypes`.
    NamesAndTypes,
}

/// The rows of a block, found one after another.
pub struct BlockRows<'a> {
    shape: &'a RowShape,
    frames: Frames<'a>,
    /// Decompressed bytes; those before `consumed` belong to rows that were returned.
    raw: Vec<u8>,
    consumed: usize,
    /// Raw bytes of the block before those in `raw`.
    raw_before: u64,
    rows: u64,
    header_bytes: usize,
}

/// A frame of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FrameAt {
    /// Its position in the block.
    bytes: Range<usize>,
    /// The raw bytes of the block that it holds.
    raw: Range<u64>,
}

/// The frames of a block. The memory is in chunks that need not match frames.
pub(crate) struct Frames<'a> {
    chunks: &'a [Bytes],
    len: usize,
    found: Vec<FrameAt>,
    scratch: Vec<u8>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(chunks: &'a [Bytes]) -> Self {
        let len = chunks.iter().map(Bytes::len).sum();
        Self { chunks, len, found: Vec::new(), scratch: Vec::new() }
    }

    /// Appends the raw bytes of the next frame. `false` if there is none.
    pub(crate) fn next(&mut self, raw: &mut Vec<u8>) -> Result<bool, BlockError> {
        let start = self.found.last().map_or(0, |frame| frame.bytes.end);
        if start == self.len {
            return Ok(false);
        }
        let raw_start = self.found.last().map_or(0, |frame| frame.raw.end);
        let before = raw.len();
        let end = start + self.decode(self.found.len(), start, raw)?;
        let raw_end = raw_start + (raw.len() - before) as u64;
        self.found.push(FrameAt { bytes: start..end, raw: raw_start..raw_end });
        Ok(true)
    }

    /// Appends the raw bytes of the frame that begins at byte `start`; returns the frame's length.
    fn decode(&mut self, number: usize, start: usize, raw: &mut Vec<u8>) -> Result<usize, BlockError> {
        let frame = |source| BlockError::Frame { number, source };
        copy(self.chunks, start..(start + FRAME_HEADER_BYTES).min(self.len), &mut self.scratch);
        let bytes = frame::frame_bytes(&self.scratch).map_err(frame)?;
        if bytes > frame_bytes_max(FRAME_RAW_BYTES_MAX) {
            return Err(BlockError::FrameTooLarge { number, bytes });
        }
        copy(self.chunks, start..(start + bytes).min(self.len), &mut self.scratch);
        frame::decode(&self.scratch, raw).map_err(frame)
    }
}

/// Copies the bytes of `range` to `out`, replacing its content.
fn copy(chunks: &[Bytes], range: Range<usize>, out: &mut Vec<u8>) {
    out.clear();
    for part in slices(chunks, range) {
        out.extend_from_slice(&part);
    }
}

/// The bytes of `range`, without copying.
fn slices(chunks: &[Bytes], range: Range<usize>) -> impl Iterator<Item = Bytes> {
    let mut start = 0;
    chunks.iter().filter_map(move |chunk| {
        let (from, to) = (range.start.max(start), range.end.min(start + chunk.len()));
        let part = (from < to).then(|| chunk.slice(from - start..to - start));
        start += chunk.len();
        part
    })
}

impl<'a> BlockRows<'a> {
    /// The rows of a block of this shape.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub fn new(shape: &'a RowShape, chunks: &'a [Bytes], header: Header) -> Result<Self, BlockError> {
        let mut rows = Self {
            shape,
            frames: Frames::new(chunks),
            // It never grows, since growing would need twice the memory for a moment; unused pages are never touched.
            raw: Vec::with_capacity(RAW_BYTES_MAX),
            consumed: 0,
            raw_before: 0,
            rows: 0,
            header_bytes: 0,
        };
        if header == Header::NamesAndTypes {
            rows.header_bytes =
                rows.next_piece(HEADER_BYTES_MAX, names_and_types_bytes)?.map_or(0, |piece| piece.len());
        }
        Ok(rows)
    }

    /// The next row; none after the last.
    ///
    /// # Errors
    /// [`BlockError`] if the remaining bytes are not a row.
    pub fn next_row(&mut self) -> Result<Option<&[u8]>, BlockError> {
        let shape = self.shape;
        let Some(piece) = self.next_piece(ROW_BYTES_MAX, |bytes| shape.row_bytes(bytes))? else {
            return Ok(None);
        };
        self.rows += 1;
        Ok(Some(&self.raw[piece]))
    }

    /// Number of rows returned so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Memory held, in bytes: for the budget.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let Frames { found, scratch, .. } = &self.frames;
        self.raw.capacity() + found.capacity() * size_of::<FrameAt>() + scratch.capacity()
    }

    /// The end of the last row in the block's raw bytes.
    fn raw_end(&self) -> u64 {
        self.raw_before + self.consumed as u64
    }

    /// The next piece of raw bytes whose length `measure` returns; reads more frames as needed.
    fn next_piece(
        &mut self,
        bytes_max: usize,
        measure: impl Fn(&[u8]) -> Result<usize, NoRow>,
    ) -> Result<Option<Range<usize>>, BlockError> {
        let row = self.rows;
        loop {
            let rest = &self.raw[self.consumed..];
            match if rest.is_empty() { Err(NoRow::Short) } else { measure(rest) } {
                Ok(length) if length <= bytes_max => {
                    let start = self.consumed;
                    self.consumed += length;
                    return Ok(Some(start..self.consumed));
                }
                Err(NoRow::Not(source)) => return Err(BlockError::Row { row, source }),
                Err(NoRow::Short) if rest.len() <= bytes_max => {}
                Ok(_) | Err(NoRow::Short) => return Err(BlockError::RowTooLong { row }),
            }
            self.raw.drain(..self.consumed);
            self.raw_before += self.consumed as u64;
            self.consumed = 0;
            if !self.frames.next(&mut self.raw)? {
                return if self.raw.is_empty() { Ok(None) } else { Err(BlockError::CutShort { row }) };
            }
        }
    }
}

/// The number of rows in a block.
///
/// # Errors
/// [`BlockError`] if it does not consist of rows.
pub fn count(shape: &RowShape, chunks: &[Bytes], header: Header) -> Result<u64, BlockError> {
    let mut rows = BlockRows::new(shape, chunks, header)?;
    while rows.next_row()?.is_some() {}
    Ok(rows.rows())
}

/// The body of an INSERT of the rows `window` of a block, numbered from 0; chunks of frames, in order.
///
/// # Errors
/// [`BlockError`] if the block does not consist of rows up to there, or has fewer.
///
/// # Panics
/// If the window is empty.
pub fn window(
    shape: &RowShape,
    chunks: &[Bytes],
    header: Header,
    window: Range<u64>,
) -> Result<Vec<Bytes>, BlockError> {
    assert!(!window.is_empty(), "a body of no rows is asked for");
    let mut rows = BlockRows::new(shape, chunks, header)?;
    let header_bytes = rows.header_bytes;
    let mut from = rows.raw_end();
    while rows.rows() < window.end {
        if rows.next_row()?.is_none() {
            return Err(BlockError::TooFew { rows: rows.rows(), wanted: window.end });
        }
        if rows.rows() == window.start {
            from = rows.raw_end();
        }
    }
    let to = rows.raw_end();
    Cut { frames: rows.frames, header_bytes }.body(from..to)
}

/// Builds a body from some of a block's raw bytes.
struct Cut<'a> {
    frames: Frames<'a>,
    header_bytes: usize,
}

impl Cut<'_> {
    fn body(mut self, raw: Range<u64>) -> Result<Vec<Bytes>, BlockError> {
        let header = self.header()?;
        let holds = |at: u64| move |frame: &FrameAt| frame.raw.contains(&at);
        let number =
            |at| self.frames.found.iter().position(holds(at)).expect("the rows were found in these frames");
        let (first, last) = (number(raw.start), number(raw.end - 1));
        if first == last {
            return Ok(vec![self.anew(header, first, raw)?]);
        }
        let mut body = Vec::new();
        let FrameAt { bytes, raw: whole } = self.frames.found[first].clone();
        let mut kept = bytes.start;
        if !header.is_empty() || raw.start > whole.start {
            body.push(self.anew(header, first, raw.start..whole.end)?);
            kept = bytes.end;
        }
        let FrameAt { bytes, raw: whole } = self.frames.found[last].clone();
        if raw.end == whole.end {
            body.extend(slices(self.frames.chunks, kept..bytes.end));
        } else {
            body.extend(slices(self.frames.chunks, kept..bytes.start));
            body.push(self.anew(Vec::new(), last, whole.start..raw.end)?);
        }
        Ok(body)
    }

    /// The header's bytes.
    fn header(&mut self) -> Result<Vec<u8>, BlockError> {
        let mut header = Vec::new();
        let frames: Vec<FrameAt> = self.frames.found.clone();
        for (number, frame) in frames.iter().enumerate() {
            if header.len() >= self.header_bytes {
                break;
            }
            self.frames.decode(number, frame.bytes.start, &mut header)?;
        }
        header.truncate(self.header_bytes);
        Ok(header)
    }

    /// A frame of `before` and the part `raw` of a frame.
    fn anew(&mut self, before: Vec<u8>, number: usize, raw: Range<u64>) -> Result<Bytes, BlockError> {
        let FrameAt { bytes, raw: whole } = self.frames.found[number].clone();
        let mut decoded = before;
        let kept = decoded.len();
        self.frames.decode(number, bytes.start, &mut decoded)?;
        let at = |raw: u64| kept + usize::try_from(raw - whole.start).expect("a frame fits memory");
        decoded.truncate(at(raw.end));
        decoded.drain(kept..at(raw.start));
        Ok(Bytes::copy_from_slice(FrameEncoder::new(decoded.len()).encode(&decoded)))
    }
}

#[cfg(test)]
#[path = "block_rows_tests.rs"]
mod tests;
