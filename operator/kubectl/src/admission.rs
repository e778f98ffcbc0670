//! Checks a pipeline or a connection as the API server does before it stores one, without a server: names, types, bounds and CEL rules of
//! the CRD.
//!
//! Place in the flow: only [`crate::plan`] uses it, for objects in files. A reconcile reads pipelines that the API server has checked.
//!
//! All that is wrong is found at once, where the API server checks rules only once types and bounds are right.
//!
//! A pipeline with values that the schema refuses gets others in their place for the planner ([`substitutes()`]).
//!
//! Limits: it does not check rules that compare with the stored object (`oldSelf`).

mod entries;
mod metadata;
mod substitutes;

use jsonschema::{
    ValidationError,
    error::ValidationErrorKind,
    paths::{Location, LocationSegment},
};
use kube_cel::{CompiledSchema, ErrorKind, Validator, apply_defaults, compile_schema};
use serde_json::Value;
use sluice_crds::{connection_crd, crd};
use sluice_plan::{Violation, Violations};
use std::sync::LazyLock;
pub use substitutes::{Substitutes, is_within};

/// JSON pointer to the schema of the served version in the CRD.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

static PIPELINE: LazyLock<Definition> = LazyLock::new(|| Definition::of(crd()));

static CONNECTION: LazyLock<Definition> = LazyLock::new(|| Definition::of(connection_crd()));

/// What a CRD says about its objects.
struct Definition {
    schema: Value,
    bounds: Result<jsonschema::Validator, String>,
    rules: CompiledSchema,
}

/// All that the API server would say of a pipeline, with the messages of the CRD, and fields that there are not.
pub fn pipeline(object: &Value) -> Violations {
    without_lengths(&PIPELINE.check(object))
}

/// The same of a connection.
pub fn connection(object: &Value) -> Violations {
    without_lengths(&CONNECTION.check(object))
}

/// The pipeline as the API server stores it: every default is filled in. It has no status and no `null`.
pub fn with_defaults(object: &Value) -> Value {
    PIPELINE.as_checked(object)
}

/// The pipeline with values that it may have, in place of those that the schema refuses; `None` if the schema refuses none, or if there is no
/// substitute for one.
pub fn substitutes(object: &Value) -> Option<Substitutes> {
    substitutes::of(&PIPELINE, object)
}

impl Definition {
    fn of(mut crd: Value) -> Self {
        let schema = crd.pointer_mut(SCHEMA).map(Value::take).unwrap_or_default();
        let rules = compile_schema(&schema);
        let bounds = jsonschema::validator_for(&schema).map_err(|error| error.to_string());
        Self { schema, bounds, rules }
    }

    fn check(&self, object: &Value) -> Violations {
        let object = self.as_checked(object);
        let mut found = self.bounds(&object);
        entries::check(&self.schema, &object, "", &mut found);
        self.rules(&object, &mut found);
        metadata::check(&object["metadata"], &mut found);
        // The libraries walk the schema's maps, whose order differs from run to run.
        found.sort_by_path();
        found
    }

    /// The object as the API server checks it: without a status, which a file cannot set, and with defaults. A default of an object is filled
    /// in itself, which takes one round for each level.
    fn as_checked(&self, object: &Value) -> Value {
        let mut before = without_nulls(object.clone());
        if let Some(fields) = before.as_object_mut() {
            fields.remove("status");
        }
        loop {
            let after = apply_defaults(&self.schema, &before);
            if after == before {
                return after;
            }
            before = after;
        }
    }

    fn bounds(&self, object: &Value) -> Violations {
        let mut found = Violations::default();
        match &self.bounds {
            Ok(bounds) => {
                for error in bounds.iter_errors(object) {
                    found.add(path(error.instance_path()), words(&error));
                }
            }
            Err(error) => found.add("the definition", error),
        }
        found
    }

    /// Adds the rules that the object breaks. A rule that cannot be evaluated reads a value that is wrong by its type, if there is one.
    fn rules(&self, object: &Value, found: &mut Violations) {
        let is_read = found.is_empty();
        for error in Validator::new().validate_compiled(&self.rules, object, None).err().into_iter().flatten()
        {
            if !is_read && error.kind != ErrorKind::ValidationFailure {
                continue;
            }
            // A rule of the whole object can read only the spec and the name.
            let path = if error.field_path.is_empty() { metadata::NAME.to_owned() } else { error.field_path };
            found.add(path, error.message);
        }
    }
}

/// Without the lengths of entries about which a rule of their list says what they are: a text that is too short for an address is none.
fn without_lengths(found: &Violations) -> Violations {
    let is_said = |one: &Violation| {
        let list = one.path.strip_suffix(']').and_then(|path| path.rsplit_once('['));
        let Some((list, _)) = list.filter(|_| is_length(&one.message)) else { return false };
        let rule = format!("each of {} is ", list.rsplit('.').next().unwrap_or(list));
        found.iter().any(|other| other.path == list && other.message.starts_with(&rule))
    };
    let mut left = Violations::default();
    for one in found {
        left.add_if(!is_said(one), &one.path, || one.message.clone());
    }
    left
}

/// Whether a text is said to be too short. Of an empty one, nothing says it better.
fn is_length(message: &str) -> bool {
    message.contains(" is shorter than ") && message.ends_with(" characters")
}

/// What is wrong with a value. The library's own text names only some of the values of a choice.
fn words(error: &ValidationError<'_>) -> String {
    let ValidationErrorKind::Enum { options } = error.kind() else { return error.to_string() };
    let options = options.as_array().into_iter().flatten().map(Value::to_string);
    format!("{} is none of {}", error.instance(), options.collect::<Vec<_>>().join(", "))
}

/// A path as users write it: `spec.source.kafka.topics[0]`.
fn path(location: &Location) -> String {
    let segments = location.iter().map(|segment| match segment {
        LocationSegment::Property(name) => format!(".{name}"),
        LocationSegment::Index(index) => format!("[{index}]"),
    });
    segments.collect::<String>().trim_start_matches('.').to_owned()
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
