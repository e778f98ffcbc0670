//! What readers of traces send finds the rows that a gateway writes, in every layout of the table.
//!
//! The queries are data: `readers/*.sql` has each with its source, the tables that it is for, and its answer. A line of an answer has `|`
//! between values; lines may come in any order. Python programs read with clickhouse-connect itself.

use crate::{
    messages::{attribute, string},
    server::Database,
};
use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span, Status, TracesData,
        span::{Event, Link, SpanKind},
        status::StatusCode,
    },
};
use prost::Message as _;
use sluice_gateway::table::sink::Sink;
use sluice_gateway_config::{Layout, Preset, Schema, SchemaManagement, TypedPaths, Views};
use std::process::Command;

/// The queries of each reader.
const FILES: [&str; 2] = [include_str!("readers/hyperdx.sql"), include_str!("readers/grafana.sql")];

/// The tables that queries are for.
const TABLES: [&str; 4] = ["Json", "Map", "Nested", "ClickStack"];

/// Where the Python packages of clickhouse-connect 1.12.0 are.
const PACKAGES_VARIABLE: &str = "SLUICE_CLICKHOUSE_CONNECT";

/// Start of the first span: 20 August 2026, 12:00 UTC.
const START_NANOS: u64 = 1_787_227_200_000_000_000;
const MILLISECOND: u64 = 1_000_000;

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const SECOND_TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const LINKED_TRACE: u128 = 0xb7ad_6b71_6920_3331_b7ad_6b71_6920_3331;

/// A query, and what it must answer.
struct Query<'a> {
    name: &'a str,
    tables: Vec<&'a str>,
    /// All lines of the answer, sorted.
    lines: Vec<&'a str>,
    /// Parts of an answer that is too long to be written down.
    parts: Vec<&'a str>,
    sql: String,
}

