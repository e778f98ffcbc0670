//! Attributes into a `JSON` column.
//!
//! | `AnyValue` | JSON value |
//! | --- | --- |
//! | string | String, its bytes as they are |
//! | bool, int, double | Bool, Int64, Float64 (NaN and infinities kept) |
//! | bytes | String, base64 (RFC 4648, padded), as OTLP's own JSON encoding has it |
//! | array of one scalar type | Array(Nullable(T)) |
//! | array of key-value lists | Array(JSON) |
//! | any other array | Array(Dynamic) |
//! | key-value list | its members under dotted paths |
//! | empty | absent; an element of an array is null |
//!
//! Paths are unique by construction. Of two equal keys the first wins; a literal key `a.b` wins over `b` in a list `a`,
//! wherever it stands: lists are therefore written after everything else.
//!
//! Limits: lists and arrays nest to [`DEPTH_MAX`]; what lies deeper is written as JSON text in a String. A row that
//! passes [`ROW_BYTES_MAX`] is given up at once.

use crate::json_text;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use sluice_clickhouse::{
    json::{
        JsonObject, put_empty_object, put_tagged_bool, put_tagged_double, put_tagged_int, put_tagged_null,
        put_tagged_string,
    },
    json_array::{ArrayKind, ArrayShape, ElementKind, put_array_header, put_object_tag},
    json_limits::JsonLimits,
    json_paths::JsonPaths,
};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use sluice_otlp::{Array, Attributes, KeyValue, Malformed, Scalar, Value};

/// How deep lists and arrays nest in a value before the rest becomes text. Chosen: what instrumentation sends nests 2 to
/// 3 deep; a path grows with every level, and the server limits the complexity of a type.
pub const DEPTH_MAX: usize = 8;

/// Why attributes could not be written.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// They are not OTLP.
    Malformed(Malformed),
    /// They are too many or too long.
    RowTooLarge,
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Writes attributes; keeps its buffers from call to call.
#[derive(Default)]
pub struct AttributeWriter {
    paths: JsonPaths,
    /// Path of the list that is being written.
    prefix: Vec<u8>,
    /// Text of a value that has no binary form here.
    text: Vec<u8>,
}

impl AttributeWriter {
    /// Appends one `JSON` value for a column of these limits. `extra` is written last, unless the attributes have its path.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        column: JsonLimits,
        attributes: &Attributes<'_>,
        extra: Option<(&[u8], u64)>,
    ) -> Result<(), Error> {
        if attributes.is_empty() && extra.is_none() {
            put_empty_object(out);
            return Ok(());
        }
        let Self { paths, prefix, text } = self;
        prefix.clear();
        let limit = out.len().saturating_add(usize::try_from(ROW_BYTES_MAX).unwrap_or(usize::MAX));
        let object = JsonObject::begin(out, paths);
        let mut members = Members { object, elements: column.in_array(), root: 0, prefix, text, limit };
        let outcome = members.write(attributes, 0);
        match outcome {
            Ok(()) => {
                if let Some((path, value)) = extra.filter(|(path, _)| members.object.path(path)) {
                    debug_assert!(!path.is_empty());
                    members.object.uint(value);
                }
                members.object.finish();
            }
            // The objects that are open are given up with the row.
            Err(_) => paths.clear(),
        }
        outcome
    }
}

/// The members of one JSON object, and what is needed to write them.
struct Members<'a> {
    object: JsonObject<'a>,
    /// Of the objects in its arrays.
    elements: JsonLimits,
    /// The depth at which this object's own members stand: they have no prefix.
    root: usize,
    prefix: &'a mut Vec<u8>,
    text: &'a mut Vec<u8>,
    /// Length of the buffer at which the row is given up.
    limit: usize,
}

