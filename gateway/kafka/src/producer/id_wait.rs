//! The wait for the id of a producer, without which librdkafka sends no message of it.
//!
//! librdkafka 2.12 asks a broker for the id at each answer about metadata, and 500 ms after the last one, if a connection is up at that moment
//! (`rd_kafka_idemp_pid_fsm`). The first answer comes over a connection to a broker of the config. From it librdkafka learns the brokers of the
//! cluster, and it closes that connection (`rd_kafka_metadata_decommission_unavailable_brokers`). Then no connection is up. librdkafka makes
//! the next one for a question, and not for a message: messages wait for the 500 ms. So the thread `topic` asks again soon.
//! A broker that cannot give an id yet is asked again in the same way.
//!
//! Pure. Owner: [`TopicState`](crate::producer::topic_watch::TopicState). Limits: [`ID_WAIT_MAX`], [`ASK_AGAIN_MIN`], [`ASK_AGAIN_MAX`].

use std::time::{Duration, Instant};

/// How long the edge is not ready because its first producer has no id. Chosen: ten times the 500 ms of librdkafka. After that a client gets an
/// answer that says when to send again, which no client gets from a Service without endpoints.
pub(super) const ID_WAIT_MAX: Duration = Duration::from_secs(5);

/// The shortest time between two questions. Chosen: a broker answers in less.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(5);

/// The longest one. Chosen: less than the 500 ms of librdkafka. About 20 questions are asked in [`ID_WAIT_MAX`].
const ASK_AGAIN_MAX: Duration = Duration::from_millis(320);

/// What is known of the producer's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdWait {
    /// No broker has answered about the topic yet.
    NotBegun,
    /// The first producer has had none since a broker answered. The edge is not ready.
    First { since: Instant },
    /// A producer in place of another has had none since then. The edge stays ready: errors that end producers often do so in all edges
    /// together, and then a Service would have no endpoints.
    Next { since: Instant },
    /// The producer had its id.
    There,
    /// The producer had no id in [`ID_WAIT_MAX`]. librdkafka alone asks for it.
    Missed,
}

impl IdWait {
    /// A broker has answered about the topic.
    #[must_use]
    pub(super) fn answered(self, now: Instant) -> Self {
        if self == Self::NotBegun { Self::First { since: now } } else { self }
    }

    /// Another producer is in place of this one. Its id is awaited only if this one had its own: an error that ends every producer before its
    /// id would cause questions without an end.
    #[must_use]
    pub(super) fn replaced(self, now: Instant) -> Self {
        if self == Self::There { Self::Next { since: now } } else { self }
    }

    /// Since when the id is awaited.
    pub(super) fn since(self) -> Option<Instant> {
        match self {
            Self::First { since } | Self::Next { since } => Some(since),
            Self::NotBegun | Self::There | Self::Missed => None,
        }
    }

    /// Whether the edge is not ready because of it. Does not depend on the thread `topic`, which may wait for a broker meanwhile.
    pub(super) fn keeps_unready(self, now: Instant) -> bool {
        matches!(self, Self::First { since } if now.saturating_duration_since(since) < ID_WAIT_MAX)
    }
}

/// How long to wait before the next question, after the id was awaited this long; `None` if the time is over. Each wait is as long as all before
/// it together.
pub(super) fn ask_again(waited: Duration) -> Option<Duration> {
    (waited < ID_WAIT_MAX).then(|| waited.clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn the_edge_is_not_ready_from_the_first_answer_until_the_id_or_the_end_of_the_time() {
        let begun = Instant::now();
        assert!(!IdWait::NotBegun.keeps_unready(begun));
        let wait = IdWait::NotBegun.answered(begun);
        assert_eq!(wait, IdWait::First { since: begun });
        assert_eq!(wait.answered(begun + MOMENT), wait, "later answers do not make it longer");
        let ended = begun + ID_WAIT_MAX;
        assert!(wait.keeps_unready(begun) && wait.keeps_unready(ended.checked_sub(MOMENT).unwrap()));
        assert!(!wait.keeps_unready(ended));
        for over in [IdWait::There, IdWait::Missed] {
            assert_eq!(over.answered(begun), over);
            assert!(!over.keeps_unready(begun));
            assert_eq!(over.since(), None);
        }
    }

    #[test]
    fn the_id_of_another_producer_is_awaited_if_the_one_before_had_its_own_and_the_edge_stays_ready() {
        let begun = Instant::now();
        let next = IdWait::There.replaced(begun);
        assert_eq!((next, next.since()), (IdWait::Next { since: begun }, Some(begun)));
        assert!(!next.keeps_unready(begun));
        for without in [IdWait::NotBegun, IdWait::First { since: begun }, next, IdWait::Missed] {
            assert_eq!(without.replaced(begun + MOMENT), without);
        }
    }

    #[test]
    fn questions_are_few_and_end_with_the_time() {
        let (mut waited, mut questions) = (Duration::ZERO, 0);
        while let Some(wait) = ask_again(waited) {
            assert!((ASK_AGAIN_MIN..=ASK_AGAIN_MAX).contains(&wait), "{wait:?}");
            waited += wait;
            questions += 1;
        }
        assert!(waited >= ID_WAIT_MAX && waited <= ID_WAIT_MAX + ASK_AGAIN_MAX, "{waited:?}");
        assert!((15..=25).contains(&questions), "{questions}");
    }
}
