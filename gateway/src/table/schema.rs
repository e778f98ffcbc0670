//! Compares the table with the config's schema, and changes the table as far as the config allows.
//!
//! Job: turns the config's `schema` section into statements, and reports the differences that only a person may change. Place in the flow:
//! `sluice-gateway ddl`, which the operator runs as a Job, and `check`; never while messages are read.
//!
//! | `schema.management` | missing database, table, view | missing column, durability by settings | any other difference |
//! | --- | --- | --- | --- |
//! | `None`, `Validate` | reported | reported | reported |
//! | `CreateIfMissing` | created | reported | reported |
//! | `Evolve` | created | added, changed | reported |
//!
//! Every server that answers is asked and changed separately, because without a cluster (`ON CLUSTER`) no other mechanism does it.
//! Statements have no effect when they are run twice, so an interrupted run is simply repeated.

use crate::table::sink::{Error, Sink};
use serde::Serialize;
use sluice_clickhouse::{
    column::{self, AttributeSet},
    ddl::{
        self, TableSpec, TypedPath,
        difference::{Change, Difference, Found, differences},
        view::View,
    },
    durability,
    optional::{self, OptionalGroup},
    probe::{Probe, unfit},
    probe_error::ProbeError,
    table,
};
use sluice_gateway_config::{
    ClickHouse, Durability, Engine, Layout, OptionalColumns, Preset, SchemaManagement, TypedPaths, Views,
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Characters of a difference's first line that are reported while it is changed.
const PROGRESS_CHARS_MAX: usize = 120;

/// What was done, and what still differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `database.table`.
    pub table: String,
    /// Whether the table was made.
    pub created: bool,
    /// The layout of attributes in it; empty while it is missing.
    pub columns: String,
    /// Every statement that was run, once for each server.
    pub statements: Vec<String>,
    /// What still differs, once for all servers that have it.
    pub differences: Vec<Differs>,
    /// Servers that did not answer, and why.
    pub unreachable: Vec<String>,
    /// The same servers, only with their addresses.
    #[serde(skip)]
    pub not_reached: Vec<String>,
}

/// A difference from the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Differs {
    /// The part of the table that differs.
    pub what: String,
    /// What the config asks for.
    pub wanted: String,
    /// What the server has.
    pub found: String,
    /// `Create`, `AddColumn`, `ModifySetting` or `ByHand`.
    pub change: &'static str,
    /// The statements that would remove the difference, or words for a person.
    pub would: Vec<String>,
    /// The difference in a sentence.
    pub message: String,
    /// The servers with this difference.
    pub servers: Vec<String>,
}

impl Report {
    /// Adds the differences that one server has.
    fn add(&mut self, found: &[Difference], server: &str) {
        for difference in found {
            let message = difference.to_string();
            match self.differences.iter_mut().find(|known| known.message == message) {
                Some(known) => known.servers.push(server.to_owned()),
                None => self.differences.push(Differs::of(difference, message, server)),
            }
        }
    }

    /// The differences, in a sentence each.
    pub fn messages(&self) -> Vec<&str> {
        self.differences.iter().map(|differs| &*differs.message).collect()
    }
}

impl Differs {
    fn of(difference: &Difference, message: String, server: &str) -> Self {
        let (change, would) = match &difference.change {
            Change::Create(statements) => ("Create", statements.clone()),
            Change::AddColumn(statement) => ("AddColumn", vec![statement.clone()]),
            Change::ModifySetting(statement) => ("ModifySetting", vec![statement.clone()]),
            Change::ByHand(words) => ("ByHand", vec![words.clone()]),
        };
        Self {
            what: difference.what.clone(),
            wanted: difference.wanted.clone(),
            found: difference.found.clone(),
            change,
            would,
            message,
            servers: vec![server.to_owned()],
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, columns, .. } = self;
        match (columns.is_empty(), self.created) {
            (true, _) => write!(f, "table {table} is missing")?,
            (false, true) => write!(f, "table {table} created: {columns}")?,
            (false, false) if self.differences.is_empty() => write!(f, "table {table} fits: {columns}")?,
            (false, false) => write!(f, "table {table} differs, and has: {columns}")?,
        }
        let of_table = format!("CREATE TABLE IF NOT EXISTS {}", quoted(table));
        let others = self.statements.iter().map(|statement| first_line(statement));
        for done in others.filter(|line| *line != of_table && !line.starts_with("CREATE DATABASE")) {
            write!(f, "\ndone: {done}")?;
        }
        for differs in &self.differences {
            write!(f, "\ndiffers: {}", differs.message)?;
        }
        for server in &self.unreachable {
            write!(f, "\nnot asked: {server}")?;
        }
        Ok(())
    }
}

