//! One row of the table, with types: what a span must become, and what was read back.
//!
//! Job: hold both sides of the field-by-field comparison. Place in the flow: `numbered::expected_row` makes one from a
//! number, `oracle` reads one from `ClickHouse`, [`SpanRow::differences`] compares. Limits: for picked rows, not for bulk.
//!
//! How attribute values map to JSON columns (the gateway's contract):
//!
//! | OTLP value | `ClickHouse` type at the path |
//! | --- | --- |
//! | string, bool, int, double | `String`, `Bool`, `Int64`, `Float64` (NaN and infinities kept) |
//! | bytes | `String`, base64 with the standard alphabet and padding |
//! | array of one of string, bool, int, double | `Array(Nullable(T))` |
//! | empty array | `Array(Nullable(String))`, empty |
//! | array of several of them | `Array(Dynamic)` |
//! | array of lists | `Array(JSON)` |
//! | list | flattened to dotted paths |
//! | empty value | path absent |
//! | two equal keys | the first; a key with literal dots wins over a flattened list |

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::value::{Attribute, Value};

/// A JSON column's dotted paths and their values.
pub type Paths = BTreeMap<String, Json>;

/// A value at a path of a JSON column, by its stored type.
#[derive(Clone, Debug)]
pub enum Json {
    /// `String`.
    Text(String),
    /// `Bool`.
    Bool(bool),
    /// `Int64`.
    Int(i64),
    /// `Float64`.
    Double(f64),
    /// `Array(Nullable(String))`.
    Texts(Vec<Option<String>>),
    /// `Array(Nullable(Bool))`.
    Bools(Vec<Option<bool>>),
    /// `Array(Nullable(Int64))`.
    Ints(Vec<Option<i64>>),
    /// `Array(Nullable(Float64))`.
    Doubles(Vec<Option<f64>>),
    /// `Array(Dynamic)`: each element's type and its text.
    Mixed(Vec<(String, String)>),
    /// `Array(JSON)`.
    Objects(Vec<Paths>),
    /// Any other type, which no expected row has: the type's name.
    Other(String),
}

/// One event of a row.
#[derive(Clone, Debug, Default)]
pub struct EventRow {
    /// `Events.Timestamp`, nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// `Events.Name`.
    pub name: String,
    /// `Events.Attributes`.
    pub attributes: Paths,
}

/// One link of a row.
#[derive(Clone, Debug, Default)]
pub struct LinkRow {
    /// `Links.TraceId`, lower-case hexadecimal.
    pub trace_id: String,
    /// `Links.SpanId`, lower-case hexadecimal.
    pub span_id: String,
    /// `Links.TraceState`.
    pub trace_state: String,
    /// `Links.Attributes`.
    pub attributes: Paths,
}

/// One row of the `otel_traces` table.
#[derive(Clone, Debug, Default)]
pub struct SpanRow {
    /// `Timestamp`: the span's start, nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// `TraceId`, lower-case hexadecimal.
    pub trace_id: String,
    /// `SpanId`, lower-case hexadecimal.
    pub span_id: String,
    /// `ParentSpanId`, lower-case hexadecimal, empty for a root span.
    pub parent_span_id: String,
    /// `TraceState`.
    pub trace_state: String,
    /// `SpanName`.
    pub span_name: String,
    /// `SpanKind`: `Unspecified`, `Internal`, `Server`, `Client`, `Producer` or `Consumer`.
    pub span_kind: String,
    /// `ServiceName`: the resource attribute `service.name`, empty without one.
    pub service_name: String,
    /// `ResourceAttributes`.
    pub resource_attributes: Paths,
    /// `ScopeName`.
    pub scope_name: String,
    /// `ScopeVersion`.
    pub scope_version: String,
    /// `SpanAttributes`.
    pub span_attributes: Paths,
    /// `Duration`, nanoseconds; 0 when the span ends before it starts.
    pub duration_ns: u64,
    /// `StatusCode`: `Unset`, `Ok` or `Error`.
    pub status_code: String,
    /// `StatusMessage`.
    pub status_message: String,
    /// `Events.*`, in the span's order.
    pub events: Vec<EventRow>,
    /// `Links.*`, in the span's order.
    pub links: Vec<LinkRow>,
}

