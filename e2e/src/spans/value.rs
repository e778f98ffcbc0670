//! Attribute values before they are encoded: OTLP's `AnyValue` and `KeyValue` as plain data.
//!
//! Job: one model of a `numbered` span's attributes, from which both the bytes and the expected row are made. Place in
//! the flow: between `numbered` and `wire` / `row`.

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// An `AnyValue` with none of its fields set.
    Empty,
    /// `string_value`.
    Text(String),
    /// `bool_value`.
    Bool(bool),
    /// `int_value`.
    Int(i64),
    /// `double_value`.
    Double(f64),
    /// `bytes_value`.
    Bytes(Vec<u8>),
    /// `array_value`.
    Array(Vec<Value>),
    /// `kvlist_value`.
    List(Vec<Attribute>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attribute {
    pub(super) key: String,
    pub(super) value: Value,
}

/// An attribute, shorter to write in lists.
pub(super) fn attribute(key: &str, value: impl Into<Value>) -> Attribute {
    Attribute { key: key.to_owned(), value: value.into() }
}
