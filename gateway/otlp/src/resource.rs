//! `Resource`: the source of the spans of one `ResourceSpans`.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, resource, resource_spans};
use crate::malformed::Malformed;
use crate::repeated::RESOURCE_ATTRIBUTES;
use crate::wire::Reader;

/// The source of the spans of one `ResourceSpans`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resource<'a> {
    /// `service.name` and so on.
    pub attributes: Attributes<'a>,
    /// Attributes that the SDK dropped.
    pub dropped_attributes_count: u32,
    /// The schema URL of the `ResourceSpans`. Bytes that should be UTF-8 but are not checked; often empty. Writers put it behind the scopes,
    /// where [`crate::walk`] finds it and [`crate::walk_in_order`] does not look. It is not part of [`Self::message`].
    pub schema_url: &'a [u8],
    /// The bytes of the resource on the wire, if they are in one piece. Equal bytes have equal attributes and counts, or are malformed in
    /// the same way.
    pub message: Option<&'a [u8]>,
    is_begun: bool,
}

impl<'a> Resource<'a> {
    /// Finds the resource in a `ResourceSpans`, at any position; empty if there is none.
    pub(crate) fn find(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::before_scopes(&mut reader)?;
        while !reader.is_empty() {
            let key = reader.key()?;
            reader.bytes(key)?;
            found.read_on(&mut reader)?;
        }
        Ok(found)
    }

    /// The part of a `ResourceSpans`' resource before the first `ScopeSpans`, where the reader then is.
    pub(crate) fn before_scopes(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        found.read_on(reader)?;
        Ok(found)
    }

    /// Merges the part before the next `ScopeSpans`, where the reader then is, or before the end.
    fn read_on(&mut self, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = *reader;
            let key = reader.key()?;
            match key {
                resource_spans::RESOURCE => {
                    let content = reader.message(key, OtlpMessage::Resource)?;
                    self.merge(content, from)?;
                }
                resource_spans::SCOPE_SPANS => {
                    *reader = from;
                    return Ok(());
                }
                resource_spans::SCHEMA_URL => self.schema_url = reader.bytes(key)?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }

    /// Merges a `Resource` into this one. `parent` is the `ResourceSpans` from before it.
    fn merge(&mut self, mut reader: Reader<'a>, parent: Reader<'a>) -> Result<(), Malformed> {
        self.message = (!self.is_begun).then_some(reader.rest());
        self.is_begun = true;
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                resource::ATTRIBUTES => {
                    reader.bytes(key)?;
                    self.attributes.0.note_spread(&RESOURCE_ATTRIBUTES, from, parent.end(), parent);
                }
                resource::DROPPED_ATTRIBUTES_COUNT => self.dropped_attributes_count = reader.uint32(key)?,
                resource::ENTITY_REFS => reader.message(key, OtlpMessage::EntityRef)?.pass_all()?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }
}
