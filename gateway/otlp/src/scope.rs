//! `InstrumentationScope`: the instrumentation library that made the spans of one `ScopeSpans`.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, scope, scope_spans};
use crate::malformed::Malformed;
use crate::repeated::SCOPE_ATTRIBUTES;
use crate::wire::Reader;

/// The instrumentation library that made the spans of one `ScopeSpans`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub name: &'a [u8],
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub version: &'a [u8],
    /// Usually none.
    pub attributes: Attributes<'a>,
    /// Attributes that the SDK dropped.
    pub dropped_attributes_count: u32,
    /// The schema URL of the `ScopeSpans`. Bytes that should be UTF-8 but are not checked; usually empty. Writers put it behind the spans,
    /// where [`crate::walk`] finds it and [`crate::walk_in_order`] does not look.
    pub schema_url: &'a [u8],
}

impl<'a> Scope<'a> {
    /// Finds the scope in a `ScopeSpans`, at any position; empty if there is none.
    pub(crate) fn find(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::before_spans(&mut reader)?;
        while !reader.is_empty() {
            let key = reader.key()?;
            reader.bytes(key)?;
            found.read_on(&mut reader)?;
        }
        Ok(found)
    }

    /// The part of a `ScopeSpans`' scope before the first span, where the reader then is.
    pub(crate) fn before_spans(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        found.read_on(reader)?;
        Ok(found)
    }

    /// A single `InstrumentationScope` of a `ScopeSpans`, which is `parent` from before it.
    pub(crate) fn of_piece(content: Reader<'a>, parent: Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        found.merge(content, parent)?;
        Ok(found)
    }

    /// Merges the part before the next span, where the reader then is, or before the end.
    fn read_on(&mut self, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = *reader;
            let key = reader.key()?;
            match key {
                scope_spans::SCOPE => {
                    let content = reader.message(key, OtlpMessage::InstrumentationScope)?;
                    self.merge(content, from)?;
                }
                scope_spans::SPANS => {
                    *reader = from;
                    return Ok(());
                }
                scope_spans::SCHEMA_URL => self.schema_url = reader.bytes(key)?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }

    /// Merges an `InstrumentationScope` into this one. `parent` is the `ScopeSpans` from before it.
    fn merge(&mut self, mut reader: Reader<'a>, parent: Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                scope::NAME => self.name = reader.bytes(key)?,
                scope::VERSION => self.version = reader.bytes(key)?,
                scope::DROPPED_ATTRIBUTES_COUNT => self.dropped_attributes_count = reader.uint32(key)?,
                scope::ATTRIBUTES => {
                    reader.bytes(key)?;
                    self.attributes.0.note_spread(&SCOPE_ATTRIBUTES, from, parent.end(), parent);
                }
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }
}
