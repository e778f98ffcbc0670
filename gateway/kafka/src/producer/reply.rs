//! The messages of a request, which are answered together.
//!
//! A worker has the [`RequestReply`] and makes a ticket for each message, which owns the message's value. librdkafka's callbacks answer
//! tickets on `io`. The answer is given when the last ticket and the reply itself are gone: so a message that was never
//! sent, or whose worker panicked, cannot be taken for stored. Limits: those of the messages.

use crate::producer::not_stored::NotStored;
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// The two ends of a request.
pub fn request() -> (RequestReply, RequestReceipt) {
    let (answer, receipt) = oneshot::channel();
    let gathered = Gathered { first: Mutex::default(), answer: Some(answer) };
    (RequestReply(Arc::new(gathered)), RequestReceipt(receipt))
}

/// Makes the tickets of a request. The request is answered after it was dropped.
#[derive(Debug)]
pub struct RequestReply(Arc<Gathered>);

/// What is known of a request's messages.
#[derive(Debug)]
struct Gathered {
    /// The first failure.
    first: Mutex<Option<NotStored>>,
    /// Taken when the last ticket is gone.
    answer: Option<oneshot::Sender<Result<(), NotStored>>>,
}

impl Gathered {
    fn note(&self, failure: NotStored) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        let first = self.first.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let answered = self.answer.take().map(|answer| answer.send(first.map_or(Ok(()), Err)));
        if answered.is_some_and(|answered| answered.is_err()) {
            // The client has gone.
        }
    }
}

impl RequestReply {
    /// Makes the request fail for another reason than a message's.
    pub fn fail(&self, failure: NotStored) {
        self.0.note(failure);
    }

    /// The ticket of a message with this value, and its room in the queue.
    pub(super) fn ticket(&self, value: Vec<u8>, is_single: bool, room: OwnedSemaphorePermit) -> Ticket {
        Ticket { value, is_single, is_answered: false, room: Some(room), gathered: self.0.clone() }
    }
}

/// A message under way.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Never changed: librdkafka refers to it.
    value: Vec<u8>,
    /// Whether it cannot be sent in smaller messages.
    pub(super) is_single: bool,
    is_answered: bool,
    room: Option<OwnedSemaphorePermit>,
    gathered: Arc<Gathered>,
}

impl Ticket {
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    pub(super) fn answer(mut self, result: Result<(), NotStored>) {
        self.is_answered = true;
        if let Err(failure) = result {
            self.gathered.note(failure);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // In this order: the memory is free before its room is, and the room before the answer, whose receiver may send the next request.
        drop(std::mem::take(&mut self.value));
        drop(self.room.take());
        if !self.is_answered {
            self.gathered.note(NotStored::Ended);
        }
    }
}

/// The pending outcome of a request's messages.
#[derive(Debug)]
#[must_use = "a request may only be answered with success once its messages are stored"]
pub struct RequestReceipt(oneshot::Receiver<Result<(), NotStored>>);

impl Future for RequestReceipt {
    type Output = Result<(), NotStored>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(NotStored::Ended)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    fn no_room() -> NotStored {
        NotStored::NoRoom { topic: "spans".into(), why: "k:9092 is slow".into() }
    }

    fn answer(receipt: &mut RequestReceipt) -> Option<Result<(), NotStored>> {
        receipt.0.try_recv().ok()
    }

    #[test]
    fn a_request_is_stored_once_all_of_its_messages_are() {
        let room = Arc::new(Semaphore::new(3));
        let permit =
            |reply: &RequestReply| reply.ticket(vec![7], false, room.clone().try_acquire_owned().unwrap());
        let (reply, mut receipt) = request();
        let (one, two) = (permit(&reply), permit(&reply));
        drop(reply);
        one.answer(Ok(()));
        assert_eq!(answer(&mut receipt), None);
        assert_eq!(room.available_permits(), 2);
        two.answer(Ok(()));
        assert_eq!(answer(&mut receipt), Some(Ok(())));
        assert_eq!(room.available_permits(), 3);
    }

    #[test]
    fn the_first_failure_is_the_answer_and_a_message_without_an_answer_is_one() {
        let room = Arc::new(Semaphore::new(3));
        let permit =
            |reply: &RequestReply| reply.ticket(vec![7], false, room.clone().try_acquire_owned().unwrap());
        let (reply, mut receipt) = request();
        let [one, two, three] = [permit(&reply), permit(&reply), permit(&reply)];
        one.answer(Ok(()));
        two.answer(Err(no_room()));
        drop(three);
        assert_eq!(answer(&mut receipt), None, "more messages may follow");
        drop(reply);
        assert_eq!(answer(&mut receipt), Some(Err(no_room())));
        let (reply, mut receipt) = request();
        drop(permit(&reply));
        drop(reply);
        assert_eq!(answer(&mut receipt), Some(Err(NotStored::Ended)));
        let (reply, mut receipt) = request();
        drop(reply);
        assert_eq!(answer(&mut receipt), Some(Ok(())), "a request without messages has nothing to store");
    }
}
