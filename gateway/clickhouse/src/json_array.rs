//! Arrays inside a `JSON` value.
//!
//! Job: chooses the type of an array so that ClickHouse stores it under the same type as its own JSON parser would; other writers of the
//! table then share the sub-column. Writes header and elements. Place in the flow: the row encoder looks at all elements once
//! ([`ArrayShape`]), writes the header, then the elements. Owner: the worker thread that owns the row buffer.
//!
//! | elements | type | header after the path | element |
//! |---|---|---|---|
//! | none, or only nulls | `Array(Nullable(String))` | `1e 23 15` len | `01` |
//! | one scalar type, and nulls | `Array(Nullable(T))` | `1e 23 T` len | `00` value, or `01` |
//! | objects only | `Array(JSON(...))`, [`crate::json_limits`] | `1e 30 00` limits `00 00 00` len | object |
//! | anything else | `Array(Dynamic)` | `1e 2b 20` len | tag, value |
//!
//! Limits: the server accepts 1 Gi elements (`format_binary_max_array_size`); the caller bounds the nesting of arrays.

use crate::json::{put_tagged_bool, put_tagged_double, put_tagged_int, put_tagged_null, put_tagged_string};
use crate::json_limits::JsonLimits;
use crate::rowbinary::{put_f64, put_i64, put_len, put_string, put_u8, tag};

/// `max_types` of the `Dynamic` in mixed arrays. Specified: the default of `Dynamic`. It is part of the type: another number would be
/// another type of the same path.
const DYNAMIC_TYPES_MAX: u8 = 32;

/// Flag of a `Nullable` value that is not null.
const PRESENT: u8 = 0;
/// Flag of a `Nullable` value that is null.
const ABSENT: u8 = 1;

/// The kind of one element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    /// No value.
    Null,
    /// A boolean.
    Bool,
    /// A signed integer.
    Int,
    /// A floating point number.
    Double,
    /// Text, or bytes as text.
    String,
    /// An array within the array.
    Array,
    Object,
}

/// The type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayKind {
    /// `Array(Nullable(Bool))`
    Bools,
    /// `Array(Nullable(Int64))`
    Ints,
    /// `Array(Nullable(Float64))`
    Doubles,
    /// `Array(Nullable(String))`, also if there are no elements, or only nulls.
    Strings,
    /// `Array(JSON(...))`: elements are objects without a tag.
    Objects,
    /// `Array(Dynamic)`: elements carry their own tag.
    Mixed,
}

/// Length and type of an array, determined by looking at its elements once.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArrayShape {
    /// Elements seen.
    pub len: usize,
    nulls: bool,
    kind: Option<ArrayKind>,
}

impl ArrayShape {
    /// Includes the next element.
    #[inline]
    pub fn add(&mut self, element: ElementKind) {
        self.len += 1;
        let kind = match element {
            ElementKind::Null => {
                self.nulls = true;
                return;
            }
            ElementKind::Bool => ArrayKind::Bools,
            ElementKind::Int => ArrayKind::Ints,
            ElementKind::Double => ArrayKind::Doubles,
            ElementKind::String => ArrayKind::Strings,
            ElementKind::Object => ArrayKind::Objects,
            ElementKind::Array => ArrayKind::Mixed,
        };
        self.kind = match self.kind {
            None => Some(kind),
            Some(same) if same == kind => Some(kind),
            Some(_) => Some(ArrayKind::Mixed),
        };
    }

    /// The type that holds every element seen.
    #[inline]
    pub fn kind(&self) -> ArrayKind {
        match self.kind {
            None => ArrayKind::Strings,
            // Elements of type JSON cannot be null.
            Some(ArrayKind::Objects) if self.nulls => ArrayKind::Mixed,
            Some(kind) => kind,
        }
    }
}

