//! What a person reads of credentials and inserts that are refused: whose they are, and who goes on with them.

use crate::{
    defaults,
    statuses::{condition, running, said},
    with, with_credentials,
};
use serde_json::json;
use sluice_crds::{SecretUse, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    Observed, SchemaFailed, SchemaFailure, SchemaSeen, SecretSeen, SourceFailure, TopicSeen,
    observed::{
        MissingTable, UnusableTable,
        inserts::{FailedInsert, InsertError, SinkSeen},
    },
    plan,
};
use std::collections::{BTreeMap, BTreeSet};

fn secret() -> SecretSeen {
    SecretSeen::Present { version: "1".into(), object: "1".into() }
}

/// With gateways that run, and without.
fn both(of: SecretUse) -> [Observed; 2] {
    let (_, mut runs) = running(&json!({}), &[]);
    runs.secrets.insert(of, secret());
    let starts = Observed { workload: None, ..runs.clone() };
    [runs, starts]
}

const KEPT: &str = "gateways that run go on with the credentials that they read at their start";

#[test]
fn a_user_that_kafka_refuses_is_said_with_its_secret() {
    let sasl = json!({"mechanism": "ScramSha512", "secretRef": {"name": "kafka-user"}});
    let pipeline: TracePipeline = with("/spec/source/kafka/sasl", sasl);
    for (facts, is_kept) in both(SecretUse::KafkaUser).into_iter().zip([true, false]) {
        let with = |failure| {
            let mut facts = facts.clone();
            for topic in pipeline.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics) {
                let seen = TopicSeen::Unavailable { failure, message: "refused; check the user".into() };
                facts.partitions.insert(topic.clone(), seen);
            }
            condition(&said(&pipeline, &facts), "SourceReachable").message.clone()
        };
        let refused = with(SourceFailure::AuthFailed);
        assert!(
            refused
                .contains("refused; check the user; the credentials are those of the Secret \"kafka-user\"")
        );
        assert_eq!(refused.contains(KEPT), is_kept, "{refused}");
        assert_eq!(
            with(SourceFailure::Unreachable),
            "refused; check the user",
            "the Secret has nothing to do with it"
        );
    }
}

#[test]
fn an_oauth_client_without_a_token_is_said_with_its_secret() {
    let credentials = json!({"tokenEndpoint": "https://login/token", "clientId": "me", "secretRef": {"name": "kafka-client"}});
    for (oauth, expected) in [
        (
            json!({"clientCredentials": credentials}),
            "no token; the credentials are those of the Secret \"kafka-client\"",
        ),
        (json!({"serviceAccountToken": {"audience": "kafka"}}), "no token"),
        (json!({"awsMskIam": {"region": "eu-central-1"}}), "no token"),
        (
            json!({"awsMskIam": {"region": "eu-central-1", "secretRef": {"name": "msk"}}}),
            "no token; the credentials are those of the Secret \"msk\"",
        ),
        (
            json!({"clientCredentials": {"tokenEndpoint": "https://login/token", "clientId": "me", "clientAssertion": {}}}),
            "no token",
        ),
    ] {
        let of = if oauth["awsMskIam"].is_object() { SecretUse::KafkaAws } else { SecretUse::KafkaClient };
        let sasl = json!({"mechanism": "OAuthBearer", "oauth": oauth});
        let pipeline: TracePipeline = with("/spec/source/kafka/sasl", sasl);
        for mut facts in both(of) {
            for topic in pipeline.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics) {
                let failure = SourceFailure::AuthFailed;
                let seen = TopicSeen::Unavailable { failure, message: "no token".into() };
                facts.partitions.insert(topic.clone(), seen);
            }
            // The former secret is not in use any more: it is read for each token.
            assert_eq!(condition(&said(&pipeline, &facts), "SourceReachable").message, expected);
        }
    }
}

