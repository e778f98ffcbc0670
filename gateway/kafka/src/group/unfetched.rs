//! Messages that wait in Kafka and are not fetched, and why: the right to read the topic is missing, Kafka does not know the topic, or no broker
//! leads the partition.
//!
//! librdkafka says once that a fetch is refused, in the queue of the partition, and goes on to fetch. Until it succeeds, nothing else shows it.
//!
//! Pure. Place in the flow: the queue of a partition gives its errors to [`FetchErrors::hear`]; [`crate::group::inspection`] puts them together with
//! what the watchdog sees and with librdkafka's statistics; the result goes to the gateway's state. Owner: the poll thread; workers add errors.
//!
//! Limits: an entry per partition whose fetch has failed.

use crate::group::stats::PartitionStats;
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode};
use sluice_gateway_config::UnfetchedCause;
use sluice_ranges::PartitionId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Messages that are not fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfetched {
    pub cause: UnfetchedCause,
    /// The topic; `None` if it concerns all of them.
    pub topic: Option<Arc<str>>,
    /// Partitions of the topic; 0 if they are not known.
    pub partitions: u64,
    /// The last error.
    pub error: Option<String>,
    /// For how long the first of them has been due.
    pub time: Duration,
}

/// A partition whose messages are due to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// For how long.
    pub time: Duration,
    /// Whether messages wait, and fetching anew did not help.
    pub is_helpless: bool,
}

/// How the last fetches of partitions failed.
#[derive(Debug, Default)]
pub struct FetchErrors(BTreeMap<PartitionId, FetchError>);

#[derive(Debug)]
struct FetchError {
    is_refused: bool,
    words: String,
    /// Whether it was there at a look.
    was_seen: bool,
    /// The position at that look.
    position: Option<i64>,
}

impl FetchErrors {
    /// Takes an error that the queue of a partition gave.
    pub fn hear(&mut self, id: &PartitionId, error: &KafkaError) {
        match error.rdkafka_error_code() {
            // An answer that says where the log ends.
            _ if matches!(error, KafkaError::PartitionEOF(_)) => {
                self.0.remove(id);
            }
            // An answer with more messages than there is room for.
            Some(RDKafkaErrorCode::QueueFull) => {}
            code => {
                let is_refused = code == Some(RDKafkaErrorCode::TopicAuthorizationFailed);
                let words = error.to_string();
                self.0.insert(id.clone(), FetchError { is_refused, words, was_seen: false, position: None });
            }
        }
    }

    /// Forgets an error once the position has moved since the last look: librdkafka gives another one if it fails again.
    fn look(&mut self, id: &PartitionId, position: Option<i64>) {
        let Some(error) = self.0.get_mut(id) else { return };
        if error.was_seen && error.position != position {
            self.0.remove(id);
            return;
        }
        (error.was_seen, error.position) = (true, position);
    }

    /// The gravest cause for which partitions are not fetched; `None` while all are.
    pub fn unfetched(
        &mut self,
        due: &BTreeMap<PartitionId, Due>,
        numbers: &BTreeMap<PartitionId, PartitionStats>,
    ) -> Option<Unfetched> {
        for (id, numbers) in numbers {
            self.look(id, numbers.position);
        }
        let mut found = BTreeMap::<(UnfetchedCause, Arc<str>), Unfetched>::new();
        for (id, due) in due {
            let error = self.0.get(id);
            let Some(cause) = cause_of(*due, error, numbers.get(id)) else { continue };
            let topic = id.topic.clone();
            let unfetched = found.entry((cause, topic.clone())).or_insert_with(|| Unfetched {
                cause,
                topic: Some(topic),
                partitions: 0,
                error: error.map(|error| error.words.clone()),
                time: Duration::ZERO,
            });
            unfetched.partitions += 1;
            unfetched.time = unfetched.time.max(due.time);
        }
        found.into_values().next()
    }
}

