//! Bad messages in a row: their letters are sent at the same time.
//!
//! ```text
//!  polled:    bad   bad   bad   good
//!  letters:   ^     ^     ^     |
//!             |     under way   `--> kept until the letters in front of it are acknowledged: the run ends here
//!             first: only its answer is checked; when it arrives, the message joins the range, and the next letter is first
//! ```
//!
//! With one letter at a time, a topic of only bad messages would be as slow as the brokers' acknowledgements. The order stays the same:
//! messages join their range one by one, each after its letter's acknowledgement, in the order of the log. Letters are sent in that order
//! too. If the brokers refuse one and accept it later, it stands behind the letters that they accepted meanwhile.
//!
//! The worker knows only after polling whether the next message is bad, and a good message cannot be returned without a seek. So the number
//! of letters ahead is the number of bad messages in a row so far: a single bad message among good ones costs nothing more.
//!
//! A message that ends a run is kept, one a worker. While there is one, and for [`CALM`] after the worker had no room for rows, no partition is
//! polled ahead: a message that could not be kept would be read again from the last commit. A partition that has to repeat ranges ends none
//! earlier, so it would lose what it has read, and in a topic with many bad messages among good ones it would never get to its end.
//!
//! Owner: the worker thread. Limits: [`LETTERS_AHEAD_MAX`] letters a partition, which leave [`ROOM_LEFT_BYTES`] of the room for all
//! letters; one kept message a worker.

use super::{PendingLetter, Reading, Stage, State, Taken, Worker};
use crate::reading::{
    reject::{Reason, Rejected},
    worker::keep::Keep,
};
use sluice_kafka::{
    KafkaError, Message, OwnedMessage, Renew,
    dead_letter::{LETTER_QUEUE_BYTES, LETTERS_MAX},
};
use std::{collections::VecDeque, time::Duration};

/// Letters under way for a partition, besides the first. Chosen: with acknowledgements that take 5 ms, 6,000 messages pass per second;
/// eight partitions use half of the letters that there may be.
pub(in super::super) const LETTERS_AHEAD_MAX: usize = 31;

/// Room that is left for partitions without a letter under way.
const ROOM_LEFT_BYTES: u64 = LETTER_QUEUE_BYTES / 2;

/// How long a worker without room for rows has none again before it polls ahead. Without room it drops the message that it keeps. Chosen: longer than
/// an INSERT takes under load, so that it happens at most once while ClickHouse is slow.
pub(super) const CALM: Duration = Duration::from_secs(10);

const _: () =
    assert!(8 * (LETTERS_AHEAD_MAX + 1) * 2 <= LETTERS_MAX, "eight partitions leave half of the letters");

/// What was polled behind a message whose letter is under way.
#[derive(Default)]
pub(super) struct LetterRun {
    /// Messages that cannot be read either, with their letters.
    letters: VecDeque<PendingLetter>,
    /// What came behind them and is handled once they are skipped.
    next: Option<Next>,
}

/// What ends a run.
enum Next {
    /// A message that can be read, or for whose letter there is no room.
    Message(OwnedMessage),
    /// The same, but the message was dropped.
    ReadAgain,
    /// The broker had no more messages up to this offset.
    End(Option<i64>),
    /// An error of the queue.
    Problem(KafkaError),
}

impl LetterRun {
    /// Drops the kept message; it is read again. `false` when there is none.
    pub fn let_go(&mut self) -> bool {
        let has_message = matches!(self.next, Some(Next::Message(_)));
        if has_message {
            self.next = Some(Next::ReadAgain);
        }
        has_message
    }
}

impl PendingLetter {
    fn last_offset(&self) -> i64 {
        self.ahead.letters.back().unwrap_or(self).rejected.offset
    }
}