#[test]
fn a_user_that_clickhouse_refuses_is_said_with_its_secret() {
    for (facts, is_kept) in both(SecretUse::ClickHouseUser).into_iter().zip([true, false]) {
        let failed = |reason| {
            let failure = SchemaFailure { reason, message: "wrong password".into() };
            let schema = SchemaSeen::Failed(SchemaFailed { failure, ..SchemaFailed::default() });
            let status = said(&with_credentials(), &Observed { schema, ..facts.clone() });
            ["Ready", "SinkReachable", "SchemaReady"].map(|kind| condition(&status, kind).message.clone())
        };
        for message in failed("AuthFailed") {
            assert!(message.contains("those of the Secret \"writer\""), "{message}");
            assert_eq!(message.contains(KEPT), is_kept, "{message}");
        }
        for message in failed("Unreachable") {
            assert!(!message.contains("Secret"), "{message}");
        }
    }
}

/// "rows are written" would be false then.
#[test]
fn a_table_that_differed_and_was_dropped_since_is_said_to_be_missing_until_inserts_succeed() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let failure = SchemaFailure { reason: "SchemaDiffers", message: "a column has another type".into() };
    let schema = SchemaSeen::Failed(SchemaFailed { failure, ..SchemaFailed::default() });
    let well = Observed { schema, sink: SinkSeen::Well, ..well };
    let reason = |pipeline: &TracePipeline, facts: &Observed| {
        condition(&said(pipeline, facts), "SchemaReady").reason.clone()
    };
    assert_eq!(reason(&pipeline, &well), "SchemaDiffers");
    let (gateway, words) = ("a-gateway-0".into(), "no such table".into());
    let missing_table = Some(MissingTable { gateway, words, database: None });
    let failing = Observed { sink: SinkSeen::Failing { all: true }, ..well.clone() };
    let missed = Observed { missing_table, ..failing.clone() };
    assert_eq!(reason(&pipeline, &missed), "TableMissing");
    pipeline.status = Some(said(&pipeline, &missed));
    assert_eq!(reason(&pipeline, &failing), "TableMissing", "the gateway that said so did not answer");
    assert_eq!(reason(&pipeline, &well), "SchemaDiffers");
}

/// The schema Job has reached ClickHouse, maybe long ago or from another node.
#[test]
fn what_keeps_a_gateway_from_its_table_at_the_start_is_said_with_what_helps() {
    let [well, _] = both(SecretUse::ClickHouseUser);
    let mut pipeline = with_credentials();
    let waits = |reason: &'static str, words: &str| {
        let gateway = "demo-gateway-1".to_owned();
        let unusable_table = Some(UnusableTable { gateway, reason, words: words.to_owned() });
        Observed { unusable_table, ..well.clone() }
    };
    let words = "waits for the table: describing otel.t at http://c:8123: refused (code 516): no such user";
    let refused = said(&pipeline, &waits("AuthFailed", words));
    let sink = condition(&refused, "SinkReachable");
    assert_eq!((sink.status.as_str(), sink.reason.as_str()), ("False", "AuthFailed"));
    let expected =
        format!("gateways do not begin to read: demo-gateway-1: {words}; the credentials are those");
    assert!(sink.message.starts_with(&expected), "{}", sink.message);
    assert_eq!(condition(&refused, "SchemaReady").reason, "Ok");
    let misfit = said(&pipeline, &waits("ColumnMismatch", "the column SpanId is missing"));
    let reasons = |status: &TracePipelineStatus| {
        ["SinkReachable", "SchemaReady"].map(|kind| condition(status, kind).reason.clone())
    };
    assert_eq!(reasons(&misfit), ["Ok", "ColumnMismatch"]);

    let unheard = serde_json::from_value(json!({"metadata": {"name": "demo-gateway-1"}})).unwrap();
    let (_, mut unheard) = running(&json!({"readyReplicas": 2}), &[unheard]);
    unheard.workload.as_mut().unwrap().told_by(&BTreeMap::new(), &BTreeSet::from([1]));
    unheard.secrets = well.secrets.clone();
    for status in [refused, misfit] {
        pipeline.status = Some(status.clone());
        assert_eq!(reasons(&said(&pipeline, &unheard)), reasons(&status), "a new operator knows less");
        assert_eq!(reasons(&said(&pipeline, &well)), ["Ok", "Ok"]);
    }
}

