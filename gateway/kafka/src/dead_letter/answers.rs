//! What a worker hears of a letter: looked at between messages, since a worker waits for no letter.
//!
//! Place in the flow: [`super::DeadLetters::send_watched`] gives the worker's end; the thread of letters has the other one. Where a
//! topic that takes no letter stops the partition ([`OnMissing::Stop`]), its refusal is told once, and the letter is kept and sent
//! again until it is taken. Otherwise the refusal is the last word.
//!
//! Limits: [`ANSWERS_MAX`] a letter.

use crate::dead_letter::outcome::{Delivered, Refused};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use sluice_gateway_config::OnMissing;
use std::sync::{Arc, Weak};

/// Answers that wait to be heard: a refusal, and that the letter was taken after all.
const ANSWERS_MAX: usize = 2;

/// The answers to a letter. Dropped, the letter is given up where it is not on its way already.
#[derive(Debug)]
pub struct Answers {
    answers: Receiver<Result<Delivered, Refused>>,
    /// Tells the other end that somebody listens.
    _listens: Arc<()>,
}

impl Answers {
    /// The latest answer, where some have come that nobody has looked at; none while there is no other one. As with [`Answers::next`].
    pub fn latest(&self) -> Option<Result<Delivered, Refused>> {
        let mut latest = self.next()?;
        while latest.is_err() {
            match self.next() {
                // Nobody answers behind the last word.
                None | Some(Err(Refused::Ended)) => break,
                Some(answer) => latest = answer,
            }
        }
        Some(latest)
    }

    /// The next answer; none while there is no other one. After the last word it must not be asked again. With
    /// [`OnMissing::Stop`] a refusal is not the last word, unless it is [`Refused::Ended`].
    pub fn next(&self) -> Option<Result<Delivered, Refused>> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Refused::Ended)),
        }
    }
}

/// The other end.
#[derive(Debug)]
pub(super) struct Watched {
    answers: Sender<Result<Delivered, Refused>>,
    listener: Weak<()>,
    wake: Sender<()>,
    on_missing: OnMissing,
    /// Whether a refusal was told.
    told: bool,
}

/// Both ends. A token on `wake` follows every answer.
pub(super) fn watched(on_missing: OnMissing, wake: &Sender<()>) -> (Watched, Answers) {
    let (answers, answers_in) = bounded(ANSWERS_MAX);
    let listens = Arc::new(());
    let listener = Arc::downgrade(&listens);
    let watched = Watched { answers, listener, wake: wake.clone(), on_missing, told: false };
    (watched, Answers { answers: answers_in, _listens: listens })
}

impl Watched {
    /// Whether somebody waits for the letter still.
    pub fn is_listened_to(&self) -> bool {
        self.listener.strong_count() > 0
    }

    /// Whether the letter is to be sent again after a refusal, which is told if it is the first.
    pub fn keeps(&mut self, refused: &Refused) -> bool {
        if self.on_missing != OnMissing::Stop || !self.is_listened_to() {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            self.tell(Err(refused.clone()));
        }
        true
    }

    /// Tells an answer.
    pub fn tell(&self, answer: Result<Delivered, Refused>) {
        if self.answers.try_send(answer).is_err() {
            // Whoever sent it has given up its partition; the next owner sends it again.
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
