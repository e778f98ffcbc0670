//! Whether a table drops rows that it stored under a token before, for how long, and what prevents it.
//!
//! Job: queries about everything that the guarantee "once" rests on. Place in the flow: the gateway's `guarantee` asks at the start and
//! periodically, and decides; `sluice-gateway check` prints the result. Limits: at most [`VIEWS_MAX`] views are examined, each query
//! takes at most [`crate::probe::PROBE_TIMEOUT`].

use std::collections::BTreeSet;
use std::time::Duration;

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::{Probe, TableEngine};
use crate::probe_error::ProbeError;
use crate::settings::PINNED;
use crate::sql::literal;
use crate::ttl::RowTtl;

/// Maximum number of views below a table that are examined, including views below the views' own tables. Chosen: far above any real
/// table; it also ends a loop of views.
pub const VIEWS_MAX: usize = 64;

/// The settings of [`PINNED`] without which a retry may be stored twice, or a block in pieces or incompletely.
pub(crate) const DECISIVE: [&str; 11] = [
    "async_insert",
    "deduplicate_insert",
    "deduplicate_blocks_in_dependent_materialized_views",
    "max_insert_block_size",
    "max_insert_block_size_bytes",
    "min_insert_block_size_rows",
    "input_format_max_block_size_bytes",
    "input_format_connection_handling",
    "wait_end_of_query",
    "timeout_overflow_mode",
    "materialized_views_ignore_errors",
];

/// The facts that one server reports about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deduplication {
    /// The server's version: year, month, patch, build.
    pub version: Version,
    /// The table's engine and window.
    pub engine: TableEngine,
    /// How long a token is remembered; `None`: until the window is full.
    pub window_age: Option<Duration>,
    /// Materialized views that inserts into the table fill.
    pub views: Vec<View>,
    /// Settings that the user's profile forces to another value than every INSERT sends.
    pub forced: Vec<Forced>,
    /// Settings for deduplication that something between the gateway and the server removes.
    pub lost: Vec<String>,
    /// The server's time zone, if the table's partitions depend on it: `ClickHouse` looks for a token in the partition of the rows.
    pub partition_zone: Option<String>,
    /// The table's UUID, which another table of the same name does not have: one that was exchanged, renamed or created again. `None` if the
    /// database gives its tables none.
    pub table_uuid: Option<String>,
    /// Where the servers behind this address store the table's tokens: several places if they do not share them, none if it is unknown.
    pub token_places: BTreeSet<String>,
}

/// A server's version, part by part; missing parts are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 4]);

impl Version {
    /// Parses `26.7.2.1`, with any suffix.
    pub fn parse(text: &str) -> Self {
        let mut parts = [0; 4];
        let numbers = text.split(|char: char| !char.is_ascii_digit()).map_while(|part| part.parse().ok());
        for (part, number) in parts.iter_mut().zip(numbers) {
            *part = number;
        }
        Self(parts)
    }

    /// Year and month.
    pub fn release(self) -> (u32, u32) {
        (self.0[0], self.0[1])
    }

    /// Whether deduplication works below a materialized view that groups rows into a partitioned table: it failed before 26.5.7.20,
    /// 26.6.3.19 and 26.7.3.9 (ClickHouse#112649).
    pub fn groups_into_partitions(self) -> bool {
        let fixed = match self.release() {
            (26, 5) => [26, 5, 7, 20],
            (26, 6) => [26, 6, 3, 19],
            _ => [26, 7, 3, 9],
        };
        self.0 >= fixed
    }

    /// Whether a server of this version recognizes tokens that a server of version `other` wrote: 26.6 changed their format
    /// (`insert_deduplication_version`).
    pub fn knows_tokens_of(self, other: Self) -> bool {
        (self.release() >= (26, 6)) == (other.release() >= (26, 6))
    }
}

/// A materialized view and the table that it fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// `database.view`.
    pub name: String,
    /// The engine of its table; empty if the user may not see the view or its table.
    pub engine: String,
    /// Number of blocks whose tokens its table remembers.
    pub window_blocks: u64,
    /// Whether it groups rows.
    pub groups: bool,
    /// Whether its table is partitioned.
    pub is_partitioned: bool,
}

impl View {
    /// Whether the user may see how it handles a retry.
    pub fn is_seen(&self) -> bool {
        !self.engine.is_empty()
    }

