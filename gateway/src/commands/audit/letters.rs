//! Which messages and spans are in the dead-letter topic, and so need no row.
//!
//! A letter says in its headers where it comes from; other messages of that topic are no letters and are passed over.
//!
//! Limits: [`LETTERS_MAX`] letters.

use super::Error;
use sluice_gateway_config::Kafka;
use sluice_kafka::{
    BorrowedMessage, Message as _, ReadError, TopicReader,
    dead_letter::{Coordinates, Head},
};
use std::{collections::HashSet, ops::ControlFlow};

/// Letters that are remembered. Chosen: 100 MB, and more than anyone leaves lying.
pub const LETTERS_MAX: usize = 1_000_000;

/// The letters of one source topic: partition, offset, and which span of the message; `None` for all of it.
#[derive(Debug, Default)]
pub struct Letters(HashSet<(i32, i64, Option<u64>)>);

impl Letters {
    /// Reads all letters of a source topic from this dead-letter topic. There are none where it does not exist.
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

    /// Whether a message is there whole.
    pub fn has_message(&self, partition: i32, offset: i64) -> bool {
        !self.0.is_empty() && self.0.contains(&(partition, offset, None))
    }

    /// Whether a span of a message is there.
    pub fn has_span(&self, partition: i32, offset: i64, span: u32) -> bool {
        !self.0.is_empty() && self.0.contains(&(partition, offset, Some(u64::from(span))))
    }
}

/// Where a letter comes from; `None` for a message that is no letter of this topic.
fn coordinates(message: &BorrowedMessage<'_>, topic: &str) -> Option<Coordinates> {
    let head = Head::read(message.headers()?).ok()?;
    Some(head.coordinates).filter(|coordinates| coordinates.topic == topic)
}

/// The topics of a config that are audited: all of them, or the one that was named.
pub fn topics(kafka: &Kafka, named: Option<&str>) -> Result<Vec<String>, Error> {
    match named {
        None => Ok(kafka.topics.clone()),
        Some(topic) if kafka.topics.iter().any(|known| known == topic) => Ok(vec![topic.to_owned()]),
        Some(topic) => Err(Error::ForeignTopic { topic: topic.to_owned() }),
    }
}
