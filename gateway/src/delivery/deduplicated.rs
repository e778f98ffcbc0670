//! Counts rows that ClickHouse dropped because it knows the token of their block.
//!
//! A token makes a retry harmless. It also drops rows that a person wants back: after `DELETE` and a reset of the group's offsets,
//! ClickHouse stores none of the rows, but answers every INSERT as if it had. So the gateway asks the servers how many rows of this
//! process they dropped.
//!
//! Owner: its own task. Limits: one question at a time, to each server every [`LOOK_INTERVAL`]. Rows that a server drops in the last half
//! minute of the process are not counted, nor those that it drops while the user may not read `system.part_log`.

use crate::{
    delivery::query_ids::QueryIds, ground::metrics::Metrics, guarantee::LOOK_INTERVAL, table::sink::Sink,
};
use sluice_clickhouse::probe_error::ProbeError;
use std::sync::Arc;

/// Asks the servers of every shard.
pub struct Watch {
    servers: Vec<Server>,
    metrics: Arc<Metrics>,
    /// The last logged error of a server that could not be asked.
    said: String,
}

/// One server of one shard.
struct Server {
    sink: Sink,
    /// Its position in the shard.
    place: usize,
    /// The part that all query ids of this process contain.
    query_ids: String,
    /// The time up to which it was asked, in seconds since 1970 by its clock.
    until_seconds: Option<u32>,
}

impl Watch {
    /// For these shards; asks nothing yet.
    pub fn new(shards: &[Sink], consumer_group: &str, metrics: Arc<Metrics>) -> Self {
        let servers = shards.iter().enumerate().flat_map(|(shard, sink)| {
            let query_ids = QueryIds::of(consumer_group, sink.names(), shard).own();
            (0..sink.servers()).map(move |place| Server {
                sink: sink.clone(),
                place,
                query_ids: query_ids.clone(),
                until_seconds: None,
            })
        });
        Self { servers: servers.collect(), metrics, said: String::new() }
    }

    /// Asks the servers periodically.
    pub async fn run(mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Asks every server once and counts the rows.
    pub async fn look(&mut self) {
        let mut rows = 0;
        for server in &mut self.servers {
            let Server { sink, place, query_ids, until_seconds } = server;
            match sink.deduplicated(*place, query_ids, *until_seconds).await {
                Ok(found) => {
                    *until_seconds = Some(found.until_seconds);
                    rows += found.rows;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != self.said {
                        let remedy = remedy(&error);
                        tracing::info!(%error, "the gateway cannot count rows that ClickHouse drops as duplicates: {remedy}");
                        self.said = text;
                    }
                }
            }
        }
        self.metrics.rows_deduplicated.inc_by(rows);
        if rows > 0 {
            tracing::info!(
                rows,
                "ClickHouse dropped rows whose block tokens it knows: it has stored them before. Rows that were deleted since are not \
                 stored again; how to store them: gateway/DELIVERY.md, \"To store rows again\""
            );
        }
    }
}

/// What lets the gateway count these rows. Not counting them loses and doubles nothing.
fn remedy(error: &ProbeError) -> &'static str {
    match error {
        ProbeError::UnknownTable { .. } => "enable part_log in the server's configuration",
        ProbeError::Refused { .. } => "GRANT SELECT ON system.part_log to the gateway's user",
        ProbeError::Unreachable { .. }
        | ProbeError::Silent { .. }
        | ProbeError::Foreign { .. }
        | ProbeError::Tls { .. } => "it counts them when the server answers",
        ProbeError::UnknownDatabase { .. } | ProbeError::Other { .. } => {
            "the server cannot read system.part_log"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_the_log_is_told_to_enable_it() {
        let (action, endpoint, reason) =
            ("reading system.part_log".to_owned(), "http://c:8123".to_owned(), "none".to_owned());
        let unknown = ProbeError::UnknownTable {
            action: action.clone(),
            endpoint: endpoint.clone(),
            reason: reason.clone(),
        };
        assert!(remedy(&unknown).starts_with("enable part_log"));
        let refused = ProbeError::Refused { action, endpoint, code: 497, reason };
        assert!(remedy(&refused).starts_with("GRANT SELECT ON system.part_log"));
    }
}
