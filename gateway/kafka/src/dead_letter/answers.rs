//! The answers to a letter, for a worker, which checks for them between messages and never blocks.
//!
//! Place in the flow: [`super::DeadLetters::send_watched`] returns the worker's end; the thread of letters has the other one. If a topic
//! that rejects letters stops the partition ([`OnMissing::Stop`]), its refusal is reported once, and the letter is kept and sent again
//! until the topic accepts it. Otherwise the refusal is the final answer.
//!
//! Limits: [`ANSWERS_MAX`] a letter.

use crate::dead_letter::outcome::{Delivered, Refused};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use sluice_gateway_config::OnMissing;
use std::sync::{Arc, Weak};

/// Answers that wait to be read: a refusal, and the delivery after it.
const ANSWERS_MAX: usize = 2;

/// The answers to a letter. If this is dropped, the letter is given up unless it was already sent.
#[derive(Debug)]
pub struct Answers {
    answers: Receiver<Result<Delivered, Refused>>,
    /// Keeps the other end informed that a worker still waits.
    _listens: Arc<()>,
}

impl Answers {
    /// The latest unread answer; none if there is no new one. The rules of [`Answers::next`] hold.
    pub fn latest(&self) -> Option<Result<Delivered, Refused>> {
        let mut latest = self.next()?;
        while latest.is_err() {
            match self.next() {
                // No answer follows the final one.
                None | Some(Err(Refused::Ended)) => break,
                Some(answer) => latest = answer,
            }
        }
        Some(latest)
    }

    /// The next answer; none if there is no new one. Must not be called after the final answer. With [`OnMissing::Stop`] a refusal is not
    /// final, unless it is [`Refused::Ended`].
    pub fn next(&self) -> Option<Result<Delivered, Refused>> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Refused::Ended)),
        }
    }
}

/// The end of the letter thread.
#[derive(Debug)]
pub(super) struct Watched {
    answers: Sender<Result<Delivered, Refused>>,
    listener: Weak<()>,
    wake: Sender<()>,
    on_missing: OnMissing,
    /// Whether a refusal was reported.
    told: bool,
}

/// Creates both ends. A token on `wake` follows every answer.
pub(super) fn watched(on_missing: OnMissing, wake: &Sender<()>) -> (Watched, Answers) {
    let (answers, answers_in) = bounded(ANSWERS_MAX);
    let listens = Arc::new(());
    let listener = Arc::downgrade(&listens);
    let watched = Watched { answers, listener, wake: wake.clone(), on_missing, told: false };
    (watched, Answers { answers: answers_in, _listens: listens })
}

impl Watched {
    /// Whether a worker still waits for the letter.
    pub fn is_listened_to(&self) -> bool {
        self.listener.strong_count() > 0
    }

    /// Whether the letter is sent again after a refusal. Reports the refusal if it is the first.
    pub fn keeps(&mut self, refused: &Refused) -> bool {
        if self.on_missing != OnMissing::Stop || !self.is_listened_to() {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            self.tell(Err(refused.clone()));
        }
        true
    }

    /// Sends an answer.
    pub fn tell(&self, answer: Result<Delivered, Refused>) {
        if self.answers.try_send(answer).is_err() {
            // The worker has given up its partition; the next owner sends the letter again.
        }
        crate::ground::wake::wake(&self.wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Refused {
        Refused::TooLarge { topic: "letters".into() }
    }

    fn delivered() -> Delivered {
        Delivered { topic: "letters".into(), partition: 0, offset: 1, left_out: false }
    }

    #[test]
    fn a_refusal_is_told_once_and_what_follows_is_heard_though_nobody_has_listened() {
        let (wake, woken) = bounded(1);
        let (mut watched, answers) = watched(OnMissing::Stop, &wake);
        for _ in 0..3 {
            assert!(watched.keeps(&refused()));
        }
        watched.tell(Ok(delivered()));
        assert_eq!(woken.try_iter().count(), 1);
        assert_eq!(answers.next(), Some(Err(refused())));
        assert_eq!(answers.next(), Some(Ok(delivered())));
        assert_eq!(answers.next(), None);
        drop(watched);
        assert_eq!(answers.next(), Some(Err(Refused::Ended)));
    }

    #[test]
    fn who_looks_late_hears_the_last_word() {
        let (wake, _woken) = bounded(1);
        let (mut late, answers) = watched(OnMissing::Stop, &wake);
        assert_eq!(answers.latest(), None);
        assert!(late.keeps(&refused()));
        late.tell(Ok(delivered()));
        drop(late);
        assert_eq!(answers.latest(), Some(Ok(delivered())));
        let (skips, answers) = watched(OnMissing::Skip, &wake);
        skips.tell(Err(refused()));
        drop(skips);
        assert_eq!(answers.latest(), Some(Err(refused())), "nobody says more");
    }

    #[test]
    fn a_letter_is_kept_for_those_who_stop_and_listen() {
        let (wake, _woken) = bounded(1);
        let (mut skips, _answers) = watched(OnMissing::Skip, &wake);
        assert!(!skips.keeps(&refused()));
        let (mut gone, answers) = watched(OnMissing::Stop, &wake);
        drop(answers);
        assert!(!gone.keeps(&refused()));
    }
}
