//! The definition of `TraceConnection`: the file, its bounds, its rules, and that its fields are those of a pipeline.

use crate::{
    cases::connections::{CONNECTION_CHANGES, CONNECTIONS},
    in_connection_sample,
    manifest::{each, field},
    rules::{collect, failures as failures_of_pipeline},
    schema as schema_of_pipeline,
};
use kube_cel::{Validator, apply_defaults, compile_schema, estimate_rule_cost};
use serde_json::{Value, json};
use sluice_crds::{TraceConnection, TracePipeline, connection_crd, connection_crd_yaml};
use std::collections::BTreeSet;

pub fn schema() -> Value {
    connection_crd().pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
}

fn sample() -> Value {
    let [connection] = <[Value; 1]>::try_from(in_connection_sample("TraceConnection")).unwrap();
    connection
}

#[test]
fn the_file_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/traceconnections.yaml");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        file == connection_crd_yaml(),
        "stale: run `cargo run -p sluice-crds connections > crds/traceconnections.yaml`"
    );
}

#[test]
fn the_yaml_is_read_back_equal_and_an_api_server_would_drop_nothing_of_it() {
    let read: Value = serde_saphyr::from_str(&connection_crd_yaml()).unwrap();
    assert_eq!(read, connection_crd());
    each(&connection_crd(), "", &mut |path, value| {
        assert!(!value.is_null() && *value != json!(false), "{path} is {value}");
        assert!(!value.is_f64(), "{path} is the float {value}");
        let empty = *value == json!({}) || *value == json!([]);
        assert!(!empty || path.ends_with("/subresources/status"), "{path} is empty");
        let format = value.get("format").and_then(Value::as_str);
        assert!(format.is_none_or(|format| ["int32", "int64"].contains(&format)), "{path}: {format:?}");
    });
}

#[test]
fn every_field_is_described_and_every_string_and_list_of_the_spec_is_bounded() {
    let schema = schema();
    each(&schema, "", &mut |path, value| {
        assert!(field(path).is_none() || value.get("description").is_some(), "{path}");
    });
    each(
        &schema["properties"]["spec"],
        "",
        &mut |path, value| match value.get("type").and_then(Value::as_str) {
            Some("string") => assert!(value.get("maxLength").or(value.get("enum")).is_some(), "{path}"),
            Some("array") => assert!(value.get("maxItems").is_some(), "{path}"),
            Some("integer") => assert!(value.get("maximum").is_some(), "{path}"),
            _ => {}
        },
    );
}

#[test]
fn a_connection_is_found_by_its_short_name_and_its_columns_are_fields() {
    let crd = connection_crd();
    let names = &crd["spec"]["names"];
    assert_eq!(names["shortNames"], json!(["tconn"]));
    assert_eq!(
        (&names["kind"], &names["listKind"]),
        (&json!("TraceConnection"), &json!("TraceConnectionList"))
    );
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"]["status"], json!({}));
    assert_eq!(schema()["properties"]["status"]["default"], Value::Null, "nothing waits for an operator");
    for column in version["additionalPrinterColumns"].as_array().unwrap() {
        let path = column["jsonPath"].as_str().unwrap();
        let pointer = path.trim_end_matches("[0]").replace("[0]", "/items").replace('.', "/properties/");
        let is_metadata = path.starts_with(".metadata.");
        assert!(is_metadata || schema().pointer(&pointer).is_some(), "{path}: no such field");
    }
}

/// A field of a login that a pipeline gets is one of the connection, too, with the same bounds.
#[test]
fn the_fields_are_those_of_a_pipeline() {
    let (pipeline, connection) = (schema_of_pipeline(), schema());
    let part = |schema: &Value, pointer: &str| schema.pointer(pointer).unwrap()["properties"].clone();
    for (of_pipeline, of_connection, own) in [
        (
            "/properties/spec/properties/source/properties/kafka",
            "/properties/spec/properties/kafka",
            &["bootstrapServers", "tls", "sasl"][..],
        ),
        (
            "/properties/spec/properties/sink/properties/clickhouse",
            "/properties/spec/properties/clickhouse",
            &["endpoints", "shards", "tls", "credentials"][..],
        ),
    ] {
        let (of_pipeline, of_connection) = (part(&pipeline, of_pipeline), part(&connection, of_connection));
        let found: BTreeSet<&str> = of_connection.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, own.iter().copied().collect());
        for name in own {
            let [mut one, mut two] = [&of_pipeline, &of_connection].map(|fields| fields[name].clone());
            // The description of a list says what else could stand there.
            for value in [&mut one, &mut two] {
                value.as_object_mut().unwrap().remove("description");
            }
            assert_eq!(one, two, "{name}");
        }
    }
}

