//! Where frames and header blocks of an HTTP/2 connection begin and end (RFC 9113, 4.1 and 6.10).
//!
//! | bytes of a frame's head | are |
//! | --- | --- |
//! | 3 | length of the payload |
//! | 1 | type |
//! | 1 | flags; 4 is `END_HEADERS` |
//! | 4 | stream |
//!
//! Headers begin with a frame `HEADERS`, and continue in frames `CONTINUATION` until one has `END_HEADERS`. h2 waits for that frame without
//! a limit, and hyper has no timeout for it. So its time is measured here. Only the head of one frame is kept. Pure.
//!
//! [`crate::reading`] follows what is read, [`crate::held_updates`] what is written.

/// Bytes of a frame's head.
pub(crate) const HEAD_BYTES: usize = 9;

/// Bytes of the payload of an update: by how much it makes a window larger.
pub(crate) const INCREMENT_BYTES: usize = 4;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(crate) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What the frame is that is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// Part of a body, which has a time of its own.
    #[default]
    Data,
    /// Part of headers.
    Headers {
        is_last: bool,
    },
    /// It makes the window of the connection larger.
    Update,
    Other,
}

/// Follows the frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; HEAD_BYTES],
    /// How many bytes of a head there are.
    filled: usize,
    kind: Kind,
    /// Bytes of the payload that have not come.
    left: usize,
    /// Headers have begun, and their last frame has not ended.
    in_headers: bool,
    /// Bytes of bodies that were read, modulo 2^64.
    body_bytes: u64,
    /// What has come of the increment of an update.
    increment: u32,
    /// The increments of all updates that have ended, modulo 2^64.
    increments: u64,
}

impl Frames {
    /// Takes the next bytes. Returns whether anything ended in them that [`Frames::is_open`] waits for.
    pub fn read(&mut self, bytes: &[u8]) -> bool {
        let (mut rest, mut has_ended) = (bytes, false);
        while !rest.is_empty() {
            if self.left == 0 {
                let missing = &mut self.head[self.filled..];
                let (taken, after) = rest.split_at(missing.len().min(rest.len()));
                missing[..taken.len()].copy_from_slice(taken);
                self.filled += taken.len();
                rest = after;
                if self.filled < HEAD_BYTES {
                    return has_ended;
                }
                self.begin();
                has_ended |= self.kind == Kind::Data && !self.in_headers;
            } else {
                let (payload, after) = rest.split_at(self.left.min(rest.len()));
                rest = after;
                self.left -= payload.len();
                self.count(payload);
            }
            if self.left == 0 {
                if let Kind::Headers { is_last } = self.kind {
                    self.in_headers = !is_last;
                }
                has_ended |= !self.in_headers;
            }
        }
        has_ended
    }

    /// How many of the bytes that were read are of bodies, modulo 2^64.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The increments of all updates of the connection's window that have ended, modulo 2^64.
    pub fn increments(&self) -> u64 {
        self.increments
    }

    /// Whether another frame may begin here: no frame has begun, and no headers that other frames continue.
    pub fn is_between(&self) -> bool {
        self.filled == 0 && self.left == 0 && !self.in_headers
    }

    /// Counts bytes of a payload.
    fn count(&mut self, payload: &[u8]) {
        match self.kind {
            Kind::Data => self.body_bytes = self.body_bytes.wrapping_add(payload.len() as u64),
            Kind::Update => {
                self.increment =
                    payload.iter().fold(self.increment, |sum, byte| (sum << 8) | u32::from(*byte));
                if self.left == 0 {
                    self.increments = self.increments.wrapping_add(u64::from(self.increment));
                }
            }
            Kind::Headers { .. } | Kind::Other => {}
        }
    }

    /// The head is whole.
    fn begin(&mut self) {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        (self.filled, self.increment) = (0, 0);
        self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.kind = match kind {
            DATA => Kind::Data,
            HEADERS | CONTINUATION => Kind::Headers { is_last: flags & END_HEADERS != 0 },
            WINDOW_UPDATE if stream == [0; 4] && self.left == INCREMENT_BYTES => Kind::Update,
            _ => Kind::Other,
        };
    }