    /// Whether a retry that the table drops leaves the view unchanged, on a server of this version.
    pub fn is_once(&self, version: Version) -> bool {
        // Equal rows are merged into one.
        let is_idempotent = self.engine.ends_with("ReplacingMergeTree");
        let deduplicates = self.window_blocks > 0
            && (version.groups_into_partitions() || !(self.groups && self.is_partitioned));
        is_idempotent || deduplicates
    }
}

/// A setting that the server forces to another value than the pinned one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    pub name: String,
    /// The value in force.
    pub value: String,
}

#[derive(Debug, Row, Deserialize)]
struct SettingRow {
    name: String,
    value: String,
    readonly: u8,
    min: Option<String>,
    max: Option<String>,
}

impl SettingRow {
    /// Whether an INSERT cannot set `pinned`.
    fn forces(&self, pinned: &str) -> bool {
        let beyond = |limit: &Option<String>, above: bool| {
            let number = |text: &str| text.parse::<u64>().ok();
            match (limit.as_deref().and_then(number), number(pinned)) {
                (Some(limit), Some(pinned)) if above => pinned > limit,
                (Some(limit), Some(pinned)) => pinned < limit,
                _ => false,
            }
        };
        self.value != pinned && (self.readonly != 0 || beyond(&self.min, false) || beyond(&self.max, true))
    }
}

#[derive(Debug, Row, Deserialize)]
struct IdentityRow {
    partition_key: String,
    server_zone: String,
    uuid: String,
}

/// The UUID of a table without one.
const NO_UUID: &str = "00000000-0000-0000-0000-000000000000";

/// Whether a partition key depends on the server's time zone: it calls more functions than it names zones. A key over columns with a zone
/// of their own, or over numbers, counts as dependent, to be safe.
fn depends_on_zone(partition_key: &str) -> bool {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let calls =
        partition_key.match_indices('(').filter(|(at, _)| partition_key[..*at].ends_with(is_word)).count();
    let quoted = partition_key.split('\'').skip(1).step_by(2);
    let is_zone = |text: &&str| ["UTC", "GMT"].contains(text) || (text.contains('/') && !text.contains('%'));
    calls > quoted.filter(is_zone).count()
}

/// A view below a table; only its name when the user may not see it.
#[derive(Debug, Row, Deserialize)]
pub(crate) struct DependentRow {
    pub(crate) database: String,
    pub(crate) name: String,
    target_database: String,
    target_table: String,
    pub(crate) as_select: String,
    /// Empty when it reads inserted rows with the rights of the user that inserts.
    pub(crate) definer: String,
    pub(crate) create_table_query: String,
    target_partition_key: String,
}

impl Probe {
    /// All facts about a table that deduplication depends on.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, the table does not exist, or a right is missing.
    pub async fn deduplication(&self, table: &str) -> Result<Deduplication, ProbeError> {
        let version = Version::parse(&self.server_version().await?.text);
        let engine = self.engine(table).await?;
        let window_age = self.window_age(table, &engine).await?;
        let views = self.views(table).await?;
        let forced = self.forced().await?;
        // Settings that the profile does not allow cannot be sent with a query either.
        let lost = if forced.is_empty() { self.lost_settings().await? } else { Vec::new() };
        let (partition_zone, table_uuid) = self.zone_and_uuid(table).await?;
        let token_places = self.token_places(table, &engine).await;
        Ok(Deduplication {
            version,
            engine,
            window_age,
            views,
            forced,
            lost,
            partition_zone,
            table_uuid,
            token_places,
        })
    }

    /// Number of blocks ever inserted into the table by any client, except for deduplicated ones, approximately. Only the difference
    /// between two times is meaningful.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers or `system.parts` may not be read.
    pub async fn blocks_written(&self, table: &str) -> Result<u64, ProbeError> {
        // A table without replicas numbers its blocks globally, a replicated one per partition.
        let question = "SELECT toUInt64(if(startsWith(any(engine), 'Replicated') OR startsWith(any(engine), 'Shared'), \
                        sum(last), max(last))) FROM (\
                        SELECT any(engine) AS engine, max(max_block_number) AS last FROM system.parts \
                        WHERE database = ? AND table = ? AND active GROUP BY partition_id)";
        let answer = self.whole(question).bind(&self.database).bind(table).fetch_one::<u64>();
        self.within(crate::probe::PROBE_TIMEOUT, "reading system.parts", answer).await
    }

