//! What a connection reads from: its stream, in turns, with an eye on where headers begin.
//!
//! - **Turns.** After [`TURN_BYTES`] other tasks have their turn, those of the connection's requests among them: they free their headers,
//!   and take what came of their bodies. Otherwise a burst would have the headers of all of its requests in memory at once.
//! - **Headers.** An HTTP/1.1 connection that waits for its next request is idle; one that has begun to send it is not, and has
//!   [`crate::Limits::header_read_timeout`]. hyper's own time runs in both.

use crate::activity::Activity;
use std::{
    io::{IoSlice, Result},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read before other tasks have their turn. Chosen: one frame of the usual size.
const TURN_BYTES: usize = 16 << 10;

/// How an HTTP/2 connection begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// So many bytes came, which are those of the preface.
    Unknown(usize),
    Http1,
    Http2,
}

impl Version {
    fn after(self, read: &[u8]) -> Self {
        let Self::Unknown(seen) = self else { return self };
        let awaited = PREFACE.get(seen..).unwrap_or_default();
        let seen = seen + read.len().min(awaited.len());
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
    activity: Arc<Activity>,
    version: Version,
    /// Bytes that were read in this turn.
    turn_bytes: usize,
}

impl<S> Reading<S> {
    pub fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity, version: Version::Unknown(0), turn_bytes: 0 }
    }

    fn note(&mut self, read: &[u8]) {
        self.turn_bytes = self.turn_bytes.saturating_add(read.len());
        if self.version == Version::Http2 || read.is_empty() {
            return;
        }
        self.version = self.version.after(read);
        if self.version == Version::Http2 {
            self.activity.end_head();
        } else {
            self.activity.begin_head();
        }
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
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
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
        let bytes = vec![0; TURN_BYTES * 8];
        let mut reading =
            Reading::new(tokio::io::join(&bytes[..], tokio::io::sink()), Arc::new(Activity::new(1)));
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
        assert!(read <= TURN_BYTES * 6, "{read}");
    }
}
