//! What the API server checks by itself before it takes a pipeline, without one: types and bounds of the definition, and its rules.
//!
//! Place in the flow: `plan` asks, of a file, before anything is planned. A reconcile never does: what it reads was admitted.
//!
//! Limits: rules about a change look at what is there already, and are not asked; two entries of one list with the same key are not
//! noticed.

use jsonschema::paths::{Location, LocationSegment};
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;
use sluice_crds::{TracePipeline, crd};
use sluice_plan::Violations;
use std::sync::LazyLock;

/// Where the schema of the served version stands in the definition.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

static BOUNDS: LazyLock<Result<jsonschema::Validator, String>> =
    LazyLock::new(|| jsonschema::validator_for(&json_schema(schema())).map_err(|error| error.to_string()));

static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&schema()));

/// What is of a wrong type, missing, or out of its bounds in an object as it was written.
pub fn bounds(object: &Value) -> Violations {
    let mut found = Violations::default();
    match &*BOUNDS {
        Ok(bounds) => {
            for error in bounds.iter_errors(&without_nulls(object.clone())) {
                found.add(path(error.instance_path()), error.to_string());
            }
        }
        Err(error) => found.add("the definition", error),
    }
    found
}

/// The rules of the definition that a pipeline breaks, each with the definition's own message.
pub fn rules(pipeline: &TracePipeline) -> Violations {
    let mut found = Violations::default();
    let object = match serde_json::to_value(pipeline) {
        // What nobody set is left out, as the API server has it; everything else has its default.
        Ok(object) => without_nulls(object),
        Err(error) => {
            found.add("spec", error.to_string());
            return found;
        }
    };
    for error in Validator::new().validate_compiled(&RULES, &object, None).err().into_iter().flatten() {
        // A rule of the whole object sees nothing but its name beside the spec.
        let path = if error.field_path.is_empty() { "metadata.name".to_owned() } else { error.field_path };
        found.add(path, error.message);
    }
    found
}

/// As a user would write it: `spec.source.kafka.topics[0]`.
fn path(location: &Location) -> String {
    let segments = location.iter().map(|segment| match segment {
        LocationSegment::Property(name) => format!(".{name}"),
        LocationSegment::Index(index) => format!("[{index}]"),
    });
    segments.collect::<String>().trim_start_matches('.').to_owned()
}

fn schema() -> Value {
    crd().pointer_mut(SCHEMA).map(Value::take).unwrap_or_default()
}

/// The schema of a definition as JSON Schema knows it: a list that is a set says so in another word.
fn json_schema(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-list-type").is_some_and(|kind| kind == "set") {
                fields.insert("uniqueItems".to_owned(), true.into());
            }
            fields.values_mut().for_each(|field| *field = json_schema(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = json_schema(item.take())),
        _ => {}
    }
    schema
}

/// `null` stands for what is not set, and the API server leaves it out or fills it in.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(|field| *field = without_nulls(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}
