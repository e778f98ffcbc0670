//! Checks a pipeline or a connection as the API server does before it stores one, without a server: types, bounds and CEL rules of the CRD.
//!
//! Place in the flow: only [`crate::plan`] uses it, for objects in files. A reconcile reads pipelines that the API server has checked.
//!
//! Limits: it does not check rules that compare with the stored object (`oldSelf`), nor duplicate keys in a list.

use jsonschema::paths::{Location, LocationSegment};
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde::Serialize;
use serde_json::Value;
use sluice_crds::{TraceConnection, TracePipeline, connection_crd, crd};
use sluice_plan::Violations;
use std::sync::LazyLock;

/// JSON pointer to the schema of the served version in the CRD.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

static PIPELINE: LazyLock<Definition> = LazyLock::new(|| Definition::of(crd()));

static CONNECTION: LazyLock<Definition> = LazyLock::new(|| Definition::of(connection_crd()));

/// What a CRD says about its objects.
struct Definition {
    bounds: Result<jsonschema::Validator, String>,
    rules: CompiledSchema,
}

/// Fields of a pipeline that have a wrong type, are missing, or are out of their bounds.
pub fn bounds(object: &Value) -> Violations {
    PIPELINE.bounds(object)
}

/// The CEL rules of the CRD that a pipeline breaks, each with the message of the CRD.
pub fn rules(pipeline: &TracePipeline) -> Violations {
    PIPELINE.rules(pipeline)
}

/// Fields of a connection that have a wrong type, are missing, or are out of their bounds.
pub fn connection_bounds(object: &Value) -> Violations {
    CONNECTION.bounds(object)
}

/// The CEL rules of the CRD that a connection breaks, each with the message of the CRD.
pub fn connection_rules(connection: &TraceConnection) -> Violations {
    CONNECTION.rules(connection)
}

impl Definition {
    fn of(mut crd: Value) -> Self {
        let schema = crd.pointer_mut(SCHEMA).map(Value::take).unwrap_or_default();
        let rules = compile_schema(&schema);
        let bounds = jsonschema::validator_for(&json_schema(schema)).map_err(|error| error.to_string());
        Self { bounds, rules }
    }

    fn bounds(&self, object: &Value) -> Violations {
        let mut found = Violations::default();
        match &self.bounds {
            Ok(bounds) => {
                for error in bounds.iter_errors(&without_nulls(object.clone())) {
                    found.add(path(error.instance_path()), error.to_string());
                }
            }
            Err(error) => found.add("the definition", error),
        }
        found
    }

    fn rules(&self, object: &impl Serialize) -> Violations {
        let mut found = Violations::default();
        let object = match serde_json::to_value(object) {
            // As in the API server: fields without a value are missing, and all others have their defaults.
            Ok(object) => without_nulls(object),
            Err(error) => {
                found.add("spec", error.to_string());
                return found;
            }
        };
        for error in
            Validator::new().validate_compiled(&self.rules, &object, None).err().into_iter().flatten()
        {
            // A rule of the whole object can read only the spec and the name.
            let path =
                if error.field_path.is_empty() { "metadata.name".to_owned() } else { error.field_path };
            found.add(path, error.message);
        }
        found
    }
}

/// A path as users write it: `spec.source.kafka.topics[0]`.
fn path(location: &Location) -> String {
    let segments = location.iter().map(|segment| match segment {
        LocationSegment::Property(name) => format!(".{name}"),
        LocationSegment::Index(index) => format!("[{index}]"),
    });
    segments.collect::<String>().trim_start_matches('.').to_owned()
}

/// The schema of the CRD as JSON Schema, which says `uniqueItems` instead of `x-kubernetes-list-type: set`.
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

/// Removes `null` fields. The API server drops them or sets their default.
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
