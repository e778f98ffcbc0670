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
//! Owner: its own task, so that no insert and no start waits for it. Limits: every [`ASK_INTERVAL`] each server is asked once,
//! [`SERVERS_ASKED_MAX`] at a time and each within its timeout; its answer counts at once. So a server that does not answer makes the facts of
//! no other one old. While a server does not answer, its last answer holds for [`OUTDATED_AFTER`]. Parts that are not known, as
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
use tokio::task::JoinSet;

/// How often the servers are asked. Chosen: a table that merges nothing gets some tens of parts a second, and half of the default limit is
/// 500 of them; the question reads metadata only.
pub const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// Servers that are asked at a time, of all shards. Chosen: a question to a silent server takes 20 s, so 64 shards with one silent server each
/// have answers within 80 s; some KiB of memory for each.
pub const SERVERS_ASKED_MAX: usize = 16;

/// How long an answer of a server holds while it does not answer. Chosen: a server that is busy with merges may miss some questions.
pub const OUTDATED_AFTER: Duration = Duration::from_mins(1);

/// Merges are behind from this share of `parts_to_delay_insert` on. Chosen: merges that keep up leave tens of parts in a partition, and the
/// limit is 1,000 by default; the other half is time for larger blocks to have an effect.
const BEHIND_FROM: f64 = 0.5;

/// They have caught up below this share. Chosen: a distance at which the blocks do not change their size with each look.
const CAUGHT_UP_BELOW: f64 = 0.35;

/// Watches the tables of all shards.
pub struct PartsWatch {
    shards: Vec<(Arc<Sink>, Known)>,
    merges: ShardFlags,
    metrics: Arc<Metrics>,
}

/// What is known of one shard's table.
#[derive(Debug, Default)]
struct Known {
    /// By the server's position in the config.
    of_servers: Vec<OfServer>,
    are_merges_behind: bool,
}

/// What is known of the table at one server.
#[derive(Debug, Default)]
struct OfServer {
    /// The last answer, and when it came.
    last: Option<(TableParts, Instant)>,
    /// The last logged reason why nothing is known.
    said: String,
}

/// A server's answer.
type Answer = Result<Option<TableParts>, ProbeError>;

impl PartsWatch {
    /// Asks nothing yet. Sets `merges` for shards in whose table merges are behind.
    pub fn new(shards: &[Sink], merges: ShardFlags, metrics: Arc<Metrics>) -> Self {
        let shards = shards.iter().map(|sink| (Arc::new(sink.clone()), Known::of(sink.servers()))).collect();
        Self { shards, merges, metrics }
    }

    /// Asks and reports periodically.
    pub async fn run(mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }

    /// Asks every server of every shard once.
    pub async fn look(&mut self) {
        let questions: Vec<_> = self
            .shards
            .iter()
            .enumerate()
            .flat_map(|(shard, (sink, _))| {
                (0..sink.servers()).map(move |place| question(shard, sink.clone(), place))
            })
            .collect();
        ask(questions, |(shard, place, answer)| self.take(shard, place, &answer)).await;
    }

    /// Takes an answer of the server at this place of a shard.
    fn take(&mut self, shard: usize, place: usize, answer: &Answer) {
        let (sink, known) = &mut self.shards[shard];
        known.say_unknown(sink, place, answer);
        if known.see(place, answer, Instant::now()) {
            known.say_change(sink);
        }
        self.merges.say(shard, known.are_merges_behind);
        let behind = self.shards.iter().filter(|(_, known)| known.are_merges_behind);
        let behind = nearest(behind.filter_map(|(_, known)| known.parts()));
        let nearest = nearest(self.shards.iter().filter_map(|(_, known)| known.parts()));
        self.metrics.table_parts.show(nearest, behind);
    }
}

/// Asks one server, and keeps which one it is.
async fn question(shard: usize, sink: Arc<Sink>, place: usize) -> (usize, usize, Answer) {
    let answer = sink.parts(place).await;
    (shard, place, answer)
}

/// Asks all of them, [`SERVERS_ASKED_MAX`] at a time, and hands on each answer when it comes.
async fn ask<T, F>(questions: Vec<F>, mut take: impl FnMut(T))
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (mut questions, mut asked) = (questions.into_iter(), JoinSet::new());
    loop {
        while asked.len() < SERVERS_ASKED_MAX
            && let Some(question) = questions.next()
        {
            asked.spawn(question);
        }
        let Some(answer) = asked.join_next().await else {
            return;
        };
        take(answer.expect("a panic ends the process"));
    }
}

/// Those that are nearest to delaying INSERTs.
fn nearest(parts: impl Iterator<Item = TableParts>) -> Option<TableParts> {
    parts.max_by(|one, other| one.delay_ratio().total_cmp(&other.delay_ratio()))
}

impl Known {
    fn of(servers: usize) -> Self {
        Self { of_servers: (0..servers).map(|_| OfServer::default()).collect(), are_merges_behind: false }
    }

    /// Those of the server that is nearest to delaying INSERTs.
    fn parts(&self) -> Option<TableParts> {
        nearest(self.of_servers.iter().filter_map(|server| server.last).map(|(parts, _)| parts))
    }

