//! A body on its way to the server, which a scenario can stop in the middle.
//!
//! Owner: the request of the body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::watch;

use super::{Gate, Passage, Verdict};

/// A body that stops between its halves until the gate lets it pass.
pub struct Halves {
    left: usize,
    next: Option<Bytes>,
    second: Option<Bytes>,
    waiting: Option<BoxFuture<'static, Verdict>>,
    broken: Option<watch::Sender<Option<Verdict>>>,
}

impl Halves {
    /// A body that nothing stops.
    pub fn whole(body: Bytes) -> Halves {
        Halves { left: body.len(), next: Some(body), second: None, waiting: None, broken: None }
    }

    /// A body that can be stopped; `broken` is notified if the second half never comes.
    pub fn with_gate(
        mut body: Bytes,
        gate: Arc<Gate<Passage, Verdict>>,
        passage: Passage,
        broken: watch::Sender<Option<Verdict>>,
    ) -> Halves {
        let left = body.len();
        let first = body.split_to(left / 2);
        let waiting = Some(async move { gate.pass(passage).await }.boxed());
        Halves { left, next: Some(first), second: Some(body), waiting, broken: Some(broken) }
    }
}

impl Body for Halves {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        polling: &mut Polling<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let ready = |this: &mut Self, bytes: Bytes| {
            this.left -= bytes.len();
            Poll::Ready(Some(Ok(Frame::data(bytes))))
        };
        if let Some(next) = self.next.take().filter(|next| !next.is_empty()) {
            return ready(&mut self, next);
        }
        if let Some(waiting) = &mut self.waiting {
            let Poll::Ready(verdict) = waiting.poll_unpin(polling) else { return Poll::Pending };
            self.waiting = None;
            if !matches!(verdict, Verdict::Pass | Verdict::Late(_)) {
                if let Some(broken) = &self.broken {
                    broken.send_replace(Some(verdict));
                }
                let cut = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "cut by a scenario");
                return Poll::Ready(Some(Err(cut)));
            }
        }
        match self.second.take().filter(|second| !second.is_empty()) {
            Some(second) => ready(&mut self, second),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