/// Appends the type of an array and the number of its elements. Inside a mixed array this is a whole element's header.
#[inline]
pub fn put_array_header(out: &mut Vec<u8>, kind: ArrayKind, len: usize, elements: JsonLimits) {
    put_u8(out, tag::ARRAY);
    match kind {
        ArrayKind::Bools => out.extend_from_slice(&[tag::NULLABLE, tag::BOOL]),
        ArrayKind::Ints => out.extend_from_slice(&[tag::NULLABLE, tag::INT64]),
        ArrayKind::Doubles => out.extend_from_slice(&[tag::NULLABLE, tag::FLOAT64]),
        ArrayKind::Strings => out.extend_from_slice(&[tag::NULLABLE, tag::STRING]),
        ArrayKind::Objects => elements.put_type(out),
        ArrayKind::Mixed => out.extend_from_slice(&[tag::DYNAMIC, DYNAMIC_TYPES_MAX]),
    }
    put_len(out, len);
}

/// Appends the tag of an object inside a mixed array; a [`crate::json::JsonObject`] must follow.
#[inline]
pub fn put_object_tag(out: &mut Vec<u8>, elements: JsonLimits) {
    elements.put_type(out);
}

impl ArrayKind {
    /// Appends a null element. Must not be called on [`ArrayKind::Objects`], which [`ArrayShape::kind`] never returns for an array with
    /// nulls.
    #[inline]
    pub fn null(self, out: &mut Vec<u8>) {
        debug_assert!(self != ArrayKind::Objects, "objects in an array cannot be null");
        match self {
            ArrayKind::Mixed => put_tagged_null(out),
            _ => put_u8(out, ABSENT),
        }
    }

    /// Appends a text element. The array must be one of strings or mixed.
    #[inline]
    pub fn string(self, out: &mut Vec<u8>, value: &[u8]) {
        debug_assert!(matches!(self, ArrayKind::Strings | ArrayKind::Mixed), "a string in {self:?}");
        if self == ArrayKind::Mixed {
            put_tagged_string(out, value);
        } else {
            put_u8(out, PRESENT);
            put_string(out, value);
        }
    }

    /// Appends a boolean element. The array must be one of booleans or mixed.
    #[inline]
    pub fn bool(self, out: &mut Vec<u8>, value: bool) {
        debug_assert!(matches!(self, ArrayKind::Bools | ArrayKind::Mixed), "a bool in {self:?}");
        if self == ArrayKind::Mixed {
            put_tagged_bool(out, value);
        } else {
            out.extend_from_slice(&[PRESENT, u8::from(value)]);
        }
    }

    /// Appends an integer element. The array must be one of integers or mixed.
    #[inline]
    pub fn int(self, out: &mut Vec<u8>, value: i64) {
        debug_assert!(matches!(self, ArrayKind::Ints | ArrayKind::Mixed), "an integer in {self:?}");
        if self == ArrayKind::Mixed {
            put_tagged_int(out, value);
        } else {
            put_u8(out, PRESENT);
            put_i64(out, value);
        }
    }

