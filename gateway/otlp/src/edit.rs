//! A message with other attributes.
//!
//! Job: leaves attributes out of a message, or replaces their values, for dead letters that must not contain what rows do not. Place in the
//! flow: beside the walk, for single messages; it allocates. Pure; total on any bytes.
//!
//! Everything else is copied unchanged: fields in their order, unknown fields, messages in pieces. An attribute whose editor says
//! [`Edit::Keep`] keeps its bytes.

use crate::attributes::KeyValue;
use crate::encode::{key_and_value, put_field};
use crate::fields::{
    OtlpMessage, event, link, resource, resource_spans, scope, scope_spans, span, traces_data,
};
use crate::malformed::Malformed;
use crate::wire::Reader;

/// Whose attributes these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeSet {
    Resource,
    Scope,
    Span,
    Event,
    Link,
}

/// What becomes of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It stays.
    Keep,
    /// It is left out.
    Drop,
    /// It has another value: these are the fields of its `AnyValue` ([`crate::put_value`]).
    Replace(Vec<u8>),
}

/// The message with other attributes. `edit` is asked for every attribute of a resource, a scope, a span, an event and a link.
///
/// # Errors
/// That of `edit`, or [`Malformed`] if the message cannot be read.
pub fn edit_attributes<E: From<Malformed>>(
    message: &[u8],
    edit: &mut impl FnMut(AttributeSet, &KeyValue<'_>) -> Result<Edit, E>,
) -> Result<Vec<u8>, E> {
    edited(Reader::new(message), edit)
}

/// What a field of a message is to the editor.
enum Field {
    /// A message that holds attributes somewhere.
    Holder(OtlpMessage),
    /// An attribute.
    Attribute(AttributeSet),
    /// Anything else.
    Other,
}

impl Field {
    /// The field with this key in a message of this type.
    fn of(holder: OtlpMessage, key: u32) -> Self {
        match (holder, key) {
            (OtlpMessage::TracesData, traces_data::RESOURCE_SPANS) => {
                Self::Holder(OtlpMessage::ResourceSpans)
            }
            (OtlpMessage::ResourceSpans, resource_spans::RESOURCE) => Self::Holder(OtlpMessage::Resource),
            (OtlpMessage::ResourceSpans, resource_spans::SCOPE_SPANS) => {
                Self::Holder(OtlpMessage::ScopeSpans)
            }
            (OtlpMessage::ScopeSpans, scope_spans::SCOPE) => Self::Holder(OtlpMessage::InstrumentationScope),
            (OtlpMessage::ScopeSpans, scope_spans::SPANS) => Self::Holder(OtlpMessage::Span),
            (OtlpMessage::Span, span::EVENTS) => Self::Holder(OtlpMessage::Event),
            (OtlpMessage::Span, span::LINKS) => Self::Holder(OtlpMessage::Link),
            (OtlpMessage::Resource, resource::ATTRIBUTES) => Self::Attribute(AttributeSet::Resource),
            (OtlpMessage::InstrumentationScope, scope::ATTRIBUTES) => Self::Attribute(AttributeSet::Scope),
            (OtlpMessage::Span, span::ATTRIBUTES) => Self::Attribute(AttributeSet::Span),
            (OtlpMessage::Event, event::ATTRIBUTES) => Self::Attribute(AttributeSet::Event),
            (OtlpMessage::Link, link::ATTRIBUTES) => Self::Attribute(AttributeSet::Link),
            _ => Self::Other,
        }
    }
}

/// One message with other attributes. Recurses into holders, which nest five deep.
fn edited<E: From<Malformed>>(
    mut reader: Reader<'_>,
    edit: &mut impl FnMut(AttributeSet, &KeyValue<'_>) -> Result<Edit, E>,
) -> Result<Vec<u8>, E> {
    let mut out = Vec::new();
    while !reader.is_empty() {
        let before = reader;
        let key = reader.key()?;
        match Field::of(reader.of(), key) {
            Field::Holder(of) => {
                let inner = edited(reader.message(key, of)?, edit)?;
                put_field(&mut out, key, &inner);
            }
            Field::Attribute(set) => {
                let attribute = KeyValue::read(reader.message(key, OtlpMessage::KeyValue)?)?;
                match edit(set, &attribute)? {
                    Edit::Keep => out.extend_from_slice(between(&before, &reader)),
                    Edit::Drop => {}
                    Edit::Replace(value) => put_field(&mut out, key, &key_and_value(attribute.key, &value)),
                }
            }
            Field::Other => {
                reader.pass(key)?;
                out.extend_from_slice(between(&before, &reader));
            }
        }
    }
    Ok(out)
}

/// The bytes between `before` and `after`.
pub(crate) fn between<'a>(before: &Reader<'a>, after: &Reader<'a>) -> &'a [u8] {
    let count = before.rest().len().saturating_sub(after.rest().len());
    before.rest().get(..count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute with a number of one byte: `KeyValue { key, value { int } }`.
    fn attribute(field: u8, key: u8, number: u8) -> Vec<u8> {
        vec![field, 7, 0x0A, 1, key, 0x12, 2, 0x18, number]
    }

    fn holder(field: u8, fields: &[Vec<u8>]) -> Vec<u8> {
        let fields = fields.concat();
        [&[field, u8::try_from(fields.len()).unwrap()][..], &fields].concat()
    }

    /// A message with an attribute of each set, by a function that writes it.
    fn message(attribute: impl Fn(u8, AttributeSet) -> Vec<u8>) -> Vec<u8> {
        let event = holder(0x5A, &[attribute(0x1A, AttributeSet::Event)]);
        let link = holder(0x6A, &[attribute(0x22, AttributeSet::Link)]);
        let span = holder(0x12, &[vec![0x2A, 0], attribute(0x4A, AttributeSet::Span), event, link]);
        let scope = holder(0x0A, &[vec![0x0A, 0], attribute(0x1A, AttributeSet::Scope)]);
        let scopes = holder(0x12, &[scope, span, vec![0x1A, 0]]);
        let resource = holder(0x0A, &[attribute(0x0A, AttributeSet::Resource), vec![0x10, 5]]);
        // An unknown field (number 100), and the resource behind its spans.
        holder(0x0A, &[vec![0xA0, 0x06, 1], scopes, resource])
    }

    const ALL: [AttributeSet; 5] = [
        AttributeSet::Resource,
        AttributeSet::Scope,
        AttributeSet::Span,
        AttributeSet::Event,
        AttributeSet::Link,
    ];

    #[test]
    fn each_set_is_edited_and_nothing_else() {
        let whole = message(|field, _| attribute(field, b'k', 7));
        for edited_set in ALL {
            for (edit, expected) in
                [(Edit::Keep, Some(7)), (Edit::Drop, None), (Edit::Replace(vec![0x18, 9]), Some(9))]
            {
                let expected = message(|field, set| match (set == edited_set, expected) {
                    (true, None) => Vec::new(),
                    (true, Some(number)) => attribute(field, b'k', number),
                    (false, _) => attribute(field, b'k', 7),
                });
                let mut decide = |set, attribute: &KeyValue<'_>| {
                    assert_eq!(attribute.key, b"k");
                    Ok::<_, Malformed>(if set == edited_set { edit.clone() } else { Edit::Keep })
                };
                assert_eq!(
                    edit_attributes(&whole, &mut decide).unwrap(),
                    expected,
                    "{edited_set:?} {edit:?}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        let mut keep = |_, _: &KeyValue<'_>| Ok::<_, Malformed>(Edit::Keep);
        let whole = message(|field, _| attribute(field, b'k', 7));
        let (_, cut) = whole.split_last().unwrap();
        assert!(edit_attributes(cut, &mut keep).is_err());
        assert_eq!(edit_attributes(b"", &mut keep).unwrap(), b"");
    }
}
