//! Rows in, compressed frames out.
//!
//! Job: collect encoded rows in one buffer and cut it into frames. Place in the flow: between the row encoder and the
//! block; the frames go to a [`FrameStore`] that the block owns. Owner: one worker thread.
//!
//! Where a frame is cut matters. `RowBinary` has no end mark: a body that ends early, but at the end of a row, is a
//! valid shorter body. The server would store fewer rows and, with a deduplication token, drop the repair as a
//! duplicate. So **every frame but the last ends inside a row**: a body cut at any frame boundary then fails with
//! code 33, and one cut inside a frame fails on the frame.
//!
//! ```text
//! rows    |--- row 1 ---|-- row 2 --|----- row 3 -----|-- row 4 --|
//! frames  |========= frame 1 =========|======== frame 2 (last) ===|
//!                                     ^ inside row 3              ^ end of a row
//! ```
//!
//! Limits: frames of at most [`FRAME_RAW_BYTES`] + 1 raw bytes; a row of at least [`ROW_BYTES_MIN`]; a row may be as
//! long as memory allows, the buffer growing for it and shrinking afterwards. Memory: [`RowFrames::memory_bytes`].

use std::ops::Range;

use crate::frame::{self, FRAME_HEADER_BYTES, FrameEncoder, FrameError};

/// Raw bytes at which a frame is cut. Chosen: rows are compressed while they are still in a core's L2
/// cache (512 KiB to 2 MiB on current servers), with room for the frame beside them; larger frames compress no better,
/// since LZ4 looks back 64 KiB at most.
pub const FRAME_RAW_BYTES: usize = 256 * 1024;

/// Size of the row buffer before it grows: a full frame and the row that crosses its end. Chosen: spans above 64 KiB are rare enough to
/// pay for growing.
pub const ROW_BUFFER_BYTES: usize = FRAME_RAW_BYTES + 64 * 1024;

/// The shortest row. A cut inside a row needs two bytes; a row of `otel_traces` has more than 40.
pub const ROW_BYTES_MIN: usize = 2;

/// The memory of frames: the block's. The end of the store is where the next frame goes.
pub trait FrameStore {
    /// Why a frame could not be stored.
    type Error;

    /// Stores a whole frame, or nothing of it.
    fn append(&mut self, frame: &[u8]) -> Result<(), Self::Error>;

    /// Bytes stored.
    fn len(&self) -> usize;

    /// Whether nothing is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes everything from byte `len` on, which must be the start of a frame.
    fn truncate(&mut self, len: usize);

    /// Appends the stored bytes of `range` to `out`. The range lies within the stored bytes.
    fn read(&self, range: Range<usize>, out: &mut Vec<u8>);
}

impl FrameStore for Vec<u8> {
    type Error = std::convert::Infallible;

    fn append(&mut self, frame: &[u8]) -> Result<(), Self::Error> {
        self.extend_from_slice(frame);
        Ok(())
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[range]);
    }
}

/// The end of a row to which [`RowFrames::rewind`] can return, until [`RowFrames::finish`] or a rewind to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowMark {
    /// Bytes in the store.
    stored: usize,
    /// Raw bytes in the buffer.
    buffered: usize,
    rows: u64,
    raw_bytes_framed: u64,
}

/// What one insert holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTotals {
    pub rows: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
}

/// Rows on their way into frames.
#[derive(Debug)]
pub struct RowFrames {
    raw: Vec<u8>,
    /// Where the row being written begins in `raw`; the end of `raw` if there is none.
    row_start: usize,
    /// Rows ended.
    rows: u64,
    /// Raw bytes that are in frames and no longer in `raw`.
    raw_bytes_framed: u64,
    encoder: FrameEncoder,
}

impl Default for RowFrames {
    fn default() -> Self {
        Self::new()
    }
}

impl RowFrames {
    /// Buffers for one worker: [`ROW_BUFFER_BYTES`] and one frame.
    pub fn new() -> Self {
        Self {
            raw: Vec::with_capacity(ROW_BUFFER_BYTES),
            row_start: 0,
            rows: 0,
            raw_bytes_framed: 0,
            encoder: FrameEncoder::new(FRAME_RAW_BYTES + 1),
        }
    }

    /// Memory held, in bytes: for the budget. Constant, except while a row longer than the buffer is written.
    pub fn memory_bytes(&self) -> usize {
        self.raw.capacity() + self.encoder.memory_bytes()
    }

