//! A polled message that a worker may have to keep: librdkafka's memory is copied, a message of a log is not.

use sluice_kafka::{BorrowedMessage, Message, OwnedMessage};

/// A message that can be kept.
pub(super) trait Keep: Message {
    /// The message itself.
    fn kept(self) -> OwnedMessage;
}

impl Keep for BorrowedMessage<'_> {
    fn kept(self) -> OwnedMessage {
        self.detach()
    }
}

impl Keep for OwnedMessage {
    fn kept(self) -> OwnedMessage {
        self
    }
}
