//! Messages and spans in the dead-letter topic, which need no row.
//!
//! The headers of a letter have the coordinates of its source; other messages of the topic are skipped.
//!
//! Limits: [`LETTERS_MAX`] letters.

use super::Error;
use sluice_gateway_config::Kafka;
use sluice_kafka::{
    BorrowedMessage, Message as _, ReadError, TopicReader,
    dead_letter::{Coordinates, Head},
};
use std::{collections::HashSet, ops::ControlFlow};

/// Maximum number of letters. Chosen: 100 MB of memory, and more letters than people leave in the topic.
pub const LETTERS_MAX: usize = 1_000_000;

/// The letters of one source topic: partition, offset, and number of the span in the message; `None` for the whole message.
#[derive(Debug, Default)]
pub struct Letters(HashSet<(i32, i64, Option<u64>)>);

impl Letters {
    /// Reads all letters of a source topic from this dead-letter topic. Empty if that does not exist.
    pub fn read(reader: &TopicReader, topic: &str, from: &str) -> Result<Self, Error> {
        let partitions = match reader.partitions(from) {
            Err(ReadError::Missing { .. }) => return Ok(Self::default()),
            partitions => partitions?,
        };
        let mut letters = Self::default();
        for partition in partitions {
            let bounds = reader.bounds(from, partition)?;
            reader.read((from, partition), bounds, |message| {
                if let Some(Coordinates { partition, offset, row, .. }) = coordinates(message, topic) {
                    letters.0.insert((partition, offset, row));
                }
                if letters.0.len() > LETTERS_MAX {
                    Err(Error::Letters { topic: from.to_owned() })
                } else {
                    Ok(ControlFlow::Continue(()))
                }
            })?;
        }
        Ok(letters)
    }

    /// Whether there is a letter for the whole message.
    pub fn has_message(&self, partition: i32, offset: i64) -> bool {
        !self.0.is_empty() && self.0.contains(&(partition, offset, None))
    }

    /// Whether there is a letter for a span of the message.
    pub fn has_span(&self, partition: i32, offset: i64, span: u32) -> bool {
        !self.0.is_empty() && self.0.contains(&(partition, offset, Some(u64::from(span))))
    }
}

/// The source of a letter; `None` for a message that is not a letter of this topic.
fn coordinates(message: &BorrowedMessage<'_>, topic: &str) -> Option<Coordinates> {
    let head = Head::read(message.headers()?).ok()?;
    Some(head.coordinates).filter(|coordinates| coordinates.topic == topic)
}

/// The topics to audit: all topics of the config, or the one that was named.
pub fn topics(kafka: &Kafka, named: Option<&str>) -> Result<Vec<String>, Error> {
    match named {
        None => Ok(kafka.topics.clone()),
        Some(topic) if kafka.topics.iter().any(|known| known == topic) => Ok(vec![topic.to_owned()]),
        Some(topic) => Err(Error::ForeignTopic { topic: topic.to_owned() }),
    }
}
