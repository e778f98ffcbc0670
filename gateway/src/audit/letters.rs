//! Which messages and spans are in the dead-letter topic, and so need no row.
//!
//! A letter says in its headers where it comes from; other messages of that topic are no letters and are passed over.
//!
//! Limits: [`LETTERS_MAX`] letters.

use super::Error;
use sluice_gateway_config::Kafka;
use sluice_kafka::{BorrowedMessage, Headers as _, Message as _, TopicReader, TopicReaderError};
use std::collections::HashSet;

/// Letters that are remembered. Chosen: 100 MB, and more than anyone leaves lying.
pub const LETTERS_MAX: usize = 1_000_000;

/// What a dead-letter topic is called behind the source topic's name.
const SUFFIX: &str = ".dead-letter";

/// Where a letter comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Coordinates {
    partition: i32,
    offset: i64,
    /// Which span of the message; `None` for all of it.
    span: Option<u32>,
}

/// The letters of one source topic.
#[derive(Debug, Default)]
pub struct Letters(HashSet<Coordinates>);

impl Letters {
    /// Reads all letters of a source topic. There are none where there is no dead-letter topic.
    pub fn read(reader: &TopicReader, topic: &str) -> Result<Self, Error> {
        let from = format!("{topic}{SUFFIX}");
        let partitions = match reader.partitions(&from) {
            Err(TopicReaderError::UnknownTopic { .. }) => return Ok(Self::default()),
            partitions => partitions?,
        };
        let mut letters = Self::default();
        for partition in partitions {
            let bounds = reader.bounds(&from, partition)?;
            reader.read((&from, partition), bounds, |message| {
                if let Some(coordinates) = coordinates(message, topic) {
                    letters.0.insert(coordinates);
                }
                if letters.0.len() > LETTERS_MAX {
                    Err(Error::Letters { topic: from.clone() })
                } else {
                    Ok(())
                }
            })?;
        }
        Ok(letters)
    }

    /// Whether a message is there whole.
    pub fn has_message(&self, partition: i32, offset: i64) -> bool {
        !self.0.is_empty() && self.0.contains(&Coordinates { partition, offset, span: None })
    }

    /// Whether a span of a message is there.
    pub fn has_span(&self, partition: i32, offset: i64, span: u32) -> bool {
        !self.0.is_empty() && self.0.contains(&Coordinates { partition, offset, span: Some(span) })
    }
}

/// Where a letter comes from; `None` for a message that is no letter of this topic.
fn coordinates(message: &BorrowedMessage<'_>, topic: &str) -> Option<Coordinates> {
    let headers = message.headers()?;
    let text = |name: &str| {
        let header = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(header.value?).ok()
    };
    let is_ours = text("sluice.dev/letter").is_some() && text("sluice.dev/topic") == Some(topic);
    let span = match text("sluice.dev/row") {
        Some(row) => Some(row.parse().ok()?),
        None => None,
    };
    is_ours.then_some(Coordinates {
        partition: text("sluice.dev/partition")?.parse().ok()?,
        offset: text("sluice.dev/offset")?.parse().ok()?,
        span,
    })
}

/// The topics of a config that are audited: all of them, or the one that was named.
pub fn topics(kafka: &Kafka, named: Option<&str>) -> Result<Vec<String>, Error> {
    match named {
        None => Ok(kafka.topics.clone()),
        Some(topic) if kafka.topics.iter().any(|known| known == topic) => Ok(vec![topic.to_owned()]),
        Some(topic) => Err(Error::ForeignTopic { topic: topic.to_owned() }),
    }
}
