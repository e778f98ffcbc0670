//! What the I/O thread sends to threads of their own: it never waits for one of them.
//!
//! One thread serves inserts, probes and `/metrics`; blocked, the kubelet takes the process for dead. So whatever runs there has this in place
//! of a [`Sender`], whose `send` the lints forbid. Owner: whoever sends. Limits: the channel's own; what it has no room for stays with the task
//! that sends it.

use crossbeam_channel::{SendError, Sender, TrySendError};
use std::time::Duration;

/// When a channel that was full is tried again. Chosen: as often as the poll thread takes its reports; a channel is full only while its thread
/// stands still, or a disk does.
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// Sends to a thread without blocking the one that it is on.
#[derive(Debug)]
pub struct AsyncSender<T>(Sender<T>);

/// Cloned whatever is sent.
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

    /// Sends once there is room. The task waits, and no other one does.
    ///
    /// # Errors
    /// When the thread has ended.
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
    /// When there is none, or the thread has ended.
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
        // Runs on the same thread, and only once the sender waits.
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
