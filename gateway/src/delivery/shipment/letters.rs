//! The rows of a block that the server refuses, as dead letters.
//!
//! Job: reads the message of each row again from Kafka, takes the row's span out of it, and sends both coordinates and span to the
//! dead-letter topic; ends when every letter is acknowledged. Where the topic takes none, `delivery.deadLetter.onMissing` decides: `Stop`
//! waits, says so, and goes on by itself once it takes them; `Skip` counts the row and goes on.
//!
//! Owner: the shipment's task; what blocks is done on a blocking thread. Limits: one message is held, and one letter is under way.

use super::{Shipment, in_parts::Course};
use crate::{
    delivery::{
        bisect::RefusedRow,
        retry::{self, Pace},
        tries::Replica,
    },
    reading::{reader::Reader, reject::ROW_REFUSED},
};
use sluice_gateway_config::OnMissing;
use sluice_kafka::{
    Message as _, OwnedMessage,
    dead_letter::{Letter, LetterValue, Receipt, Refused},
    fetch_message,
};
use std::time::Duration;

/// How long each question to Kafka about a message may take: as long as any other.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a letter waits that finds the queue full. Chosen: a few letters' time.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(100);

/// Where a row comes from.
struct Origin {
    offset: i64,
    /// Which span of the message.
    span: u64,
    /// The message; none when Kafka no longer has it.
    message: Option<OwnedMessage>,
}

impl Shipment {
    /// Dead-letters rows; gives their number once each letter is acknowledged, or skipped. `None` when the generation is over.
    pub(super) async fn dead_letter(&mut self, rows: Vec<RefusedRow>, course: &mut Course) -> Option<u64> {
        let count = rows.len() as u64;
        if !rows.is_empty() {
            self.block.messages = self.messages().await?;
        }
        let mut last: Option<Origin> = None;
        for refused in rows {
            for tries in 1.. {
                let origin = self.origin(refused.row, last.take()).await?;
                let Err(why) = self.deliver_letter(&origin, &refused).await? else {
                    last = Some(origin);
                    break;
                };
                if tries == 1 {
                    let refusals = &self.shard.delivery.metrics.dead_letters_refused;
                    refusals.with_label_values(&[why.label()]).inc();
                    self.log_stopped(&origin, &refused, &why);
                    self.say_halted();
                }
                drop(origin);
                self.wait_for_topic(course, tries).await?;
            }
        }
        Some(count)
    }

    /// Where a row comes from. Neighbours are of the same message.
    async fn origin(&mut self, row: u64, last: Option<Origin>) -> Option<Origin> {
        let (offset, span) = self.block.messages.locate(row).expect("a block knows the messages of its rows");
        let message = match last.filter(|last| last.offset == offset) {
            Some(same) => same.message,
            None => self.fetch(offset).await?,
        };
        Some(Origin { offset, span, message })
    }

