//! The limits that belong to a `JSON` type, and the types of the objects in its arrays.
//!
//! Why it matters: `max_dynamic_paths` and `max_dynamic_types` are part of a type's identity. An array of objects inside a
//! `JSON` value is of type `Array(JSON(...))` with limits that follow from those of the column; with others the values are
//! stored under another type, and `column.path[].member` reads nothing.
//!
//! | | paths | types |
//! | --- | --- | --- |
//! | a column, unless its type says otherwise | 1,024 | 32 |
//! | objects in its arrays | a quarter | a half |
//! | objects in their arrays | a quarter of that | a half of that |
//!
//! Source: ClickHouse's `DataTypeObject` (default limits, and the reduce factors for nested objects); measured on 26.7 against
//! its own JSON parser at 1,024, 64 and 0 paths.

use crate::rowbinary::{put_u8, put_varuint, tag};

/// `max_dynamic_paths` of a column whose type does not say.
const PATHS_DEFAULT: u64 = 1_024;
/// `max_dynamic_types` of a column whose type does not say.
const TYPES_DEFAULT: u8 = 32;
/// By how much the paths of nested objects are fewer.
const NESTED_PATHS_DIVISOR: u64 = 4;
/// By how much the types of nested objects are fewer.
const NESTED_TYPES_DIVISOR: u8 = 2;

/// Limits of a `JSON` type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// `max_dynamic_paths`.
    pub paths: u64,
    /// `max_dynamic_types`.
    pub types: u8,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { paths: PATHS_DEFAULT, types: TYPES_DEFAULT }
    }
}

impl JsonLimits {
    /// The limits of objects in an array of a value of this type.
    #[must_use]
    pub fn in_array(self) -> Self {
        Self { paths: self.paths / NESTED_PATHS_DIVISOR, types: self.types / NESTED_TYPES_DIVISOR }
    }

    /// Appends the type: version 0, the limits, then no declared paths, no skipped paths, no skipped patterns.
    #[inline]
    pub fn put_type(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[tag::JSON, 0]);
        put_varuint(out, self.paths);
        put_u8(out, self.types);
        out.extend_from_slice(&[0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_arrays_have_a_quarter_of_the_paths_and_half_of_the_types() {
        let mut out = Vec::new();
        JsonLimits::default().in_array().put_type(&mut out);
        // JSON(max_dynamic_types=16, max_dynamic_paths=256)
        assert_eq!(out, [0x30, 0x00, 0x80, 0x02, 0x10, 0x00, 0x00, 0x00]);
        let nested = JsonLimits { paths: 64, types: 32 }.in_array();
        assert_eq!(nested, JsonLimits { paths: 16, types: 16 });
        assert_eq!(nested.in_array(), JsonLimits { paths: 4, types: 8 });
    }
}
