//! The durability of rows that ClickHouse has acknowledged.
//!
//! Job: the wanted durability, and its rules. `sluice-gateway ddl` creates tables accordingly; a gateway sends its INSERTs accordingly.

use crate::{Engine, gateway_config::ClickHouse, violation::Violations};
use serde::{Deserialize, Serialize};

/// The setting of an INSERT with the number of replicas that must have its parts.
const QUORUM_SETTING: &str = "insert_quorum";

/// What acknowledged rows survive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// The end of the ClickHouse process: parts are files that are not synced.
    #[default]
    Process,
    /// A power failure of ClickHouse's host: tables created by Sluice sync every part before an INSERT is acknowledged.
    Fsync,
    /// The loss of a host: an INSERT is acknowledged once a majority of the replicas has its parts. Only for replicated tables.
    /// `insert.settings` may set another number (`insert_quorum`) or another wait (`insert_quorum_timeout`, ms).
    Quorum,
}

impl Durability {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Adds what contradicts the wanted durability; `at` is the path of the sink.
pub(crate) fn check(sink: &ClickHouse, at: &str, found: &mut Violations) {
    if sink.schema.durability != Durability::Quorum {
        return;
    }
    // Other engines accept an INSERT that asks for a quorum, and acknowledge it without one.
    let is_replicated = sink.schema.engine.is_none_or(|engine| engine == Engine::ReplicatedMergeTree);
    found.add_if(!is_replicated, &format!("{at}.schema.engine"), || {
        "must be ReplicatedMergeTree with durability Quorum: other engines have no replicas".into()
    });
    let replicas = sink.insert.settings.get(QUORUM_SETTING);
    let is_none = replicas.is_some_and(|replicas| matches!(replicas.as_str(), "" | "0" | "1"));
    found.add_if(is_none, &format!("{at}.insert.settings.{QUORUM_SETTING}"), || {
        "is not a quorum, which schema.durability requires: remove it for a majority, or set it to 2 or more".into()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse::from_yaml, schema::Schema};

    fn found(schema: &str, settings: &str) -> Vec<String> {
        let sink =
            format!("table: otel_traces\n    schema: {{{schema}}}\n    insert: {{settings: {{{settings}}}}}");
        let config = crate::fixtures::SMALLEST.replace("table: otel_traces", &sink);
        from_yaml(&config).unwrap().check().err().iter().flatten().map(ToString::to_string).collect()
    }

    #[test]
    fn a_quorum_needs_replicas_and_more_than_one_of_them() {
        for (schema, settings) in [
            ("durability: Process, engine: 'Null'", "insert_quorum: '1'"),
            ("durability: Fsync, engine: MergeTree", ""),
            ("durability: Fsync, engine: 'Null'", ""),
            ("durability: Quorum", ""),
            ("durability: Quorum, engine: ReplicatedMergeTree", "insert_quorum: '3'"),
            ("durability: Quorum", "insert_quorum: auto"),
        ] {
            assert_eq!(found(schema, settings), Vec::<String>::new(), "{schema} {settings}");
        }
        for (schema, settings, expected) in [
            (
                "durability: Quorum, engine: MergeTree",
                "",
                "sink.clickhouse.schema.engine: must be Replicated",
            ),
            ("durability: Quorum, engine: 'Null'", "", "sink.clickhouse.schema.engine: must be Replicated"),
            (
                "durability: Quorum",
                "insert_quorum: '1'",
                "sink.clickhouse.insert.settings.insert_quorum: is not a quorum",
            ),
        ] {
            let found = found(schema, settings);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{schema}: {found:?}");
        }
    }

    #[test]
    fn the_usual_durability_is_not_written() {
        let written = |durability| serde_json::to_value(Schema { durability, ..Schema::default() }).unwrap();
        assert_eq!(written(Durability::Process).get("durability"), None);
        assert_eq!(written(Durability::Fsync)["durability"], "Fsync");
    }
}
