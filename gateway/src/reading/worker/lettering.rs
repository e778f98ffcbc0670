//! What a worker does with a message that cannot be read: it sends a dead letter first and reads on after the acknowledgement.
//!
//! ```text
//!  rejected --> under way --(brokers acknowledged it)----------> skipped: part of the open range --> reading goes on
//!     |            ^  `-----(refused, onMissing: Skip)---------------^
//!     | no room    |  `-----(refused, onMissing: Stop)--> stopped, counted and logged; the dead-letter thread sends it again
//!     `--> crowded-'
//! ```
//!
//! A message joins its range only when its letter is acknowledged. So every sealed range has all its letters, and neither a seal nor a
//! commit waits for one. Ranges end where they would without bad messages. Messages in front of the bad one are sealed when their block
//! reaches its maximum age. If a partition is revoked meanwhile, its next owner sends the unacknowledged letters again: a letter may be in
//! the topic twice and is never missing.
//!
//! Owner: the worker thread. It does not block on letters: it looks at the answers once a turn, and an answer wakes it. The partition keeps
//! its turn and the messages that librdkafka has fetched.
//!
//! If all messages are bad, several letters are sent at the same time: [`ahead`].
//!
//! Limits: a worker keeps one message that waits for room for its letter; others are read again once there is room.

mod ahead;

use super::{
    Taken, Worker,
    partition::{Owned, Reading, State},
};
use crate::reading::{
    reader::Reader,
    reject::{self, Rejected},
};
use ahead::LetterRun;
use sluice_gateway_config::OnMissing;
use sluice_kafka::{
    Message, OwnedMessage, Renew, Report,
    dead_letter::{Answers, Delivered, LETTER_BYTES_MAX, Letter, Refused},
};
use sluice_ranges::Offer;
use std::time::{Duration, Instant};

/// How long a letter may take before its partition counts as stopped. Chosen: creating a topic takes a second, moving a leader takes
/// several.
const SLOW: Duration = Duration::from_secs(5);

/// State that all letters of a worker share.
#[derive(Default)]
pub(super) struct Letters {
    /// Whether a message is kept that waits for room for its letter, or for the letters in front of it.
    pub holds_message: bool,
    /// When the worker last had no room for rows.
    out_of_room_at: Option<Instant>,
    /// The last logged reason for skipping messages without a letter.
    refusal_told: Option<&'static str>,
}

/// A message that cannot be read, and its letter.
pub(super) struct PendingLetter {
    rejected: Rejected,
    stage: Stage,
    since: Instant,
    /// Whether it counts as a letter that stops its partition.
    is_stopped: bool,
    /// Whether the poll thread knows that the partition is stopped.
    is_told: bool,
    /// Whether rows of earlier messages were dropped. These messages are read again before this one is skipped.
    is_given_up: bool,
    /// What was polled behind it.
    ahead: LetterRun,
}

/// What a letter has in the place of the message's value.
enum LetterContent {
    /// The value.
    Original,
    /// The message in protobuf, with the attributes that rules leave it.
    Edited(Vec<u8>),
    /// Nothing.
    Withheld,
}

/// The state of a letter.
enum Stage {
    /// There is no room for a letter of this size. If the message is not kept, it is read again once there is room.
    Crowded { size: u64, message: Option<OwnedMessage> },
    /// Waiting for the final answer.
    UnderWay(Answers),
    /// The dead-letter thread has ended; no answer will come.
    Ended,
    /// The message is to be skipped.
    Over,
}

impl PendingLetter {
    fn new(rejected: Rejected, stage: Stage) -> Self {
        Self {
            rejected,
            stage,
            since: Instant::now(),
            is_stopped: false,
            is_told: false,
            is_given_up: false,
            ahead: LetterRun::default(),
        }
    }

    /// Keeps the message while there is no room for its letter.
    pub fn keep(&mut self, owned: OwnedMessage) {
        if let Stage::Crowded { message, .. } = &mut self.stage {
            *message = Some(owned);
        }
    }

    /// Drops the kept message; it is read again. `false` when there is none.
    pub fn let_go(&mut self) -> bool {
        let waits = if let Stage::Crowded { message, .. } = &mut self.stage {
            message.take().is_some()
        } else {
            false
        };
        waits | self.ahead.let_go()
    }

    /// Whether it counts as a letter that stops its partition.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

impl Worker {
    /// Sends the letter of a message.
    pub(super) fn reject(
        &mut self,
        reading: &mut Reading,
        message: &impl Message,
        reason: &reject::Reason,
    ) -> Taken {
        let rejected = Rejected::of(message, reason);
        self.parts.metrics.messages.reject(rejected.label);
        let stage = self.post(&rejected, message);
        let has_room = matches!(stage, Stage::UnderWay(_));
        reading.state = State::PendingLetter(Box::new(PendingLetter::new(rejected, stage)));
        if has_room { Taken::Yes } else { Taken::NoRoomForLetter }
    }

