//! Bytes of a connection that were read before h2 asked for them: one system call instead of one for each half of a frame.
//!
//! A read that is as large as the buffer goes past it, so a buffer without bytes has every read go past it. The stream is read only when
//! the buffer is empty: an end or an error comes after all bytes before it. Owner: the connection's task.

use std::{
    io::Result,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// A buffer, and which of its bytes are to be taken.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

impl ReadAhead {
    pub fn new(bytes: u32) -> Self {
        Self { buffer: vec![0; bytes as usize].into_boxed_slice(), from: 0, to: 0 }
    }

    /// Takes what is there, or else reads from the stream.
    pub fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if self.from == self.to {
            if buf.remaining() >= self.buffer.len() {
                return Pin::new(stream).poll_read(cx, buf);
            }
            let mut ahead = ReadBuf::new(&mut self.buffer);
            ready!(Pin::new(stream).poll_read(cx, &mut ahead))?;
            (self.from, self.to) = (0, ahead.filled().len());
        }
        let end = self.to.min(self.from + buf.remaining());
        buf.put_slice(self.buffer.get(self.from..end).unwrap_or_default());
        self.from = end;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::{collections::VecDeque, io::ErrorKind, task::Waker};

    /// Gives so many bytes in each call at most, and 0 is a call in which there are none yet. It ends with an error.
    #[derive(Debug, Default)]
    struct Socket {
        bytes: VecDeque<u8>,
        gives: VecDeque<usize>,
        calls: usize,
    }

    impl AsyncRead for Socket {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            self.calls += 1;
            if self.bytes.is_empty() {
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            let given = self.gives.pop_front().unwrap_or(usize::MAX);
            if given == 0 {
                return Poll::Pending;
            }
            let count = given.min(self.bytes.len()).min(buf.remaining());
            buf.put_slice(&self.bytes.drain(..count).collect::<Vec<_>>());
            Poll::Ready(Ok(()))
        }
    }

    /// Reads so many bytes at most.
    fn read(ahead: &mut ReadAhead, socket: &mut Socket, bytes: usize) -> Poll<Result<Vec<u8>>> {
        let mut buffer = vec![0; bytes];
        let mut buf = ReadBuf::new(&mut buffer);
        ready!(ahead.poll_read(socket, &mut Context::from_waker(Waker::noop()), &mut buf))?;
        Poll::Ready(Ok(buf.filled().to_vec()))
    }

    fn count(ahead: &mut ReadAhead, socket: &mut Socket, bytes: usize) -> usize {
        let Poll::Ready(Ok(bytes)) = read(ahead, socket, bytes) else { return 0 };
        bytes.len()
    }

    #[test]
    fn small_reads_are_one_of_the_socket_and_large_ones_go_past_the_buffer() {
        let mut socket = Socket { bytes: vec![7; 1_000].into(), ..Socket::default() };
        let mut ahead = ReadAhead::new(100);
        assert_eq!([60, 60, 60].map(|bytes| count(&mut ahead, &mut socket, bytes)), [60, 40, 60]);
        assert_eq!(socket.calls, 2);
        // What is there is taken first.
        assert_eq!([100, 100, 500].map(|bytes| count(&mut ahead, &mut socket, bytes)), [40, 100, 500]);
        assert_eq!((socket.calls, ahead.to), (4, 100));
    }

    #[test]
    fn without_a_buffer_every_read_is_one_of_the_socket() {
        let mut socket = Socket { bytes: vec![7; 100].into(), ..Socket::default() };
        let mut ahead = ReadAhead::new(0);
        assert_eq!([1, 2, 3].map(|bytes| count(&mut ahead, &mut socket, bytes)), [1, 2, 3]);
        assert_eq!(socket.calls, 3);
    }

    proptest! {
        #[test]
        fn all_bytes_come_in_their_order_and_the_error_after_them(
            bytes in vec(any::<u8>(), 0..300), gives in vec(0_usize..40, 0..30), reads in vec(1_usize..60, 1..30), size in 0_u32..50
        ) {
            let mut socket = Socket { bytes: bytes.clone().into(), gives: gives.into(), calls: 0 };
            let (mut ahead, mut came) = (ReadAhead::new(size), Vec::<u8>::new());
            for bytes in reads.into_iter().cycle() {
                match read(&mut ahead, &mut socket, bytes) {
                    Poll::Ready(Ok(some)) => {
                        prop_assert!(!some.is_empty());
                        came.extend(some);
                    }
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => {}
                }
            }
            prop_assert_eq!(came, bytes);
        }
    }
}