    /// Appends a floating point element. The array must be one of these or mixed.
    #[inline]
    pub fn double(self, out: &mut Vec<u8>, value: f64) {
        debug_assert!(matches!(self, ArrayKind::Doubles | ArrayKind::Mixed), "a double in {self:?}");
        if self == ArrayKind::Mixed {
            put_tagged_double(out, value);
        } else {
            put_u8(out, PRESENT);
            put_f64(out, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ElementKind::{Array, Bool, Double, Int, Null, Object, String};
    use super::*;

    fn shape(elements: &[ElementKind]) -> ArrayShape {
        let mut shape = ArrayShape::default();
        for element in elements {
            shape.add(*element);
        }
        shape
    }

    #[test]
    fn an_array_has_the_narrowest_type_that_holds_its_elements() {
        let table: &[(&[ElementKind], ArrayKind)] = &[
            (&[], ArrayKind::Strings),
            (&[Null], ArrayKind::Strings),
            (&[Bool, Bool], ArrayKind::Bools),
            (&[Int, Null, Int], ArrayKind::Ints),
            (&[Null, Double], ArrayKind::Doubles),
            (&[String], ArrayKind::Strings),
            (&[Object, Object], ArrayKind::Objects),
            (&[Object, Null], ArrayKind::Mixed),
            (&[Null, Object], ArrayKind::Mixed),
            (&[Int, Double], ArrayKind::Mixed),
            (&[Int, String, Int], ArrayKind::Mixed),
            (&[Array], ArrayKind::Mixed),
            (&[Array, Array], ArrayKind::Mixed),
            (&[Object, Int], ArrayKind::Mixed),
        ];
        for (elements, expected) in table {
            let shape = shape(elements);
            assert_eq!(shape.kind(), *expected, "{elements:?}");
            assert_eq!(shape.len, elements.len());
        }
    }

    #[test]
    fn homogeneous_arrays_are_nullable_elements_without_tags() {
        let mut out = Vec::new();
        put_array_header(&mut out, ArrayKind::Ints, 3, JsonLimits::default().in_array());
        ArrayKind::Ints.int(&mut out, 1);
        ArrayKind::Ints.null(&mut out);
        ArrayKind::Ints.int(&mut out, 3);
        #[rustfmt::skip]
        assert_eq!(out, [
            0x1e, 0x23, 0x0a,                // Array(Nullable(Int64))
            3,
            0, 1, 0, 0, 0, 0, 0, 0, 0,       // 1
            1,                               // null
            0, 3, 0, 0, 0, 0, 0, 0, 0,       // 3
        ]);
        let mut out = Vec::new();
        put_array_header(&mut out, ArrayKind::Bools, 2, JsonLimits::default().in_array());
        ArrayKind::Bools.bool(&mut out, true);
        ArrayKind::Bools.bool(&mut out, false);
        assert_eq!(out, [0x1e, 0x23, 0x2d, 2, 0, 1, 0, 0]);
        let mut out = Vec::new();
        put_array_header(&mut out, ArrayKind::Doubles, 1, JsonLimits::default().in_array());
        ArrayKind::Doubles.double(&mut out, 1.5);
        assert_eq!(out, [0x1e, 0x23, 0x0e, 1, 0, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]);
    }

    #[test]
    fn an_empty_array_has_the_type_that_the_server_itself_infers() {
        let mut out = Vec::new();
        put_array_header(&mut out, shape(&[]).kind(), 0, JsonLimits::default().in_array());
        assert_eq!(out, [0x1e, 0x23, 0x15, 0x00]);
    }

    #[test]
    fn mixed_elements_carry_their_own_tags() {
        let (mut out, kind) = (Vec::new(), ArrayKind::Mixed);
        put_array_header(&mut out, kind, 5, JsonLimits::default().in_array());
        kind.int(&mut out, 1);
        kind.string(&mut out, b"x");
        kind.null(&mut out);
        kind.bool(&mut out, true);
        put_array_header(&mut out, ArrayKind::Strings, 1, JsonLimits::default().in_array());
        ArrayKind::Strings.string(&mut out, b"q");
        #[rustfmt::skip]
        assert_eq!(out, [
            0x1e, 0x2b, 0x20,                // Array(Dynamic(max_types=32))
            5,
            0x0a, 1, 0, 0, 0, 0, 0, 0, 0,    // Int64 1
            0x15, 1, b'x',                   // String
            0x00,                            // null
            0x2d, 1,                         // true
            0x1e, 0x23, 0x15, 1, 0, 1, b'q', // Array(Nullable(String))
        ]);
    }

    #[test]
    fn objects_have_the_type_that_the_server_itself_infers() {
        let mut out = Vec::new();
        put_array_header(&mut out, ArrayKind::Objects, 2, JsonLimits::default().in_array());
        assert_eq!(out, [0x1e, 0x30, 0x00, 0x80, 0x02, 0x10, 0x00, 0x00, 0x00, 2]);
    }
}
