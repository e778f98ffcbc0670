//! A channel from the I/O thread to other threads that never blocks the I/O thread.
//!
//! One thread serves inserts, probes and `/metrics`. If it blocked, the kubelet would restart the process. So code on that thread uses this
//! instead of a [`Sender`], whose `send` the lints forbid. Owner: the sending task. Limits: those of the channel; an item that does not fit
//! stays with the task that sends it.

use crossbeam_channel::{SendError, Sender, TrySendError};
use std::time::Duration;

/// How long to wait before sending into a full channel again. Chosen: as often as the poll thread takes its reports; a channel is full only
/// while its thread, or a disk, stands still.
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// Sends to a thread without blocking the current one.
#[derive(Debug)]
pub struct AsyncSender<T>(Sender<T>);

/// Implemented by hand, so that items need not be `Clone`.
impl<T> Clone for AsyncSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> AsyncSender<T> {
    /// Sends into this channel.
    pub fn new(sender: Sender<T>) -> Self {
        Self(sender)
    }

    /// Sends once there is room. Only the calling task waits.
    ///
    /// # Errors
    /// If the thread has ended.
    pub async fn send(&self, mut item: T) -> Result<(), SendError<T>> {
        loop {
            match self.0.try_send(item) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(back)) => return Err(SendError(back)),
                Err(TrySendError::Full(back)) => item = back,
            }
            tokio::time::sleep(SEND_AGAIN).await;
        }
    }

    /// Sends if there is room now.
    ///
    /// # Errors
    /// If there is none, or the thread has ended.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[tokio::test]
    async fn a_channel_without_room_holds_up_its_sender_and_no_other_task() {
        let (sender, receiver) = bounded(1);
        let sender = AsyncSender::new(sender);
        sender.try_send(1).unwrap();
        // Runs on the same thread, and only while the sender waits.
        let other_task = async {
            assert!(sender.try_send(3).is_err_and(|error| error.is_full()));
            receiver.try_recv()
        };
        let (sent, taken) = tokio::join!(sender.send(2), other_task);
        assert_eq!((sent, taken, receiver.try_recv()), (Ok(()), Ok(1), Ok(2)));
        drop(receiver);
        assert!(sender.send(4).await.is_err(), "the thread has ended");
    }
}