    /// Whether a frame's head, a frame other than of a body, or headers have begun and not ended.
    pub fn is_open(&self) -> bool {
        self.filled > 0 || self.in_headers || (self.left > 0 && self.kind != Kind::Data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [_, high, middle, low] = u32::try_from(payload).unwrap().to_be_bytes();
        let head = [high, middle, low, kind, flags, 0, 0, 0, 1];
        [&head[..], &vec![7; payload]].concat()
    }

    #[test]
    fn headers_are_open_until_their_last_frame_has_ended() {
        let mut frames = Frames::default();
        assert!(!frames.is_open());
        assert!(!frames.read(&frame(HEADERS, 0, 5)));
        assert!(frames.is_open());
        for _ in 0..3 {
            assert!(!frames.read(&frame(CONTINUATION, 0, 0)));
            assert!(frames.is_open());
        }
        let last = frame(CONTINUATION, END_HEADERS, 4);
        assert!(!frames.read(&last[..12]));
        assert!(frames.is_open());
        assert!(frames.read(&last[12..]));
        assert!(!frames.is_open());
    }

    #[test]
    fn bytes_of_bodies_are_counted_and_no_others() {
        let mut frames = Frames::default();
        frames.read(&[frame(HEADERS, END_HEADERS, 50), frame(DATA, 0, 100), frame(6, 0, 8)].concat());
        assert_eq!(frames.body_bytes(), 100);
        frames.read(&frame(DATA, 0, 70)[..19]);
        assert_eq!(frames.body_bytes(), 110);
    }

    #[test]
    fn increments_of_the_connection_count_once_their_frame_is_whole_and_those_of_requests_do_not() {
        let mut frames = Frames::default();
        let update = [&[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0][..], &0x0102_0304_u32.to_be_bytes()].concat();
        for (to, increments, is_between) in [(5, 0, false), (12, 0, false), (13, 0x0102_0304, true)] {
            let mut cut = Frames::default();
            cut.read(&update[..to]);
            assert_eq!((cut.increments(), cut.is_between()), (increments, is_between));
        }
        frames.read(&[&update[..], &frame(WINDOW_UPDATE, 0, 4), &frame(DATA, 0, 13), &update].concat());
        assert_eq!(frames.increments(), 2 * 0x0102_0304);
    }

    #[test]
    fn no_frame_may_begin_before_headers_have_ended() {
        let mut frames = Frames::default();
        assert!(frames.is_between());
        for (kind, flags, is_between) in
            [(HEADERS, 0, false), (CONTINUATION, END_HEADERS, true), (DATA, 0, true)]
        {
            let bytes = frame(kind, flags, 9);
            frames.read(&bytes[..15]);
            assert!(!frames.is_between());
            frames.read(&bytes[15..]);
            assert_eq!(frames.is_between(), is_between);
        }
    }

    #[test]
    fn a_body_is_not_waited_for_here_and_half_a_head_is() {
        let mut frames = Frames::default();
        let data = frame(DATA, 0, 100);
        assert!(!frames.read(&data[..8]));
        assert!(frames.is_open());
        assert!(frames.read(&data[8..20]));
        assert!(!frames.is_open());
        frames.read(&data[20..]);
        assert!(!frames.is_open());
        // A ping that stops in the middle.
        frames.read(&frame(6, 0, 8)[..12]);
        assert!(frames.is_open());
    }

    proptest! {
        #[test]
        fn the_state_is_the_same_however_the_bytes_are_cut(
            sizes in vec((0_u8..12, any::<u8>(), 0_usize..40), 0..20), noise in vec(any::<u8>(), 0..30), cut in 1_usize..50
        ) {
            let bytes: Vec<u8> = sizes.into_iter().flat_map(|(kind, flags, size)| frame(kind, flags, size)).chain(noise).collect();
            let (mut whole, mut pieces) = (Frames::default(), Frames::default());
            let ended = whole.read(&bytes);
            let ended_in_pieces = bytes.chunks(cut).fold(false, |ended, chunk| pieces.read(chunk) | ended);
            prop_assert_eq!((ended, whole.is_open()), (ended_in_pieces, pieces.is_open()));
            prop_assert_eq!((whole.body_bytes(), whole.increments()), (pieces.body_bytes(), pieces.increments()));
            prop_assert_eq!(whole.is_between(), pieces.is_between());
        }
    }
}