impl SpanRow {
    /// Every field that is not as in `stored`, one sentence each: its name, what was expected and what is stored. Empty
    /// when the rows are equal. NaN equals NaN, and 0 differs from -0.
    pub fn differences(&self, stored: &SpanRow) -> Vec<String> {
        let (expected, stored) = (self.fields(), stored.fields());
        let names: BTreeSet<&String> = expected.keys().chain(stored.keys()).collect();
        let text = |fields: &BTreeMap<String, String>, name| {
            fields.get(name).map_or_else(|| "nothing".to_owned(), Clone::clone)
        };
        names
            .into_iter()
            .map(|name| (name, text(&expected, name), text(&stored, name)))
            .filter(|(_, expected, stored)| expected != stored)
            .map(|(name, expected, stored)| format!("{name}: expected {expected}, stored {stored}"))
            .collect()
    }

    /// Every field as text that also names its type.
    fn fields(&self) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::from([
            ("Timestamp".to_owned(), format!("{}", self.timestamp_ns)),
            ("Duration".to_owned(), format!("{}", self.duration_ns)),
            ("Events".to_owned(), format!("{} events", self.events.len())),
            ("Links".to_owned(), format!("{} links", self.links.len())),
        ]);
        for (name, text) in [
            ("TraceId", &self.trace_id),
            ("SpanId", &self.span_id),
            ("ParentSpanId", &self.parent_span_id),
            ("TraceState", &self.trace_state),
            ("SpanName", &self.span_name),
            ("SpanKind", &self.span_kind),
            ("ServiceName", &self.service_name),
            ("ScopeName", &self.scope_name),
            ("ScopeVersion", &self.scope_version),
            ("StatusCode", &self.status_code),
            ("StatusMessage", &self.status_message),
        ] {
            fields.insert(name.to_owned(), format!("{text:?}"));
        }
        add_paths(&mut fields, "ResourceAttributes", &self.resource_attributes);
        add_paths(&mut fields, "SpanAttributes", &self.span_attributes);
        for (index, event) in self.events.iter().enumerate() {
            event.add_to(&mut fields, &format!("Events[{index}]"));
        }
        for (index, link) in self.links.iter().enumerate() {
            link.add_to(&mut fields, &format!("Links[{index}]"));
        }
        fields
    }
}

impl EventRow {
    fn add_to(&self, fields: &mut BTreeMap<String, String>, at: &str) {
        fields.insert(format!("{at}.Timestamp"), format!("{}", self.timestamp_ns));
        fields.insert(format!("{at}.Name"), format!("{:?}", self.name));
        add_paths(fields, &format!("{at}.Attributes"), &self.attributes);
    }
}

impl LinkRow {
    fn add_to(&self, fields: &mut BTreeMap<String, String>, at: &str) {
        fields.insert(format!("{at}.TraceId"), format!("{:?}", self.trace_id));
        fields.insert(format!("{at}.SpanId"), format!("{:?}", self.span_id));
        fields.insert(format!("{at}.TraceState"), format!("{:?}", self.trace_state));
        add_paths(fields, &format!("{at}.Attributes"), &self.attributes);
    }
}

fn add_paths(fields: &mut BTreeMap<String, String>, at: &str, paths: &Paths) {
    for (path, value) in paths {
        fields.insert(format!("{at} {path}"), format!("{value:?}"));
    }
}

/// The paths that `attributes` must become.
pub(super) fn paths(attributes: &[Attribute]) -> Paths {
    let mut paths = Paths::new();
    add_plain(&mut paths, "", attributes);
    add_lists(&mut paths, "", attributes);
    paths
}

/// Values at their own keys, before anything that is flattened: a literal key wins.
fn add_plain(paths: &mut Paths, prefix: &str, attributes: &[Attribute]) {
    for attribute in attributes {
        if let Some(value) = json(&attribute.value) {
            paths.entry(format!("{prefix}{}", attribute.key)).or_insert(value);
        }
    }
}

fn add_lists(paths: &mut Paths, prefix: &str, attributes: &[Attribute]) {
    for attribute in attributes {
        if let Value::List(inner) = &attribute.value {
            let prefix = format!("{prefix}{}.", attribute.key);
            add_plain(paths, &prefix, inner);
            add_lists(paths, &prefix, inner);
        }
    }
}

/// What is stored at a value's own path; nothing for an empty value, and for a list, which is flattened.
fn json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Empty | Value::List(_) => return None,
        Value::Text(text) => Json::Text(text.clone()),
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::Int(*number),
        Value::Double(number) => Json::Double(*number),
        Value::Bytes(bytes) => Json::Text(STANDARD.encode(bytes)),
        Value::Array(values) => array(values),
    })
}

