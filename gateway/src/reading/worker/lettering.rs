//! What a worker does with a message that cannot be read: its letter first, the messages behind it then.
//!
//! ```text
//!  rejected --> under way --(brokers have it)------------------> passed over: part of the open range --> reading goes on
//!     |            ^  `-----(refused, onMissing: Skip)---------------^
//!     | no room    |  `-----(refused, onMissing: Stop)--> stands, counted and logged; sent again by the letters' thread
//!     `--> crowded-'
//! ```
//!
//! A message joins its range only when its letter is delivered, so that whatever is sealed has all its letters: neither a seal nor a
//! commit waits for one, and where ranges end is the same as without bad messages. What is read before it is sealed as it comes of
//! age. A partition that goes meanwhile leaves every message whose letter is under way to its next owner, who sends those letters again:
//! a letter may be there twice, and is never missing.
//!
//! Owner: the worker thread, which waits for no letter: it looks at the answers once a turn, and is woken by them. The partition
//! keeps its turn and what librdkafka has fetched of it.
//!
//! Where nothing but such messages comes, their letters do not wait for each other: [`ahead`].
//!
//! Limits: of messages for whose letter there is no room, one a worker; the others are read again once there is.

mod ahead;

use super::{
    Taken, Worker,
    partition::{Owned, Reading, State},
};
use crate::reading::reject::{self, Rejected};
use ahead::LetterRun;
use sluice_gateway_config::OnMissing;
use sluice_kafka::{
    Message, OwnedMessage, Renew, Report,
    dead_letter::{Answers, Delivered, Letter, Refused},
};
use sluice_ranges::Offer;
use std::time::{Duration, Instant};

/// For how long a letter may be under way before the partition counts as one that stands. Chosen: making a topic takes a second,
/// and a leader that moves some.
const SLOW: Duration = Duration::from_secs(5);

/// What is the same for all letters of a worker.
#[derive(Default)]
pub(super) struct Letters {
    /// A message is kept for which there is no room among them.
    pub holds_message: bool,
    /// Why messages are passed over without a letter, as it was logged last.
    refusal_told: Option<&'static str>,
}

/// A message that cannot be read, and its letter.
pub(super) struct PendingLetter {
    rejected: Rejected,
    stage: Stage,
    since: Instant,
    /// It counts as one that stops its partition.
    is_stopped: bool,
    /// The poll thread knows that the partition stands.
    is_told: bool,
    /// What was read in front of it was given back, so that it is read again before the message is passed over.
    is_given_up: bool,
    /// What was polled behind it.
    ahead: LetterRun,
}

/// How far a letter is.
enum Stage {
    /// There is no room for one of this size. Without the message it is read again once there is.
    Crowded { size: u64, message: Option<OwnedMessage> },
    /// Nobody has answered for good.
    UnderWay(Answers),
    /// Nobody will answer any more: the thread of the letters has ended.
    Ended,
    /// The message is to be passed over.
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

    /// Keeps the message for as long as there is no room for its letter.
    pub fn keep(&mut self, owned: OwnedMessage) {
        if let Stage::Crowded { message, .. } = &mut self.stage {
            *message = Some(owned);
        }
    }

    /// Lets the message go, to be read again. `false` when it has none.
    pub fn let_go(&mut self) -> bool {
        let waits = if let Stage::Crowded { message, .. } = &mut self.stage {
            message.take().is_some()
        } else {
            false
        };
        waits | self.ahead.let_go()
    }

    /// Whether it counts as one that stops its partition.
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
        let letter = Letter::of_message(message, parts.sizing.format, rejected.label, &rejected.text);
        match parts.dead_letters.send_watched(&letter, parts.on_missing, &parts.waker) {
            Ok(answers) => Stage::UnderWay(answers),
            Err(_full) => Stage::Crowded { size: letter.size(), message: None },
        }
    }

    /// Looks at every letter. `false` when nothing has happened.
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

    /// Sends a letter for which there is room now; a message that was let go is read again.
    fn post_again(&mut self, reading: &mut Reading, mut letter: Box<PendingLetter>) -> bool {
        if let Stage::Crowded { message: Some(message), .. } = &letter.stage {
            // Another worker may have been faster.
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
            // The process is ending, or the thread has panicked: whatever is wanted, this is no reason to pass over a message.
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
            // First: whoever sees the number finds the line.
            reject::log_stopped(&reading.place.id, &letter.rejected, refused);
            self.parts.metrics.partitions_stopped.inc();
        }
        letter.is_given_up |= self.stand(reading);
        self.tell(reading, letter);
    }

    /// A letter takes its time: what was read in front of the message is inserted. What may not be ended here is kept. Given back, it
    /// would be read again and the letter be sent again, for as long as letters take this time.
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

    /// Takes the message into the open range, without rows, and goes on behind it. `false` while there is no memory for that.
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
            // The age of its block is the age of the range.
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

    /// Lets messages go that wait for room among the letters: a message for which the pool has no room takes their memory.
    pub(super) fn let_go_of_crowded(&mut self) {
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