    /// The server's time zone if the table's partitions depend on it, and the table's UUID.
    async fn zone_and_uuid(&self, table: &str) -> Result<(Option<String>, Option<String>), ProbeError> {
        let question = "SELECT partition_key, serverTimezone() AS server_zone, toString(uuid) AS uuid FROM system.tables \
                        WHERE database = ? AND name = ?";
        let answer =
            self.client().query(question).bind(&self.database).bind(table).fetch_optional::<IdentityRow>();
        let action = format!("reading the partition key of {}.{table}", self.database);
        let Some(row) = self.within(crate::probe::PROBE_TIMEOUT, &action, answer).await? else {
            return Ok((None, None));
        };
        let zone = depends_on_zone(&row.partition_key).then_some(row.server_zone);
        Ok((zone, Some(row.uuid).filter(|uuid| uuid != NO_UUID)))
    }

    async fn window_age(&self, table: &str, engine: &TableEngine) -> Result<Option<Duration>, ProbeError> {
        if !engine.is_replicated() {
            return Ok(None);
        }
        let seconds = self.table_setting(table, "replicated_deduplication_window_seconds").await?;
        Ok(Some(Duration::from_secs(seconds)))
    }

    async fn forced(&self) -> Result<Vec<Forced>, ProbeError> {
        let names = DECISIVE.map(literal).join(", ");
        let question =
            format!("SELECT name, value, readonly, min, max FROM system.settings WHERE name IN ({names})");
        let answer = self.client().query_raw(&question).fetch_all::<SettingRow>();
        let rows = self.within(crate::probe::PROBE_TIMEOUT, "reading system.settings", answer).await?;
        let pinned = |name: &str| PINNED.iter().find(|(pinned, _)| *pinned == name).map(|(_, value)| *value);
        let forced = rows.into_iter().filter(|row| pinned(&row.name).is_some_and(|value| row.forces(value)));
        Ok(forced.map(|SettingRow { name, value, .. }| Forced { name, value }).collect())
    }

    async fn views(&self, table: &str) -> Result<Vec<View>, ProbeError> {
        let mut views: Vec<View> = Vec::new();
        let mut tables = vec![(self.database.clone(), table.to_owned())];
        while let Some((database, table)) = tables.pop() {
            for row in self.dependents(&database, &table).await? {
                if views.len() == VIEWS_MAX {
                    return Ok(views);
                }
                let view = self.view(&row).await?;
                if view.is_seen() {
                    tables.push((row.target_database, row.target_table));
                }
                views.push(view);
            }
        }
        Ok(views)
    }

