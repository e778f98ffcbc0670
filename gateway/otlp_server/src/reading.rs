//! The stream of a connection: read in turns, with an eye on where headers begin; written with a body in every answer.
//!
//! - **Turns.** After [`TURN_BYTES`], or [`BODY_BYTES_AS_ONE`] times as many of bodies over HTTP/2, other tasks have their turn, those of the
//!   connection's requests among them: they free their headers, and take what came of their bodies. Otherwise a burst would have the headers
//!   of all of its requests in memory at once.
//! - **Headers.** An HTTP/1.1 connection that waits for its next request is idle; one that has begun to send it is not, and has
//!   [`crate::Limits::header_read_timeout`]. hyper's own time runs in both. Frames and headers of HTTP/2 have the same time
//!   ([`crate::http2_frames`]).
//! - **Calls.** A connection with a wide window is read ahead of what h2 asks for ([`crate::read_ahead`]).
//! - **Window.** Updates of an HTTP/2 connection's window go with the next answer ([`crate::held_updates`]).
//! - **Answers.** hyper answers headers that it cannot read without a body; this gives them one ([`crate::early_answer`]).

use crate::{
    activity::Activity, early_answer::with_body, held_updates::HeldUpdates, http2_frames::Frames,
    read_ahead::ReadAhead,
};
use std::{
    io::{ErrorKind, IoSlice, Result},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read before other tasks have their turn. Chosen: one frame of the usual size.
const TURN_BYTES: u64 = 16 << 10;

/// As many bytes of bodies over HTTP/2 count as one. The window bounds their memory, and the end of a turn may wake another thread. Chosen: a
/// turn of 256 KiB, the wide window. Others wait some 0.1 ms for it.
const BODY_BYTES_AS_ONE: u64 = 16;

/// How an HTTP/2 connection begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// This many bytes came, which are those of the preface.
    Unknown(usize),
    Http1,
    Http2,
}

impl Version {
    /// How many of these bytes belong to the preface, if it is one.
    fn preface_bytes(self, read: &[u8]) -> usize {
        let Self::Unknown(seen) = self else { return 0 };
        PREFACE.len().saturating_sub(seen).min(read.len())
    }

    fn after(self, read: &[u8]) -> Self {
        let Self::Unknown(seen) = self else { return self };
        let awaited = PREFACE.get(seen..).unwrap_or_default();
        let seen = seen + self.preface_bytes(read);
        match () {
            () if awaited.iter().zip(read).any(|(awaited, byte)| awaited != byte) => Self::Http1,
            () if seen == PREFACE.len() => Self::Http2,
            () => Self::Unknown(seen),
        }
    }
}

/// A stream that is read so.
#[derive(Debug)]
pub(crate) struct Reading<S> {
    stream: S,
    /// What was read from the stream and not taken. It counts once it is taken, as if it had waited in the socket.
    ahead: ReadAhead,
    activity: Arc<Activity>,
    version: Version,
    /// Frames of HTTP/2 that were read.
    frames: Frames,
    updates: HeldUpdates,
    /// Bytes that were read in this turn.
    turn_bytes: u64,
    /// What is written in place of an answer of hyper's own, and how much of it was.
    early: Option<(Vec<u8>, usize)>,
    header_bytes_max: u32,
}

impl<S> Reading<S> {
    /// A connection of HTTP/2 has this window.
    pub fn new(
        (stream, ahead): (S, ReadAhead),
        activity: Arc<Activity>,
        header_bytes_max: u32,
        window: u32,
    ) -> Self {
        let (version, frames, updates) = (Version::Unknown(0), Frames::default(), HeldUpdates::new(window));
        Self {
            stream,
            ahead,
            activity,
            version,
            frames,
            updates,
            turn_bytes: 0,
            early: None,
            header_bytes_max,
        }
    }

    fn note(&mut self, read: &[u8]) {
        let bodies_before = self.frames.body_bytes();
        self.note_read(read);
        let of_bodies = self.frames.body_bytes().wrapping_sub(bodies_before);
        let others = (read.len() as u64).saturating_sub(of_bodies);
        self.turn_bytes = self.turn_bytes.saturating_add(others + of_bodies / BODY_BYTES_AS_ONE);
    }

    fn note_read(&mut self, read: &[u8]) {
        if read.is_empty() {
            return;
        }
        let preface = self.version.preface_bytes(read);
        if self.version != Version::Http2 {
            self.version = self.version.after(read);
            if self.version == Version::Http2 {
                self.activity.begin_http2();
            } else {
                self.activity.begin_head();
            }
        }
        if self.version == Version::Http2 {
            self.note_frames(read.get(preface..).unwrap_or_default());
        }
    }

    fn note_frames(&mut self, read: &[u8]) {
        let has_ended = self.frames.read(read);
        let is_open = self.frames.is_open();
        if has_ended || !is_open {
            self.activity.end_frame();
        }
        if is_open {
            self.activity.begin_frame();
        }
    }
}

