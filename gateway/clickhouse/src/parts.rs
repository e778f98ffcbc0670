//! How many parts a table has, and from how many on ClickHouse delays INSERTs and refuses them.
//!
//! Job: one query beside that for the engine. Place in the flow: the gateway's `parts_watch` asks periodically. Each INSERT makes a part in
//! each partition that it touches, and merges make few parts of many. If merges fall behind, a partition has more and more parts, and
//! ClickHouse looks at the partition that has most:
//!
//! | its active parts | an INSERT |
//! | --- | --- |
//! | fewer than `parts_to_delay_insert` | is stored at once |
//! | fewer than `parts_to_throw_insert` | is delayed, the longer the more parts there are |
//! | more | is refused with code 252, `TOO_MANY_PARTS` |
//!
//! If the parts of that partition are larger on average than `max_avg_part_size_for_too_many_parts`, it does neither. The settings of a query
//! or of its user's profile overrule those of the table, unless they are 0.
//!
//! Not known here: the parts of tables that materialized views fill, and those of tables that a `Distributed` table sends to.

use std::collections::BTreeMap;

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::{PROBE_TIMEOUT, Probe, is_replicated, setting_in};
use crate::probe_error::ProbeError;
use crate::settings::settings_table;
use crate::sql::{literal, table_name};

const DELAY: &str = "parts_to_delay_insert";
const REFUSE: &str = "parts_to_throw_insert";
const LARGE: &str = "max_avg_part_size_for_too_many_parts";

/// Settings of tables, and those of them that a query or a profile overrules.
const OF_TABLE: [&str; 3] = [DELAY, REFUSE, LARGE];
const OF_QUERY: [&str; 2] = [DELAY, REFUSE];

/// What stands before the name of a setting of the query in the answer.
const QUERY: &str = "query.";

/// The name in the answer of the row about parts.
const PARTS: &str = "parts";

/// The parts of a table and their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableParts {
    /// Active parts of the partition that has most.
    pub parts: u64,
    /// Parts of a partition from which on ClickHouse delays INSERTs; if it never delays any, those from which on it refuses them.
    pub delay_from: u64,
    /// Parts of a partition from which on ClickHouse refuses INSERTs.
    pub refuse_from: u64,
    /// Whether the parts are so large that ClickHouse neither delays nor refuses.
    pub are_large: bool,
}

/// A line of the answer: a setting with its value, or the number of parts and their mean size.
#[derive(Debug, Row, Deserialize)]
struct FoundRow {
    name: String,
    value: u64,
    bytes: u64,
}

impl TableParts {
    /// Parts as a share of those from which on ClickHouse delays INSERTs.
    pub fn delay_ratio(&self) -> f64 {
        self.ratio(self.delay_from)
    }

    /// Parts as a share of those from which on ClickHouse refuses INSERTs.
    pub fn refuse_ratio(&self) -> f64 {
        self.ratio(self.refuse_from)
    }

    fn ratio(&self, limit: u64) -> f64 {
        let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        if self.are_large { 0.0 } else { number(self.parts) / number(limit.max(1)) }
    }

    /// From the answer and the text of the engine. `None` if a limit is in neither.
    fn of(engine_full: &str, rows: &[FoundRow]) -> Option<Self> {
        let said = |name: &str| rows.iter().find(|row| row.name == name);
        let of_table = |name: &str| setting_in(engine_full, name).or(said(name).map(|row| row.value));
        let of_query =
            |name: &str| said(&format!("{QUERY}{name}")).map(|row| row.value).filter(|value| *value > 0);
        let limit = |name: &str| of_query(name).or_else(|| of_table(name));
        let (delay, refuse_from) = (limit(DELAY)?, limit(REFUSE)?);
        let delay_from = if delay == 0 { refuse_from } else { delay.min(refuse_from) };
        // A table without rows has no such line.
        let (parts, bytes) = said(PARTS).map_or((0, 0), |row| (row.value, row.bytes));
        let large = of_table(LARGE).unwrap_or_default();
        Some(Self { parts, delay_from, refuse_from, are_large: large > 0 && bytes > large })
    }
}

impl Probe {
    /// The parts of a table, for INSERTs with these settings of the config. `None` if its engine has none of its own, or the server does not
    /// know the limits.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or `system.parts` or the settings of tables may not be read.
    pub async fn parts(
        &self,
        table: &str,
        asked: &BTreeMap<String, String>,
    ) -> Result<Option<TableParts>, ProbeError> {
        let row = self.engine_row(table).await?;
        if !row.engine.ends_with("MergeTree") {
            return Ok(None);
        }
        let text = question(is_replicated(&row.engine));
        let question = asked
            .iter()
            .filter(|(name, _)| OF_QUERY.contains(&name.as_str()))
            .fold(self.whole(&text), |question, (name, value)| question.with_setting(name, value));
        let answer = question.bind(&self.database).bind(table).fetch_all::<FoundRow>();
        let action = format!("counting the parts of {}", table_name(&self.database, table));
        let rows = self.within(PROBE_TIMEOUT, &action, answer).await?;
        Ok(TableParts::of(&row.engine_full, &rows))
    }
}

