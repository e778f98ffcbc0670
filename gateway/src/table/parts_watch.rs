//! Watches how many parts the table has, and says when merges are behind.
//!
//! Each INSERT makes a part, and ClickHouse delays INSERTs and then refuses them once a partition has too many ([`TableParts`]). Well before
//! that the gateway makes fewer and larger blocks: [`BlockAge`](crate::blocks::batch::BlockAge) reads the flag of the shard.
//! ClickHouse's own delay then slows the gateway down, which adds no wait of its own. The operator reads the same from `/state` and adds no
//! gateways.
//!
//! ```text
//! parts / parts_to_delay_insert:   0 ........ 0.35 ........ 0.5 ........ 1 ........ 3 (by default)
//!                                    as always |  as before   |  larger    | delayed   | refused: 252
//! ```
//!
//! Owner: its own task, so that no insert and no start waits for it. Limits: one server is asked at a time, every [`ASK_INTERVAL`], each
//! question within its timeout. While no server of a shard answers, its last answer holds for [`OUTDATED_AFTER`]. Parts that are not known, as
//! of a user without the right or a table with another engine, change nothing and are shown nowhere.

use crate::{
    ground::{metrics::Metrics, shard_flags::ShardFlags},
    table::sink::Sink,
};
use sluice_clickhouse::{parts::TableParts, probe_error::ProbeError};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often the servers are asked. Chosen: a table that merges nothing gets some tens of parts a second, and half of the default limit is
/// 500 of them; the question reads metadata only.
pub const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// How long an answer holds while no server of the shard answers. Chosen: a server that is busy with merges may miss some questions.
pub const OUTDATED_AFTER: Duration = Duration::from_mins(1);

/// Merges are behind from this share of `parts_to_delay_insert` on. Chosen: merges that keep up leave tens of parts in a partition, and the
/// limit is 1,000 by default; the other half is time for larger blocks to have an effect.
const BEHIND_FROM: f64 = 0.5;

/// They have caught up below this share. Chosen: a distance at which the blocks do not change their size with each look.
const CAUGHT_UP_BELOW: f64 = 0.35;

/// Watches the tables of all shards.
pub struct PartsWatch {
    shards: Vec<(Sink, Known)>,
    merges: ShardFlags,
    metrics: Arc<Metrics>,
}

/// What is known of one shard's table.
#[derive(Debug, Default)]
struct Known {
    /// The last answer, and when it came.
    last: Option<(TableParts, Instant)>,
    are_merges_behind: bool,
    /// The last logged reason why nothing is known.
    said: String,
}

/// An answer for a shard: of its server that is nearest to delaying INSERTs.
type Answer = Result<Option<TableParts>, ProbeError>;

impl PartsWatch {
    /// Asks nothing yet. Sets `merges` for shards in whose table merges are behind.
    pub fn new(shards: &[Sink], merges: ShardFlags, metrics: Arc<Metrics>) -> Self {
        let shards = shards.iter().map(|sink| (sink.clone(), Known::default())).collect();
        Self { shards, merges, metrics }
    }

    /// Asks and reports periodically.
    pub async fn run(mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }

    /// Asks the servers of every shard once.
    pub async fn look(&mut self) {
        for (shard, (sink, known)) in self.shards.iter_mut().enumerate() {
            let answer = sink.parts().await;
            known.say_unknown(sink, &answer);
            if known.see(&answer, Instant::now()) {
                known.say_change(sink);
            }
            self.merges.say(shard, known.are_merges_behind);
        }
        let found = self.shards.iter().filter_map(|(_, known)| known.parts());
        let worst = found.max_by(|one, other| one.delay_ratio().total_cmp(&other.delay_ratio()));
        let is_behind = self.shards.iter().any(|(_, known)| known.are_merges_behind);
        self.metrics.table_parts.show(worst, is_behind);
    }
}

impl Known {
    fn parts(&self) -> Option<TableParts> {
        self.last.map(|(parts, _)| parts)
    }

    /// Takes an answer. Returns whether merges are behind now and were not before, or the other way round.
    fn see(&mut self, answer: &Answer, now: Instant) -> bool {
        let is_recent = |(_, at): &(TableParts, Instant)| now.saturating_duration_since(*at) < OUTDATED_AFTER;
        self.last = match answer {
            Ok(found) => found.map(|found| (found, now)),
            Err(error) if error.is_unanswered() => self.last.filter(is_recent),
            Err(_) => None,
        };
        let before = self.are_merges_behind;
        self.are_merges_behind = are_merges_behind(before, self.parts().map(|parts| parts.delay_ratio()));
        self.are_merges_behind != before
    }

