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

use super::{Error, RowLimit, Set, scalar_bytes, value_bytes};
use crate::rows::{
    carry::{Carried, ORIGINAL_BYTES, Source},
    json_text,
    utf8::mended,
    value_text,
};
use sluice_clickhouse::{
    column::Group,
    groups::Groups,
    room::{KEPT_BYTES_MAX, let_go},
};
use sluice_otlp::{Scalar, Value};

/// Collects the attributes of one set, at most `bytes`. Original times come last, as text, because they may be larger than an `Int64`.
pub fn collect(groups: &mut Groups, text: &mut Vec<u8>, set: &Set<'_>, bytes: usize) -> Result<(), Error> {
    groups.clear();
    match set.carry {
        None => collect_values(groups, text, set.attributes.iter(), bytes)?,
        Some(carry) => collect_values(groups, text, Carried::new(set.attributes, carry), bytes)?,
    }
    for (key, nanos) in set.originals {
        text.clear();
        value_text::put_uint(text, *nanos);
        groups.make_room(key.len(), bytes)?;
        groups.string(key, text);
    }
    if groups.is_over_limit() { Err(Error::RowTooLarge(RowLimit::Attributes)) } else { Ok(()) }
}

fn collect_values<'a>(
    groups: &mut Groups,
    text: &mut Vec<u8>,
    mut attributes_left: impl Source<'a>,
    bytes: usize,
) -> Result<(), Error> {
    loop {
        while let Some((key, scalar)) = attributes_left.next_usual() {
            groups.make_room(key.len() + scalar_bytes(&scalar), bytes)?;
            let before = groups.bytes();
            put_scalar(groups, key, scalar);
            if let Some(original) = attributes_left.truncated() {
                put_original_bytes(groups, (key, original), before, bytes)?;
            }
        }
        let Some(attribute) = attributes_left.next_any() else { break };
        let (key, value) = attribute?;
        let before = groups.bytes();
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
        if let Some(original) = attributes_left.truncated() {
            put_original_bytes(groups, (key, original), before, bytes)?;
        }
    }
    Ok(())
}

/// Adds the length that a truncated value had, if the value was added: the groups have more bytes than before.
#[cold]
fn put_original_bytes(
    groups: &mut Groups,
    (key, original): (&[u8], usize),
    before: usize,
    bytes: usize,
) -> Result<(), Error> {
    if groups.bytes() > before {
        let key = [ORIGINAL_BYTES, b".", key].concat();
        groups.make_room(key.len(), bytes)?;
        groups.int(&key, i64::try_from(original).unwrap_or(i64::MAX));
    }
    Ok(())
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
