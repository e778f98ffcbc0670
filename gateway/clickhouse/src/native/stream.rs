//! Bytes of a column, and the frames that they become.
//!
//! What a column holds is known whole only at the end, and comes behind the columns before it. So each collects its bytes, and makes
//! frames of them once they are [`SPILL_BYTES`]: a block takes little more memory than its compressed size.

use bytes::Bytes;

use crate::frame::FrameEncoder;
use crate::row_frames::FRAME_RAW_BYTES;

/// Raw bytes from which on a column's are compressed. Chosen: some hundred columns keep up to that each; LZ4 looks back twice as far.
pub(super) const SPILL_BYTES: usize = 32 << 10;

/// Bytes that are copied at once when no more are wanted. Chosen: a word or two; an id in hexadecimal, or a path of a URL.
const SHORT_BYTES: usize = 16;
const WIDE_BYTES: usize = 64;

/// Bytes of one kind, in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Not compressed yet.
    raw: Vec<u8>,
    /// Frames of what came before.
    frames: Vec<Bytes>,
    frames_bytes: usize,
}

impl Stream {
    /// Where the next bytes go.
    #[inline]
    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Appends the first so many of `bytes`.
    ///
    /// A few are copied with what is behind them, at a size that the compiler knows: 11 % of all time was in `memmove` without that
    /// (`rich`, perf, 24 November 2026).
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

    /// Asked before bytes are appended, so that growing is the last thing that is done: what calls nothing else saves no registers.
    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        self.raw.capacity() - self.raw.len() >= bytes
    }

    #[inline(never)]
    fn put_slowly(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.raw.capacity() + self.frames_bytes
    }

    /// Compresses what there is, when it is enough.
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

    /// Where small pieces go.
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

    /// Makes frames of what is more than one.
    pub(super) fn cut_full(&mut self) {
        self.cut(FRAME_RAW_BYTES);
    }

    /// Makes frames of what there is, unless it is at most so many bytes.
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