fn failures(object: &Value, old: Option<&Value>) -> Vec<String> {
    let compiled = compile_schema(&schema());
    let object = apply_defaults(&schema(), object);
    match Validator::new().validate_compiled(&compiled, &object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn with(pointer: &str, value: &str) -> Value {
    let mut object = sample();
    let mut value: Value = serde_json::from_str(value).unwrap();
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[test]
fn each_rule_takes_what_is_right_and_refuses_what_is_wrong_with_its_message() {
    for case in CONNECTIONS {
        // The sample's part has tls, which needs https.
        let of = |value: &str| {
            let mut object = with(case.pointer, value);
            if case.pointer.ends_with("/endpoints") {
                object["spec"]["clickhouse"].as_object_mut().unwrap().remove("tls");
            }
            object
        };
        for value in case.taken {
            let found = failures(&of(value), None);
            assert!(found.is_empty(), "{} {value}: {found:?}", case.pointer);
        }
        for value in case.refused {
            let found = failures(&of(value), None);
            assert!(found.iter().any(|m| m.contains(case.message)), "{} {value}: {found:?}", case.pointer);
        }
    }
    for (from, to, taken, message) in CONNECTION_CHANGES {
        let found = failures(&with("/spec/clickhouse", to), Some(&with("/spec/clickhouse", from)));
        assert_eq!(found.is_empty(), *taken, "{from} -> {to}: {found:?}");
        assert!(*taken || found.iter().any(|m| m.contains(message)), "{from} -> {to}: {found:?}");
    }
}

/// Rules within a login are those of a pipeline, whose tests try them.
#[test]
fn every_rule_compiles_stays_cheap_and_is_tried_here_or_with_a_pipeline() {
    let (mut rules, mut of_pipeline) = (BTreeSet::new(), BTreeSet::new());
    collect(&schema(), &mut rules);
    collect(&schema_of_pipeline(), &mut of_pipeline);
    let of_pipeline: BTreeSet<&str> = of_pipeline.iter().map(|rule| rule.1.as_str()).collect();
    assert!(rules.len() >= 12, "{rules:?}");
    for (schema, message) in &rules {
        let compiled = compile_schema(&serde_json::from_str(schema).unwrap());
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        for rule in compiled.validations.iter().flatten() {
            let warnings = estimate_rule_cost(&rule.rule.rule, &compiled);
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let is_tried = CONNECTIONS.iter().any(|case| message.contains(case.message))
            || CONNECTION_CHANGES.iter().any(|change| !change.3.is_empty() && message.contains(change.3));
        assert!(is_tried || of_pipeline.contains(message.as_str()), "no test is refused by: {message}");
    }
}

#[test]
fn the_sample_keeps_every_rule_and_its_pipelines_reference_its_connection() {
    assert_eq!(failures(&sample(), None), Vec::<String>::new());
    let connection: TraceConnection = serde_json::from_value(sample()).unwrap();
    let written = serde_json::to_value(&connection.spec).unwrap();
    assert_eq!(written, sample()["spec"], "it is read and written back as it was");
    let pipelines = in_connection_sample("TracePipeline");
    assert_eq!(pipelines.len(), 2);
    for pipeline in pipelines {
        assert_eq!(failures_of_pipeline(&pipeline, None), Vec::<String>::new());
        let pipeline: TracePipeline = serde_json::from_value(pipeline).unwrap();
        let (kafka, clickhouse) = (pipeline.spec.source.kafka.unwrap(), pipeline.spec.sink.clickhouse);
        for reference in [kafka.connection_ref, clickhouse.connection_ref] {
            assert_eq!(reference.unwrap().name, connection.metadata.name.clone().unwrap());
        }
        assert_eq!(pipeline.metadata.namespace, connection.metadata.namespace);
    }
}