impl Worker {
    /// Whether the worker polls a partition further while its letter is under way.
    pub(in super::super) fn reads_ahead(&self, reading: &Reading) -> bool {
        let State::PendingLetter(first) = &reading.state else { return false };
        let most = reading.rejected_in_a_row.min(LETTERS_AHEAD_MAX);
        let goes_well = matches!(first.stage, Stage::UnderWay(_)) && !first.is_told;
        goes_well
            && !self.letters.holds_message
            && self.letters.out_of_room_at.is_none_or(|at| at.elapsed() >= CALM)
            && first.ahead.next.is_none()
            && first.ahead.letters.len() < most
            && self.parts.dead_letters.has_room(ROOM_LEFT_BYTES)
    }

    /// Takes a message that was polled while a letter is under way.
    pub(in super::super) fn take_ahead(&mut self, reading: &mut Reading, message: impl Keep) {
        let State::PendingLetter(first) = &mut reading.state else { return };
        if message.offset() <= first.last_offset() {
            return;
        }
        if let Some(reason) = self.malformed(&message) {
            let rejected = Rejected::of(&message, &reason);
            if let stage @ Stage::UnderWay(_) = self.post(&rejected, &message) {
                self.parts.metrics.messages.reject(rejected.label);
                first.ahead.letters.push_back(PendingLetter::new(rejected, stage));
                return;
            }
        }
        debug_assert!(!self.letters.holds_message, "no partition is polled ahead while a message is kept");
        first.ahead.next = Some(Next::Message(message.kept()));
        self.letters.holds_message = true;
    }

    /// The error of a message, as far as it can be found without encoding rows.
    fn malformed(&mut self, message: &impl Message) -> Option<Reason> {
        match self.parts.reader.wire(message.payload().unwrap_or_default()) {
            Ok(wire) => sluice_otlp::validate(wire).err().map(Reason::Malformed),
            Err(reason) => Some(reason),
        }
    }

    /// Continues behind a skipped message: with the next letter, or with what came after the last one.
    pub(super) fn go_on_behind(&mut self, reading: &mut Reading, mut ahead: LetterRun) {
        if !matches!(reading.state, State::Polling) {
            // The partition restarts; those letters may be in the topic twice.
            self.letters.holds_message &= !ahead.let_go();
            return;
        }
        if let Some(mut first) = ahead.letters.pop_front() {
            first.ahead = ahead;
            reading.state = State::PendingLetter(Box::new(first));
            return;
        }
        match ahead.next {
            None => {}
            Some(Next::Message(message)) => {
                self.letters.holds_message = false;
                self.take_kept(reading, message);
            }
            Some(Next::ReadAgain) => reading.begin_anew(Renew::Letter),
            Some(Next::End(polled)) => reading.came_to_an_end(|| polled),
            Some(Next::Problem(error)) => self.heed(reading, &error),
        }
    }

    fn take_kept(&mut self, reading: &mut Reading, message: OwnedMessage) {
        match self.take(reading, &message) {
            Taken::Yes => {}
            Taken::NoRoom => {
                self.out_of_room = true;
                reading.state = State::Pending(message);
            }
            Taken::NoRoomForLetter => self.keep_for_letter(reading, || message),
        }
    }
}

impl Reading {
    /// Records that the broker has no more messages. If letters are under way, this is recorded once they are acknowledged. If the
    /// messages of these letters are missing, the end is not the end of what was read.
    pub(in super::super) fn ends(&mut self, polled_up_to: impl FnOnce() -> Option<i64>) {
        match &mut self.state {
            State::PendingLetter(first) => first.ahead.next = Some(Next::End(polled_up_to())),
            _ => self.came_to_an_end(polled_up_to),
        }
    }

    /// Keeps an error for later if letters are under way in front of it. `Err` returns it.
    pub(in super::super) fn keep_problem(&mut self, error: KafkaError) -> Result<(), KafkaError> {
        match &mut self.state {
            State::PendingLetter(first) => {
                first.ahead.next = Some(Next::Problem(error));
                Ok(())
            }
            _ => Err(error),
        }
    }
}
