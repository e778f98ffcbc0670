//! The bytes of a column, and their frames.
//!
//! A column is complete only at the end of a block, and follows the columns before it. So each column collects its bytes, and compresses
//! them into frames once they are [`SPILL_BYTES`]: a block needs little more memory than its compressed size.

use bytes::Bytes;

use crate::frame::FrameEncoder;
use crate::row_frames::FRAME_RAW_BYTES;

/// Raw bytes at which a column is compressed. Chosen: some hundred columns hold up to that each; LZ4 looks back twice as far.
pub(super) const SPILL_BYTES: usize = 32 << 10;

/// Bytes that are copied at once if not more are needed. Chosen: a word or two; an id in hexadecimal, or the path of a URL.
const SHORT_BYTES: usize = 16;
const WIDE_BYTES: usize = 64;

/// Bytes of one kind, in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Not compressed yet.
    raw: Vec<u8>,
    /// Frames of the earlier bytes.
    frames: Vec<Bytes>,
    frames_bytes: usize,
}

impl Stream {
    /// The position of the next bytes.
    #[inline]
    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Appends the first `len` of `bytes`.
    ///
    /// A short piece is copied together with the bytes behind it, at a size that the compiler knows: otherwise 11 % of all time was in
    /// `memmove` (`rich`, perf, 24 November 2026).
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8], count: usize) {
        let end = self.raw.len() + count;
        let Some(wide) = self.has_room(WIDE_BYTES).then(|| bytes.first_chunk::<WIDE_BYTES>()).flatten()
        else {
            return self.put_slowly(&bytes[..count]);
        };
        if count <= SHORT_BYTES {
            self.raw.extend_from_slice(&wide[..SHORT_BYTES]);
        } else if count <= WIDE_BYTES {
            self.raw.extend_from_slice(wide);
        } else {
            return self.put_slowly(&bytes[..count]);
        }
        self.raw.truncate(end);
    }

    /// Appends these bytes.
    #[inline]
    pub(super) fn put_array<const COUNT: usize>(&mut self, bytes: &[u8; COUNT]) {
        if self.has_room(COUNT) {
            self.raw.extend_from_slice(bytes);
        } else {
            self.put_slowly(bytes);
        }
    }

    /// Called before bytes are appended, so that growing is the last call: a function without further calls saves no registers.
    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        self.raw.capacity() - self.raw.len() >= bytes
    }

    #[inline(never)]
    fn put_slowly(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.raw.capacity() + self.frames_bytes
    }

    /// Compresses the bytes if there are enough.
    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) {
        if self.raw.len() < SPILL_BYTES {
            return;
        }
        for piece in self.raw.chunks(FRAME_RAW_BYTES) {
            let frame = Bytes::copy_from_slice(encoder.encode(piece));
            self.frames_bytes += frame.len();
            self.frames.push(frame);
        }
        self.raw.clear();
        self.raw.shrink_to(2 * SPILL_BYTES);
    }
}

/// The frames of a block.
pub(super) struct Output {
    raw: Vec<u8>,
    frames: Vec<Bytes>,
    encoder: FrameEncoder,
}

impl Output {
    pub(super) fn new(encoder: FrameEncoder) -> Self {
        Self { raw: Vec::new(), frames: Vec::new(), encoder }
    }

    /// The buffer for small pieces.
    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Appends a column's bytes.
    pub(super) fn stream(&mut self, stream: Stream) {
        if !stream.frames.is_empty() {
            self.cut(0);
            self.frames.extend(stream.frames);
        }
        self.bytes(&stream.raw);
    }

    /// Appends bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(FRAME_RAW_BYTES) {
            self.raw.extend_from_slice(piece);
            self.cut_full();
        }
    }

    /// Makes frames of all bytes beyond one frame.
    pub(super) fn cut_full(&mut self) {
        self.cut(FRAME_RAW_BYTES);
    }

    /// Makes frames of all bytes, unless they are at most this many.
    fn cut(&mut self, kept_max: usize) {
        let mut rest = &self.raw[..];
        while rest.len() > kept_max {
            let (piece, later) = rest.split_at(rest.len().min(FRAME_RAW_BYTES));
            self.frames.push(Bytes::copy_from_slice(self.encoder.encode(piece)));
            rest = later;
        }
        let kept = rest.len();
        self.raw.drain(..self.raw.len() - kept);
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.cut(0);
        self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_and_nothing_behind_it() {
        let bytes: Vec<u8> = (0..200).collect();
        let (mut stream, mut expected) = (Stream::default(), Vec::new());
        for end in 0..bytes.len() {
            for count in 0..=end {
                stream.put(&bytes[..end], count);
                expected.extend_from_slice(&bytes[..count]);
            }
            stream.put_array(&[7; 3]);
            expected.extend([7; 3]);
        }
        assert!(stream.raw == expected);
    }
}