impl<'a> Query<'a> {
    fn parse(text: &'a str) -> Self {
        let (name, rest) = text.split_once('\n').unwrap();
        let (mut tables, mut lines, mut parts, mut has_source) = (Vec::new(), Vec::new(), Vec::new(), false);
        let (heads, sql): (Vec<_>, Vec<_>) = rest.lines().partition(|line| line.starts_with("-- "));
        for head in heads {
            match head[3..].split_once(": ") {
                Some(("source", _)) => has_source = true,
                Some(("layouts", names)) => tables = names.split(' ').collect(),
                Some(("answer", line)) => lines.push(line),
                Some(("has", part)) => parts.push(part),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(has_source && tables.iter().all(|table| TABLES.contains(table)), "{name}: {tables:?}");
        assert_ne!(lines.is_empty(), parts.is_empty(), "{name} has one kind of answer");
        lines.sort_unstable();
        Self { name, tables, lines, parts, sql: sql.join("\n").trim().to_owned() }
    }

    /// What is wrong with the answer, if anything.
    async fn wrong(&self, database: &Database) -> Option<String> {
        let table = format!("{}.otel_traces", database.name);
        let sql = self.sql.replace("{table}", &table).replace("{database}", &database.name);
        let found = match database.lines(&sql).await {
            Ok(lines) => lines,
            Err(error) => return Some(format!("{}: {error}", self.name)),
        };
        let text = found.join("\n");
        let is_right = if self.parts.is_empty() {
            found == self.lines
        } else {
            self.parts.iter().all(|part| text.contains(part))
        };
        (!is_right)
            .then(|| format!("{}: {found:#?}, expected {:#?} {:#?}", self.name, self.lines, self.parts))
    }
}

fn queries() -> Vec<Query<'static>> {
    let queries = FILES.iter().flat_map(|text| text.split("-- query: ").skip(1));
    let queries: Vec<_> = queries.map(Query::parse).collect();
    assert!(queries.len() > 30, "{} queries", queries.len());
    queries
}

fn resource(service: &str, version: &str, pod: &str) -> Resource {
    let texts = [("service.name", service), ("service.version", version), ("k8s.pod.name", pod)];
    let attributes = texts.map(|(key, text)| attribute(key, string(text))).into();
    Resource { attributes, ..Resource::default() }
}

/// Where a span is in its trace: its id and its parent's, 0 for none.
struct Place(u128, u64, u64);

/// When a span was, in milliseconds from the first one, and for how long.
struct When(u64, u64);

fn span(place: &Place, name: &str, kind: SpanKind, when: &When, attributes: Vec<KeyValue>) -> Span {
    let start = START_NANOS + when.0 * MILLISECOND;
    let parent = if place.2 == 0 { Vec::new() } else { place.2.to_be_bytes().into() };
    Span {
        trace_id: place.0.to_be_bytes().into(),
        span_id: place.1.to_be_bytes().into(),
        parent_span_id: parent,
        name: name.into(),
        kind: kind.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: start + when.1 * MILLISECOND,
        attributes,
        ..Span::default()
    }
}

/// The first span of a trace, with all that a span can have.
fn root() -> Span {
    let attributes = vec![
        attribute("http.route", string("/cart")),
        attribute("http.response.status_code", Value::IntValue(500)),
        attribute("SampleRate", Value::IntValue(10)),
    ];
    let exception = [("exception.type", "io.Error"), ("exception.message", "timed out")]
        .map(|(key, text)| attribute(key, string(text)));
    Span {
        events: vec![Event {
            time_unix_nano: START_NANOS + 100 * MILLISECOND,
            name: "exception".into(),
            attributes: exception.into(),
            ..Event::default()
        }],
        links: vec![Link {
            trace_id: LINKED_TRACE.to_be_bytes().into(),
            span_id: 0x00f0_67aa_0ba9_0211_u64.to_be_bytes().into(),
            attributes: vec![attribute("reason", string("retry"))],
            ..Link::default()
        }],
        ..span(&Place(TRACE, ROOT, 0), "GET /cart", SpanKind::Server, &When(0, 120), attributes)
    }
}

const ROOT: u64 = 0x00f0_67aa_0ba9_02b7;
const CALL: u64 = 0x1111_1111_1111_1111;

/// Four spans of two traces and two services, as one message.
fn message() -> Vec<u8> {
    let status = |code| attribute("http.response.status_code", Value::IntValue(code));
    let status_of =
        |code: StatusCode, message: &str| Some(Status { code: code.into(), message: message.into() });
    let to_cart = vec![attribute("server.address", string("cart"))];
    let frontend = vec![
        root(),
        span(&Place(TRACE, CALL, ROOT), "POST /checkout", SpanKind::Client, &When(10, 90), to_cart),
    ];
    let failed = Place(TRACE, 0x2222_2222_2222_2222, CALL);
    let failed = Span {
        status: status_of(StatusCode::Error, "timed out"),
        ..span(&failed, "checkout", SpanKind::Server, &When(20, 70), vec![status(503)])
    };
    let listed = vec![status(200), attribute("http.route", string("/items"))];
    let listed = Span {
        status: status_of(StatusCode::Ok, ""),
        ..span(
            &Place(SECOND_TRACE, 0x3333_3333_3333_3333, 0),
            "list items",
            SpanKind::Server,
            &When(1_000, 5),
            listed,
        )
    };
    let of = |resource, spans| ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    let resource_spans = vec![
        of(resource("frontend", "1.2.3", "frontend-7d4b9"), frontend),
        of(resource("cart", "2.0.0", "cart-0"), vec![failed, listed]),
    ];
    TracesData { resource_spans }.encode_to_vec()
}

/// What a config asks for to get one of [`TABLES`].
fn asked(table: &str) -> Schema {
    let (layout, preset) = match table {
        "Json" => (Some(Layout::Json), None),
        "Map" => (Some(Layout::Map), None),
        "Nested" => (Some(Layout::Nested), None),
        _ => (None, Some(Preset::ClickStack)),
    };
    Schema { layout, preset, views: Views { operations: false, trace_times: true }, ..Schema::default() }
}

/// A table, with the spans in it.
async fn filled(test: &str, schema: Schema) -> Database {
    let database = Database::new(&format!("readers_{test}")).await;
    let sink = Sink::new(&database.config(schema)).unwrap();
    let made = sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    assert!(made.created && made.differences.is_empty(), "{made}");
    assert_eq!(sink.differences(&mut |_| ()).await.unwrap().differences, []);
    database.insert(&message()).await;
    assert_eq!(database.count().await, 4);
    database
}

async fn each_query_is_answered(table: &str) {
    let database = filled(&table.to_lowercase(), asked(table)).await;
    let mut wrong = Vec::new();
    let mut count = 0;
    for query in queries().iter().filter(|query| query.tables.contains(&table)) {
        count += 1;
        wrong.extend(query.wrong(&database).await);
    }
    assert!(count >= 5, "{count} queries for {table}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    database.drop().await;
}

#[tokio::test]
async fn readers_find_their_rows_in_json_columns() {
    each_query_is_answered("Json").await;
}

#[tokio::test]
async fn readers_find_their_rows_in_maps() {
    each_query_is_answered("Map").await;
}

#[tokio::test]
async fn readers_that_need_no_attributes_find_their_rows_beside_groups() {
    each_query_is_answered("Nested").await;
}

#[tokio::test]
async fn readers_find_their_rows_in_the_table_of_clickstack() {
    each_query_is_answered("ClickStack").await;
}

/// This is why no path is declared by default.
#[tokio::test]
async fn a_declared_path_hides_its_values_from_hyperdx_and_from_no_other_reader() {
    let texts = ["service.name", "service.version", "k8s.pod.name"];
    let resource = texts.map(|path| (path.to_owned(), "Nullable(String)".to_owned())).into();
    let typed_paths = TypedPaths { resource, ..TypedPaths::default() };
    let database = filled("declared", Schema { typed_paths, ..asked("Json") }).await;
    for query in queries().iter().filter(|query| query.tables.contains(&"Json")) {
        let is_refused = query.sql.contains("dynamicType(`ResourceAttributes`")
            || (query.sql.contains("ResourceAttributes.`") && query.sql.contains(".:String"));
        let wrong = query.wrong(&database).await;
        assert_eq!(wrong.is_some(), is_refused, "{}: {wrong:?}", query.name);
    }
    database.drop().await;
}

/// The table of an earlier `ClickStack` lacks columns, which `Evolve` adds; rows that are there have them, too.
#[tokio::test]
async fn evolve_completes_a_table_of_clickstack() {
    let schema = Schema { management: SchemaManagement::Evolve, ..asked("ClickStack") };
    let database = filled("evolved", schema.clone()).await;
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    database.execute(&format!("{table} DROP INDEX idx_span_attr_items")).await;
    for column in ["SampleRate", "SpanAttributeItems"] {
        database.execute(&format!("{table} DROP COLUMN {column}")).await;
    }
    let sink = Sink::new(&database.config(schema)).unwrap();
    let named = sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    assert_eq!((named.statements.len(), named.differences.len()), (0, 2), "{named}");
    let grown = sink.apply(SchemaManagement::Evolve).await.unwrap();
    assert_eq!((grown.statements.len(), grown.differences.len()), (2, 0), "{grown}");
    assert_eq!(
        database
            .ask("toString((sum(SampleRate), countIf(has(SpanAttributeItems, 'http.route=/cart'))))")
            .await,
        "(13,1)"
    );
    database.drop().await;
}

/// The rows of a table as clickhouse-connect reads them.
fn read_by_python(database: &Database) -> Vec<serde_json::Value> {
    let packages = std::env::var(PACKAGES_VARIABLE).unwrap_or_else(|_| {
        panic!(
            "set {PACKAGES_VARIABLE} to a folder of Python packages: \
             python3 -m pip install --target FOLDER clickhouse-connect==1.12.0"
        )
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/readers/read_spans.py");
    let (host, port) = database.authority().rsplit_once(':').unwrap();
    let mut python = Command::new("python3");
    python.args(["-B", script, host, port, &database.name]).env("PYTHONPATH", packages);
    let ended = python.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn clickhouse_connect_reads_every_value_in_every_layout() {
    for table in TABLES {
        let database = filled(&format!("python_{}", table.to_lowercase()), asked(table)).await;
        let rows = read_by_python(&database);
        assert_eq!(rows.len(), 4, "{table}");
        let root = rows.iter().find(|row| row["SpanName"] == "GET /cart").unwrap();
        assert_eq!(root["SpanId"], "00f067aa0ba902b7", "{table}");
        assert_eq!(root["Duration"], 120 * MILLISECOND, "{table}");
        let (status, version, exception) = match table {
            "Json" => (
                &root["SpanAttributes"]["http"]["response"]["status_code"],
                &root["ResourceAttributes"]["service"]["version"],
                &root["Events.Attributes"][0]["exception"]["type"],
            ),
            "Nested" => (
                &root["SpanAttributesInt.Value"][0],
                &root["ResourceAttributesString.Value"][1],
                &root["Events.AttributesString"][0][0]["Value"],
            ),
            _ => (
                &root["SpanAttributes"]["http.response.status_code"],
                &root["ResourceAttributes"]["service.version"],
                &root["Events.Attributes"][0]["exception.type"],
            ),
        };
        // Maps hold texts.
        let is_text = table == "Map" || table == "ClickStack";
        assert_eq!(
            *status,
            if is_text { serde_json::json!("500") } else { serde_json::json!(500) },
            "{table}"
        );
        assert_eq!((version, exception), (&"1.2.3".into(), &"io.Error".into()), "{table}");
        database.drop().await;
    }
}
