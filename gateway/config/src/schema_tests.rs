//! What a schema in a config may say.

use super::*;
use crate::parse::from_yaml;

fn found(schema: &str) -> Vec<String> {
    let config = crate::fixtures::SMALLEST
        .replace("table: otel_traces", &format!("table: otel_traces\n    schema: {{{schema}}}"));
    let config = from_yaml(&config).unwrap();
    config.check().err().iter().flatten().map(ToString::to_string).collect()
}

#[test]
fn a_table_that_is_described_whole_passes() {
    let schema = "management: Evolve, layout: Json, engine: ReplicatedMergeTree, cluster: main, ttl: 720h, \
        orderBy: [ServiceName, toStartOfHour(Timestamp), Timestamp], maxDynamicPaths: 0, deduplicationWindow: 100, \
        typedPaths: {resource: {k8s.pod.name: Nullable(String)}, span: {http.response.status_code: Int64}}, \
        optionalColumns: [AttributeKeys, KafkaHeaders], \
        columns: [{name: Route, type: LowCardinality(String), default: \"toString(SpanAttributes.http.route)\"}, \
        {name: Tenant, type: \"Enum8('a' = 1, ')' = 2)\"}], views: {operations: true, traceTimes: true}";
    assert_eq!(found(schema), Vec::<String>::new());
    assert_eq!(found("engine: 'Null', views: {operations: true}"), Vec::<String>::new());
    for preset in
        ["preset: ClickStack", "preset: ClickStack, layout: Map, ttl: 720h, views: {traceTimes: true}"]
    {
        assert_eq!(found(preset), Vec::<String>::new());
    }
}

#[test]
fn each_rule_names_its_field() {
    for (schema, violation) in [
        ("cluster: a b", "cluster: \"a b\" is not a name"),
        ("ttl: 59m", "ttl: 59m is not between 1h and 876000h (36500d)"),
        ("ttl: 36501d", "ttl: 876024h (36501d) is not between 1h and 876000h (36500d)"),
        ("ttl: 876001h", "ttl: 876001h is not between 1h and 876000h (36500d)"),
        ("deduplicationWindow: 0", "deduplicationWindow: 0 is not between 1 and"),
        ("orderBy: ['a, b']", "orderBy: \"a, b\" is neither a column"),
        ("orderBy: ['f(a), b(c)']", "orderBy: \"f(a), b(c)\" is neither"),
        ("orderBy: [a, b, c, d, e, f, g, h, i]", "orderBy: 9 expressions are more than 8"),
        ("maxDynamicPaths: 1025", "maxDynamicPaths: 1025 is not between 0 and 1024"),
        ("layout: Map, maxDynamicPaths: 1", "layout: must be Json"),
        ("preset: ClickStack, layout: Json", "layout: must be Map or absent with preset ClickStack"),
        ("preset: ClickStack, layout: Nested", "layout: must be Map or absent with preset ClickStack"),
        ("preset: ClickStack, maxDynamicPaths: 8", "preset: ClickStack stores attributes as Map"),
        (
            "preset: ClickStack, typedPaths: {resource: {a: String}}",
            "preset: ClickStack stores attributes as Map",
        ),
        (
            "preset: ClickStack, columns: [{name: SampleRate, type: UInt8}]",
            "columns.SampleRate: preset ClickStack adds this column",
        ),
        ("typedPaths: {span: {a: UUID}}", "typedPaths.span.a: \"UUID\" is not one of Bool"),
        ("typedPaths: {span: {sluice.a: String}}", "typedPaths.span.sluice.a: begins with sluice."),
        ("typedPaths: {resource: {'': String}}", "typedPaths.resource.: \"\" is not a path"),
        ("columns: [{name: 1a, type: String}]", "columns.1a: \"1a\" is not a name"),
        ("columns: [{name: a, type: String}, {name: a, type: Int8}]", "columns.a: is listed twice"),
        ("columns: [{name: a, type: 'String, DROP COLUMN b'}]", "columns.a.type: \"String, DROP COLUMN b\""),
        ("columns: [{name: a, type: 'Array(String) TTL now()'}]", "columns.a.type:"),
        ("columns: [{name: a, type: String, default: '1), DROP COLUMN (b'}]", "columns.a.default:"),
        (
            "optionalColumns: [TraceFlags], columns: [{name: TraceFlags, type: UInt32}]",
            "columns.TraceFlags: the gateway fills this column, since optionalColumns asks for it",
        ),
        ("engine: 'Null', ttl: 24h", "ttl: must not be set with engine Null"),
        ("engine: 'Null', orderBy: [ServiceName]", "orderBy: must not be set with engine Null"),
    ] {
        let found = found(schema);
        let expected = format!("sink.clickhouse.schema.{violation}");
        assert!(found.iter().any(|found| found.starts_with(&expected)), "{schema}: {found:?}");
    }
}

#[test]
fn a_column_of_an_optional_name_is_the_users_where_no_one_asks_for_it_otherwise() {
    for name in OptionalColumns::ALL.into_iter().flat_map(OptionalColumns::names) {
        assert_eq!(found(&format!("columns: [{{name: {name}, type: String}}]")), Vec::<String>::new());
    }
    let schema = |text: &str| serde_json::from_str::<Schema>(text).unwrap();
    assert_eq!(serde_json::to_string(&schema("{}")).unwrap(), r#"{"management":"CreateIfMissing"}"#);
    let none = r#"{"management":"CreateIfMissing","optionalColumns":[]}"#;
    assert_eq!(serde_json::to_string(&schema(none)).unwrap(), none);
}

#[test]
fn an_expression_cannot_leave_its_brackets() {
    for whole in ["1", "f(a, b)[1]", "'it''s -- \\' ;('", "a['k)']", "map('a', 1)", "a - -1", "a / b"] {
        assert!(is_expression(whole), "{whole}");
    }
    for other in [
        "",
        " ",
        "a)",
        "(a",
        "a) TTL (b",
        "'a",
        "a -- b",
        "a /* b",
        "a; b",
        "f(a]",
        "a // b",
        "a # b",
        "a\nb",
        "é",
    ] {
        assert!(!is_expression(other), "{other}");
    }
    assert!(!is_expression(&"x".repeat(EXPRESSION_BYTES_MAX + 1)));
}