impl Members<'_> {
    /// Writes what is not a list first, so that a literal path wins; then the lists.
    fn write(&mut self, attributes: &Attributes<'_>, depth: usize) -> Result<(), Error> {
        let mut lists = false;
        let mut attributes_left = attributes.iter();
        loop {
            while let Some((key, scalar)) = attributes_left.next_usual() {
                self.scalar_member(key, scalar, depth)?;
            }
            let Some(attribute) = attributes_left.next() else { break };
            let KeyValue { key, value } = attribute?;
            match value {
                Value::Empty => {}
                Value::KeyValues(_) if depth < DEPTH_MAX => lists = true,
                value => self.member(key, value, depth)?,
            }
        }
        if lists { self.write_lists(attributes, depth) } else { Ok(()) }
    }

    fn write_lists(&mut self, attributes: &Attributes<'_>, depth: usize) -> Result<(), Error> {
        for attribute in attributes {
            let KeyValue { key, value: Value::KeyValues(list) } = attribute? else { continue };
            let before = self.prefix.len();
            if depth > self.root {
                self.prefix.push(b'.');
            }
            self.prefix.extend_from_slice(key);
            self.write(&list, depth + 1)?;
            self.prefix.truncate(before);
        }
        Ok(())
    }

    fn member(&mut self, key: &[u8], value: Value<'_>, depth: usize) -> Result<(), Error> {
        if self.path(key, depth) {
            self.value(value, depth)?;
        }
        self.within_limit()
    }

    #[inline]
    fn scalar_member(&mut self, key: &[u8], scalar: Scalar<'_>, depth: usize) -> Result<(), Error> {
        if self.path(key, depth) {
            match scalar {
                Scalar::String(text) => self.object.string(text),
                Scalar::Bool(value) => self.object.bool(value),
                Scalar::Int(value) => self.object.int(value),
                Scalar::Double(value) => self.object.double(value),
            }
        }
        self.within_limit()
    }

    #[inline]
    fn path(&mut self, key: &[u8], depth: usize) -> bool {
        if depth == self.root {
            self.object.path(key)
        } else {
            self.object.path_parts(&[self.prefix.as_slice(), key])
        }
    }

    fn within_limit(&mut self) -> Result<(), Error> {
        if self.object.buffer().len() > self.limit { Err(Error::RowTooLarge) } else { Ok(()) }
    }

    /// Writes a value with its tag.
    fn value(&mut self, value: Value<'_>, depth: usize) -> Result<(), Error> {
        let out = self.object.buffer();
        match value {
            Value::Empty => put_tagged_null(out),
            Value::String(text) => put_tagged_string(out, text),
            Value::Bool(value) => put_tagged_bool(out, value),
            Value::Int(value) => put_tagged_int(out, value),
            Value::Double(value) => put_tagged_double(out, value),
            Value::Bytes(bytes) => put_tagged_string(out, base64(self.text, bytes)),
            Value::Array(array) if depth < DEPTH_MAX => self.array(array, depth + 1)?,
            Value::Array(_) | Value::KeyValues(_) => {
                self.text.clear();
                json_text::put(self.text, value)?;
                put_tagged_string(out, self.text);
            }
        }
        Ok(())
    }

    fn array(&mut self, array: Array<'_>, depth: usize) -> Result<(), Error> {
        let mut shape = ArrayShape::default();
        for element in &array {
            shape.add(element_kind(&element?, depth));
        }
        let kind = shape.kind();
        put_array_header(self.object.buffer(), kind, shape.len, self.elements);
        for element in &array {
            self.element(kind, element?, depth)?;
            self.within_limit()?;
        }
        Ok(())
    }

    fn element(&mut self, kind: ArrayKind, element: Value<'_>, depth: usize) -> Result<(), Error> {
        let out = self.object.buffer();
        match (kind, element) {
            (_, Value::Empty) => kind.null(out),
            (_, Value::String(text)) => kind.string(out, text),
            (_, Value::Bool(value)) => kind.bool(out, value),
            (_, Value::Int(value)) => kind.int(out, value),
            (_, Value::Double(value)) => kind.double(out, value),
            (_, Value::Bytes(bytes)) => kind.string(out, base64(self.text, bytes)),
            (ArrayKind::Objects, Value::KeyValues(list)) if depth < DEPTH_MAX => {
                self.nested_object(&list, depth)?;
            }
            (ArrayKind::Mixed, Value::KeyValues(list)) if depth < DEPTH_MAX => {
                put_object_tag(out, self.elements);
                self.nested_object(&list, depth)?;
            }
            (ArrayKind::Mixed, Value::Array(array)) if depth < DEPTH_MAX => self.array(array, depth + 1)?,
            (_, value @ (Value::Array(_) | Value::KeyValues(_))) => {
                self.text.clear();
                json_text::put(self.text, value)?;
                kind.string(out, self.text);
            }
        }
        Ok(())
    }

    /// Writes a list as an object of its own: paths begin anew in it.
    fn nested_object(&mut self, list: &Attributes<'_>, depth: usize) -> Result<(), Error> {
        let mut prefix = Vec::new();
        let object = self.object.element_object();
        let mut nested = Members {
            object,
            elements: self.elements.in_array(),
            root: depth,
            prefix: &mut prefix,
            text: self.text,
            limit: self.limit,
        };
        nested.write(list, depth)?;
        nested.object.finish();
        Ok(())
    }
}

/// What an element counts as when the type of its array is chosen; text stands in for what is too deep.
fn element_kind(element: &Value<'_>, depth: usize) -> ElementKind {
    match element {
        Value::Empty => ElementKind::Null,
        Value::Bool(_) => ElementKind::Bool,
        Value::Int(_) => ElementKind::Int,
        Value::Double(_) => ElementKind::Double,
        Value::String(_) | Value::Bytes(_) => ElementKind::String,
        Value::Array(_) | Value::KeyValues(_) if depth >= DEPTH_MAX => ElementKind::String,
        Value::Array(_) => ElementKind::Array,
        Value::KeyValues(_) => ElementKind::Object,
    }
}

fn base64<'a>(text: &'a mut Vec<u8>, bytes: &[u8]) -> &'a [u8] {
    text.clear();
    text.resize(bytes.len().div_ceil(3) * 4, 0);
    let written =
        BASE64_STANDARD.encode_slice(bytes, text).expect("four characters for every three bytes are enough");
    &text[..written]
}