/// The message names the database, and a server at which it is missing.
#[test]
fn a_database_that_a_gateway_misses_is_said_with_its_name_and_what_helps() {
    let (pipeline, well) = running(&json!({}), &[]);
    let (gateway, words) = ("demo-gateway-1".into(), "at http://c:8123: the database does not exist".into());
    let missing_table = Some(MissingTable { gateway, words, database: Some("otel".into()) });
    let status = said(&pipeline, &Observed { missing_table, ..well });
    let schema = condition(&status, "SchemaReady");
    assert_eq!(schema.reason, "DatabaseMissing");
    for part in ["the database \"otel\"", "http://c:8123", "create the database", "schema.management"] {
        assert!(schema.message.contains(part), "{}", schema.message);
    }
}

/// A gateway with such a property would not start: the plan refuses it while the others run on.
#[test]
fn properties_that_librdkafka_refuses_are_violations_with_their_names() {
    let why = "No such configuration property: \"socket.bufer\"";
    let (pipeline, facts) = running(&json!({}), &[]);
    let refused = [("socket.bufer".to_owned(), why.to_owned())].into();
    let facts = Observed { refused_properties: refused, ..facts };
    let found = plan(&pipeline, &facts, &defaults()).unwrap_err().to_string();
    assert!(
        found.starts_with("spec.source.kafka.properties.socket.bufer: librdkafka refuses it (No such")
            && found.contains("or remove it"),
        "{found}"
    );
    let ready = said(&pipeline, &facts);
    assert_eq!(condition(&ready, "Stalled").reason, "SpecInvalid");
    let mut newer = pipeline;
    newer.spec.gateway.image = Some("sluice-gateway:9.9.9".into());
    assert!(plan(&newer, &facts, &defaults()).is_ok(), "its librdkafka may know the property");
}

#[test]
fn inserts_that_fail_are_said_with_the_answer_if_a_gateway_tells_it() {
    let (pipeline, well) = running(&json!({}), &[]);
    let error = InsertError {
        class: "Halt".into(),
        code: Some(497),
        message: "not enough privileges".into(),
        ..InsertError::default()
    };
    for (insert_error, words) in [
        (
            Some(FailedInsert { ordinal: 0, error }),
            "and none succeeds. demo-gateway-0: ClickHouse answered with code 497: not enough privileges; grant the gateways' user the right \
             that is missing (gateway/TABLE.md, Grants)",
        ),
        (
            None,
            "and none succeeds; kubectl logs -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=gateway has ClickHouse's answer, and \
             what helps",
        ),
    ] {
        let sink = SinkSeen::Failing { all: true };
        let status = said(&pipeline, &Observed { sink, insert_error, ..well.clone() });
        let message = &condition(&status, "SinkReachable").message;
        assert!(message.ends_with(words), "{message}");
    }
}

#[test]
fn inserts_that_fail_are_said_with_what_helps() {
    let pipeline = with_credentials();
    for (facts, is_kept) in both(SecretUse::ClickHouseUser).into_iter().zip([true, false]) {
        let failing = |code: u32, class: &str| {
            let error = InsertError {
                class: class.into(),
                code: Some(code),
                message: "refused".into(),
                ..InsertError::default()
            };
            let insert_error = Some(FailedInsert { ordinal: 0, error });
            let sink = SinkSeen::Failing { all: true };
            let status = said(&pipeline, &Observed { sink, insert_error, ..facts.clone() });
            condition(&status, "SinkReachable").message.clone()
        };
        let refused = failing(516, "Halt");
        assert!(
            refused.contains("code 516: refused; the credentials are those of the Secret \"writer\""),
            "{refused}"
        );
        assert_eq!(refused.contains(KEPT), is_kept, "{refused}");
        for (code, class, words) in [
            (60, "Halt", "schema.management: CreateIfMissing"),
            (81, "Halt", "sink.clickhouse.endpoints"),
            (164, "Halt", "set readonly to 0"),
            (195, "Halt", "allow the addresses"),
            (241, "BackPressure", "more memory"),
            (252, "BackPressure", "merges do not keep up"),
            (291, "Halt", "grant the gateways' user"),
        ] {
            let said = failing(code, class);
            assert!(said.contains(words) && !said.contains("Secret"), "{said}");
        }
        // Another cause with the same code: a replica without Keeper, and a block of too many partitions.
        for (code, class) in [(164, "BackPressure"), (252, "Split")] {
            let said = failing(code, class);
            assert!(
                said.ends_with(": refused; kubectl logs demo-gateway-0 has all of it, and what helps"),
                "{said}"
            );
        }
    }
}

