//! `Resource`: what made the spans of one `ResourceSpans`.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, resource, resource_spans};
use crate::malformed::Malformed;
use crate::repeated::RESOURCE_ATTRIBUTES;
use crate::wire::Reader;

/// What made the spans of one `ResourceSpans`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resource<'a> {
    /// `service.name` and the like.
    pub attributes: Attributes<'a>,
}

impl<'a> Resource<'a> {
    /// Finds the resource in a `ResourceSpans`, wherever it stands; empty if there is none.
    pub(crate) fn find(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                resource_spans::RESOURCE => {
                    let content = reader.message(key, OtlpMessage::Resource)?;
                    found.merge(content, from)?;
                }
                resource_spans::SCOPE_SPANS => {
                    reader.bytes(key)?;
                }
                _ => reader.pass(key)?,
            }
        }
        Ok(found)
    }

    /// Merges a `Resource` into this one. `parent` is the `ResourceSpans` from before it.
    fn merge(&mut self, mut reader: Reader<'a>, parent: Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                resource::ATTRIBUTES => {
                    reader.bytes(key)?;
                    self.attributes.0.note_spread(&RESOURCE_ATTRIBUTES, from, parent.end(), parent);
                }
                resource::ENTITY_REFS => reader.message(key, OtlpMessage::EntityRef)?.pass_all()?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }
}
