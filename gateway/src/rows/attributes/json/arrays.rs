//! Arrays within an object: one type for all elements, found by a first look at them.

use super::{DEPTH_MAX, Members};
use crate::rows::{
    attributes::{Error, all_stored, value_bytes},
    utf8::mended,
    value_text,
};
use sluice_clickhouse::json_array::{ArrayKind, ArrayShape, ElementKind, put_array_header, put_object_tag};
use sluice_otlp::{Array, Attributes, Value};

impl Members<'_> {
    pub(super) fn array(&mut self, array: Array<'_>, depth: usize) -> Result<(), Error> {
        let mut shape = ArrayShape::default();
        for element in &array {
            shape.add(element_kind(&element?, depth));
        }
        let kind = shape.kind();
        put_array_header(self.object.buffer(), kind, shape.len, self.elements);
        for element in &array {
            let element = element?;
            if let Value::String(text) = element {
                let text = mended(text, self.bytes_left())?;
                self.room(text.len())?;
                self.element(kind, Value::String(&text), depth)?;
            } else {
                self.room(value_bytes(&element))?;
                self.element(kind, element, depth)?;
            }
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
            (_, Value::Bytes(bytes)) => kind.string(out, value_text::base64(&mut self.scratch.text, bytes)),
            (ArrayKind::Objects, Value::KeyValues(list)) if depth < DEPTH_MAX => {
                self.nested_object(&list, depth)?;
            }
            (ArrayKind::Mixed, Value::KeyValues(list)) if depth < DEPTH_MAX => {
                put_object_tag(out, self.elements);
                self.nested_object(&list, depth)?;
            }
            (ArrayKind::Mixed, Value::Array(array)) if depth < DEPTH_MAX => self.array(array, depth + 1)?,
            (_, value @ (Value::Array(_) | Value::KeyValues(_))) => {
                self.json_text(value)?;
                kind.string(self.object.buffer(), &self.scratch.text);
            }
        }
        self.let_go_of_text();
        Ok(())
    }

    /// Writes a list as an object with its own paths.
    fn nested_object(&mut self, list: &Attributes<'_>, depth: usize) -> Result<(), Error> {
        let outer_prefix = std::mem::take(&mut self.scratch.prefix);
        let mut nested = Members {
            object: self.object.element_object(),
            rules: None,
            elements: self.elements.in_array(),
            root: depth,
            scratch: self.scratch,
            limit: self.limit,
        };
        nested.write(list, depth)?;
        let limit = nested.limit;
        all_stored(nested.object.finish())?;
        self.limit = limit;
        self.scratch.prefix = outer_prefix;
        Ok(())
    }
}

/// The kind of an element for choosing the type of its array; elements that are too deep count as text.
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
