//! Updates of an HTTP/2 connection's window that go with what is written next (RFC 9113, 6.9).
//!
//! h2 writes one each time that a third of the window was read: a system call of 13 bytes for each large request. While the client has half of
//! its window, they are held, and added up to one. Updates of a request's window are never held.
//!
//! A held update never blocks a client:
//!
//! 1. A client that waits for the connection's window, for one request or for several, has sent all that it had; once h2 has read that, less
//!    than half is left, and h2 flushes at the end of each poll of the connection, which writes what is held.
//! 2. Nothing is held before the whole window was granted, so the update with which a connection begins goes at once; all else, GOAWAY too,
//!    goes at once and takes with it what is held.
//! 3. Bytes of bodies count as sent from the first one of a frame that is read, and an update as granted with the last of its bytes that is
//!    written: a count that is wrong by a part of a frame says that less is left, and what is held goes too early.
//!
//! Half of a window is at least twice the largest frame, so a client that sends only whole frames does not wait either. Owner: the
//! connection's task.

use crate::{
    http2_frames::{Frames, HEAD_BYTES, INCREMENT_BYTES, WINDOW_UPDATE},
    limits::WINDOW_BYTES_MIN,
};
use std::{
    io::{ErrorKind, IoSlice, Result},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// Bytes of an update.
const UPDATE_BYTES: usize = HEAD_BYTES + INCREMENT_BYTES;

/// The head of an update of the connection's window: the length of its payload, its type, no flags, and no stream.
const UPDATE_HEAD: [u8; HEAD_BYTES] = [0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0];

/// The largest increment of an update (RFC 9113, 6.9). An update with which those that are held would be more is written.
const INCREMENT_MAX: u32 = 0x7fff_ffff;

/// How many slices are written together with an update. Chosen: h2 has two at most, a frame's head and its payload. Others follow in the next
/// call.
const SLICES_MAX: usize = 4;

type Update = [u8; UPDATE_BYTES];

fn update(increment: u32) -> Update {
    let mut update = [0; UPDATE_BYTES];
    let (head, payload) = update.split_at_mut(HEAD_BYTES);
    head.copy_from_slice(&UPDATE_HEAD);
    payload.copy_from_slice(&increment.to_be_bytes());
    update
}

/// The sum of the increments, if these bytes are whole updates of the connection's window and nothing else.
fn sum_of_updates(bytes: &[u8]) -> Option<u32> {
    bytes.chunks(UPDATE_BYTES).try_fold(0_u32, |sum, frame| {
        let increment = frame.strip_prefix(&UPDATE_HEAD)?;
        sum.checked_add(u32::from_be_bytes(increment.try_into().ok()?))
    })
}

/// What is held of a connection.
#[derive(Debug)]
pub(crate) struct HeldUpdates {
    /// The window of the connection.
    window: u64,
    /// All frames that were written.
    written: Frames,
    /// The sum of the increments that are held.
    increment: u32,
    /// An update that was written in part, and how many of its bytes were.
    begun: Option<(Update, usize)>,
}

impl HeldUpdates {
    pub fn new(window: u32) -> Self {
        Self { window: u64::from(window), written: Frames::default(), increment: 0, begun: None }
    }

    /// Writes these bytes, behind what is held, or holds them. The client has sent so many bytes of bodies. Returns how many of these bytes
    /// were written or are held.
    pub fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        sent: u64,
    ) -> Poll<Result<usize>> {
        if let Some(count) = self.hold(slices, sent) {
            return Poll::Ready(Ok(count));
        }
        while let Some((update, from)) = self.first() {
            let rest = update.get(from..).unwrap_or_default();
            let mut all = [IoSlice::new(&[]); SLICES_MAX];
            for (place, slice) in all.iter_mut().zip([IoSlice::new(rest)].iter().chain(slices)) {
                *place = *slice;
            }
            let count = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &all))?;
            let of_update = count.min(rest.len());
            self.note_update((update, from), of_update);
            if count == 0 || count > of_update {
                self.note(slices, count - of_update);
                return Poll::Ready(Ok(count - of_update));
            }
        }
        let count = ready!(Pin::new(stream).poll_write_vectored(cx, slices))?;
        self.note(slices, count);
        Poll::Ready(Ok(count))
    }

    /// Writes what may not be held any longer, and flushes.
    pub fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        sent: u64,
    ) -> Poll<Result<()>> {
        while let Some((update, from)) = self.first()
            && (self.begun.is_some() || !self.may_hold(sent))
        {
            let rest = update.get(from..).unwrap_or_default();
            let count = ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.note_update((update, from), count);
        }
        Pin::new(stream).poll_flush(cx)
    }

    /// Shuts down. What is held is tried once: no answer follows, so the client needs it for nothing, and it must not delay the end.
    pub fn poll_shutdown<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        if let Some((update, from)) = self.first() {
            let rest = update.get(from..).unwrap_or_default();
            if let Poll::Ready(Ok(count)) = Pin::new(&mut *stream).poll_write(cx, rest) {
                self.note_update((update, from), count);
            }
        }
        Pin::new(stream).poll_shutdown(cx)
    }

    /// Holds these bytes, if they are updates of the connection and its window is large enough. Returns how many there are.
    fn hold(&mut self, slices: &[IoSlice<'_>], sent: u64) -> Option<usize> {
        // h2 has updates in one slice.
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        let (Some(bytes), None) = (filled.next(), filled.next()) else { return None };
        if !self.written.is_between() || !self.may_hold(sent) {
            return None;
        }
        let increment = self.increment.checked_add(sum_of_updates(bytes)?)?;
        if increment > INCREMENT_MAX {
            return None;
        }
        self.increment = increment;
        Some(bytes.len())
    }

    /// Whether the whole window was granted once, and the client has at least half of it.
    fn may_hold(&self, sent: u64) -> bool {
        let granted = u64::from(WINDOW_BYTES_MIN).saturating_add(self.written.increments());
        granted >= self.window && granted.saturating_sub(sent) >= self.window.div_ceil(2)
    }

    /// The update that is written first, and how much of it was; `None` if nothing is held, or in the middle of another frame.
    fn first(&self) -> Option<(Update, usize)> {
        let has_next = self.increment > 0 && self.written.is_between();
        self.begun.or_else(|| has_next.then(|| (update(self.increment), 0)))
    }

    /// Records that so many more bytes of the first update were written.
    fn note_update(&mut self, (update, from): (Update, usize), count: usize) {
        if count == 0 {
            return;
        }
        if self.begun.is_none() {
            self.increment = 0;
        }
        let to = from + count;
        self.written.read(update.get(from..to).unwrap_or_default());
        self.begun = (to < UPDATE_BYTES).then_some((update, to));
    }

    /// Records that so many bytes of these were written.
    fn note(&mut self, slices: &[IoSlice<'_>], count: usize) {
        let mut left = count;
        for slice in slices {
            let written = left.min(slice.len());
            self.written.read(slice.get(..written).unwrap_or_default());
            left -= written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::{collections::VecDeque, task::Waker};

    const WINDOW: u32 = 262_144;
    const HALF: u64 = 131_072;

    /// Takes as many bytes in each call as it says; 0 is a call in which it is full. Afterwards it takes all.
    #[derive(Debug, Default)]
    struct Socket {
        takes: VecDeque<usize>,
        bytes: Vec<u8>,
        calls: usize,
        is_shut: bool,
    }

    impl AsyncWrite for Socket {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<Result<usize>> {
            self.calls += 1;
            let all = slices.iter().map(|slice| &**slice).collect::<Vec<_>>().concat();
            let count = self.takes.pop_front().unwrap_or(usize::MAX).min(all.len());
            if count == 0 && !all.is_empty() {
                return Poll::Pending;
            }
            self.bytes.extend_from_slice(&all[..count]);
            Poll::Ready(Ok(count))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            self.is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    /// A connection that writes as h2 does.
    struct World {
        held: HeldUpdates,
        socket: Socket,
        sent: u64,
    }

    impl World {
        fn new() -> Self {
            Self { held: HeldUpdates::new(WINDOW), socket: Socket::default(), sent: 0 }
        }

        /// One whose window was granted, without what was written for it.
        fn begun() -> Self {
            let mut world = Self::new();
            world.write(&update(WINDOW - WINDOW_BYTES_MIN));
            world.socket = Socket::default();
            world
        }

        fn poll_write(&mut self, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
            let cx = &mut Context::from_waker(Waker::noop());
            self.held.poll_write(&mut self.socket, cx, slices, self.sent)
        }

        fn poll_flush(&mut self) -> Poll<Result<()>> {
            let cx = &mut Context::from_waker(Waker::noop());
            self.held.poll_flush(&mut self.socket, cx, self.sent)
        }

        /// Writes all of it, and flushes, however often the socket is full.
        fn write(&mut self, bytes: &[u8]) {
            let mut rest = bytes;
            while !rest.is_empty() {
                let at = if sum_of_updates(rest).is_some() { rest.len() } else { rest.len() / 2 };
                let (first, second) = rest.split_at(at);
                let slices = [first, second];
                if let Poll::Ready(count) = self.poll_write(&slices.map(IoSlice::new)) {
                    rest = &rest[count.unwrap()..];
                }
            }
            while self.poll_flush().is_pending() {}
        }

        /// What the client has left.
        fn left(&self) -> u64 {
            u64::from(WINDOW_BYTES_MIN) + self.held.written.increments() - self.sent
        }
    }

    fn answer(stream: u8, payload: usize) -> Vec<u8> {
        [&[0, 0, u8::try_from(payload).unwrap(), 0, 0, 0, 0, 0, stream][..], &vec![7; payload]].concat()
    }

    fn update_of(stream: u8, increment: u32) -> Vec<u8> {
        let mut frame = update(increment);
        frame[HEAD_BYTES - 1] = stream;
        frame.to_vec()
    }

    #[test]
    fn the_update_that_grants_the_window_is_not_held_and_later_ones_are() {
        let mut world = World::new();
        let first = update(WINDOW - WINDOW_BYTES_MIN);
        world.write(&first);
        assert_eq!(world.socket.bytes, first);
        world.sent = 90_000;
        world.write(&update(90_000));
        assert_eq!((world.socket.calls, world.held.increment), (1, 90_000));
    }

    #[test]
    fn what_is_held_goes_as_one_update_in_front_of_an_answer_and_in_one_call() {
        let mut world = World::begun();
        world.write(&update(5));
        world.write(&[update(6), update(7)].concat());
        assert!(world.socket.bytes.is_empty());
        let answer = answer(1, 30);
        let count = world.poll_write(&[IoSlice::new(&answer[..9]), IoSlice::new(&answer[9..])]);
        assert!(matches!(count, Poll::Ready(Ok(39))), "{count:?}");
        assert_eq!(world.socket.bytes, [&update(18)[..], &answer].concat());
        assert_eq!((world.socket.calls, world.held.increment), (1, 0));
    }

    #[test]
    fn only_bytes_of_the_caller_count_when_a_part_is_written() {
        let mut world = World::begun();
        world.write(&update(5));
        world.socket.takes = [0, 4, 0, 9 + 3].into();
        let answer = answer(1, 30);
        assert!(world.poll_write(&[IoSlice::new(&answer)]).is_pending());
        // Nothing of it was written, so another is added to it.
        world.write(&update(3));
        assert!(world.poll_write(&[IoSlice::new(&answer)]).is_pending());
        assert_eq!(world.socket.bytes, update(8)[..4]);
        let count = world.poll_write(&[IoSlice::new(&answer)]);
        assert!(matches!(count, Poll::Ready(Ok(3))), "{count:?}");
        world.write(&answer[3..]);
        assert_eq!(world.socket.bytes, [&update(8)[..], &answer].concat());
    }

    #[test]
    fn below_half_of_the_window_nothing_is_held() {
        let mut world = World::begun();
        world.sent = HALF;
        world.write(&update(100));
        assert!(world.socket.bytes.is_empty());
        world.sent = HALF + 1;
        assert!(world.poll_flush().is_ready());
        assert_eq!(world.socket.bytes, update(100));
        world.sent = HALF + 101;
        world.write(&update(100));
        assert_eq!(world.socket.bytes, [update(100), update(100)].concat());
        // The client sent more than it may.
        world.sent = u64::MAX;
        world.write(&update(100));
        assert_eq!(world.socket.calls, 3);
    }

    #[test]
    fn updates_of_requests_and_other_frames_are_not_held() {
        for other in [
            update_of(1, 5),
            [update_of(0, 5), update_of(1, 5)].concat(),
            answer(0, 4),
            update_of(0, 5)[..12].to_vec(),
            update_of(0, 0x8000_0000),
        ] {
            let mut world = World::begun();
            assert!(
                matches!(world.poll_write(&[IoSlice::new(&other)]), Poll::Ready(Ok(count)) if count == other.len())
            );
            assert_eq!(world.socket.bytes, other);
        }
    }

    #[test]
    fn bytes_in_the_middle_of_a_frame_that_look_like_an_update_are_written() {
        let mut world = World::begun();
        world.write(&update(5));
        let body = [&[0_u8, 0, 26, 0, 0, 0, 0, 0, 1][..], &update(1), &update(2)].concat();
        for part in [&body[..9], &body[9..22], &body[22..]] {
            world.sent += 100_000;
            world.write(part);
        }
        assert_eq!(world.socket.bytes, [&update(5)[..], &body].concat());
    }

    #[test]
    fn increments_that_one_update_cannot_have_are_not_added_up() {
        let mut world = World::begun();
        world.write(&update(INCREMENT_MAX));
        assert!(world.socket.bytes.is_empty());
        world.write(&update(1));
        assert_eq!(world.socket.bytes, [update(INCREMENT_MAX), update(1)].concat());
    }

    #[test]
    fn the_end_writes_what_is_held_and_does_not_wait_for_it() {
        for (takes, bytes) in [(13, &update(5)[..]), (0, &[][..])] {
            let mut world = World::begun();
            world.write(&update(5));
            world.socket.takes = [takes].into();
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(world.held.poll_shutdown(&mut world.socket, cx).is_ready());
            assert_eq!((world.socket.bytes.as_slice(), world.socket.is_shut), (bytes, true));
        }
    }

    /// The frames without updates of the connection, and the sum of those.
    fn parted(mut bytes: &[u8]) -> (Vec<u8>, u64) {
        let (mut others, mut increments) = (Vec::new(), 0);
        while !bytes.is_empty() {
            let (frame, rest) = bytes.split_at(HEAD_BYTES + usize::from(bytes[2]));
            match sum_of_updates(frame) {
                Some(increment) => increments += u64::from(increment),
                None => others.extend_from_slice(frame),
            }
            bytes = rest;
        }
        (others, increments)
    }

    #[derive(Debug, Clone)]
    enum Event {
        /// The client sends so many parts in a hundred of what it has left.
        Sent(u64),
        /// h2 returns so many parts in a hundred of what it has read.
        Updates(u64),
        Others(Vec<u8>),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let other = prop_oneof![
            (1_u8..9, 0_usize..60).prop_map(|(stream, payload)| answer(stream, payload)),
            (1_u8..9, 1_u32..90).prop_map(|(stream, increment)| update_of(stream, increment)),
        ];
        let event = prop_oneof![
            (0..=100_u64).prop_map(Event::Sent),
            (0..=100_u64).prop_map(Event::Updates),
            vec(other, 1..4).prop_map(|frames| Event::Others(frames.concat())),
        ];
        vec(event, 0..40)
    }

    proptest! {
        #[test]
        fn the_client_gets_every_frame_and_every_increment_and_below_half_nothing_is_held(
            events in events(), takes in vec(0_usize..50, 0..80)
        ) {
            let mut world = World::begun();
            world.socket.takes = takes.into();
            let (mut written, mut returned) = (Vec::new(), 0);
            for event in events {
                match event {
                    Event::Sent(parts) => {
                        world.sent += world.left() * parts / 100;
                        while world.poll_flush().is_pending() {}
                    }
                    Event::Updates(parts) => {
                        let increment = (world.sent - returned) * parts / 100;
                        if increment > 0 {
                            returned += increment;
                            let frame = update(u32::try_from(increment).unwrap());
                            written.extend_from_slice(&frame);
                            world.write(&frame);
                        }
                    }
                    Event::Others(frames) => {
                        written.extend_from_slice(&frames);
                        world.write(&frames);
                    }
                }
                let held = u64::from(world.held.increment);
                prop_assert!(world.held.begun.is_none());
                prop_assert!(held == 0 || world.left() >= HALF, "{held} held, {} left", world.left());
                prop_assert_eq!(world.left() + held, u64::from(WINDOW) + returned - world.sent);
            }
            let ((others, increments), (of_h2, of_h2_increments)) = (parted(&world.socket.bytes), parted(&written));
            prop_assert_eq!(others, of_h2);
            prop_assert_eq!(increments + u64::from(world.held.increment), of_h2_increments);
        }
    }
}
