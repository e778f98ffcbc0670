//! The body of an INSERT: frames, shared and never copied.
//!
//! Job: a list of byte chunks as an HTTP body of known length. Place in the flow: a sealed block's frames become an
//! [`InsertBody`] once; every attempt streams the same chunks (`BodyStream`) behind its target's header, so that a retry
//! sends the same bytes.
//! Owner: shared by reference count. Limits: memory is the chunks'; a stream adds less than 100 bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The frames of one block. Cloning shares them.
#[derive(Debug, Clone)]
pub struct InsertBody {
    chunks: Arc<[Bytes]>,
    bytes: u64,
}

impl InsertBody {
    /// The body that is `chunks` one after another; chunks need not be frames.
    pub fn new(chunks: Vec<Bytes>) -> Self {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        Self { chunks, bytes }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no bytes. Behind a header such a body is a valid INSERT of no rows.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// A stream of it behind `header`, for one attempt, and whether that has begun.
    pub(crate) fn stream(&self, header: &Bytes) -> (BodyStream, Begun) {
        let begun = Begun::default();
        let stream = BodyStream {
            header: Some(header.clone()).filter(|header| !header.is_empty()),
            chunks: Arc::clone(&self.chunks),
            next: 0,
            bytes_left: header.len() as u64 + self.bytes,
            begun: begun.clone(),
        };
        (stream, begun)
    }
}

/// Whether the connection has taken a byte of the body. Before that the server cannot have stored anything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun(Arc<AtomicBool>);

impl Begun {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The HTTP body of one attempt.
#[derive(Debug)]
pub(crate) struct BodyStream {
    /// What goes first; taken when it is sent.
    header: Option<Bytes>,
    chunks: Arc<[Bytes]>,
    next: usize,
    bytes_left: u64,
    begun: Begun,
}

impl Body for BodyStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = if let Some(header) = self.header.take() {
            header
        } else if let Some(chunk) = self.chunks.get(self.next).cloned() {
            self.next += 1;
            chunk
        } else {
            return Poll::Ready(None);
        };
        self.begun.0.store(true, Ordering::Release);
        self.bytes_left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.header.is_none() && self.next == self.chunks.len()
    }

    /// Exact, which makes the request have a Content-Length: a body that ends early is then an error for the server.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn body(chunks: &[&'static [u8]]) -> InsertBody {
        InsertBody::new(chunks.iter().map(|chunk| Bytes::from_static(chunk)).collect())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn every_attempt_sends_the_same_bytes() {
        let body = body(&[b"abc", b"", b"de"]);
        assert_eq!(body.len(), 5);
        for _ in 0..2 {
            let (stream, begun) = body.clone().stream(&Bytes::from_static(b"types:"));
            assert!(!begun.get());
            assert_eq!(stream.collect().await.unwrap().to_bytes(), "types:abcde");
            assert!(begun.get());
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_size_is_exact_all_along() {
        let (mut stream, _) = body(&[b"abc", b"de"]).stream(&Bytes::from_static(b"t"));
        for left in [6, 5, 2] {
            assert_eq!(stream.size_hint().exact(), Some(left));
            assert!(!stream.is_end_stream());
            stream.frame().await.unwrap().unwrap();
        }
        assert_eq!(stream.size_hint().exact(), Some(0));
        assert!(stream.is_end_stream());
        assert!(stream.frame().await.is_none());
    }

    #[test]
    fn no_chunks_are_no_bytes() {
        let (stream, _) = body(&[b"", b""]).stream(&Bytes::new());
        assert!(stream.is_end_stream());
        assert!(body(&[]).is_empty());
    }
}
