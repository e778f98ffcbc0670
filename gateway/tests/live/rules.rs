//! Rules for attributes and truncated values, read back from the server in every layout.

use crate::{
    messages::{attribute, list, message, span, string},
    server::Database,
};
use sluice_gateway_config::{
    AttributeAction, AttributeRule, Attributes, AttributesOf, ByteSize, Layout, SchemaManagement,
};

/// SHA-256 of `me`.
const HASH_OF_ME: &str = "sha256:2744ccd10c7533bd736ad890f9dd5cab2adb27b07d500b9493f29cdc420cb2e0";

fn rule(action: AttributeAction, keys: &[&str]) -> AttributeRule {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    AttributeRule { action, keys, sets: AttributesOf::ALL.to_vec() }
}

fn config() -> Attributes {
    Attributes {
        value_bytes_max: Some(ByteSize::kib(1)),
        rules: vec![
            rule(AttributeAction::Keep, &["http.method"]),
            rule(AttributeAction::Drop, &["http.*", "user.email", "missing"]),
            rule(AttributeAction::Hash, &["user.id", "enduser.id"]),
        ],
        ..Attributes::default()
    }
}

async fn filled(layout: Layout) -> Database {
    let database = Database::new(&format!("rules_{layout:?}").to_lowercase()).await;
    let sink = database.sink(layout);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let attributes = vec![
        attribute("http.method", string("GET")),
        attribute("http.url", string("/secret")),
        attribute("enduser.id", string("me")),
        attribute("user", list(vec![attribute("email", string("a@b")), attribute("id", string("me"))])),
        attribute("long", string(&"é".repeat(1_000))),
    ];
    let message = message(vec![span(attributes)]);
    database.insert_under(&columns, &config(), &message).await.unwrap();
    database
}

async fn asked(database: &Database, expressions: &[(&str, &str)]) {
    for (expression, expected) in expressions {
        let found = database.ask(&format!("anyIf(toString({expression}), SpanName = 'name')")).await;
        assert_eq!(found, *expected, "{expression}");
    }
}

#[tokio::test]
async fn json_has_what_the_rules_leave() {
    let database = filled(Layout::Json).await;
    asked(
        &database,
        &[
            ("SpanAttributes.http.method", "GET"),
            ("has(JSONAllPaths(SpanAttributes), 'http.url')", "0"),
            ("has(JSONAllPaths(SpanAttributes), 'user.email')", "0"),
            ("SpanAttributes.enduser.id", HASH_OF_ME),
            ("SpanAttributes.user.id", HASH_OF_ME),
            ("lengthUTF8(SpanAttributes.long.:String)", "512"),
            ("SpanAttributes.sluice.original_bytes.long", "2000"),
            ("dynamicType(SpanAttributes.sluice.original_bytes.long)", "Int64"),
        ],
    )
    .await;
    database.drop().await;
}

#[tokio::test]
async fn a_map_has_what_the_rules_leave() {
    let database = filled(Layout::Map).await;
    let user = format!(r#"{{"id":"{HASH_OF_ME}"}}"#);
    asked(
        &database,
        &[
            ("SpanAttributes['http.method']", "GET"),
            ("mapContains(SpanAttributes, 'http.url')", "0"),
            ("SpanAttributes['enduser.id']", HASH_OF_ME),
            ("SpanAttributes['user']", &user),
            ("lengthUTF8(SpanAttributes['long'])", "512"),
            ("SpanAttributes['sluice.original_bytes.long']", "2000"),
        ],
    )
    .await;
    database.drop().await;
}

#[tokio::test]
async fn groups_have_what_the_rules_leave() {
    let database = filled(Layout::Nested).await;
    let (keys, values) = ("SpanAttributesString.Key", "SpanAttributesString.Value");
    let string = |key: &str| format!("{values}[indexOf({keys}, '{key}')]");
    asked(
        &database,
        &[
            (&string("http.method"), "GET"),
            (&format!("has({keys}, 'http.url')"), "0"),
            (&string("enduser.id"), HASH_OF_ME),
            (&format!("lengthUTF8({})", string("long")), "512"),
        ],
    )
    .await;
    database.drop().await;
}
