//! The body of an INSERT: frames that are shared and never copied, or that are read from elsewhere while they are sent.
//!
//! Job: bytes as an HTTP body of known length. Place in the flow: the frames of a sealed block become an [`InsertBody`] once; for a block
//! elsewhere, a [`BodySource`] supplies them. Every attempt streams the same bytes (`BodyStream`) after its target's header, so a retry
//! sends the same. Columns ([`crate::native`]) are a body of their own. Owner: shared by reference count. Limits: the memory is that of
//! the chunks or the source; a stream adds less than 100 bytes.
//!
//! If a source cannot supply the announced bytes, the attempt is aborted: the server receives less than the Content-Length, and stores
//! nothing.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The source of a body that is not in memory. It supplies the same bytes each time it is read.
pub trait BodySource: Send + Sync {
    /// Starts to read the bytes for one attempt.
    fn open(&self) -> Box<dyn BodyPieces>;
}

/// A body that is being read.
pub trait BodyPieces: Send {
    /// The next piece, which is never empty; `None` at the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>>;
}

/// A body ended early: the attempt is aborted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body of an INSERT cannot be read completely: {0}")]
pub struct Broken(pub String);

/// The frames of one block. Cloning shares them.
#[derive(Clone)]
pub struct InsertBody {
    format: WireFormat,
    content: Content,
    bytes: u64,
}

/// The format of a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WireFormat {
    /// Rows, after the target's header ([`crate::header`]).
    #[default]
    RowBinary,
    /// Columns, with their own names and types ([`crate::native`]).
    Native,
}

#[derive(Clone)]
enum Content {
    Chunks(Arc<[Bytes]>),
    Source(Arc<dyn BodySource>),
}

impl fmt::Debug for InsertBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl InsertBody {
    /// The body of these chunks, one after another; chunks need not be frames.
    pub fn new(chunks: Vec<Bytes>) -> Self {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        Self { format: WireFormat::RowBinary, content: Content::Chunks(chunks), bytes }
    }

    /// The body of the frames of a [`crate::native`] block.
    pub fn native(frames: Vec<Bytes>) -> Self {
        Self { format: WireFormat::Native, ..Self::new(frames) }
    }

    pub fn format(&self) -> WireFormat {
        self.format
    }

    /// The body of this many bytes from this source.
    pub fn read_from(source: Arc<dyn BodySource>, bytes: u64) -> Self {
        Self { format: WireFormat::RowBinary, content: Content::Source(source), bytes }
    }

    /// Its chunks, if they are in memory.
    pub fn chunks(&self) -> Option<&[Bytes]> {
        match &self.content {
            Content::Chunks(chunks) => Some(chunks),
            Content::Source(_) => None,
        }
    }