    fn say_change(&self, sink: &Sink) {
        let (table, servers) = (sink.table_name(), sink.servers_named());
        match self.parts() {
            Some(TableParts { parts, delay_from, refuse_from, .. }) if self.are_merges_behind => {
                tracing::warn!(
                    table,
                    servers,
                    parts,
                    delay_from,
                    refuse_from,
                    "merges of ClickHouse are behind: it delays INSERTs once a partition of the table has delay_from parts, and \
                     refuses them (252) at refuse_from; the gateway makes larger blocks. Check system.merges, system.mutations and the \
                     server's disk; more gateways would make more parts"
                );
            }
            Some(TableParts { parts, .. }) => {
                tracing::info!(table, servers, parts, "merges of ClickHouse keep up again");
            }
            None => {
                tracing::info!(table, servers, "the gateway no longer knows how many parts the table has");
            }
        }
    }

    /// Says once why the number of parts is not known. A server that does not answer is said elsewhere.
    fn say_unknown(&mut self, sink: &Sink, answer: &Answer) {
        let text = match answer {
            Err(error) if error.is_unanswered() => return,
            Err(error) => error.to_string(),
            Ok(None) => "the table's engine has no parts of its own".to_owned(),
            Ok(Some(_)) => String::new(),
        };
        if !text.is_empty() && text != self.said {
            let (table, remedy) = (sink.table_name(), remedy(answer));
            tracing::info!(
                table,
                reason = text,
                "the gateway cannot count the table's parts, so it does not notice that merges are behind{remedy}"
            );
        }
        self.said = text;
    }
}

/// Whether merges are behind, by the parts as a share of those from which on ClickHouse delays INSERTs.
fn are_merges_behind(before: bool, delay_ratio: Option<f64>) -> bool {
    delay_ratio.is_some_and(|ratio| ratio >= if before { CAUGHT_UP_BELOW } else { BEHIND_FROM })
}

/// What lets the gateway count them, as the end of a sentence.
fn remedy(answer: &Answer) -> &'static str {
    if matches!(answer, Err(ProbeError::Refused { .. })) {
        ": GRANT SELECT ON system.parts, system.merge_tree_settings and system.replicated_merge_tree_settings to the gateway's user"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_parts(parts: u64) -> TableParts {
        TableParts { parts, delay_from: 1_000, refuse_from: 3_000, are_large: false }
    }

    fn refused() -> ProbeError {
        let (action, endpoint) = ("counting the parts".to_owned(), "http://c:8123".to_owned());
        ProbeError::Refused { action, endpoint, code: 497, reason: "no".to_owned() }
    }

    fn silent() -> ProbeError {
        let (action, endpoint) = ("counting the parts".to_owned(), "http://c:8123".to_owned());
        ProbeError::Unreachable { action, endpoint, reason: "refused".to_owned() }
    }

    #[test]
    fn merges_are_behind_from_half_of_the_limit_until_a_good_part_is_merged() {
        let (mut known, now) = (Known::default(), Instant::now());
        for (count, is_behind, changes) in [
            (0, false, false),
            (499, false, false),
            (500, true, true),
            (2_900, true, false),
            (400, true, false),
            (349, false, true),
            (499, false, false),
        ] {
            assert_eq!(known.see(&Ok(Some(table_parts(count))), now), changes, "{count}");
            assert_eq!(known.are_merges_behind, is_behind, "{count}");
        }
        let large = TableParts { parts: 900, delay_from: 1_000, refuse_from: 3_000, are_large: true };
        assert!(!known.see(&Ok(Some(large)), now), "ClickHouse does not count them");
    }

    #[test]
    fn what_is_not_known_is_not_behind() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(!known.see(&Err(silent()), now) && known.parts().is_none());
        for unknown in [Ok(None), Err(refused())] {
            assert!(known.see(&Ok(Some(table_parts(600))), now));
            assert!(known.see(&unknown, now), "{unknown:?}");
            assert!(known.parts().is_none() && !known.are_merges_behind);
        }
    }

    #[test]
    fn a_server_that_misses_questions_changes_nothing_for_a_minute() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(known.see(&Ok(Some(table_parts(600))), now));
        assert!(!known.see(&Err(silent()), now + Duration::from_secs(59)));
        assert!(known.parts().is_some() && known.are_merges_behind);
        assert!(known.see(&Err(silent()), now + OUTDATED_AFTER));
        assert!(known.parts().is_none() && !known.are_merges_behind);
    }

    #[test]
    fn a_missing_right_is_named_with_its_grant() {
        assert!(remedy(&Err(refused())).contains("GRANT SELECT ON system.parts"));
        assert_eq!(remedy(&Ok(None)), "");
    }
}
