//! Applies the rules to a message that becomes a dead letter.
//!
//! A letter must not contain what rows do not: it may lie in Kafka for longer than its message, and others may read it. Long values are not
//! truncated, so that a replayed letter gives the row that its message would have given. Owner: any thread; it allocates, and counts nothing.

use super::{Carrying, hash, keys::Decider, list::ListEditor};
use crate::rows::{attributes::Error, carry::LIST_BYTES_MAX, utf8::mended};
use sluice_gateway_config::{AttributeAction, AttributesOf};
use sluice_otlp::{AttributeSet, Edit, KeyValue, Value, edit_attributes, put_value};

impl Carrying {
    /// A message in protobuf, with the attributes that the rules leave it.
    ///
    /// # Errors
    /// If it cannot be read to its end, or a value on which a rule acts is too large.
    pub fn edited(&self, wire: &[u8]) -> Result<Vec<u8>, Error> {
        edit_attributes(wire, &mut |set, attribute| {
            let keys = self.keys(of(set));
            let editor = ListEditor { decider: Decider { keys, matched: None } };
            edit(&editor, attribute)
        })
    }
}

fn edit(editor: &ListEditor<'_>, attribute: &KeyValue<'_>) -> Result<Edit, Error> {
    let key = mended(attribute.key, LIST_BYTES_MAX)?;
    let mut value = Vec::new();
    match (editor.decider.decide(&key), attribute.value) {
        (Some(AttributeAction::Drop), _) => return Ok(Edit::Drop),
        (Some(AttributeAction::Hash), of) => match hash::of_value(of)? {
            Some(hash) => put_value(&mut value, Value::String(&hash), hash::TEXT_BYTES)?,
            None => put_value(&mut value, of, usize::MAX)?,
        },
        (None, Value::KeyValues(list)) if editor.changes(&key) => editor.put(&mut value, &key, &list)?,
        // An `AnyValue` may have several members, and the last counts. The others are not in the row, and may have what rules drop.
        (Some(AttributeAction::Keep) | None, of) => put_value(&mut value, of, usize::MAX)?,
    }
    Ok(Edit::Replace(value))
}

fn of(set: AttributeSet) -> AttributesOf {
    match set {
        AttributeSet::Resource => AttributesOf::Resource,
        AttributeSet::Scope => AttributesOf::Scope,
        AttributeSet::Span => AttributesOf::Span,
        AttributeSet::Event => AttributesOf::Event,
        AttributeSet::Link => AttributesOf::Link,
    }
}
