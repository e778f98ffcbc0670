//! The durability of rows that the server has acknowledged.
//!
//! Job: the three kinds of durability, the settings that give them, and ([`question`]) which of them a server gives a table. Place in the
//! flow: [`crate::ddl`] writes the table's settings; the gateway sends those of INSERTs, asks periodically, and reports the answer beside
//! the delivery guarantee. The answer changes no behaviour.
//!
//! | kind | rows survive | set by |
//! | --- | --- | --- |
//! | [`Durability::Process`] | the end of the server's process: parts are files, in the memory of the kernel | nothing: the server's default |
//! | [`Durability::Fsync`] | a power failure of the server's host | [`SYNC_SETTINGS`] of the table |
//! | [`Durability::Quorum`] | the loss of a host: a majority of replicas has each part | [`quorum_settings`] of each INSERT |
//!
//! Both of [`SYNC_SETTINGS`] are needed. Measured on 26.7 and ext4 with copies of the disk taken right after the answer (27 November 2026): with
//! both, 6 parts of 6 are whole; with `fsync_after_insert` alone all 6 still have their temporary names, under which the server deletes them
//! when it starts; with `fsync_part_directory` alone all 6 have empty files; with neither there is nothing.
//!
//! Limits: nothing is known for a table that hands rows on (`Distributed`), or that stores them in another way (`Memory`,
//! `SharedMergeTree`). Quorum needs Keeper: its settings follow ClickHouse's source, not a test.

#[cfg(feature = "client")]
mod question;

use std::fmt;
use std::time::Duration;

/// What acknowledged rows survive. In ascending order: of several servers the lowest counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The end of the server's process.
    #[default]
    Process,
    /// A power failure of its host, too.
    Fsync,
    /// The loss of its host, too.
    Quorum,
}

impl Durability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Process, Self::Fsync, Self::Quorum];

    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Fsync => "fsync",
            Self::Quorum => "quorum",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => {
                "process: rows survive the end of the ClickHouse process; a power failure of its host can lose the latest ones"
            }
            Self::Fsync => "fsync: rows survive a power failure of ClickHouse's host",
            Self::Quorum => "quorum: rows are on a majority of the replicas, or on as many as insert_quorum says",
        })
    }
}

/// The label of a durability, or of an unknown one.
pub fn label(known: Option<Durability>) -> &'static str {
    known.map_or(UNKNOWN, Durability::label)
}

/// The label of an unknown durability.
pub const UNKNOWN: &str = "unknown";

/// Settings of a table with which the server syncs a part, and its directory entry, before it answers.
pub const SYNC_SETTINGS: [&str; 2] = ["fsync_after_insert", "fsync_part_directory"];

/// The setting of an INSERT with the number of replicas that must have its parts before the server answers.
pub const QUORUM_SETTING: &str = "insert_quorum";

/// [`SYNC_SETTINGS`] switched on, as text for a statement.
pub fn sync_settings() -> String {
    SYNC_SETTINGS.map(|name| format!("{name} = 1")).join(", ")
}

/// Settings of an INSERT with this timeout that is acknowledged once a majority of the replicas has its parts.
///
/// The server waits for the other replicas after it has written the part. Its own limit for that is 10 minutes, and before 26.7 no other
/// limit ends it: an INSERT that the gateway has given up would run beside its retries. Half of the timeout leaves the other half for
/// writing, so that the answer (319, in doubt) arrives before the gateway gives up. Without `insert_quorum_parallel`, only one INSERT at
/// a time could wait, and all others would be refused (286).
pub fn quorum_settings(timeout: Duration) -> [(&'static str, String); 3] {
    let wait = (timeout / 2).as_millis();
    [
        (QUORUM_SETTING, "auto".to_owned()),
        ("insert_quorum_parallel", "1".to_owned()),
        ("insert_quorum_timeout", wait.to_string()),
    ]
}

/// Whether an INSERT with this value of [`QUORUM_SETTING`] waits for another replica. 1 means no.
pub fn is_quorum(value: &str) -> bool {
    !matches!(value, "" | "0" | "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_several_servers_is_the_first_in_order() {
        let least = Durability::ALL.into_iter().rev().reduce(Ord::min);
        assert_eq!(least, Some(Durability::Process));
        assert_eq!(Durability::ALL.map(Some).map(label), ["process", "fsync", "quorum"]);
        assert_eq!(label(None), "unknown");
        assert!(Some(Durability::Process) > None, "what is not known is less than anything known");
    }

    #[test]
    fn a_server_stops_waiting_for_replicas_before_the_gateway_stops_waiting_for_the_server() {
        let expected =
            [("insert_quorum", "auto"), ("insert_quorum_parallel", "1"), ("insert_quorum_timeout", "15000")];
        assert_eq!(
            quorum_settings(Duration::from_secs(30)),
            expected.map(|(name, value)| (name, value.to_owned()))
        );
        assert_eq!(quorum_settings(Duration::from_secs(2))[2].1, "1000");
    }

    #[test]
    fn one_replica_is_no_quorum() {
        for (value, waits) in [("0", false), ("1", false), ("", false), ("2", true), ("auto", true)] {
            assert_eq!(is_quorum(value), waits, "{value}");
        }
    }
}
