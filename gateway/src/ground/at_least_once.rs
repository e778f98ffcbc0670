//! The reasons why only "at least once" holds, and the measure of what is in doubt.

use std::{fmt, time::Duration};

/// Why only "at least once" holds. Ordered by what to fix first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No server has answered yet, for example because it refuses the password; or the user may not read the deduplication settings.
    NotProbed,
    /// The plan of ranges cannot be written or read.
    PlanUnavailable,
    /// Kafka removes messages from the middle of a range.
    TopicCompacted,
    /// The table forwards rows later (`Distributed`, `Buffer`).
    EngineForwards,
    /// The table's engine remembers no tokens (`Null`, `Memory`, `Log`).
    EngineForgets,
    /// The table's window is 0.
    WindowOff,
    /// The table forgets a token before a retry can arrive.
    WindowShort,
    /// There are several servers, and each has its own table.
    ServersNotReplicas,
    /// One address leads to several servers that do not share tokens, or its server was replaced.
    AddressBalances,
    /// The user's profile forces asynchronous inserts.
    AsyncInsertForced,
    /// The user's profile forces other settings than those of every INSERT.
    SettingsForced,
    /// Settings of INSERTs, including tokens, do not reach the server.
    SettingsLost,
    /// Blocks in flight during a change of the config go to other servers, or into another table.
    DestinationChanged,
    /// The server was upgraded to a version that does not know earlier tokens.
    ServerUpgraded,
    /// The table's partitions depend on the server's time zone, which has changed, or differs between servers.
    TimeZone,
    /// A range has been in doubt for longer than its token may be relied on.
    InDoubtTooOld,
    /// The gateway's user may not see a view below the table, or the view's table. The table itself has every row once.
    ViewsUnseen,
    /// A view below the table stores retries again. The table itself has every row once.
    ViewsNotOnce,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::NotProbed,
        Self::PlanUnavailable,
        Self::TopicCompacted,
        Self::EngineForwards,
        Self::EngineForgets,
        Self::WindowOff,
        Self::WindowShort,
        Self::ServersNotReplicas,
        Self::AddressBalances,
        Self::AsyncInsertForced,
        Self::SettingsForced,
        Self::SettingsLost,
        Self::DestinationChanged,
        Self::ServerUpgraded,
        Self::TimeZone,
        Self::InDoubtTooOld,
        Self::ViewsUnseen,
        Self::ViewsNotOnce,
    ];

    /// Whether a retry may be stored twice although the table has a window.
    pub(crate) fn voids_tokens(self) -> bool {
        matches!(
            self,
            Self::ServersNotReplicas
                | Self::AddressBalances
                | Self::AsyncInsertForced
                | Self::SettingsForced
                | Self::SettingsLost
                | Self::TimeZone
        )
    }

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotProbed => "not_probed",
            Self::PlanUnavailable => "plan_unavailable",
            Self::TopicCompacted => "topic_compacted",
            Self::EngineForwards => "engine_forwards",
            Self::EngineForgets => "engine_forgets",
            Self::WindowOff => "window_off",
            Self::WindowShort => "window_short",
            Self::ServersNotReplicas => "servers_not_replicas",
            Self::AddressBalances => "address_balances",
            Self::AsyncInsertForced => "async_insert_forced",
            Self::SettingsForced => "settings_forced",
            Self::SettingsLost => "settings_lost",
            Self::DestinationChanged => "destination_changed",
            Self::ServerUpgraded => "server_upgraded",
            Self::TimeZone => "time_zone",
            Self::InDoubtTooOld => "in_doubt_too_old",
            Self::ViewsUnseen => "views_unseen",
            Self::ViewsNotOnce => "views_not_once",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotProbed => "the gateway could not read the deduplication settings from the server",
            Self::PlanUnavailable => "the plan of ranges cannot be written to Kafka or read from it",
            Self::TopicCompacted => "the topic is compacted: Kafka removes messages from ranges in flight",
            Self::EngineForwards => "the table's engine forwards rows only after it has acknowledged them",
            Self::EngineForgets => "the table's engine keeps no deduplication tokens",
            Self::WindowOff => {
                "the table's deduplication window is 0; set non_replicated_deduplication_window to 10000"
            }
            Self::WindowShort => {
                "the table forgets a deduplication token before a retry arrives; increase its deduplication window"
            }
            Self::ServersNotReplicas => {
                "the servers are not replicas of one table, so a retry at another server is stored twice"
            }
            Self::AddressBalances => {
                "an address of sink.clickhouse leads to several servers that do not share deduplication tokens, or its server was \
                 replaced: a retry may be stored twice; give each shard its own address (shards)"
            }
            Self::AsyncInsertForced => "the user's profile forces async_insert",
            Self::SettingsForced => "the user's profile forces settings that deduplication needs",
            Self::SettingsLost => {
                "a proxy between the gateway and the server removes settings, including deduplication tokens, from the query string; \
                 let it pass all of them, or use the server itself as endpoint"
            }
            Self::DestinationChanged => {
                "the servers or the table of a shard were changed while ranges were in flight to the former ones, which may have them, too; \
                 suspend the pipeline and wait until it has drained before such a change"
            }
            Self::ServerUpgraded => {
                "the server was upgraded and has forgotten earlier deduplication tokens"
            }
            Self::TimeZone => {
                "PARTITION BY depends on the server's time zone, which has changed or differs between servers: a retry may go to \
                 another partition, which does not know its deduplication token; name a time zone in PARTITION BY"
            }
            Self::InDoubtTooOld => {
                "a range has been in doubt for longer than the server remembers its deduplication token"
            }
            Self::ViewsUnseen => {
                "the table has every row once, but the gateway's user cannot see a materialized view below it, or the view's table, and \
                 these may store retries again; GRANT SHOW TABLES, SHOW COLUMNS on both to the user. A view that reads the table with the \
                 rights of that user (SQL SECURITY INVOKER, or no SQL SECURITY) also needs GRANT SELECT on the table: without it, \
                 ClickHouse refuses every INSERT (497)"
            }
            Self::ViewsNotOnce => {
                "the table has every row once, but a materialized view below it stores retries again; give the view's table a \
                 deduplication window"
            }
        })
    }
}

/// The ranges in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Doubt {
    /// Their number.
    pub ranges: usize,
    /// How long ago the oldest one was sent.
    pub oldest: Duration,
    /// The largest share of its shard's window that a range has used. Half of the window is relied on. At 1, the range's token may be
    /// forgotten; above 1, it is waiting for longer. 1 if there is no window.
    pub window_used_ratio: f64,
}
