//! Sends the refused rows of a block to the dead-letter topic.
//!
//! Job: reads the message of each row again, from Kafka or a log, extracts the row's span, applies the config's rules for attributes to it, and sends
//! span and coordinates to the dead-letter topic.
//! It ends when every letter is acknowledged. If Kafka refuses letters, `delivery.deadLetter.onMissing` decides. `Stop` waits, logs it,
//! and continues once the topic accepts them; `Skip` counts the row and continues.
//!
//! Owner: the shipment's task; [`crate::delivery::originals`] reads the messages. Limits: one letter is under way and one message is held,
//! by the block with the [turn](super::IN_PARTS_MAX). Before any wait that may be long, it returns the turn and drops the message.

use super::{Shipment, in_parts::PartsProgress};
use crate::{
    delivery::{
        bisect::RefusedRow,
        retry::{self, Pace},
        tries::Replica,
    },
    ground::metrics::ROW_REFUSED,
    reading::reader::Reader,
};
use sluice_gateway_config::OnMissing;
use sluice_kafka::{
    Message as _, OwnedMessage,
    dead_letter::{Letter, LetterValue, Receipt, Refused},
};
use std::{pin::pin, time::Duration};

/// How long a letter waits if the queue is full. Chosen: the time of a few letters.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(100);

/// How often it waits before the block returns its turn: for a second in total.
const QUEUE_FULL_TRIES: u32 = 10;

/// How long the shipment keeps the message while it waits for an answer; other rows of the same message need it. Chosen: letters take
/// milliseconds, and reading a message again takes tens of them.
const ANSWER_HELD_MAX: Duration = Duration::from_secs(1);

/// Tries to read a message again before the partition counts as standing still. Chosen: with their waits about 10 s.
const FETCH_TRIES_QUIET: u32 = 3;

/// The message and place of a row.
struct Origin {
    place: Place,
    /// The message; `None` if Kafka no longer has the message.
    message: Option<OwnedMessage>,
}

/// The coordinates of a row in its partition.
#[derive(Clone, Copy)]
struct Place {
    offset: i64,
    /// The span's number in the message.
    span: u64,
}

/// The outcome of a letter.
enum Lettered {
    /// It is acknowledged, or skipped; with the message, if that is still in memory.
    Over(Option<Origin>),
    /// Kafka refuses it.
    Refused(Place, Refused),
    /// There is no room for it.
    Crowded,
}

impl Shipment {
    /// Dead-letters rows. Returns their number once each letter is acknowledged or skipped; `None` when the generation is over.
    pub(super) async fn dead_letter(
        &mut self,
        rows: Vec<RefusedRow>,
        course: &mut PartsProgress,
    ) -> Option<u64> {
        let count = rows.len() as u64;
        if !rows.is_empty() {
            self.block.messages = self.messages().await?;
        }
        let mut last: Option<Origin> = None;
        for refused in rows {
            let mut refusals = 0;
            for tries in 1.. {
                self.have_turn(course).await?;
                match self.send_letter(&refused, last.take(), course).await? {
                    Lettered::Over(origin) => {
                        last = origin;
                        break;
                    }
                    Lettered::Crowded => self.wait_for_room(course, tries).await,
                    Lettered::Refused(place, why) => {
                        refusals += 1;
                        if refusals == 1 {
                            let refusals = &self.shard.delivery.metrics.dead_letters_refused;
                            refusals.with_label_values(&[why.label()]).inc();
                            self.log_stopped(place, &refused, &why);
                            self.say_halted().await;
                        }
                        self.wait_for_topic(course, tries).await;
                    }
                }
            }
        }
        Some(count)
    }

    /// The message and place of a row. Neighbouring rows come from the same message.
    async fn origin(&mut self, row: u64, last: Option<Origin>, course: &mut PartsProgress) -> Option<Origin> {
        let (offset, span) = self.block.messages.locate(row).expect("a block knows the messages of its rows");
        let message = match last.filter(|last| last.place.offset == offset) {
            Some(same) => same.message,
            None => self.fetch(offset, course).await?,
        };
        Some(Origin { place: Place { offset, span }, message })
    }