fn cause_of(
    due: Due,
    error: Option<&FetchError>,
    numbers: Option<&PartitionStats>,
) -> Option<UnfetchedCause> {
    if error.is_some_and(|error| error.is_refused) {
        Some(UnfetchedCause::TopicRefused)
    } else if numbers.is_some_and(|numbers| numbers.is_unknown) {
        Some(UnfetchedCause::TopicUnknown)
    } else if numbers.is_some_and(|numbers| numbers.is_leaderless) {
        Some(UnfetchedCause::NoLeader)
    } else {
        due.is_helpless.then_some(UnfetchedCause::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RDKafkaErrorCode::{BrokerTransportFailure, QueueFull, TopicAuthorizationFailed};
    use UnfetchedCause::{NoLeader, Other, TopicRefused, TopicUnknown};

    fn id(topic: &str, partition: i32) -> PartitionId {
        PartitionId { topic: topic.into(), partition }
    }

    fn numbers(position: i64) -> PartitionStats {
        PartitionStats { position: Some(position), end_offset: Some(20), ..PartitionStats::default() }
    }

    fn due(seconds: u64) -> Due {
        Due { time: Duration::from_secs(seconds), is_helpless: false }
    }

    fn found(
        errors: &mut FetchErrors,
        all: &[(PartitionId, Due, PartitionStats)],
    ) -> Option<(UnfetchedCause, String, u64, u64)> {
        let due = all.iter().map(|(id, due, _)| (id.clone(), *due)).collect();
        let numbers = all.iter().map(|(id, _, numbers)| (id.clone(), *numbers)).collect();
        let found = errors.unfetched(&due, &numbers)?;
        Some((found.cause, found.topic.unwrap().to_string(), found.partitions, found.time.as_secs()))
    }

    #[test]
    fn a_refused_fetch_is_said_once_and_holds_until_something_is_fetched() {
        let mut errors = FetchErrors::default();
        let at = |position| [(id("spans", 0), due(20), numbers(position))];
        assert_eq!(found(&mut errors, &at(10)), None, "it is due, and nothing failed");
        errors.hear(&id("spans", 0), &KafkaError::MessageConsumption(TopicAuthorizationFailed));
        errors.hear(&id("spans", 0), &KafkaError::MessageConsumption(QueueFull));
        let refused = Some((TopicRefused, "spans".to_owned(), 1, 20));
        assert_eq!(found(&mut errors, &at(10)), refused);
        assert_eq!(found(&mut errors, &at(10)), refused);
        assert_eq!(found(&mut errors, &at(11)), None);
        assert_eq!(found(&mut errors, &at(11)), None, "it was fetched");
        errors.hear(&id("spans", 0), &KafkaError::MessageConsumption(TopicAuthorizationFailed));
        assert_eq!(found(&mut errors, &at(12)), refused, "it moved before this look");
        errors.hear(&id("spans", 0), &KafkaError::PartitionEOF(0));
        assert_eq!(found(&mut errors, &at(12)), None, "its end is known");
    }

    #[test]
    fn the_gravest_cause_is_said_with_its_partitions() {
        let mut errors = FetchErrors::default();
        let unknown = PartitionStats { is_unknown: true, is_leaderless: true, ..numbers(10) };
        let leaderless = PartitionStats { is_leaderless: true, ..numbers(10) };
        let helpless = Due { is_helpless: true, ..due(70) };
        let mut all = vec![
            (id("a", 0), helpless, numbers(10)),
            (id("b", 0), due(50), leaderless),
            (id("b", 1), due(60), leaderless),
            (id("c", 0), due(40), unknown),
            (id("d", 0), due(5), numbers(10)),
            (id("d", 1), due(15), numbers(10)),
        ];
        errors.hear(&id("a", 0), &KafkaError::MessageConsumption(BrokerTransportFailure));
        for partition in 0..2 {
            errors.hear(&id("d", partition), &KafkaError::MessageConsumption(TopicAuthorizationFailed));
        }
        for (cause, topic, partitions, seconds) in [
            (TopicRefused, "d", 2, 15),
            (TopicUnknown, "c", 1, 40),
            (NoLeader, "b", 2, 60),
            (Other, "a", 1, 70),
        ] {
            assert_eq!(found(&mut errors, &all), Some((cause, topic.to_owned(), partitions, seconds)));
            all.retain(|(id, ..)| &*id.topic != topic);
        }
        assert_eq!(found(&mut errors, &all), None);
    }
}
