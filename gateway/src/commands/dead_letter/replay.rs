//! Produces letters to their source topics.
//!
//! | the letter | what is produced |
//! | --- | --- |
//! | has a value in the format that the pipeline reads | that value |
//! | has no value because it was too large, or has a span in another format | the original's value, or that span of it, if Kafka still has the original |
//! | says that its message was gone | nothing |
//!
//! Key and headers are the original's. A letter stays in the topic: replaying it twice stores it twice.

use super::{ANSWER_TIMEOUT, Error, Found, Use, json_span};
use crate::reading::framing;
use serde_json::json;
use sluice_gateway_config::{Format, Kafka};
use sluice_kafka::{
    Message as _, OwnedMessage, Patience, ReadError, TopicReader,
    dead_letter::{Coordinates, ReplayError, Replayed, Replayer},
};
use sluice_ranges::PartitionId;
use std::io::Write;

pub(super) struct Replay {
    /// `None` in a dry run: nothing is produced.
    replayer: Option<Replayer>,
    /// Reads originals; created for the first one.
    reader: Option<TopicReader>,
    kafka: Kafka,
    json: bool,
    not_replayed: u64,
}

/// The source of the value.
enum Value {
    /// The letter's own value.
    Letter,
    /// The original's value, or a part of it.
    Original(OwnedMessage, Vec<u8>),
}

impl Replay {
    pub(super) fn new(kafka: &Kafka, dry_run: bool, json: bool) -> Result<Self, ReplayError> {
        let replayer = if dry_run { None } else { Some(Replayer::new(kafka)?) };
        Ok(Self { replayer, reader: None, kafka: kafka.clone(), json, not_replayed: 0 })
    }

    /// The value to produce, or why there is none.
    fn value(&mut self, letter: &Found) -> Result<Result<Value, String>, Error> {
        let Coordinates { topic, partition, offset, row } = &letter.head.coordinates;
        if !self.kafka.topics.contains(topic) {
            return Ok(Err(format!("{topic} is not in source.kafka.topics")));
        }
        if letter.head.has_value() && letter.head.format == Some(self.kafka.format) {
            return Ok(Ok(Value::Letter));
        }
        if letter.head.value == "null" {
            return Ok(Err("the message had no value".to_owned()));
        }
        let id = PartitionId { topic: topic.as_str().into(), partition: *partition };
        let Some(original) = self.original(&id, *offset).map_err(Error::Read)? else {
            return Ok(Err(format!(
                "its value is {}, and Kafka no longer has the original",
                letter.head.value
            )));
        };
        let whole = original.payload().unwrap_or_default();
        let value = match row {
            None => Some(whole.to_vec()),
            Some(row) => span(self.kafka.format, whole, *row),
        };
        Ok(value
            .map(|value| Value::Original(original, value))
            .ok_or("the original has no such span".to_owned()))
    }

    fn original(&mut self, id: &PartitionId, offset: i64) -> Result<Option<OwnedMessage>, ReadError> {
        let patience = Patience { answer: ANSWER_TIMEOUT, message: ANSWER_TIMEOUT };
        let reader = match &self.reader {
            Some(reader) => reader,
            None => self.reader.insert(TopicReader::new(&self.kafka, "originals", patience)?),
        };
        reader.message(id, offset)
    }

    /// The output about a letter, and the offset of the new message.
    fn replay(&mut self, letter: &Found) -> Result<(String, Option<i64>), Error> {
        let value = match self.value(letter)? {
            Ok(value) => value,
            Err(why) => {
                self.not_replayed += 1;
                return Ok((format!("not replayed: {why}"), None));
            }
        };
        let Coordinates { topic, partition, .. } = &letter.head.coordinates;
        let source = if let Value::Original(..) = value { " with the original's value" } else { "" };
        let Some(replayer) = &self.replayer else {
            return Ok((format!("would be replayed to {topic}/{partition}{source}"), None));
        };
        let (original, value) = match &value {
            Value::Letter => (&letter.message, letter.message.payload()),
            Value::Original(original, value) => (original, Some(&value[..])),
        };
        let message = Replayed { letter: &letter.place(), original, value, topic, partition: *partition };
        let offset = replayer.replay(&message).map_err(Error::Replay)?;
        Ok((format!("replayed to {topic}/{partition}@{offset}{source}"), Some(offset)))
    }
}

/// One span of a message, without the message's frame.
fn span(format: Format, message: &[u8], row: u64) -> Option<Vec<u8>> {
    let message = framing::payload(message, format).ok()?;
    match format {
        Format::OtlpProto => sluice_otlp::extract(message, row).ok()?,
        Format::OtlpJson => json_span::extract(message, row),
    }
}

/// The output about a letter that is replayed, or not, and the offset of the new message.
pub(super) fn line(letter: &Found, (outcome, offset): (String, Option<i64>), json: bool) -> String {
    if json {
        json!({"letter": letter.place(), "about": letter.about(), "outcome": outcome, "offset": offset})
            .to_string()
    } else {
        format!("{}  {outcome}", letter.about())
    }
}

impl Use for Replay {
    fn letter(&mut self, letter: &Found, out: &mut dyn Write) -> Result<(), Error> {
        let outcome = self.replay(letter)?;
        writeln!(out, "{}", line(letter, outcome, self.json)).map_err(Error::Write)
    }

    fn end(&mut self, _: &mut dyn Write) -> Result<(), Error> {
        if self.not_replayed > 0 { Err(Error::NotReplayed(self.not_replayed)) } else { Ok(()) }
    }
}
