//! Attributes into typed groups of keys and values.
//!
//! | `AnyValue` | group | key | value |
//! | --- | --- | --- | --- |
//! | bool, double, int, string | Bool, Double, Int, String | as it is | as it is |
//! | bytes | Complex | `@bytes@` before it | base64 (RFC 4648, padded) |
//! | array | Complex | `@slice@` before it | JSON text |
//! | key-value list | Complex | `@map@` before it | JSON text |
//! | empty | none: the attribute is absent | | |
//!
//! Groups and prefixes are those of Jaeger's tables, so that the type of every value can be told and bool, double, int and
//! string can be compared as what they are. Keys are unique over all groups: the first of two equal ones wins.
//!
//! Limits: a set that passes [`ROW_BYTES_MAX`] is given up at once.

use super::Error;
use crate::{json_text, value_text};
use sluice_clickhouse::{column::Group, groups::Groups};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use sluice_otlp::{Attributes, KeyValue, Scalar, Value};

/// Collects the attributes of one set. `extra` comes last, as text: it may be larger than an `Int64`.
pub fn collect(
    groups: &mut Groups,
    text: &mut Vec<u8>,
    attributes: &Attributes<'_>,
    extra: Option<(&[u8], u64)>,
) -> Result<(), Error> {
    groups.clear();
    let mut attributes_left = attributes.iter();
    loop {
        while let Some((key, scalar)) = attributes_left.next_usual() {
            put_scalar(groups, key, scalar);
            within_limit(groups)?;
        }
        let Some(attribute) = attributes_left.next() else { break };
        let KeyValue { key, value } = attribute?;
        match value {
            Value::Empty => {}
            Value::String(value) => groups.string(key, value),
            Value::Bool(value) => groups.bool(key, value),
            Value::Int(value) => groups.int(key, value),
            Value::Double(value) => groups.double(key, value),
            Value::Bytes(bytes) => groups.complex(Group::BYTES_PREFIX, key, value_text::base64(text, bytes)),
            Value::Array(_) => groups.complex(Group::SLICE_PREFIX, key, json(text, value)?),
            Value::KeyValues(_) => groups.complex(Group::MAP_PREFIX, key, json(text, value)?),
        }
        within_limit(groups)?;
    }
    if let Some((key, value)) = extra {
        text.clear();
        value_text::put_uint(text, value);
        groups.string(key, text);
    }
    if groups.is_over_limit() { Err(Error::RowTooLarge) } else { Ok(()) }
}

#[inline]
fn put_scalar(groups: &mut Groups, key: &[u8], scalar: Scalar<'_>) {
    match scalar {
        Scalar::String(value) => groups.string(key, value),
        Scalar::Bool(value) => groups.bool(key, value),
        Scalar::Int(value) => groups.int(key, value),
        Scalar::Double(value) => groups.double(key, value),
    }
}

#[inline]
fn within_limit(groups: &Groups) -> Result<(), Error> {
    if groups.bytes() as u64 > ROW_BYTES_MAX { Err(Error::RowTooLarge) } else { Ok(()) }
}

fn json<'a>(text: &'a mut Vec<u8>, value: Value<'_>) -> Result<&'a [u8], Error> {
    text.clear();
    json_text::put(text, value)?;
    Ok(text)
}
