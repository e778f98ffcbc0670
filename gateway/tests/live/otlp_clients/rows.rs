//! What a gateway makes of spans: a row for each, with every field and every attribute with its type.

use super::{
    Sent,
    spans::{Received, bytes, value_of},
};
use crate::{broker::Topic, edge::Found, process::Scene, server::Database};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{span::SpanKind, status::StatusCode},
};
use rustix::process::Signal;
use serde_json::{Map, Value as Json, json};
use sluice_gateway::table::sink::Sink;
use sluice_gateway_config::{OptionalColumns, Schema, SchemaManagement};
use std::collections::BTreeMap;

/// Every column but those of Kafka; the rows in the order of trace and span.
const QUESTION: &str = "SELECT TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, \
     ResourceAttributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, ScopeSchemaUrl, SpanAttributes, \
     JSONAllPathsWithTypes(SpanAttributes) AS Types, toUnixTimestamp64Nano(Timestamp) AS Start, Duration, StatusCode, \
     StatusMessage, TraceFlags, DroppedAttributesCount + DroppedEventsCount + DroppedLinksCount AS Dropped, \
     arrayMap(time -> toUnixTimestamp64Nano(time), Events.Timestamp) AS EventTimes, \
     Events.Name AS EventNames, Events.Attributes AS EventAttributes, Links.TraceId AS LinkTraceIds, \
     Links.SpanId AS LinkSpanIds, Links.TraceState AS LinkTraceStates, Links.Attributes AS LinkAttributes \
     FROM {database}.otel_traces ORDER BY TraceId, SpanId";

/// Lets a gateway read the topic, and compares the rows with the spans that are in it. Deletes the topic.
pub async fn compare(topic: Topic, test: &str, found: &[Found], received: &[Received]) {
    let scene = Scene::of(topic, &format!("clients_{test}")).await;
    add_columns(&scene.database).await;
    let mut gateway = scene.start("gateway-0", |_| {});
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    for found in found {
        *ends.entry(found.partition).or_default() += 1;
    }
    scene
        .wait_until_committed(|offsets| {
            let committed =
                (0..).zip(offsets).filter_map(|(partition, offset)| Some((partition, (*offset)?)));
            committed.filter(|(_, offset)| *offset > 0).collect::<BTreeMap<_, _>>() == ends
        })
        .await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ends().await, 0, "{}", gateway.said());
    same(&of(&scene.database).await, received);
    scene.close().await;
}

/// Adds the optional columns that have fields of spans to a table.
pub async fn add_columns(database: &Database) {
    let columns = [
        OptionalColumns::ScopeAttributes,
        OptionalColumns::SchemaUrls,
        OptionalColumns::DroppedCounts,
        OptionalColumns::TraceFlags,
    ];
    let schema = Schema { optional_columns: Some(columns.into()), ..Schema::default() };
    let sink = Sink::new(&database.config(schema)).unwrap();
    sink.apply(SchemaManagement::Evolve).await.unwrap();
}

/// Every row of a table.
pub async fn of(database: &Database) -> Vec<Json> {
    database.rows(&QUESTION.replace("{database}", &database.name)).await
}

/// Checks that a table has these spans and no other.
pub fn same(rows: &[Json], spans: &[Received]) {
    let mut wanted: Vec<_> = spans.iter().map(row).collect();
    wanted.sort_by_key(|row| (row["TraceId"].to_string(), row["SpanId"].to_string()));
    assert_eq!(rows.len(), wanted.len());
    for (row, wanted) in rows.iter().zip(&wanted) {
        assert_eq!(row, wanted);
    }
}

