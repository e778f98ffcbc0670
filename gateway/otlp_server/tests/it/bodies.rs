//! Bodies that a client sends in its own time.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// A body whose chunks come from a channel; it ends with it.
pub struct Open(mpsc::Receiver<Bytes>);

impl Open {
    /// A body with its first chunk, and what sends the others.
    pub fn new(first: impl Into<Bytes>) -> (Self, mpsc::Sender<Bytes>) {
        let (sender, receiver) = mpsc::channel(16);
        sender.try_send(first.into()).unwrap();
        (Self(receiver), sender)
    }
}

impl Body for Open {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