/// A person who reads it has no other words about it at hand.
#[test]
fn what_keeps_rows_from_clickhouse_is_said_with_what_helps() {
    let [well, _] = both(SecretUse::ClickHouseUser);
    let pipeline = with("/spec/sink/clickhouse/schema", json!({"management": "Validate"}));
    for (reason, kind, helps) in [
        ("Unreachable", "SinkReachable", "; check sink.clickhouse.endpoints, that the server runs, DNS"),
        ("AuthFailed", "SinkReachable", "; check user, password and grants"),
        ("DatabaseMissing", "SchemaReady", "create the database, or set schema.management: CreateIfMissing"),
        ("TableMissing", "SchemaReady", "ddl print has the statement), or set schema.management"),
        ("ColumnMismatch", "SchemaReady", "; schema.management: Evolve adds missing columns"),
        ("ServersNotReached", "SinkReachable", "; bring them back: the schema Job runs again"),
        ("ServersNotReached", "SchemaReady", "; bring them back: the schema Job runs again"),
        ("JobFailed", "SchemaReady", "component=schema has what it says"),
    ] {
        let failure = SchemaFailure { reason, message: "m".into() };
        let schema = SchemaSeen::Failed(SchemaFailed { failure, ..SchemaFailed::default() });
        let status = said(&pipeline, &Observed { schema, ..well.clone() });
        let message = &condition(&status, kind).message;
        assert!(message.starts_with('m') && message.contains(helps), "{kind} {reason}: {message}");
        let gateway = "demo-gateway-1".to_owned();
        let unusable = UnusableTable { gateway, reason, words: "w".into() };
        if !["ServersNotReached", "JobFailed"].contains(&reason) {
            let status = said(&pipeline, &Observed { unusable_table: Some(unusable), ..well.clone() });
            let message = &condition(&status, kind).message;
            assert!(message.contains("demo-gateway-1: w; ") && message.contains(helps), "{kind}: {message}");
        }
    }
    let failing = |code, table_error| {
        let message = "refused".into();
        let error = InsertError {
            class: "RefreshSchema".into(),
            code,
            message,
            table_error,
            ..InsertError::default()
        };
        let insert_error = Some(FailedInsert { ordinal: 0, error });
        let sink = SinkSeen::Failing { all: true };
        let status = said(&pipeline, &Observed { sink, insert_error, ..well.clone() });
        condition(&status, "SinkReachable").message.clone()
    };
    for (code, table_error, helps) in [
        (None, Some("TableMissing"), "; create the table (sluice-gateway ddl print"),
        (None, Some("DatabaseMissing"), "and create the database"),
        (None, None, "; kubectl logs demo-gateway-0 has all of it, and what helps"),
        (Some(999), None, "; kubectl logs demo-gateway-0 has all of it, and what helps"),
    ] {
        let message = failing(code, table_error);
        assert!(
            message.contains(&format!(
                "demo-gateway-0: {}",
                if code.is_some() { "ClickHouse" } else { "refused" }
            ))
        );
        assert!(message.contains(helps), "{message}");
    }
}

#[test]
fn a_server_that_does_not_answer_inserts_is_said_with_what_to_check() {
    let (pipeline, well) = running(&json!({}), &[]);
    let message = "connection refused".into();
    let error = InsertError { class: "Retry".into(), message, ..InsertError::default() };
    let insert_error = Some(FailedInsert { ordinal: 2, error });
    let sink = SinkSeen::Failing { all: false };
    let status = said(&pipeline, &Observed { sink, insert_error, ..well });
    let message = &condition(&status, "SinkReachable").message;
    let words = "demo-gateway-2: no answer of ClickHouse: connection refused; check that the servers of sink.clickhouse.endpoints run";
    assert!(message.contains(words), "{message}");
}