    pub(crate) async fn dependents(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<DependentRow>, ProbeError> {
        let action = format!("looking for views of {database}.{table}");
        // A table lists all views below it, even those that the user may not see; for these only the name is known.
        let question = "SELECT dependent.1 AS database, dependent.2 AS name, target_database, target_table, \
                        view.as_select AS as_select, view.definer AS definer, view.create_table_query AS create_table_query, target.partition_key AS target_partition_key \
                        FROM (SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table)) AS dependent \
                        FROM system.tables WHERE database = ? AND name = ?) AS below \
                        LEFT JOIN system.tables AS view ON view.database = dependent.1 AND view.name = dependent.2 \
                        LEFT JOIN system.tables AS target \
                        ON target.database = view.target_database AND target.name = view.target_table \
                        WHERE view.engine IN ('MaterializedView', '')";
        let answer = self.client().query(question).bind(database).bind(table).fetch_all::<DependentRow>();
        self.within(crate::probe::PROBE_TIMEOUT, &action, answer).await
    }

    async fn view(&self, row: &DependentRow) -> Result<View, ProbeError> {
        let target = self.of(&row.target_database).engine(&row.target_table).await;
        let engine = match target {
            Ok(engine) => engine,
            // A table that the user may not see cannot be judged.
            Err(ProbeError::UnknownTable { .. }) => {
                TableEngine { name: String::new(), deduplication_window_blocks: 0, ttl: RowTtl::default() }
            }
            Err(error) => return Err(error),
        };
        Ok(View {
            name: format!("{}.{}", row.database, row.name),
            engine: engine.name,
            window_blocks: engine.deduplication_window_blocks,
            groups: row.as_select.contains(" GROUP BY "),
            is_partitioned: !row.target_partition_key.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_part_by_part() {
        assert_eq!(Version::parse("26.7.2.1"), Version([26, 7, 2, 1]));
        assert_eq!(Version::parse("25.8.16.10001.altinitystable"), Version([25, 8, 16, 10_001]));
        assert_eq!(Version::parse("unknown"), Version([0; 4]));
        let table = [
            ("26.7.2.1", false),
            ("26.7.3.9", true),
            ("26.7.12.1", true),
            ("26.6.3.19", true),
            ("26.6.3.18", false),
            ("26.5.7.20", true),
            ("26.4.99.1", false),
            ("26.9.1.1", true),
        ];
        for (version, works) in table {
            assert_eq!(Version::parse(version).groups_into_partitions(), works, "{version}");
        }
        let knows = |a, b| Version::parse(a).knows_tokens_of(Version::parse(b));
        assert!(knows("26.7.2.1", "26.6.1.1") && knows("26.5.1.1", "26.3.1.1"));
        assert!(!knows("26.6.1.1", "26.5.9.1") && !knows("26.5.9.1", "26.7.1.1"));
    }

    #[test]
    fn a_partition_key_without_a_zone_depends_on_the_servers() {
        let table = [
            ("", false),
            ("Day", false),
            ("tuple()", true),
            ("toDate(Timestamp)", true),
            ("toDate32(Timestamp, 'UTC')", false),
            ("toYYYYMM(Timestamp, 'Europe/Berlin')", false),
            ("(toDate(Timestamp, 'UTC'), toHour(Timestamp))", true),
            ("(toDate(Timestamp, 'UTC'), ServiceName)", false),
            ("dateTrunc('day', Timestamp)", true),
            ("dateTrunc('day', Timestamp, 'UTC')", false),
            ("formatDateTime(Timestamp, '%Y/%m')", true),
            ("é('", false),
        ];
        for (key, depends) in table {
            assert_eq!(depends_on_zone(key), depends, "{key}");
        }
    }

    #[test]
    fn a_view_is_once_when_its_table_remembers_tokens_or_equal_rows_become_one() {
        let view = |engine: &str, window_blocks, groups, is_partitioned| View {
            name: "d.v".into(),
            engine: engine.into(),
            window_blocks,
            groups,
            is_partitioned,
        };
        let table = [
            (view("MergeTree", 100, false, true), true, true),
            (view("MergeTree", 0, false, false), false, false),
            (view("AggregatingMergeTree", 100, true, true), false, true),
            (view("AggregatingMergeTree", 100, true, false), true, true),
            (view("ReplacingMergeTree", 0, true, true), true, true),
            (view("ReplicatedReplacingMergeTree", 0, false, false), true, true),
            (view("SummingMergeTree", 0, true, false), false, false),
            (view("", 0, false, false), false, false),
        ];
        for (view, before, after) in table {
            assert_eq!(view.is_once(Version([26, 7, 2, 1])), before, "{view:?}");
            assert_eq!(view.is_once(Version([26, 7, 3, 9])), after, "{view:?}");
        }
    }

    #[test]
    fn a_setting_is_forced_when_the_pinned_value_cannot_be_had() {
        let row = |value: &str, readonly, min: Option<&str>, max: Option<&str>| SettingRow {
            name: "async_insert".into(),
            value: value.into(),
            readonly,
            min: min.map(str::to_owned),
            max: max.map(str::to_owned),
        };
        assert!(row("1", 1, None, None).forces("0"));
        assert!(row("1", 0, Some("1"), None).forces("0"));
        assert!(row("100", 0, None, Some("1000")).forces("1048449"));
        assert!(!row("1", 0, None, None).forces("0"));
        assert!(!row("1", 0, Some("0"), Some("1")).forces("0"));
        assert!(!row("0", 1, None, None).forces("0"));
    }

    #[test]
    fn what_is_decisive_is_pinned() {
        for name in DECISIVE {
            assert!(PINNED.iter().any(|(pinned, _)| *pinned == name), "{name}");
        }
    }
}
