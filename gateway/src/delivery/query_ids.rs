//! The `query_id` of each INSERT: by it the server's logs are asked what became of a block, so it must be no other pipeline's.
//!
//! ```text
//! TOKEN          - SCOPE                                            - PROCESS           - ATTEMPT
//! cluster, topic,  consumer group, database, table, shard: 16 hex    drawn anew: 8 hex    of this process, from 0
//! partition, range
//! ```
//!
//! A token names what is read. Two pipelines that read one topic into two tables of one server have equal tokens, which harms neither:
//! the server keeps tokens by table. Its query ids are one space for all tables. Before the scope was a part of them, the second of two
//! INSERTs at the same time was refused as running already (216), and the first one's success was taken for its own: its rows were lost.
//!
//! Every gateway of a pipeline, and every attempt of it, has the same scope. By the process a gateway finds what became of its own INSERTs. Attempts of a version without scopes are not found any more: a
//! block that such a gateway left in doubt counts as unknown and is sent again under its token. A table with a window drops it then if it is in.

use std::{
    fmt::Display,
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use twox_hash::XxHash3_64;

/// What the query ids of one shard of one pipeline have in common.
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
    /// Of the INSERTs that this consumer group makes into this table of the shard with this place in the config.
    pub fn of(consumer_group: &str, (database, table): (&str, &str), shard: usize) -> Self {
        let mut bytes = Vec::new();
        for text in [consumer_group, database, table] {
            // The length first, so that no two lists of texts are the same bytes.
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&(shard as u64).to_le_bytes());
        Self { scope: XxHash3_64::oneshot(&bytes), process: *PROCESS }
    }

    /// What the ids of all attempts under this token begin with, and no other query's.
    pub fn start(&self, token: impl Display) -> String {
        format!("{token}-{:016x}-", self.scope)
    }

    /// The id of one attempt.
    pub fn attempt(&self, token: impl Display, attempt: u32) -> String {
        format!("{token}-{:016x}-{:08x}-{attempt}", self.scope, self.process)
    }

    /// What every id of this process holds, and no other query's.
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
        // Another version of this program asks for what this one has sent.
        let ours = QueryIds::of("group", ("otel", "spans"), 0);
        assert_eq!(ours.start("token"), "token-42e754564567edad-");
        let id = QueryIds { process: 0xab, ..ours.clone() }.attempt("token", 3);
        assert_eq!(id, "token-42e754564567edad-000000ab-3");
        assert!(ours.attempt("token", 3).contains(&ours.own()));
        assert!(!id.contains(&ours.own()), "another gateway of the pipeline");
    }
}
