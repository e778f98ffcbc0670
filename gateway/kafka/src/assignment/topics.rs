//! Whether the topics that are read are still the ones that they were.
//!
//! A topic that is deleted and made again keeps its name, and librdkafka reads on in it at the offset of before: what lies in front of that
//! is never read once the new log is longer. So brokers are asked for the ids every [`IDENTIFY_INTERVAL`].
//!
//! Why the process ends then: each partition of the topic stands at an offset that means nothing, in librdkafka too. A start reads where
//! they begin, finds plans that were committed under another id, and begins at the beginning of the log.
//!
//! Limits: what was read of the new topic until it was noticed is read again; its rows are doubled, and the next start says that they
//! may be ([`crate::ranges::Fresh::TopicRecreated`]). What an owner that is gone has committed meanwhile is read with its id.

use super::Assignment;
use crate::topic_ids::TopicIds;
use rdkafka::error::KafkaResult;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often brokers are asked. Chosen: one small request of each gateway, against what is doubled until it is answered.
const IDENTIFY_INTERVAL: Duration = Duration::from_secs(5);

/// A topic was deleted and made again under its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topic {topic} was deleted and made again: a new start reads it from its beginning, and what was read of it until now may be doubled"
)]
pub struct TopicMadeAnew {
    topic: Arc<str>,
}

impl Assignment {
    /// The topics to be asked about now; the attempt is taken down.
    pub(super) fn topics_due(&mut self) -> Option<Vec<Arc<str>>> {
        if self.owned.is_empty() || self.last_identified.elapsed() < IDENTIFY_INTERVAL {
            return None;
        }
        self.last_identified = Instant::now();
        let topics: BTreeSet<Arc<str>> = self.owned.keys().map(|id| id.topic.clone()).collect();
        Some(topics.into_iter().collect())
    }

    /// Brokers that do not answer, and a topic that is not there, say nothing: reading stands still by itself.
    pub(super) fn take_identified(&mut self, identified: KafkaResult<TopicIds>) {
        let Ok(identified) = identified else { return };
        let is_another = |then: [u8; 16], topic: &Arc<str>| matches!(identified.get(topic), Some(Ok(Some(now))) if *now != then);
        let found = self
            .owned
            .iter()
            .find(|(id, owned)| owned.ranges.topic_id().is_some_and(|then| is_another(then, &id.topic)));
        self.made_anew = found.map(|(id, _)| TopicMadeAnew { topic: id.topic.clone() });
    }

    /// The topic that was found to be another one, once.
    pub fn take_made_anew(&mut self) -> Option<TopicMadeAnew> {
        self.made_anew.take()
    }
}
