//! `plan` says once what both a rule and the planner refuse: the rule names the fields, and which of the planner's reasons it has, too.

use crate::admission::{Repeated, set, smallest, told, told_once};

/// Where values of the cases stand.
const KAFKA: &str = "/spec/source/kafka";
const SASL: &str = "/spec/source/kafka/sasl";
const CLICKHOUSE: &str = "/spec/sink/clickhouse";
const CREDENTIALS: &str = "/spec/sink/clickhouse/credentials";
const SCHEMA: &str = "/spec/sink/clickhouse/schema";
const SETTINGS: &str = "/spec/sink/clickhouse/insert/settings";

const SERVERS: [Repeated; 4] = [
    (
        &[(KAFKA, r#"{"topics": ["a"]}"#)],
        "spec.source.kafka.bootstrapServers",
        "spec.source.kafka: exactly one of bootstrapServers",
    ),
    (
        &[(SASL, r#"{"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {}}}"#)],
        "spec.source.kafka.sasl.oauth.awsMskIam.region",
        "spec.source.kafka: awsMskIam needs region",
    ),
    (
        &[(CLICKHOUSE, "{}")],
        "spec.sink.clickhouse.endpoints",
        "spec.sink.clickhouse: exactly one of endpoints",
    ),
    (
        &[(CLICKHOUSE, r#"{"endpoints": ["http://a:8123"], "shards": [{"endpoints": ["http://b:8123"]}]}"#)],
        "spec.sink.clickhouse.shards",
        "spec.sink.clickhouse: exactly one of endpoints",
    ),
];

const LOGINS: [Repeated; 8] = [
    (
        &[(SASL, r#"{"mechanism": "Plain"}"#)],
        "spec.source.kafka.sasl.secretRef",
        "spec.source.kafka.sasl: sasl.mechanism Plain",
    ),
    (
        &[(
            SASL,
            r#"{"mechanism": "Plain", "secretRef": {"name": "a"}, "oauth": {"serviceAccountToken": {"audience": "a"}}}"#,
        )],
        "spec.source.kafka.sasl.oauth",
        "spec.source.kafka.sasl: sasl.mechanism Plain",
    ),
    (
        &[(
            SASL,
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}, "extensions": {"auth": "a"}}}"#,
        )],
        "spec.source.kafka.sasl.oauth.extensions.auth",
        "spec.source.kafka.sasl.oauth.extensions: an extension of oauth",
    ),
    (
        &[(
            SASL,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a"}}}"#,
        )],
        "spec.source.kafka.sasl.oauth.clientCredentials.secretRef",
        "spec.source.kafka.sasl.oauth.clientCredentials: clientCredentials has exactly one of",
    ),
    (
        &[(
            SASL,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "clientId": "a",
                "clientAssertion": {}, "parameters": {"client_assertion": "a"}}}}"#,
        )],
        "spec.source.kafka.sasl.oauth.clientCredentials.parameters.client_assertion",
        "spec.source.kafka.sasl.oauth.clientCredentials: parameters of clientCredentials",
    ),
    (
        &[(
            SASL,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a",
                "secretRef": {"name": "a"}, "parameters": {"grant_type": "a"}}}}"#,
        )],
        "spec.source.kafka.sasl.oauth.clientCredentials.parameters.grant_type",
        "spec.source.kafka.sasl.oauth.clientCredentials.parameters: parameters of clientCredentials",
    ),
    (
        &[(CREDENTIALS, "{}")],
        "spec.sink.clickhouse.credentials.secretRef",
        "spec.sink.clickhouse.credentials: credentials has exactly one of",
    ),
    (
        &[(CREDENTIALS, r#"{"username": "a"}"#)],
        "spec.sink.clickhouse.credentials.secretRef",
        "spec.sink.clickhouse.credentials: username of credentials needs",
    ),
];

const TABLES: [Repeated; 5] = [
    (
        &[(SCHEMA, r#"{"preset": "ClickStack", "layout": "Json"}"#)],
        "spec.sink.clickhouse.schema.layout",
        "spec.sink.clickhouse.schema: preset ClickStack stores",
    ),
    (
        &[(SCHEMA, r#"{"preset": "ClickStack", "columns": [{"name": "SampleRate", "type": "UInt16"}]}"#)],
        "spec.sink.clickhouse.schema.columns.SampleRate",
        "spec.sink.clickhouse.schema: preset ClickStack adds",
    ),
    (
        &[(SCHEMA, r#"{"durability": "Quorum", "engine": "MergeTree"}"#)],
        "spec.sink.clickhouse.schema.engine",
        "spec.sink.clickhouse.schema: durability Quorum needs",
    ),
    (
        &[(SCHEMA, r#"{"engine": "Null", "ttl": "30d"}"#)],
        "spec.sink.clickhouse.schema.ttl",
        "spec.sink.clickhouse.schema: engine Null stores nothing",
    ),
    (
        &[(SCHEMA, r#"{"engine": "Null", "orderBy": ["ServiceName"]}"#)],
        "spec.sink.clickhouse.schema.orderBy",
        "spec.sink.clickhouse.schema: engine Null stores nothing",
    ),
];

const NAMES: [Repeated; 4] = [
    (
        &[("/spec/source/kafka/properties", r#"{"acks": "all"}"#)],
        "spec.source.kafka.properties.acks",
        "spec.source.kafka.properties: properties has a name that",
    ),
    (
        &[("/spec/source/kafka/properties", r#"{"enable.auto.commit": "true"}"#)],
        "spec.source.kafka.properties.enable.auto.commit",
        "spec.source.kafka.properties: properties has a name with a beginning",
    ),
    (
        &[(SETTINGS, r#"{"async_insert": "1"}"#)],
        "spec.sink.clickhouse.insert.settings.async_insert",
        "spec.sink.clickhouse.insert.settings: settings has a name",
    ),
    (
        &[(SETTINGS, r#"{"session_id": "a"}"#)],
        "spec.sink.clickhouse.insert.settings.session_id",
        "spec.sink.clickhouse.insert.settings: settings has a name",
    ),
];

#[test]
fn servers_that_a_rule_and_the_planner_refuse_are_told_once() {
    for (values, field, rule) in SERVERS {
        told_once(values, field, rule);
    }
}

#[test]
fn logins_that_a_rule_and_the_planner_refuse_are_told_once() {
    for (values, field, rule) in LOGINS {
        told_once(values, field, rule);
    }
}

#[test]
fn tables_that_a_rule_and_the_planner_refuse_are_told_once() {
    for (values, field, rule) in TABLES {
        told_once(values, field, rule);
    }
}

#[test]
fn names_in_maps_that_a_rule_and_the_planner_refuse_are_told_once() {
    for (values, field, rule) in NAMES {
        told_once(values, field, rule);
    }
}

/// The planner names the object, since a spec has no single field for it.
#[test]
fn what_the_planner_says_of_the_object_of_a_rule_is_told_once() {
    const SILENT: &str = r#"{"grpc": {"enabled": false}, "http": {"enabled": false}}"#;
    let otlp = format!(r#"{{"otlp": {SILENT}}}"#);
    for (pointer, value, path) in [
        ("/spec/edge", SILENT, "spec.edge"),
        ("/spec/edge", r#"{"authentication": {}}"#, "spec.edge"),
        ("/spec/source", &otlp, "spec.source.otlp"),
        (
            CLICKHOUSE,
            r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["https://b:8443"]}]}"#,
            "spec.sink.clickhouse",
        ),
        (
            CREDENTIALS,
            r#"{"secretRef": {"name": "a"}, "tokenSecretRef": {"name": "b"}}"#,
            "spec.sink.clickhouse",
        ),
    ] {
        let mut object = smallest();
        set(&mut object, pointer, serde_json::from_str(value).unwrap());
        let found = told(&object);
        assert_eq!(found.lines().filter(|line| line.starts_with(path)).count(), 1, "{value}: {found}");
    }
}

#[test]
fn what_the_planner_refuses_for_another_reason_is_told_beside_the_rule() {
    for (pointer, value, rule, other, repeated) in [
        (
            SCHEMA,
            r#"{"engine": "Null", "ttl": "99999d"}"#,
            "spec.sink.clickhouse.schema: engine Null stores nothing",
            "spec.sink.clickhouse.schema.ttl: ",
            "must not be set with engine Null",
        ),
        (
            CLICKHOUSE,
            r#"{"endpoints": ["http://a:8123"], "shards": [{"endpoints": ["http://b:99999"]}]}"#,
            "spec.sink.clickhouse: exactly one of endpoints",
            "spec.sink.clickhouse.shards: \"http://b:99999\" is not",
            "is set together with endpoints",
        ),
        (
            SETTINGS,
            r#"{"async_insert": "1", "A": "1"}"#,
            "spec.sink.clickhouse.insert.settings: settings has a name",
            "spec.sink.clickhouse.insert.settings.A: is not the name of a setting",
            "cannot be set here",
        ),
    ] {
        let mut object = smallest();
        set(&mut object, pointer, serde_json::from_str(value).unwrap());
        let found = told(&object);
        for part in [rule, other] {
            assert!(found.lines().any(|line| line.starts_with(part)), "{part} is not in {found}");
        }
        assert!(!found.contains(repeated), "{found}");
    }
}