fn quoted(table: &str) -> String {
    let (database, table) = table.split_once('.').unwrap_or(("", table));
    sluice_clickhouse::sql::table_name(database, table)
}

fn first_line(statement: &str) -> &str {
    statement.lines().next().unwrap_or_default()
}

impl Sink {
    /// Creates what is missing, as far as `management` allows, and compares the rest. Reports what it did.
    pub async fn apply(&self, management: SchemaManagement) -> Result<Report, Error> {
        self.apply_telling(management, &mut |_| ()).await
    }

    /// The same, and reports each step before it is done.
    pub async fn apply_telling(
        &self,
        management: SchemaManagement,
        tell: &mut impl FnMut(&str),
    ) -> Result<Report, Error> {
        let mut report = self.each_server(Some(management), tell).await?;
        if report.columns.is_empty() {
            // For a missing table or database, the error has the server's own words.
            report.columns = self.check_table().await?.columns.to_string();
        }
        Ok(report)
    }

    /// Compares; changes nothing. A table that is missing, or cannot be written to, is a difference.
    pub async fn differences(&self, tell: &mut impl FnMut(&str)) -> Result<Report, Error> {
        self.each_server(None, tell).await
    }

    async fn each_server(
        &self,
        management: Option<SchemaManagement>,
        tell: &mut impl FnMut(&str),
    ) -> Result<Report, Error> {
        let mut report = Report { table: self.table_name(), ..Report::default() };
        let mut unreachable = None;
        for probe in self.probes() {
            match self.mend(probe, management, &mut report, tell).await {
                Err(Error::Probe(
                    error @ (ProbeError::Unreachable { .. }
                    | ProbeError::Silent { .. }
                    | ProbeError::Foreign { .. }
                    | ProbeError::Tls { .. }),
                )) => {
                    report.unreachable.push(error.to_string());
                    report.not_reached.push(probe.endpoint().to_string());
                    unreachable = Some(error);
                }
                mended => mended?,
            }
        }
        match unreachable {
            Some(error) if report.unreachable.len() == self.probes().len() => Err(Error::Probe(error)),
            _ => Ok(report),
        }
    }

    async fn mend(
        &self,
        probe: &Probe,
        management: Option<SchemaManagement>,
        report: &mut Report,
        tell: &mut impl FnMut(&str),
    ) -> Result<(), Error> {
        let server = probe.endpoint().to_string();
        tell(&format!("{server}: looking at {}", self.table_name()));
        let spec = self.table_spec();
        let found = probe.found(spec).await.map_err(Error::Probe)?;
        if let Some((table, why)) =
            found.table.as_ref().and_then(|table| Some((table, unfit(&table.engine)?)))
        {
            return Err(Error::Engine { table: self.table_name(), engine: table.engine.clone(), why });
        }
        let left = differences(spec, &found);
        let Some(management) = management else {
            let columns =
                found.table.as_ref().map(|table| table::described_columns(&table.columns).to_string());
            report.columns = columns.unwrap_or_default();
            report.add(&left, &server);
            return Ok(());
        };
        let changes: Vec<_> = left.iter().filter(|difference| may(management, &difference.change)).collect();
        if changes.is_empty() {
            return self.take_down(report, &server, (&found, &left));
        }
        let was_missing = found.table.is_none();
        for statement in changes.into_iter().flat_map(|difference| difference.change.statements()) {
            let line: String = first_line(statement).chars().take(PROGRESS_CHARS_MAX).collect();
            tell(&format!("{server}: {line}"));
            probe.execute(statement).await.map_err(Error::Probe)?;
            report.statements.push(statement.clone());
        }
        let found = probe.found(spec).await.map_err(Error::Probe)?;
        if found.table.is_none() {
            return Err(Error::Vanished { table: self.table_name(), endpoint: server });
        }
        report.created |= was_missing;
        self.take_down(report, &server, (&found, &differences(spec, &found)))
    }

    /// Records whether rows can be written, and the notes.
    fn take_down(
        &self,
        report: &mut Report,
        server: &str,
        (found, left): (&Found, &[Difference]),
    ) -> Result<(), Error> {
        if let Some(found) = &found.table {
            match table::check(&found.columns) {
                Ok(fit) => report.columns = fit.columns.to_string(),
                Err(mismatches) => return Err(self.misfit(mismatches, &found.columns, &found.engine)),
            }
        }
        report.add(left, server);
        Ok(())
    }
}