impl<S: AsyncWrite + Unpin> Reading<S> {
    /// Writes an answer with its body, and then says that the one without was written.
    fn poll_early(&mut self, cx: &mut Context<'_>, replaced: usize) -> Poll<Result<usize>> {
        while let Some((answer, written)) = &mut self.early {
            let rest = answer.get(*written..).unwrap_or_default();
            if rest.is_empty() {
                self.early = None;
                break;
            }
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            *written += count;
        }
        Poll::Ready(Ok(replaced))
    }

    fn poll_write_frames(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        self.updates.poll_write(&mut self.stream, cx, slices, self.frames.body_bytes())
    }

    /// Whether these bytes are an answer of hyper's own, which is written with a body.
    fn is_early(&mut self, bytes: &[u8]) -> bool {
        if self.early.is_none() && self.version == Version::Http1 {
            self.early = with_body(bytes, self.header_bytes_max).map(|answer| (answer, 0));
        }
        self.early.is_some()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reading<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.turn_bytes >= TURN_BYTES {
            this.turn_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = this.ahead.poll_read(&mut this.stream, cx, buf);
        if polled.is_pending() {
            this.turn_bytes = 0;
        }
        ready!(polled)?;
        this.note(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reading<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        if self.is_early(bytes) {
            return self.poll_early(cx, bytes.len());
        }
        if self.version == Version::Http2 {
            return self.poll_write_frames(cx, &[IoSlice::new(bytes)]);
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.updates.poll_flush(&mut this.stream, cx, this.frames.body_bytes())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.updates.poll_shutdown(&mut this.stream, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        // An answer without a body is one slice.
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(bytes), None) = (filled.next(), filled.next())
            && self.is_early(bytes)
        {
            return self.poll_early(cx, bytes.len());
        }
        if self.version == Version::Http2 {
            return self.poll_write_frames(cx, slices);
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    proptest! {
        #[test]
        fn the_version_is_the_same_however_the_bytes_are_cut(
            kept in 0..=PREFACE.len(), rest in proptest::collection::vec(any::<u8>(), 0..30), cuts in proptest::collection::vec(1_usize..9, 0..9)
        ) {
            let bytes = [&PREFACE[..kept], &rest].concat();
            let (mut version, mut left) = (Version::Unknown(0), bytes.as_slice());
            for cut in cuts {
                let (chunk, later) = left.split_at(cut.min(left.len()));
                (version, left) = (version.after(chunk), later);
            }
            prop_assert_eq!(version.after(left), Version::Unknown(0).after(&bytes));
            if bytes.starts_with(PREFACE) {
                prop_assert_eq!(version.after(left), Version::Http2);
            }
        }
    }

    #[tokio::test]
    async fn other_tasks_have_their_turn_while_a_client_sends_without_a_pause() {
        // All of it is there at once, so reading it never waits.
        let turn_bytes = usize::try_from(TURN_BYTES).unwrap();
        let bytes = vec![0; turn_bytes * 8];
        let mut reading = Reading::new(
            (tokio::io::join(&bytes[..], tokio::io::sink()), ReadAhead::new(0)),
            Arc::new(Activity::new(1)),
            8_192,
            65_535,
        );
        let turns = tokio::spawn(async {
            let mut turns = 0_u32;
            for _ in 0..4 {
                tokio::task::yield_now().await;
                turns += 1;
            }
            turns
        });
        let mut buffer = vec![0; 4_096];
        let mut read = 0;
        while !turns.is_finished() {
            let count = reading.read(&mut buffer).await.unwrap();
            assert!(count > 0, "all was read before another task had four turns");
            read += count;
        }
        assert!(read <= turn_bytes * 6, "{read}");
    }

    #[tokio::test]
    async fn bytes_that_were_read_ahead_begin_no_frame_before_they_are_taken() {
        // Half of a frame's head follows.
        let bytes = [PREFACE, &[0, 0, 8, 6]].concat();
        let activity = Arc::new(Activity::new(1));
        let stream = tokio::io::join(&bytes[..], tokio::io::sink());
        let mut reading = Reading::new((stream, ReadAhead::new(100)), activity.clone(), 8_192, 65_535);
        let mut buffer = [0; 24];
        reading.read_exact(&mut buffer).await.unwrap();
        assert!(activity.is_http2() && !activity.has_head());
        assert_eq!(reading.read(&mut buffer).await.unwrap(), 4);
        assert!(activity.has_head());
    }

    #[test]
    fn a_turn_has_more_of_bodies_over_http_2_than_of_other_frames() {
        // Nine bytes of a frame's head: of a body, and of another kind.
        let frame = |kind: u8| [&[0, 0x40, 0, kind, 0, 0, 0, 0, 1][..], &vec![7; 0x4000]].concat();
        let turn_bytes = |version: Version, kind: u8| {
            let stream = tokio::io::join(tokio::io::empty(), tokio::io::sink());
            let mut reading =
                Reading::new((stream, ReadAhead::new(0)), Arc::new(Activity::new(1)), 8_192, 65_535);
            reading.version = version;
            reading.note(&frame(kind));
            reading.turn_bytes
        };
        assert_eq!(turn_bytes(Version::Http2, 0), 9 + 0x4000 / BODY_BYTES_AS_ONE);
        assert_eq!(turn_bytes(Version::Http2, 6), 9 + 0x4000);
        assert_eq!(turn_bytes(Version::Http1, 0), 9 + 0x4000);
    }
}
