//! The end-to-end tests' reader of rows finds the end of a value, or says that there is none.

use crate::reader::kind::{Bytes, Kind};

/// Types of columns; the first byte of an input says which one its value is of.
const TYPES: [&str; 8] = [
    "String",
    "DateTime64(9)",
    "JSON(max_dynamic_paths=64)",
    "Array(LowCardinality(String))",
    "Array(JSON)",
    "Map(LowCardinality(String), String)",
    "Nullable(Bool)",
    "Array(Nullable(Int64))",
];

/// Passes over a value, and over one that its tag describes; reads the bytes as the name of a type, too.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let [choice, value @ ..] = bytes else { return };
    let kind = Kind::of_type(TYPES[usize::from(*choice) % TYPES.len()]).expect("a type of ours");
    for kind in [kind, Kind::Dynamic] {
        let mut rest = Bytes(value);
        if rest.skip(&kind).is_err() {
            continue;
        }
        let mut alone = Bytes(&value[..value.len() - rest.0.len()]);
        let cut_short = alone.0.split_last().map(|(_, cut_short)| cut_short);
        assert!(
            alone.skip(&kind).is_ok() && alone.0.is_empty(),
            "a value has another end without what is behind it"
        );
        if let Some(cut_short) = cut_short {
            assert!(Bytes(cut_short).skip(&kind).is_err(), "a value ends before its last byte");
        }
    }
    if let Ok(name) = std::str::from_utf8(value) {
        drop(Kind::of_type(name));
    }
}
