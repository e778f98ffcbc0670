//! Reads the body of a request, chunk by chunk, up to a deadline.
//!
//! Bodies are not collected by a library: the permit depends on the length, which the first bytes of gRPC or the headers of HTTP have, and
//! is taken before any more is read.

use crate::{
    body::message_head::{HeadReader, MessageHead},
    counters::{Counters, Protocol},
    failure::Failure,
    limits::Limits,
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use std::{error::Error, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// An error of a body, in hyper's form.
pub(crate) type BoxedError = Box<dyn Error + Send + Sync>;

/// The body of one request.
pub(crate) struct Intake<B> {
    body: B,
    /// What was read and not taken yet.
    rest: Bytes,
    deadline: Instant,
    /// The longest time between two chunks.
    pause_max: Duration,
    /// When a client that was too slow should come again.
    retry_after: Duration,
    counters: Arc<Counters>,
    protocol: Protocol,
    /// Whether anything was asked of the body: a client that waits for `100 Continue` sends nothing before.
    is_begun: bool,
    is_ended: bool,
}

impl<B> Intake<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxedError>,
{
    pub fn new(body: B, limits: &Limits, counters: Arc<Counters>, protocol: Protocol) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            deadline: Instant::now() + limits.body_read_timeout.saturating_add(limits.permit_wait),
            pause_max: limits.body_pause_max,
            retry_after: limits.retry_after,
            counters,
            protocol,
            is_begun: false,
            is_ended: false,
        }
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        self.is_begun = true;
        let deadline = self.deadline.min(Instant::now() + self.pause_max);
        while !self.is_ended {
            match timeout_at(deadline, self.body.frame()).await {
                Err(_) => return Err(Failure::slow(self.retry_after)),
                Ok(None) => self.is_ended = true,
                Ok(Some(Err(error))) => {
                    self.is_ended = true;
                    let error: BoxedError = error.into();
                    return Err(Failure::broken(&*error));
                }
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) if chunk.is_empty() => {}
                    Ok(chunk) => {
                        self.counters.receive(self.protocol, chunk.len());
                        return Ok(Some(chunk));
                    }
                    // Trailers, which end the body and mean nothing here.
                    Err(_) => self.is_ended = true,
                },
            }
        }
        Ok(None)
    }

    /// Puts back what was read and is of no use yet.
    pub fn put_back(&mut self, rest: Bytes) {
        self.rest = rest;
    }

    /// The first five bytes of a message of gRPC; `None` if the body is empty.
    pub async fn message_head(&mut self) -> Result<Option<MessageHead>, Failure> {
        let mut reader = HeadReader::default();
        while let Some(mut chunk) = self.next().await? {
            let head = reader.read(&mut chunk).map_err(|wrong| Failure::malformed(wrong.to_string()))?;
            if head.is_some() {
                self.put_back(chunk);
                return Ok(head);
            }
        }
        match reader.filled() {
            0 => Ok(None),
            filled => Err(Failure::malformed(format!(
                "the request ended after {filled} of the 5 bytes that begin a message of gRPC"
            ))),
        }
    }

    /// Whether the client sends on, so that reading it is better than a closed connection.
    pub fn is_unread(&self) -> bool {
        self.is_begun && !self.is_ended && !self.body.is_end_stream()
    }

    /// The same of a body that nothing was asked of.
    pub fn is_untouched(&self) -> bool {
        !self.is_begun && !self.body.is_end_stream()
    }

    /// Reads on and keeps nothing, up to the deadline and this many bytes.
    ///
    /// For HTTP/1.1 and a request that was answered before it was read: if the socket were closed with bytes in it, the kernel would reset
    /// the connection, and the client would see that instead of the answer.
    pub async fn discard(mut self, bytes_max: u32) {
        let mut left = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        while let Ok(Some(chunk)) = self.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    }
}