    /// The size of the insert so far. Depends on the rows alone, not on how well they compress.
    pub fn totals(&self) -> RowTotals {
        RowTotals { rows: self.rows, raw_bytes: self.raw_bytes_framed + self.row_start as u64 }
    }

    /// The buffer to append one row to, ended by [`RowFrames::end_row`]. Its content must not be changed.
    #[inline]
    pub fn row(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Ends the row and cuts as many frames as are full.
    ///
    /// # Errors
    /// The store's. The row is then not ended: make room and call this again, or rewind.
    ///
    /// # Panics
    /// If the row has fewer than [`ROW_BYTES_MIN`] bytes.
    #[inline]
    pub fn end_row<S: FrameStore>(&mut self, store: &mut S) -> Result<(), S::Error> {
        let row_bytes = self.raw.len() - self.row_start;
        assert!(row_bytes >= ROW_BYTES_MIN, "a row of {row_bytes} bytes cannot be cut inside");
        if self.raw.len() > FRAME_RAW_BYTES {
            self.cut_full_frames(store)?;
        }
        self.rows += 1;
        self.row_start = self.raw.len();
        Ok(())
    }

    /// A mark for [`RowFrames::rewind`]: the end of the last row, with the frames that `store` holds now.
    #[inline]
    pub fn mark<S: FrameStore>(&self, store: &S) -> RowMark {
        RowMark {
            stored: store.len(),
            buffered: self.row_start,
            rows: self.rows,
            raw_bytes_framed: self.raw_bytes_framed,
        }
    }

    /// Removes every row, complete or not, after `mark` from the buffer and from `store`. An object that was open in such a row stays in
    /// the caller's [`crate::json_paths::JsonPaths`] until that is cleared.
    ///
    /// # Errors
    /// [`FrameError`] if the store does not return the frame that it was given.
    #[cold]
    pub fn rewind<S: FrameStore>(&mut self, store: &mut S, mark: RowMark) -> Result<(), FrameError> {
        if store.len() > mark.stored {
            // The first frame cut since the mark begins with what the buffer held at the mark, and all of it: a cut
            // lies inside the row it is made for, and that row began at the mark or later.
            self.raw.clear();
            let mut frame = Vec::new();
            store.read(mark.stored..mark.stored + FRAME_HEADER_BYTES, &mut frame);
            let frame_bytes = frame::frame_bytes(&frame)?;
            frame.clear();
            store.read(mark.stored..mark.stored + frame_bytes, &mut frame);
            frame::decode(&frame, &mut self.raw)?;
            store.truncate(mark.stored);
        }
        self.raw.truncate(mark.buffered);
        self.raw.shrink_to(ROW_BUFFER_BYTES);
        self.row_start = mark.buffered;
        self.rows = mark.rows;
        self.raw_bytes_framed = mark.raw_bytes_framed;
        Ok(())
    }

    /// Makes the last frame, which ends with the last row, and starts a new insert. Without rows there is no frame.
    ///
    /// # Errors
    /// The store's. Nothing has changed then: make room and call this again.
    ///
    /// # Panics
    /// If a row was started and not ended.
    pub fn finish<S: FrameStore>(&mut self, store: &mut S) -> Result<RowTotals, S::Error> {
        assert!(self.raw.len() == self.row_start, "a row was begun and neither ended nor taken back");
        if self.rows > 0 {
            store.append(self.encoder.encode(&self.raw))?;
        }
        let totals = self.totals();
        self.raw.clear();
        self.row_start = 0;
        self.rows = 0;
        self.raw_bytes_framed = 0;
        Ok(totals)
    }

    /// Cuts frames until the rest of the row fits one. The buffer held at most [`FRAME_RAW_BYTES`] before this row,
    /// so that every cut lies inside it.
    #[cold]
    fn cut_full_frames<S: FrameStore>(&mut self, store: &mut S) -> Result<(), S::Error> {
        let mut framed = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && self.raw.len() - framed > FRAME_RAW_BYTES {
            let cut = (framed + FRAME_RAW_BYTES).clamp(self.row_start + 1, self.raw.len() - 1);
            outcome = store.append(self.encoder.encode(&self.raw[framed..cut]));
            if outcome.is_ok() {
                framed = cut;
            }
        }
        // Also after an error: stored frames must not be sent a second time.
        self.raw.drain(..framed);
        self.raw.shrink_to(ROW_BUFFER_BYTES);
        self.row_start = self.row_start.saturating_sub(framed);
        self.raw_bytes_framed += framed as u64;
        outcome
    }
}

#[cfg(test)]
#[path = "row_frames_tests.rs"]
mod tests;