    fn post(&self, rejected: &Rejected, message: &impl Message) -> Stage {
        let Self { parts, .. } = self;
        let content = self.letter_content(rejected, message.payload().unwrap_or_default());
        let letter = Letter::of_message(message, parts.sizing.format, rejected.label, &rejected.text);
        let letter = match &content {
            LetterContent::Original => letter,
            LetterContent::Edited(message) => letter.with_message(message),
            LetterContent::Withheld => letter.without_value(),
        };
        match parts.dead_letters.send_watched(&letter, parts.on_missing, &parts.waker) {
            Ok(answers) => Stage::UnderWay(answers),
            Err(_full) => Stage::Crowded { size: letter.size(), message: None },
        }
    }

    /// What a letter may have of a message. A message that cannot be read to its end has attributes that cannot be found in it.
    fn letter_content(&self, rejected: &Rejected, value: &[u8]) -> LetterContent {
        let Some(carrying) = &self.parts.carrying else { return LetterContent::Original };
        if !rejected.is_otlp {
            let is_withheld = carrying.leaves_out_unreadable();
            return if is_withheld { LetterContent::Withheld } else { LetterContent::Original };
        }
        if !carrying.changes_letters() {
            return LetterContent::Original;
        }
        if value.len() as u64 > LETTER_BYTES_MAX {
            // No letter is so large.
            return LetterContent::Withheld;
        }
        let sizing = &self.parts.sizing;
        let mut reader = Reader::new(sizing.format, sizing.record_batch_bytes_max);
        let edited = reader.wire(value).ok().and_then(|wire| carrying.edited(wire).ok());
        edited.map_or(LetterContent::Withheld, LetterContent::Edited)
    }

    /// Checks the answers of all letters. `false` when nothing has happened.
    pub(super) fn tend_letters(&mut self) -> bool {
        let mut partitions = std::mem::take(&mut self.partitions);
        let mut progressed = false;
        for Owned { reading, .. } in &mut partitions {
            progressed |= self.tend_reading(reading);
        }
        self.partitions = partitions;
        progressed
    }

    fn tend_reading(&mut self, reading: &mut Reading) -> bool {
        match std::mem::replace(&mut reading.state, State::Polling) {
            State::PendingLetter(letter) => self.tend_letter(reading, letter),
            other => {
                reading.state = other;
                false
            }
        }
    }

    fn tend_letter(&mut self, reading: &mut Reading, mut letter: Box<PendingLetter>) -> bool {
        let answer = match &letter.stage {
            Stage::Crowded { size, .. } if self.parts.dead_letters.has_room(*size) => {
                return self.post_again(reading, letter);
            }
            Stage::Over => return self.pass_over(reading, letter),
            Stage::UnderWay(answers) => answers.latest(),
            Stage::Crowded { .. } | Stage::Ended => None,
        };
        match answer {
            None => {
                if !letter.is_told && letter.since.elapsed() >= SLOW {
                    self.linger(reading, &mut letter);
                }
                reading.state = State::PendingLetter(letter);
                false
            }
            Some(Ok(delivered)) => {
                self.delivered(reading, &mut letter, &delivered);
                self.pass_over(reading, letter)
            }
            Some(Err(refused)) => {
                self.refused(reading, &mut letter, &refused);
                reading.state = State::PendingLetter(letter);
                true
            }
        }
    }

    /// Sends a letter for which there is room now. A message that was dropped is read again.
    fn post_again(&mut self, reading: &mut Reading, mut letter: Box<PendingLetter>) -> bool {
        if let Stage::Crowded { message: Some(message), .. } = &letter.stage {
            // Another worker may have used the room.
            if let Stage::UnderWay(answers) = self.post(&letter.rejected, message) {
                letter.stage = Stage::UnderWay(answers);
                self.letters.holds_message = false;
            }
            reading.state = State::PendingLetter(letter);
        } else {
            self.stands_no_more(reading, &letter);
            reading.begin_anew(Renew::Letter);
        }
        true
    }

    fn delivered(&mut self, reading: &mut Reading, letter: &mut PendingLetter, delivered: &Delivered) {
        let label = letter.rejected.label;
        self.parts.metrics.dead_letters.with_label_values(&[label]).inc();
        self.letters.refusal_told = None;
        if letter.is_stopped {
            reject::log_goes_on(&reading.place.id, &letter.rejected, delivered);
        } else if reading.lettered != Some(label) {
            reject::log_lettered(&reading.place.id, &letter.rejected, delivered);
        }
        reading.lettered = Some(label);
        letter.stage = Stage::Over;
    }

