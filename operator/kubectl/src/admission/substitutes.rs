//! Values in place of those that no pipeline can have, so that a planner can say what else is wrong with the object.
//!
//! A substitute may be the cause of what the planner says. So each field gets one value after the other: what is said with each of them does not
//! depend on the field.
//!
//! Limits: [`FIELDS_MAX`] fields. A field that takes fewer than two of the values tried here has no substitute, and then the object has none.

use super::{Definition, path};
use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::{Value, json};

/// The most fields that get a substitute. Chosen: the object is checked about ten times for each.
const FIELDS_MAX: usize = 8;

/// Numbers that fields take.
const NUMBERS: [u32; 5] = [1, 2, 100, 600, 3_600];

/// Texts that fields take: names, sizes, durations, addresses, times of a day.
const TEXTS: [&str; 13] = [
    "a",
    "b",
    "1Mi",
    "512Mi",
    "64Gi",
    "1s",
    "1m",
    "1h",
    "a:9092",
    "b:9092",
    "http://a:8123",
    "08:00",
    "20:00",
];

/// Objects without the wrong values.
pub struct Substitutes {
    /// One with a substitute in each field.
    pub first: Value,
    /// For each field, the same object with other substitutes in it.
    pub others: Vec<Vec<Value>>,
    /// The fields.
    pub paths: Vec<String>,
}

/// A field with a wrong value, or without one that it must have.
struct Field {
    pointer: String,
    path: String,
    /// What may stand there; `None` for a field that may be absent.
    values: Vec<Option<Value>>,
}

/// The objects; `None` if a field has no substitute.
pub(super) fn of(definition: &Definition, object: &Value) -> Option<Substitutes> {
    let object = definition.as_checked(object);
    let fields = fields(definition, &object)?;
    let mut first = object;
    let mut taken = Vec::new();
    for field in &fields {
        let mut values = field.values.clone();
        values.retain(|value| {
            let object = field.set(&first, value.clone());
            object.is_some_and(|object| field.is_right(definition, &object))
        });
        first = field.set(&first, values.first()?.clone())?;
        taken.push(values);
    }
    let others = |(field, values): (&Field, Vec<Option<Value>>)| {
        let others: Vec<Value> =
            values.into_iter().skip(1).filter_map(|value| field.set(&first, value)).collect();
        (!others.is_empty()).then_some(others)
    };
    let others = fields.iter().zip(taken).map(others).collect::<Option<Vec<_>>>()?;
    let paths = fields.into_iter().map(|field| field.path).collect();
    Some(Substitutes { first, others, paths })
}

/// The fields whose values the schema refuses; `None` if there are none or too many.
fn fields(definition: &Definition, object: &Value) -> Option<Vec<Field>> {
    let bounds = definition.bounds.as_ref().ok()?;
    let mut fields: Vec<Field> = Vec::new();
    for error in bounds.iter_errors(object) {
        let field = Field::of(&definition.schema, &error)?;
        if fields.iter().all(|one| one.pointer != field.pointer) {
            fields.push(field);
        }
        if fields.len() > FIELDS_MAX {
            return None;
        }
    }
    (!fields.is_empty()).then_some(fields)
}

impl Field {
    fn of(schema: &Value, error: &ValidationError<'_>) -> Option<Self> {
        let (at, in_path) = (error.instance_path().as_str(), path(error.instance_path()));
        let (pointer, path) = match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str()?;
                (format!("{at}/{name}"), format!("{in_path}.{name}"))
            }
            _ => (at.to_owned(), in_path),
        };
        let (parent, name) = pointer.rsplit_once('/')?;
        let parent = parent.split('/').skip(1).try_fold(schema, part)?;
        let is_required = parent["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        // Without an entry, those behind it would have other paths.
        let is_entry = parent["type"] == "array";
        let absent = (!is_required && !is_entry).then_some(None);
        let values = absent.into_iter().chain(values(part(parent, name)?).into_iter().map(Some)).collect();
        Some(Self { pointer, path, values })
    }

    /// The object with this value in the field.
    fn set(&self, object: &Value, value: Option<Value>) -> Option<Value> {
        let mut object = object.clone();
        let (parent, name) = self.pointer.rsplit_once('/')?;
        match (object.pointer_mut(parent)?, value) {
            (Value::Object(fields), Some(value)) => {
                fields.insert(name.to_owned(), value);
            }
            (Value::Object(fields), None) => {
                fields.remove(name);
            }
            (Value::Array(items), Some(value)) => *items.get_mut(name.parse::<usize>().ok()?)? = value,
            _ => return None,
        }
        Some(object)
    }

    /// Whether nothing is wrong with the field in this object.
    fn is_right(&self, definition: &Definition, object: &Value) -> bool {
        definition.check(object).iter().all(|one| !is_within(&one.path, &self.path))
    }
}

/// Whether this is the field, or a part of it.
pub fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The schema of a field or of an entry.
fn part<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let of_name = schema["properties"].get(name);
    of_name.or_else(|| schema.get("additionalProperties")).or_else(|| schema.get("items"))
}

/// What may be right for a field with this schema.
fn values(schema: &Value) -> Vec<Value> {
    if let Some(options) = schema["enum"].as_array() {
        return options.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!(1), json!("2"), json!("512Mi"), json!("64Gi")];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(false), json!(true)],
        Some("integer" | "number") => NUMBERS.map(Value::from).into(),
        Some("string") => TEXTS.map(Value::from).into(),
        Some("array") => {
            let of_one = values(&schema["items"]).into_iter().map(|item| json!([item]));
            std::iter::once(json!([])).chain(of_one).collect()
        }
        Some("object") => vec![json!({})],
        _ => Vec::new(),
    }
}