    /// Takes an answer of the server at this place. Returns whether merges are behind now and were not before, or the other way round.
    fn see(&mut self, place: usize, answer: &Answer, now: Instant) -> bool {
        let last = &mut self.of_servers[place].last;
        *last = match answer {
            Ok(found) => found.map(|found| (found, now)),
            Err(error) if error.is_unanswered() => {
                last.filter(|(_, at)| now.saturating_duration_since(*at) < OUTDATED_AFTER)
            }
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

    /// Says once why the number of parts at a server is not known. A server that does not answer is said elsewhere.
    fn say_unknown(&mut self, sink: &Sink, place: usize, answer: &Answer) {
        let text = match answer {
            Err(error) if error.is_unanswered() => return,
            Err(error) => error.to_string(),
            Ok(None) => "the table's engine has no parts of its own".to_owned(),
            Ok(Some(_)) => String::new(),
        };
        let said = &mut self.of_servers[place].said;
        if !text.is_empty() && text != *said {
            let (table, server, remedy) =
                (sink.table_name(), sink.probes()[place].endpoint(), remedy(answer));
            tracing::info!(
                table,
                %server,
                reason = text,
                "the gateway cannot count the table's parts at this server, so it does not notice there that merges are behind{remedy}"
            );
        }
        *said = text;
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
        let (mut known, now) = (Known::of(1), Instant::now());
        for (count, is_behind, changes) in [
            (0, false, false),
            (499, false, false),
            (500, true, true),
            (2_900, true, false),
            (400, true, false),
            (349, false, true),
            (499, false, false),
        ] {
            assert_eq!(known.see(0, &Ok(Some(table_parts(count))), now), changes, "{count}");
            assert_eq!(known.are_merges_behind, is_behind, "{count}");
        }
        let large = TableParts { parts: 900, delay_from: 1_000, refuse_from: 3_000, are_large: true };
        assert!(!known.see(0, &Ok(Some(large)), now), "ClickHouse does not count them");
    }

    #[test]
    fn what_is_not_known_is_not_behind() {
        let (mut known, now) = (Known::of(1), Instant::now());
        assert!(!known.see(0, &Err(silent()), now) && known.parts().is_none());
        for unknown in [Ok(None), Err(refused())] {
            assert!(known.see(0, &Ok(Some(table_parts(600))), now));
            assert!(known.see(0, &unknown, now), "{unknown:?}");
            assert!(known.parts().is_none() && !known.are_merges_behind);
        }
    }

    #[test]
    fn a_server_that_misses_questions_changes_nothing_for_a_minute() {
        let (mut known, now) = (Known::of(1), Instant::now());
        assert!(known.see(0, &Ok(Some(table_parts(600))), now));
        assert!(!known.see(0, &Err(silent()), now + Duration::from_secs(59)));
        assert!(known.parts().is_some() && known.are_merges_behind);
        assert!(known.see(0, &Err(silent()), now + OUTDATED_AFTER));
        assert!(known.parts().is_none() && !known.are_merges_behind);
    }

    #[test]
    fn a_replica_that_misses_questions_counts_for_a_minute_though_another_one_answers() {
        let (mut known, now) = (Known::of(2), Instant::now());
        assert!(!known.see(0, &Ok(Some(table_parts(20))), now));
        assert!(known.see(1, &Ok(Some(table_parts(600))), now));
        for seconds in [10, 59] {
            let later = now + Duration::from_secs(seconds);
            assert!(!known.see(1, &Err(silent()), later) && !known.see(0, &Ok(Some(table_parts(20))), later));
            assert_eq!((known.parts(), known.are_merges_behind), (Some(table_parts(600)), true));
        }
        assert!(known.see(1, &Err(silent()), now + OUTDATED_AFTER));
        assert_eq!((known.parts(), known.are_merges_behind), (Some(table_parts(20)), false));
    }

    #[tokio::test(start_paused = true)]
    async fn one_silent_server_makes_the_answers_of_63_others_no_later() {
        let begun = tokio::time::Instant::now();
        let questions = (0_u32..64).map(|place| async move {
            tokio::time::sleep(Duration::from_secs(if place == 0 { 20 } else { 1 })).await;
            place
        });
        let mut answered = Vec::new();
        ask(questions.collect::<Vec<_>>(), |place| answered.push((place, begun.elapsed().as_secs()))).await;
        assert_eq!(answered.len(), 64);
        assert_eq!(answered.pop(), Some((0, 20)), "the silent one is the last");
        // 15 of them at a time.
        assert!(answered.iter().all(|(_, second)| *second <= 5), "{answered:?}");
        assert!(
            answered.iter().filter(|(_, second)| *second == 1).count() < SERVERS_ASKED_MAX,
            "{answered:?}"
        );
    }

    #[test]
    fn a_missing_right_is_named_with_its_grant() {
        assert!(remedy(&Err(refused())).contains("GRANT SELECT ON system.parts"));
        assert_eq!(remedy(&Ok(None)), "");
    }
}