    /// Reads a message again; retries as long as Kafka is away, or the disk does not give the message.
    async fn fetch(&mut self, offset: i64, course: &mut PartsProgress) -> Option<Option<OwnedMessage>> {
        for tries in 1.. {
            match self.shard.delivery.originals.fetch(self.block.id.clone(), offset).await {
                Ok(message) => return Some(message),
                Err(error) => {
                    tracing::warn!(
                        partition = %self.block.id,
                        offset,
                        %error,
                        "the message of a refused row could not be read again; its dead letter waits"
                    );
                    if tries == FETCH_TRIES_QUIET {
                        self.say_halted().await;
                    }
                    self.give_turn_back(course);
                    let wait = retry::wait(Pace::Slow, tries, self.random());
                    self.pause(wait, Replica::Same).await;
                    self.have_turn(course).await?;
                }
            }
        }
        None
    }

    /// Sends the letter of a row until it is acknowledged, skipped or refused. `None` when the generation is over.
    async fn send_letter(
        &mut self,
        refused: &RefusedRow,
        last: Option<Origin>,
        course: &mut PartsProgress,
    ) -> Option<Lettered> {
        let origin = self.origin(refused.row, last, course).await?;
        let place = origin.place;
        let Some(receipt) = self.post_soon(&origin, refused).await? else { return Some(Lettered::Crowded) };
        let mut origin = Some(origin);
        let over = self.over();
        let let_go = || {
            origin = None;
            self.give_turn_back(course);
        };
        let answer = tokio::select! {
            answer = held_for(ANSWER_HELD_MAX, receipt, let_go) => answer,
            () = over => return None,
        };
        let delivery = &self.shard.delivery;
        Some(match answer {
            Ok(delivered) => {
                delivery.metrics.dead_letters.with_label_values(&[ROW_REFUSED]).inc();
                self.log_lettered(place, refused, &delivered.topic);
                Lettered::Over(origin)
            }
            Err(why) if delivery.on_missing == OnMissing::Skip && why != Refused::Ended => {
                delivery.metrics.refused.rows_skipped.inc();
                delivery.metrics.dead_letters_refused.with_label_values(&[why.label()]).inc();
                self.log_skipped(place, refused, &why);
                Lettered::Over(origin)
            }
            Err(why) => Lettered::Refused(place, why),
        })
    }

    /// Puts a letter into the queue; without a receipt if the queue stays full. `None` when the generation is over.
    async fn post_soon(&self, origin: &Origin, refused: &RefusedRow) -> Option<Option<Receipt>> {
        let span = origin.message.as_ref().and_then(|message| self.span_of(message, origin.place.span));
        for _ in 0..QUEUE_FULL_TRIES {
            if self.is_over() {
                return None;
            }
            let receipt = self.post(origin, span.as_deref(), refused);
            if receipt.is_some() {
                return Some(receipt);
            }
            tokio::time::sleep(QUEUE_FULL_WAIT).await;
        }
        Some(None)
    }

    /// Waits until there may be room for a letter.
    async fn wait_for_room(&mut self, course: &mut PartsProgress, tries: u32) {
        self.give_turn_back(course);
        self.pause(retry::wait(Pace::Quick, tries, self.random()), Replica::Same).await;
    }

    /// Waits until the topic may accept a letter.
    async fn wait_for_topic(&mut self, course: &mut PartsProgress, tries: u32) {
        self.give_turn_back(course);
        let shard = self.shard.clone();
        shard.delivery.metrics.refused.blocks_halted.inc();
        self.counts_as_halted();
        let wait = retry::wait(Pace::Slow, tries, self.random());
        self.pause(wait, Replica::Same).await;
        shard.delivery.metrics.refused.blocks_halted.dec();
    }