    /// Reads a message again, however long Kafka is away.
    async fn fetch(&mut self, offset: i64) -> Option<Option<OwnedMessage>> {
        for tries in 1.. {
            let (kafka, id) = (self.shard.delivery.kafka.clone(), self.block.id.clone());
            let fetch = move || fetch_message(&kafka, &id, offset, FETCH_TIMEOUT);
            match tokio::task::spawn_blocking(fetch).await {
                Ok(Ok(message)) => return Some(message),
                Ok(Err(error)) => {
                    tracing::warn!(
                        partition = %self.block.id,
                        offset,
                        %error,
                        "the message of a refused row is not read again yet; its dead letter waits"
                    );
                    let wait = retry::wait(Pace::Slow, tries, self.random());
                    self.pause(wait, Replica::Same).await;
                    if self.is_over() {
                        return None;
                    }
                }
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        }
        None
    }

    /// Sends a letter until it is acknowledged, or skipped, or refused. `None` when the generation is over.
    async fn deliver_letter(&self, origin: &Origin, refused: &RefusedRow) -> Option<Result<(), Refused>> {
        let span = origin.message.as_ref().and_then(|message| self.span_of(message, origin.span));
        let delivery = &self.shard.delivery;
        let receipt = loop {
            if self.is_over() {
                return None;
            }
            match self.post(origin, span.as_deref(), refused) {
                Some(receipt) => break receipt,
                None => tokio::time::sleep(QUEUE_FULL_WAIT).await,
            }
        };
        let answer = tokio::select! {
            answer = receipt => answer,
            () = self.over() => return None,
        };
        Some(match answer {
            Ok(delivered) => {
                delivery.metrics.dead_letters.with_label_values(&[ROW_REFUSED]).inc();
                self.log_lettered(origin, refused, &delivered.topic);
                Ok(())
            }
            Err(why) if delivery.on_missing == OnMissing::Skip && why != Refused::Ended => {
                delivery.metrics.refused.rows_skipped.inc();
                delivery.metrics.dead_letters_refused.with_label_values(&[why.label()]).inc();
                self.log_skipped(origin, refused, &why);
                Ok(())
            }
            Err(why) => Err(why),
        })
    }

    /// Waits until the topic may take a letter.
    async fn wait_for_topic(&mut self, course: &mut Course, tries: u32) -> Option<()> {
        self.give_turn_back(course);
        let shard = self.shard.clone();
        shard.delivery.metrics.refused.blocks_halted.inc();
        self.counts_as_halted();
        let wait = retry::wait(Pace::Slow, tries, self.random());
        self.pause(wait, Replica::Same).await;
        shard.delivery.metrics.refused.blocks_halted.dec();
        self.have_turn(course).await
    }

    /// Gives a letter to the queue; `None` when that is full.
    fn post(&self, origin: &Origin, span: Option<&[u8]>, refused: &RefusedRow) -> Option<Receipt> {
        let delivery = &self.shard.delivery;
        let (row, text) = (origin.span, refused.refusal.text.as_str());
        let letter = match &origin.message {
            Some(message) => {
                let letter = Letter::of_message(message, delivery.kafka.format, ROW_REFUSED, text);
                match span {
                    Some(span) => letter.with_span(row, span),
                    // A message that was walked once is whole: another one has its offset now.
                    None => Letter { row: Some(row), ..letter },
                }
            }
            None => Letter {
                topic: &self.block.id.topic,
                partition: self.block.id.partition,
                offset: origin.offset,
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

    /// One span of a message, as a message of its own; none when it has no such span.
    fn span_of(&self, message: &OwnedMessage, span: u64) -> Option<Vec<u8>> {
        let kafka = &self.shard.delivery.kafka;
        let mut reader = Reader::new(kafka.format, kafka.record_batch_bytes_max);
        let wire = reader.wire(message.payload().unwrap_or_default()).ok()?;
        sluice_otlp::extract(wire, span).ok()?
    }

    fn log_lettered(&self, origin: &Origin, refused: &RefusedRow, dead_letter_topic: &str) {
        let (partition, offset, row) = (&self.block.id, origin.offset, origin.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::debug!(%partition, offset, row, code, reason, dead_letter_topic, "a row is refused and is dead-lettered");
    }

    fn log_skipped(&self, origin: &Origin, refused: &RefusedRow, why: &Refused) {
        let (partition, offset, row) = (&self.block.id, origin.offset, origin.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::error!(
            %partition,
            offset,
            row,
            code,
            reason,
            %why,
            "a row is refused, so is its dead letter, and it is skipped (delivery.deadLetter.onMissing: Skip)"
        );
    }

    fn log_stopped(&self, origin: &Origin, refused: &RefusedRow, why: &Refused) {
        let (partition, offset, row) = (&self.block.id, origin.offset, origin.span);
        let (code, reason) = (refused.refusal.code, &refused.refusal.text);
        tracing::error!(
            %partition,
            offset,
            row,
            code,
            reason,
            %why,
            "a row is refused, and so is its dead letter; its block waits until the topic takes it"
        );
    }
}
