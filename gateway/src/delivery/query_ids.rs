//! The `query_id` of each INSERT. The server's logs are searched by it for a block's outcome, so it must differ from other pipelines' ids.
//!
//! ```text
//! TOKEN          - SCOPE                                            - PROCESS           - ATTEMPT
//! cluster, topic,  consumer group, database, table, shard: 16 hex    random: 8 hex         of this process, from 0
//! partition, range
//! ```
//!
//! A token names what is read. Two pipelines that read one topic into two tables of one server have equal tokens. That is harmless, because
//! the server keeps tokens by table. But it has one space of query ids for all tables. Without the scope in the
//! id, the server refused the second of two concurrent INSERTs as already running (216). The gateway took the first one's success for its
//! own, and its rows were lost.
//!
//! All gateways and attempts of a pipeline have the same scope. With the process part, a gateway finds its own INSERTs. Attempts of a
//! version without scopes are not found any more: a block that such a gateway left in doubt counts as unknown and is sent again under its
//! token. A table with a window drops it if it is already stored.

use std::{
    fmt::Display,
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use twox_hash::XxHash3_64;

/// The part of the query ids that is the same for one shard of one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryIds {
    scope: u64,
    process: u32,
}

/// The number of this process, random.
static PROCESS: LazyLock<u32> = LazyLock::new(|| {
    let [a, b, c, d, ..] = RandomState::new().hash_one("process").to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
});

impl QueryIds {
    /// For the INSERTs of this consumer group into this table; `shard` is the shard's position in the config.
    pub fn of(consumer_group: &str, (database, table): (&str, &str), shard: usize) -> Self {
        let mut bytes = Vec::new();
        for text in [consumer_group, database, table] {
            // Each text is preceded by its length, so that different lists of texts give different bytes.
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&(shard as u64).to_le_bytes());
        Self { scope: XxHash3_64::oneshot(&bytes), process: *PROCESS }
    }

    /// The prefix of the ids of all attempts under this token, and of no other query.
    pub fn start(&self, token: impl Display) -> String {
        format!("{token}-{:016x}-", self.scope)
    }

    /// The id of one attempt.
    pub fn attempt(&self, token: impl Display, attempt: u32) -> String {
        format!("{token}-{:016x}-{:08x}-{attempt}", self.scope, self.process)
    }

    /// The part that all ids of this process contain, and no other query's.
    pub fn own(&self) -> String {
        format!("-{:016x}-{:08x}-", self.scope, self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pipelines_never_answer_for_each_other() {
        let ours = QueryIds::of("group", ("otel", "spans"), 0);
        assert!(ours.attempt("token", 3).starts_with(&ours.start("token")));
        for other in [
            QueryIds::of("other", ("otel", "spans"), 0),
            QueryIds::of("group", ("other", "spans"), 0),
            QueryIds::of("group", ("otel", "other"), 0),
            QueryIds::of("group", ("otel", "spans"), 1),
            QueryIds::of("groupo", ("tel", "spans"), 0),
        ] {
            assert!(!other.attempt("token", 3).starts_with(&ours.start("token")), "{other:?}");
            assert!(!other.attempt("token", 3).contains(&ours.own()), "{other:?}");
        }
    }

    #[test]
    fn the_query_id_of_an_attempt_never_changes() {
        // Another version of this program looks up what this one has sent.
        let ours = QueryIds::of("group", ("otel", "spans"), 0);
        assert_eq!(ours.start("token"), "token-42e754564567edad-");
        let id = QueryIds { process: 0xab, ..ours.clone() }.attempt("token", 3);
        assert_eq!(id, "token-42e754564567edad-000000ab-3");
        assert!(ours.attempt("token", 3).contains(&ours.own()));
        assert!(!id.contains(&ours.own()), "another gateway of the pipeline");
    }
}