    /// Puts a letter into the queue; `None` if that is full.
    fn post(&self, origin: &Origin, span: Option<&[u8]>, refused: &RefusedRow) -> Option<Receipt> {
        let delivery = &self.shard.delivery;
        let (row, text) = (origin.place.span, refused.refusal.text.as_str());
        let letter = match &origin.message {
            Some(message) => {
                let letter = Letter::of_message(message, delivery.reading.format, ROW_REFUSED, text);
                match span {
                    Some(span) => letter.with_span(row, span),
                    // The first read of the message found this span. If it is missing now, another message has this offset. The whole of it
                    // has attributes that rules drop.
                    None if self.changes_letters() => Letter { row: Some(row), ..letter.without_value() },
                    None => Letter { row: Some(row), ..letter },
                }
            }
            None => Letter {
                topic: &self.block.id.topic,
                partition: self.block.id.partition,
                offset: origin.place.offset,
                row: Some(row),
                reason: ROW_REFUSED,
                text,
                code: None,
                timestamp_millis: None,
                key: None,
                headers: Vec::new(),
                value: LetterValue::Gone,
            },
        };
        delivery.dead_letters.send(&letter.with_code(refused.refusal.code)).ok()
    }

    /// One span of a message, as its own message, with the attributes that rules leave it; `None` if the message has no such span.
    fn span_of(&self, message: &OwnedMessage, span: u64) -> Option<Vec<u8>> {
        let delivery = &self.shard.delivery;
        let reading = &delivery.reading;
        let mut reader = Reader::new(reading.format, reading.message_bytes_max);
        let wire = reader.wire(message.payload().unwrap_or_default()).ok()?;
        let span = sluice_otlp::extract(wire, span).ok()??;
        match delivery.carrying.as_ref().filter(|carrying| carrying.changes_letters()) {
            Some(carrying) => carrying.edited(&span).ok(),
            None => Some(span),
        }
    }

    /// Whether a letter may not contain all attributes of its message.
    fn changes_letters(&self) -> bool {
        self.shard.delivery.carrying.as_ref().is_some_and(|carrying| carrying.changes_letters())
    }

    fn log_lettered(&self, place: Place, refused: &RefusedRow, dead_letter_topic: &str) {
        let (partition, offset, row) = (&self.block.id, place.offset, place.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::debug!(
            %partition,
            offset,
            row,
            code,
            reason,
            dead_letter_topic,
            "ClickHouse refuses a row; it is in the dead-letter topic"
        );
    }

    fn log_skipped(&self, place: Place, refused: &RefusedRow, why: &Refused) {
        let (partition, offset, row) = (&self.block.id, place.offset, place.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::error!(
            %partition,
            offset,
            row,
            code,
            reason,
            %why,
            "ClickHouse refuses a row and Kafka refuses its dead letter; the row is skipped (delivery.deadLetter.onMissing: Skip)"
        );
    }

    fn log_stopped(&self, place: Place, refused: &RefusedRow, why: &Refused) {
        let (partition, offset, row) = (&self.block.id, place.offset, place.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::error!(
            %partition,
            offset,
            row,
            code,
            reason,
            %why,
            "ClickHouse refuses a row and Kafka refuses its dead letter; the block waits until the topic accepts the letter"
        );
    }
}

/// Waits for an answer. If that takes longer than `held_max`, calls `let_go` and waits on.
async fn held_for<T>(held_max: Duration, answer: impl Future<Output = T>, let_go: impl FnOnce()) -> T {
    let mut answer = pin!(answer);
    match tokio::time::timeout(held_max, &mut answer).await {
        Ok(answered) => answered,
        Err(_elapsed) => {
            let_go();
            answer.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::{Semaphore, oneshot};

    #[tokio::test]
    async fn an_answer_that_is_late_holds_up_no_other_block() {
        let turns = Arc::new(Semaphore::new(1));
        for (held_max, is_late) in [(Duration::from_hours(1), false), (Duration::ZERO, true)] {
            let mut turn = Some(turns.clone().acquire_owned().await.unwrap());
            let (answers, answer) = oneshot::channel();
            let waits = held_for(held_max, answer, || turn = None);
            let other = async {
                if is_late {
                    // Runs before there is an answer.
                    drop(turns.acquire().await.unwrap());
                }
                answers.send("it is there").unwrap();
            };
            let (answered, ()) = tokio::join!(waits, other);
            assert_eq!((answered, turn.is_some()), (Ok("it is there"), !is_late));
        }
    }
}