/// Whether a change may be made without a person.
fn may(management: SchemaManagement, change: &Change) -> bool {
    match (management, change) {
        (SchemaManagement::None | SchemaManagement::Validate, _) | (_, Change::ByHand(_)) => false,
        (SchemaManagement::CreateIfMissing, change) => matches!(change, Change::Create(_)),
        (SchemaManagement::Evolve, Change::Create(_) | Change::AddColumn(_) | Change::ModifySetting(_)) => {
            true
        }
    }
}

/// The table that the config asks for.
pub fn table_spec(config: &ClickHouse) -> TableSpec {
    let schema = &config.schema;
    let usual = TableSpec::new(config.database.clone(), config.table.clone());
    let columns = schema.columns.iter().map(|column| ddl::ExtraColumn {
        name: column.name.clone(),
        type_name: column.r#type.clone(),
        default: column.default.clone(),
    });
    TableSpec {
        preset: schema.preset.map(preset),
        layout: schema.layout.map(layout),
        engine: schema.engine.map(engine),
        cluster: schema.cluster.clone(),
        ttl: schema.ttl.map(|ttl| Duration::from_secs(ttl.to_std().as_secs())),
        order_by: schema.order_by.clone(),
        dynamic_paths_max: schema.max_dynamic_paths,
        typed_paths: typed_paths(&schema.typed_paths),
        optional: schema.optional_columns.as_deref().map(optional_columns),
        columns: columns.collect(),
        views: views(schema.views),
        deduplication_window_blocks: schema.deduplication_window.unwrap_or(usual.deduplication_window_blocks),
        durability: durability(schema.durability),
        ..usual
    }
}

fn preset(preset: Preset) -> ddl::preset::Preset {
    match preset {
        Preset::ClickStack => ddl::preset::Preset::ClickStack,
    }
}

fn layout(layout: Layout) -> column::Layout {
    match layout {
        Layout::Json => column::Layout::Json,
        Layout::Map => column::Layout::Map,
        Layout::Nested => column::Layout::Nested,
    }
}

fn optional_columns(groups: &[OptionalColumns]) -> optional::OptionalColumns {
    groups.iter().map(|group| optional_group(*group)).collect()
}

fn optional_group(group: OptionalColumns) -> OptionalGroup {
    match group {
        OptionalColumns::AttributeKeys => OptionalGroup::AttributeKeys,
        OptionalColumns::ScopeAttributes => OptionalGroup::ScopeAttributes,
        OptionalColumns::SchemaUrls => OptionalGroup::SchemaUrls,
        OptionalColumns::DroppedCounts => OptionalGroup::DroppedCounts,
        OptionalColumns::TraceFlags => OptionalGroup::TraceFlags,
        OptionalColumns::KafkaCoordinates => OptionalGroup::KafkaCoordinates,
        OptionalColumns::KafkaHeaders => OptionalGroup::KafkaHeaders,
    }
}

fn engine(engine: Engine) -> ddl::Engine {
    match engine {
        Engine::MergeTree => ddl::Engine::MergeTree,
        Engine::ReplicatedMergeTree => ddl::Engine::ReplicatedMergeTree,
        Engine::Null => ddl::Engine::Null,
    }
}

fn durability(durability: Durability) -> durability::Durability {
    match durability {
        Durability::Process => durability::Durability::Process,
        Durability::Fsync => durability::Durability::Fsync,
        Durability::Quorum => durability::Durability::Quorum,
    }
}

/// Settings of every INSERT beside the pinned ones: those of the config, and those for its durability. The config's own take precedence.
pub(crate) fn insert_settings(config: &ClickHouse) -> BTreeMap<String, String> {
    let mut settings = config.insert.settings.clone();
    if config.schema.durability == Durability::Quorum {
        for (name, value) in durability::quorum_settings(config.insert.timeout.to_std()) {
            settings.entry(name.to_owned()).or_insert(value);
        }
    }
    settings
}

fn typed_paths(paths: &TypedPaths) -> Vec<TypedPath> {
    let of = |set, paths: &BTreeMap<String, String>| {
        let typed =
            paths.iter().map(|(path, of)| TypedPath { set, path: path.clone(), type_name: of.clone() });
        typed.collect::<Vec<_>>()
    };
    let mut all = of(AttributeSet::Resource, &paths.resource);
    all.extend(of(AttributeSet::Span, &paths.span));
    all
}