/// One statement for all of it, so that a look costs a server little.
fn question(of_replicated: bool) -> String {
    let settings = settings_table(of_replicated);
    let (of_table, of_query) = (OF_TABLE.map(literal).join(", "), OF_QUERY.map(literal).join(", "));
    format!(
        "SELECT name, toUInt64OrZero(value) AS value, toUInt64(0) AS bytes FROM system.{settings} WHERE name IN ({of_table}) \
         UNION ALL SELECT concat('{QUERY}', name), toUInt64OrZero(value), toUInt64(0) FROM system.settings \
         WHERE name IN ({of_query}) \
         UNION ALL SELECT '{PARTS}', parts, bytes FROM (\
         SELECT count() AS parts, toUInt64(avg(bytes_on_disk)) AS bytes FROM system.parts \
         WHERE database = ? AND table = ? AND active GROUP BY partition_id ORDER BY parts DESC LIMIT 1)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str =
        "MergeTree PARTITION BY toDate(Timestamp) ORDER BY x SETTINGS index_granularity = 8192";

    /// The limits of a server, and what is found beside them.
    fn found(more: &[(&str, u64, u64)]) -> Vec<FoundRow> {
        let server = [(DELAY, 1_000, 0), (REFUSE, 3_000, 0), (LARGE, 1 << 30, 0)];
        let rows = server.iter().chain(more);
        rows.map(|(name, value, bytes)| FoundRow { name: (*name).to_owned(), value: *value, bytes: *bytes })
            .collect()
    }

    fn limits(engine_full: &str, more: &[(&str, u64, u64)]) -> (u64, u64, u64) {
        let parts = TableParts::of(engine_full, &found(more)).unwrap();
        (parts.parts, parts.delay_from, parts.refuse_from)
    }

    #[test]
    fn a_query_overrules_a_table_and_a_table_its_server() {
        let own = format!("{ENGINE}, parts_to_delay_insert = 20, parts_to_throw_insert = 30");
        let unset: [(&str, u64, u64); 2] =
            [("query.parts_to_delay_insert", 0, 0), ("query.parts_to_throw_insert", 0, 0)];
        let of_query: [(&str, u64, u64); 1] = [("query.parts_to_delay_insert", 7, 0)];
        assert_eq!(limits(ENGINE, &[("parts", 12, 90)]), (12, 1_000, 3_000));
        assert_eq!(limits(ENGINE, &unset), (0, 1_000, 3_000), "a table without rows has no part");
        assert_eq!(limits(&own, &unset), (0, 20, 30));
        assert_eq!(limits(&own, &of_query), (0, 7, 30));
        let never = format!("{ENGINE}, parts_to_delay_insert = 0");
        assert_eq!(limits(&never, &unset), (0, 3_000, 3_000), "refused without a delay before");
        let late = format!("{ENGINE}, parts_to_delay_insert = 5000");
        assert_eq!(limits(&late, &unset), (0, 3_000, 3_000));
    }

    #[test]
    fn a_server_that_does_not_name_the_limits_is_not_known() {
        assert_eq!(TableParts::of(ENGINE, &[]), None);
        let row = |name: &str| FoundRow { name: name.to_owned(), value: 9, bytes: 0 };
        assert_eq!(TableParts::of(ENGINE, &[row(DELAY), row(PARTS)]), None);
    }

    #[test]
    fn large_parts_are_never_too_many() {
        let of = |bytes| TableParts::of(ENGINE, &found(&[("parts", 600, bytes)])).unwrap();
        assert!((of(1 << 20).delay_ratio() - 0.6).abs() < 1e-9);
        assert!((of(1 << 20).refuse_ratio() - 0.2).abs() < 1e-9);
        assert!(of(2 << 30).delay_ratio().abs() < 1e-9);
        let none = format!("{ENGINE}, max_avg_part_size_for_too_many_parts = 0");
        let parts = TableParts::of(&none, &found(&[("parts", 600, 2 << 30)])).unwrap();
        assert!(!parts.are_large, "0 is no limit");
    }

    #[test]
    fn a_replicated_table_has_settings_of_its_own() {
        assert!(
            question(true).contains(
                "FROM system.replicated_merge_tree_settings WHERE name IN ('parts_to_delay_insert', "
            )
        );
        assert!(question(false).contains("FROM system.merge_tree_settings WHERE"));
        assert_eq!(question(false).matches('?').count(), 2, "the database and the table are bound");
    }
}