    fn refused(&mut self, reading: &mut Reading, letter: &mut PendingLetter, refused: &Refused) {
        self.parts.metrics.dead_letters_refused.with_label_values(&[refused.label()]).inc();
        match self.parts.on_missing {
            // The process is ending, or the dead-letter thread has panicked. That is no reason to skip a message, not even with `Skip`.
            _ if *refused == Refused::Ended => {
                letter.stage = Stage::Ended;
                self.stop_for(reading, letter, refused);
            }
            OnMissing::Stop => self.stop_for(reading, letter, refused),
            OnMissing::Skip => {
                self.parts.metrics.messages_skipped.with_label_values(&[letter.rejected.label]).inc();
                if self.letters.refusal_told.replace(refused.label()) != Some(refused.label()) {
                    reject::log_skipped(&reading.place.id, &letter.rejected, refused);
                }
                letter.stage = Stage::Over;
            }
        }
    }

    fn stop_for(&mut self, reading: &mut Reading, letter: &mut PendingLetter, refused: &Refused) {
        if !std::mem::replace(&mut letter.is_stopped, true) {
            // The log line comes before the metric, so that everyone who sees the metric finds the line.
            reject::log_stopped(&reading.place.id, &letter.rejected, refused);
            self.parts.metrics.partitions_stopped.inc();
        }
        letter.is_given_up |= self.stand(reading);
        self.tell(reading, letter);
    }

    /// Handles a letter that takes long: inserts the messages that were read before it. A block that must not be ended here stays open:
    /// if it were dropped, its messages would be read again and the letter sent again, as long as letters are slow.
    fn linger(&mut self, reading: &mut Reading, letter: &mut PendingLetter) {
        reject::log_slow(&reading.place.id, &letter.rejected);
        if !reading.cutter.is_replaying() {
            self.stand(reading);
        }
        self.tell(reading, letter);
    }

    fn tell(&self, reading: &Reading, letter: &mut PendingLetter) {
        if !std::mem::replace(&mut letter.is_told, true) {
            self.report_lettering(reading, true);
        }
    }

    fn stands_no_more(&self, reading: &Reading, letter: &PendingLetter) {
        if letter.is_stopped {
            self.parts.metrics.partitions_stopped.dec();
        }
        if letter.is_told {
            self.report_lettering(reading, false);
        }
    }

    fn report_lettering(&self, reading: &Reading, waits: bool) {
        let (id, generation) = (reading.place.id.clone(), reading.place.generation);
        self.report(Report::Lettering { id, generation, waits });
    }

    /// Adds the message to the open range without rows, and continues behind it. `false` while there is no memory for that.
    fn pass_over(&mut self, reading: &mut Reading, mut letter: Box<PendingLetter>) -> bool {
        if letter.is_given_up {
            self.stands_no_more(reading, &letter);
            self.letters.holds_message &= !letter.let_go();
            reading.begin_anew(Renew::Letter);
            return true;
        }
        let Rejected { offset, digest, .. } = letter.rejected;
        loop {
            if self.seal_closing(reading).is_err() {
                reading.state = State::PendingLetter(letter);
                return false;
            }
            match reading.cutter.offer(offset, digest.bytes()) {
                Offer::Take => {}
                Offer::Seen => break reading.state = State::Polling,
                Offer::Hold => break reading.leave(Renew::Rule),
                Offer::Close(closed) => {
                    reading.closing = Some(closed);
                    continue;
                }
            }
            // The block's age is the age of the range.
            if !self.opens(reading) {
                reading.state = State::PendingLetter(letter);
                return false;
            }
            reading.state = State::Polling;
            reading.closing = reading.cutter.take_digest(offset, digest);
            break self.seal_taken(reading);
        }
        self.stands_no_more(reading, &letter);
        reading.rejected_in_a_row = reading.rejected_in_a_row.saturating_add(1);
        self.go_on_behind(reading, std::mem::take(&mut letter.ahead));
        true
    }

    /// Drops messages that wait for room for their letter, or for letters in front of them, because the worker needs the memory for a message
    /// that waits for room in the pool.
    pub(super) fn let_go_of_kept(&mut self) {
        self.letters.out_of_room_at = Some(Instant::now());
        if !self.letters.holds_message {
            return;
        }
        for Owned { reading, .. } in &mut self.partitions {
            if let State::PendingLetter(letter) = &mut reading.state
                && letter.let_go()
            {
                self.letters.holds_message = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
