//! Collects attributes into typed groups of keys and values.
//!
//! | `AnyValue` | group | key | value |
//! | --- | --- | --- | --- |
//! | bool, double, int, string | Bool, Double, Int, String | unchanged | unchanged |
//! | bytes | Complex | with the prefix `@bytes@` | base64 (RFC 4648, padded) |
//! | array | Complex | with the prefix `@slice@` | JSON text |
//! | key-value list | Complex | with the prefix `@map@` | JSON text |
//! | empty | none: the attribute is absent | | |
//!
//! Groups and prefixes are those of Jaeger's tables. They keep the type of every value, so that bool, double, int and string can be
//! compared as such. Keys are unique over all groups: the first of two equal ones is kept.
//!
//! Limits: collecting fails before the key and value with which the set would have more bytes than the row may still have.

use super::{Error, Set, scalar_bytes, value_bytes};
use crate::rows::{json_text, utf8::mended, value_text};
use sluice_clickhouse::{
    column::Group,
    groups::Groups,
    room::{KEPT_BYTES_MAX, let_go},
};
use sluice_otlp::{KeyValue, Scalar, Value};

/// Collects the attributes of one set, at most `bytes`. Original times come last, as text, because they may be larger than an `Int64`.
pub fn collect(groups: &mut Groups, text: &mut Vec<u8>, set: &Set<'_>, bytes: usize) -> Result<(), Error> {
    groups.clear();
    let mut attributes_left = set.attributes.iter();
    loop {
        while let Some((key, scalar)) = attributes_left.next_usual() {
            groups.make_room(key.len() + scalar_bytes(&scalar), bytes)?;
            put_scalar(groups, key, scalar);
        }
        let Some(attribute) = attributes_left.next() else { break };
        let KeyValue { key, value } = attribute?;
        let key = mended(key, bytes.saturating_sub(groups.bytes()))?;
        let key = &*key;
        groups.make_room(key.len() + value_bytes(&value), bytes)?;
        match value {
            Value::Empty => {}
            Value::String(value) => {
                let value = mended(value, bytes.saturating_sub(groups.bytes() + key.len()))?;
                groups.make_room(key.len() + value.len(), bytes)?;
                groups.string(key, &value);
            }
            Value::Bool(value) => groups.bool(key, value),
            Value::Int(value) => groups.int(key, value),
            Value::Double(value) => groups.double(key, value),
            Value::Bytes(value) => groups.complex(Group::BYTES_PREFIX, key, value_text::base64(text, value)),
            Value::Array(_) | Value::KeyValues(_) => put_json(groups, text, (key, value), bytes)?,
        }
        if text.capacity() > KEPT_BYTES_MAX {
            let_go(text);
        }
    }
    for (key, nanos) in set.originals {
        text.clear();
        value_text::put_uint(text, *nanos);
        groups.make_room(key.len(), bytes)?;
        groups.string(key, text);
    }
    if groups.is_over_limit() { Err(Error::RowTooLarge) } else { Ok(()) }
}

fn put_json(
    groups: &mut Groups,
    text: &mut Vec<u8>,
    (key, value): (&[u8], Value<'_>),
    bytes: usize,
) -> Result<(), Error> {
    let prefix = if matches!(value, Value::Array(_)) { Group::SLICE_PREFIX } else { Group::MAP_PREFIX };
    text.clear();
    json_text::put(text, value, bytes.saturating_sub(groups.bytes() + key.len()))?;
    groups.make_room(key.len() + text.len(), bytes)?;
    groups.complex(prefix, key, text);
    Ok(())
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