fn views(views: Views) -> Vec<View> {
    let asked = [(views.operations, View::Operations), (views.trace_times, View::TraceTimes)];
    asked.into_iter().filter_map(|(is_on, view)| is_on.then_some(view)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_clickhouse::typed_value::TypedValue;
    use sluice_gateway_config::{
        insert_settings,
        schema::{COLUMNS_OWNED, PATH_TYPES},
    };

    #[test]
    fn only_evolve_adds_columns_and_changes_settings_and_nothing_changes_data() {
        use SchemaManagement::{CreateIfMissing, Evolve, None, Validate};
        let create = Change::Create(vec![String::new()]);
        let add = Change::AddColumn(String::new());
        let set = Change::ModifySetting(String::new());
        let by_hand = Change::ByHand(String::new());
        for (management, expected) in [
            (None, [false; 4]),
            (Validate, [false; 4]),
            (CreateIfMissing, [true, false, false, false]),
            (Evolve, [true, true, true, false]),
        ] {
            assert_eq!(
                [&create, &add, &set, &by_hand].map(|change| may(management, change)),
                expected,
                "{management:?}"
            );
        }
    }

    #[test]
    fn every_type_that_a_config_may_give_a_path_can_be_written() {
        for type_name in PATH_TYPES {
            assert!(TypedValue::parse(type_name).is_some(), "{type_name}");
            assert!(TypedValue::parse(&format!("Nullable({type_name})")).is_some(), "{type_name}");
        }
    }

    #[test]
    fn no_column_of_ours_can_be_another_one() {
        for layout in [column::Layout::Json, column::Layout::Map, column::Layout::Nested] {
            for column in column::TableColumns::of_layout(layout).columns() {
                let name = column.name.split('.').next().unwrap_or_default();
                let is_group = AttributeSet::ALL.iter().any(|set| column.name.starts_with(set.name()));
                assert!(COLUMNS_OWNED.contains(&name) || is_group, "{}", column.name);
            }
        }
    }

    #[test]
    fn a_preset_has_the_columns_that_a_config_leaves_to_it() {
        let asked = Preset::ClickStack;
        let made = preset(asked).columns().iter().map(|column| column.name);
        assert_eq!(made.collect::<Vec<_>>(), asked.columns());
    }

    #[test]
    fn a_group_of_the_config_has_the_columns_of_that_name() {
        for group in OptionalColumns::ALL {
            let (mut own, mut others) = (group.names().to_vec(), optional_group(group).columns().names());
            own.sort_unstable();
            others.sort_unstable();
            assert_eq!(own, others, "{group:?}");
        }
        assert_eq!(optional_columns(&OptionalColumns::ALL), optional::OptionalColumns::all());
    }

    #[test]
    fn no_setting_that_every_insert_pins_can_be_set_by_a_config() {
        let more = ["insert_deduplication_token", "query_id", "max_execution_time", "database", "query"];
        let pinned = sluice_clickhouse::settings::PINNED.iter().map(|(name, _)| *name);
        for name in pinned.chain(more) {
            assert!(insert_settings::owner(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_quorum_is_a_setting_of_every_insert_and_the_configs_own_number_goes_first() {
        let config = |durability: &str, settings: &str| {
            let text = format!(
                "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 1GiB}}, \
                 source: {{kafka: {{bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}}}, \
                 sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t, schema: {{durability: {durability}}}, \
                 insert: {{timeout: 10s, settings: {{{settings}}}}}}}}}}}"
            );
            let config = sluice_gateway_config::parse::from_yaml(&text).unwrap().sink.clickhouse;
            insert_settings(&config)
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(config("Process", ""), [""; 0]);
        assert_eq!(config("Fsync", "max_threads: '1'"), ["max_threads=1"]);
        let usual = ["insert_quorum=auto", "insert_quorum_parallel=1", "insert_quorum_timeout=5000"];
        assert_eq!(config("Quorum", ""), usual);
        assert_eq!(config("Quorum", "insert_quorum: '3'"), ["insert_quorum=3", usual[1], usual[2]]);
        for name in usual.map(|setting| setting.split('=').next().unwrap()) {
            assert_eq!(insert_settings::owner(name), None, "{name} may be set by a config");
        }
    }

    #[test]
    fn a_difference_that_two_servers_have_is_told_once() {
        let difference = |what: &str| Difference {
            what: what.into(),
            wanted: "w".into(),
            found: "f".into(),
            change: Change::ByHand("b".into()),
        };
        let mut report = Report { table: "d.t".into(), columns: "c".into(), ..Report::default() };
        report.add(&[difference("TTL")], "http://a:1");
        report.add(&[difference("TTL"), difference("engine")], "http://b:1");
        assert_eq!(report.differences[0].servers, ["http://a:1", "http://b:1"]);
        assert_eq!(
            report.to_string(),
            "table d.t differs, and has: c\ndiffers: TTL is f, wanted: w; this would take: b\n\
             differs: engine is f, wanted: w; this would take: b"
        );
    }
}