fn array(values: &[Value]) -> Json {
    // The order of these lines makes an empty array one of strings, as `ClickHouse` itself does.
    each(values, |value| if let Value::Text(text) = value { Some(text.clone()) } else { None })
        .map(Json::Texts)
        .or_else(|| {
            each(values, |value| if let Value::Bool(flag) = value { Some(*flag) } else { None })
                .map(Json::Bools)
        })
        .or_else(|| {
            each(values, |value| if let Value::Int(number) = value { Some(*number) } else { None })
                .map(Json::Ints)
        })
        .or_else(|| {
            each(values, |value| if let Value::Double(number) = value { Some(*number) } else { None })
                .map(Json::Doubles)
        })
        .or_else(|| {
            each(values, |value| if let Value::List(list) = value { Some(paths(list)) } else { None })
                .map(|objects| Json::Objects(objects.into_iter().flatten().collect()))
        })
        .unwrap_or_else(|| Json::Mixed(values.iter().map(typed_text).collect()))
}

/// All values as `T`, or nothing when one of them is not.
fn each<T>(values: &[Value], of: impl Fn(&Value) -> Option<T>) -> Option<Vec<Option<T>>> {
    values.iter().map(|value| of(value).map(Some)).collect()
}

/// Type and text of an element of a mixed array, as `dynamicType` and a cast to `String` give them. The doubles of the
/// shapes are short binary fractions, on whose text Rust and `ClickHouse` agree.
fn typed_text(value: &Value) -> (String, String) {
    let (name, text) = match value {
        Value::Text(text) => ("String", text.clone()),
        Value::Bool(flag) => ("Bool", flag.to_string()),
        Value::Int(number) => ("Int64", number.to_string()),
        Value::Double(number) => ("Float64", number.to_string()),
        Value::Bytes(bytes) => ("String", STANDARD.encode(bytes)),
        Value::Empty => ("None", String::new()),
        Value::Array(_) | Value::List(_) => ("nested", String::new()),
    };
    (name.to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::super::value::attribute;
    use super::*;

    fn debug(attributes: &[Attribute]) -> String {
        format!("{:?}", paths(attributes))
    }

    #[test]
    fn the_first_of_two_equal_keys_wins() {
        let attributes = [attribute("k", Value::Int(1)), attribute("k", "late")];
        assert_eq!(debug(&attributes), r#"{"k": Int(1)}"#);
    }

    #[test]
    fn a_literal_dotted_key_wins_over_a_flattened_one() {
        let list = Value::List(vec![attribute("b", "flattened"), attribute("c", Value::Bool(true))]);
        let attributes = [attribute("a", list), attribute("a.b", "literal")];
        assert_eq!(debug(&attributes), r#"{"a.b": Text("literal"), "a.c": Bool(true)}"#);
    }

    #[test]
    fn arrays_are_named_by_what_they_hold() {
        let mixed =
            vec![Value::Int(1), "x".into(), Value::Bool(true), Value::Double(1.5), Value::Bytes(vec![255])];
        let attributes = [
            attribute("empty", Value::Array(vec![])),
            attribute("ints", Value::Array(vec![Value::Int(1), Value::Int(-1)])),
            attribute("mixed", Value::Array(mixed)),
            attribute("objects", Value::Array(vec![Value::List(vec![attribute("x", Value::Int(1))])])),
        ];
        assert_eq!(
            debug(&attributes),
            r#"{"empty": Texts([]), "ints": Ints([Some(1), Some(-1)]), "mixed": Mixed([("Int64", "1"), "#
                .to_owned()
                + r#"("String", "x"), ("Bool", "true"), ("Float64", "1.5"), ("String", "/w==")]), "#
                + r#""objects": Objects([{"x": Int(1)}])}"#
        );
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let mut expected = SpanRow { span_name: "a".to_owned(), ..SpanRow::default() };
        expected.span_attributes = paths(&[attribute("f", Value::Double(f64::NAN))]);
        assert_eq!(expected.differences(&expected.clone()), Vec::<String>::new());
        let mut stored = expected.clone();
        stored.span_name = "b".to_owned();
        stored.span_attributes = paths(&[attribute("f", Value::Double(-0.0))]);
        assert_eq!(
            expected.differences(&stored),
            [
                "SpanAttributes f: expected Double(NaN), stored Double(-0.0)",
                r#"SpanName: expected "a", stored "b""#
            ]
        );
    }
}