/// The ids of a client's spans, which its SDK chose, by their number.
pub fn ids(sent: &Sent, rows: &[Json]) -> BTreeMap<i64, Vec<u8>> {
    let of_run = |row: &&Json| row["TraceId"].as_str().unwrap().starts_with(&sent.run);
    let id = |row: &Json| {
        let number = row["SpanAttributes"]["number"].as_i64().unwrap();
        (number, bytes(row["SpanId"].as_str().unwrap()))
    };
    rows.iter().filter(of_run).map(id).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The row that a span becomes.
fn row(received: &Received) -> Json {
    let Received { resource, resource_url, scope, scope_url, span } = received;
    let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
    let kind = match span.kind() {
        SpanKind::Unspecified => "Unspecified",
        SpanKind::Internal => "Internal",
        SpanKind::Server => "Server",
        SpanKind::Client => "Client",
        SpanKind::Producer => "Producer",
        SpanKind::Consumer => "Consumer",
    };
    let status = span.status.clone().unwrap_or_default();
    let code = match status.code() {
        StatusCode::Unset => "Unset",
        StatusCode::Ok => "Ok",
        StatusCode::Error => "Error",
    };
    let events = &span.events;
    let links = &span.links;
    let columns = [
        ("TraceId", json!(hex(&span.trace_id))),
        ("SpanId", json!(hex(&span.span_id))),
        ("ParentSpanId", json!(hex(&span.parent_span_id))),
        ("TraceState", json!(span.trace_state)),
        ("SpanName", json!(span.name)),
        ("SpanKind", json!(kind)),
        ("ServiceName", json!(service.and_then(value_of).map(plain))),
        ("ResourceAttributes", json!(object(&resource.attributes))),
        ("ResourceSchemaUrl", json!(resource_url)),
        ("ScopeName", json!(scope.name)),
        ("ScopeVersion", json!(scope.version)),
        ("ScopeAttributes", json!(object(&scope.attributes))),
        ("ScopeSchemaUrl", json!(scope_url)),
        ("SpanAttributes", json!(object(&span.attributes))),
        ("Types", json!(types("", &span.attributes).into_iter().collect::<Map<_, _>>())),
        ("Start", json!(span.start_time_unix_nano)),
        ("Duration", json!(span.end_time_unix_nano - span.start_time_unix_nano)),
        ("StatusCode", json!(code)),
        ("StatusMessage", json!(status.message)),
        ("TraceFlags", json!(span.flags)),
        ("Dropped", json!(0)),
        ("EventTimes", json!(events.iter().map(|event| event.time_unix_nano).collect::<Vec<_>>())),
        ("EventNames", json!(events.iter().map(|event| &*event.name).collect::<Vec<_>>())),
        ("EventAttributes", json!(events.iter().map(|event| object(&event.attributes)).collect::<Vec<_>>())),
        ("LinkTraceIds", json!(links.iter().map(|link| hex(&link.trace_id)).collect::<Vec<_>>())),
        ("LinkSpanIds", json!(links.iter().map(|link| hex(&link.span_id)).collect::<Vec<_>>())),
        ("LinkTraceStates", json!(links.iter().map(|link| &*link.trace_state).collect::<Vec<_>>())),
        ("LinkAttributes", json!(links.iter().map(|link| object(&link.attributes)).collect::<Vec<_>>())),
    ];
    columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// A set of attributes as a JSON column shows it: dots in keys are steps. Empty values are absent.
fn object(attributes: &[KeyValue]) -> Json {
    let mut whole = Json::Object(Map::new());
    for attribute in attributes {
        let Some(value) = value_of(attribute) else { continue };
        let place = attribute.key.split('.').fold(&mut whole, |place, step| &mut place[step]);
        *place = plain(value);
    }
    whole
}

fn plain(value: &Value) -> Json {
    match value {
        Value::StringValue(text) => json!(text),
        Value::BoolValue(bool) => json!(bool),
        Value::IntValue(int) => json!(int),
        Value::DoubleValue(double) if double.is_nan() => json!("nan"),
        // ClickHouse writes 3.0 as 3.
        Value::DoubleValue(double) => double.to_string().parse().unwrap(),
        Value::BytesValue(bytes) => json!(STANDARD.encode(bytes)),
        Value::ArrayValue(array) => {
            array.values.iter().map(|AnyValue { value }| value.as_ref().map_or(Json::Null, plain)).collect()
        }
        Value::KvlistValue(list) => object(&list.values),
        Value::StringValueStrindex(index) => {
            panic!("a span has no string table, but {index} is an entry of one")
        }
    }
}

/// The type of each path.
fn types(before: &str, attributes: &[KeyValue]) -> Vec<(String, Json)> {
    let mut types = Vec::new();
    for attribute in attributes {
        let path = format!("{before}{}", attribute.key);
        match value_of(attribute) {
            None => {}
            Some(Value::KvlistValue(list)) => types.extend(self::types(&format!("{path}."), &list.values)),
            Some(Value::ArrayValue(array)) => {
                let mut of: Vec<_> =
                    array.values.iter().filter_map(|any| any.value.as_ref().map(scalar)).collect();
                of.dedup();
                let whole = match &*of {
                    [] => "Array(Nullable(String))".to_owned(),
                    [one] => format!("Array(Nullable({one}))"),
                    _ => "Array(Dynamic)".to_owned(),
                };
                types.push((path, json!(whole)));
            }
            Some(value) => types.push((path, json!(scalar(value)))),
        }
    }
    types
}

fn scalar(value: &Value) -> &'static str {
    match value {
        Value::StringValue(_) | Value::BytesValue(_) => "String",
        Value::BoolValue(_) => "Bool",
        Value::IntValue(_) => "Int64",
        Value::DoubleValue(_) => "Float64",
        other @ (Value::ArrayValue(_) | Value::KvlistValue(_) | Value::StringValueStrindex(_)) => {
            panic!("no scalar: {other:?}")
        }
    }
}