    /// Reads the whole body into memory.
    ///
    /// # Errors
    /// If it cannot be read completely.
    pub async fn read(&self) -> Result<Vec<Bytes>, Broken> {
        if let Some(chunks) = self.chunks() {
            return Ok(chunks.to_vec());
        }
        let (mut stream, _) = self.stream(&Bytes::new());
        let mut pieces = Vec::new();
        while let Some(piece) = poll_fn(|context| Pin::new(&mut stream).poll_frame(context)).await {
            pieces.extend(piece?.into_data());
        }
        Ok(pieces)
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no bytes. With a header, such a body is a valid INSERT of no rows.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// A stream of the body after `header`, for one attempt, and whether sending has started.
    pub(crate) fn stream(&self, header: &Bytes) -> (BodyStream, Begun) {
        let begun = Begun::default();
        let stream = BodyStream {
            header: Some(header.clone()).filter(|header| !header.is_empty()),
            rest: match &self.content {
                Content::Chunks(chunks) => Rest::Chunks { chunks: Arc::clone(chunks), next: 0 },
                Content::Source(source) => Rest::Pieces(source.open()),
            },
            bytes_left: header.len() as u64 + self.bytes,
            begun: begun.clone(),
        };
        (stream, begun)
    }
}

/// Whether the connection has taken a byte of the body. Before that the server cannot have stored any row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun(Arc<AtomicBool>);

impl Begun {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The HTTP body of one attempt.
pub(crate) struct BodyStream {
    /// Sent first, and then taken.
    header: Option<Bytes>,
    rest: Rest,
    bytes_left: u64,
    begun: Begun,
}

/// What follows the header.
enum Rest {
    Chunks { chunks: Arc<[Bytes]>, next: usize },
    Pieces(Box<dyn BodyPieces>),
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").field("bytes_left", &self.bytes_left).finish_non_exhaustive()
    }
}

impl BodyStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(header) = self.header.take() {
            return Poll::Ready(Some(Ok(header)));
        }
        match &mut self.rest {
            Rest::Chunks { chunks, next } => {
                let chunk = chunks.get(*next).cloned();
                *next += 1;
                Poll::Ready(chunk.map(Ok))
            }
            Rest::Pieces(pieces) => pieces.poll_piece(context),
        }
    }

    /// Counts a piece, unless more bytes were sent than announced.
    fn sent(&mut self, piece: Bytes) -> Result<Frame<Bytes>, Broken> {
        self.begun.0.store(true, Ordering::Release);
        let left = self.bytes_left.checked_sub(piece.len() as u64);
        self.bytes_left = left.ok_or_else(|| Broken("it is longer than its Content-Length".to_owned()))?;
        Ok(Frame::data(piece))
    }
}

impl Body for BodyStream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let Poll::Ready(next) = self.poll_next(context) else { return Poll::Pending };
        let piece = next.unwrap_or_else(|| Err(Broken("it ended early".to_owned())));
        Poll::Ready(Some(piece.and_then(|piece| self.sent(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    /// Exact, so that the request has a Content-Length: the server then treats a body that ends early as an error.
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

    /// Pieces that are there every other time.
    struct Slow {
        pieces: Vec<Result<Bytes, Broken>>,
        is_ready: bool,
    }

    impl BodyPieces for Slow {
        fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready((!self.pieces.is_empty()).then(|| self.pieces.remove(0)))
        }
    }

    struct Pieces(Vec<Result<Bytes, Broken>>);

    impl BodySource for Pieces {
        fn open(&self) -> Box<dyn BodyPieces> {
            Box::new(Slow { pieces: self.0.clone(), is_ready: false })
        }
    }

    fn read(pieces: &[Result<&'static [u8], &str>], bytes: u64) -> InsertBody {
        let piece = |piece: &Result<&'static [u8], &str>| {
            piece.map(Bytes::from_static).map_err(|why| Broken(why.to_owned()))
        };
        InsertBody::read_from(Arc::new(Pieces(pieces.iter().map(piece).collect())), bytes)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_that_is_read_while_it_is_sent_is_the_same_every_time() {
        let body = read(&[Ok(b"abc"), Ok(b"de")], 5);
        for _ in 0..2 {
            let (stream, _) = body.stream(&Bytes::from_static(b"t:"));
            assert_eq!(stream.size_hint().exact(), Some(7));
            assert_eq!(stream.collect().await.unwrap().to_bytes(), "t:abcde");
        }
        assert_eq!(body.read().await.unwrap().concat(), b"abcde");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_that_is_not_what_was_promised_is_broken_off() {
        for (pieces, bytes) in
            [(&[Ok(&b"abc"[..])][..], 5), (&[Ok(b"abc"), Err("damage")], 5), (&[Ok(b"abc"), Ok(b"def")], 5)]
        {
            let (stream, begun) = read(pieces, bytes).stream(&Bytes::new());
            assert!(stream.collect().await.is_err(), "{pieces:?}");
            assert!(begun.get());
            assert!(read(pieces, bytes).read().await.is_err());
        }
    }

    #[test]
    fn no_chunks_are_no_bytes() {
        let (stream, _) = body(&[b"", b""]).stream(&Bytes::new());
        assert!(stream.is_end_stream());
        assert!(body(&[]).is_empty());
    }
}
