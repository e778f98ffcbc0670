//! A polled message that a worker may have to keep: librdkafka's memory is copied, a message of a log is not.

use sluice_kafka::{BorrowedMessage, Message, OwnedMessage};

/// A message that can be kept.
pub(super) trait Keep: Message {
    /// A copy of it.
    fn copied(&self) -> OwnedMessage;

    /// The message itself.
    fn kept(self) -> OwnedMessage;
}

impl Keep for BorrowedMessage<'_> {
    fn copied(&self) -> OwnedMessage {
        self.detach()
    }

    fn kept(self) -> OwnedMessage {
        self.detach()
    }
}

impl Keep for OwnedMessage {
    fn copied(&self) -> OwnedMessage {
        self.clone()
    }

    fn kept(self) -> OwnedMessage {
        self
    }
}
