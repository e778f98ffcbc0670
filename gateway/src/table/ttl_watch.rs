//! Says in the log when the table's TTL deletes new rows at once.
//!
//! Owner: its own task, so that no insert and no start waits for it. Limits: one server is asked at a time, every [`ASK_INTERVAL`]; a
//! trial has limits of its own. A server that does not answer changes nothing.
//!
//! The gateway inserts rows whatever the TTL is: only a person knows whether it is meant.

use crate::table::sink::Sink;
use sluice_clickhouse::ttl::AtOnce;
use std::time::Duration;

/// How often the servers are asked. Chosen: a table's TTL is rarely altered, and a question reads metadata only.
const ASK_INTERVAL: Duration = Duration::from_mins(5);

/// Asks the servers of every shard.
pub struct TtlWatch {
    shards: Vec<(Sink, Said)>,
}

/// The rules that were logged last.
#[derive(Debug, Default)]
struct Said(Vec<String>);

/// What to log.
#[derive(Debug, PartialEq, Eq)]
enum Say {
    Nothing,
    /// Rules that act at once, all of them.
    AtOnce,
    /// Rules did, and no longer do.
    NoLonger,
}

impl TtlWatch {
    /// Asks nothing yet.
    pub fn new(shards: &[Sink]) -> Self {
        Self { shards: shards.iter().map(|sink| (sink.clone(), Said::default())).collect() }
    }

    /// Asks and logs periodically.
    pub async fn run(mut self) {
        loop {
            for (sink, said) in &mut self.shards {
                if let Some(rules) = sink.acting_at_once().await {
                    let (table, servers) = (sink.table_name(), sink.servers_named());
                    match said.now(&rules) {
                        Say::Nothing => {}
                        Say::AtOnce => {
                            for rule in &rules {
                                tracing::warn!(table, servers, "{rule}");
                            }
                        }
                        Say::NoLonger => {
                            tracing::info!(
                                table,
                                servers,
                                "the table's TTL no longer deletes new rows at once"
                            );
                        }
                    }
                }
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }
}

impl Said {
    /// Says a change once. The times in the reasons change with every answer and are not compared.
    fn now(&mut self, rules: &[AtOnce]) -> Say {
        let rules: Vec<String> = rules.iter().map(|rule| rule.rule.clone()).collect();
        let is_empty = rules.is_empty();
        let before = std::mem::replace(&mut self.0, rules);
        match (before == self.0, is_empty) {
            (true, _) => Say::Nothing,
            (false, false) => Say::AtOnce,
            (false, true) => Say::NoLonger,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_once() {
        let rule = |rule: &str, reason: &str| AtOnce { rule: rule.into(), reason: reason.into() };
        let mut said = Said::default();
        assert_eq!(said.now(&[]), Say::Nothing);
        assert_eq!(said.now(&[rule("a", "at noon")]), Say::AtOnce);
        assert_eq!(said.now(&[rule("a", "a minute later")]), Say::Nothing);
        assert_eq!(said.now(&[rule("a", "later"), rule("b", "later")]), Say::AtOnce);
        assert_eq!(said.now(&[]), Say::NoLonger);
        assert_eq!(said.now(&[]), Say::Nothing);
    }
}
