//! Where a writer takes attributes from: the walk, or the walk with rules.
//!
//! Writers are compiled for both, so that the rules cost nothing where there are none.

use super::{LIST_BYTES_MAX, SetCarry, hash, hash::HashText, list::ListEditor};
use crate::rows::{
    attributes::{Error, RowLimit},
    utf8::mended,
};
use sluice_gateway_config::AttributeAction;
use sluice_otlp::{Attributes, AttributesIter, KeyValue, Scalar, Value};

/// Attributes, one after the other. A value lives until the next one is asked for.
pub trait Source<'a> {
    /// The next attribute in the usual form, as [`AttributesIter::next_usual`] says.
    fn next_usual(&mut self) -> Option<(&'a [u8], Scalar<'_>)>;

    /// The next attribute in any form.
    fn next_any(&mut self) -> Option<Result<(&'a [u8], Value<'_>), Error>>;

    /// The bytes that the last value had, if it was truncated.
    fn truncated(&self) -> Option<usize>;
}

impl<'a> Source<'a> for AttributesIter<'a> {
    #[expect(clippy::inline_always, reason = "as the walk's own: the loop over the attributes of every span")]
    #[inline(always)]
    fn next_usual(&mut self) -> Option<(&'a [u8], Scalar<'_>)> {
        AttributesIter::next_usual(self)
    }

    #[expect(clippy::inline_always, reason = "as the walk's own")]
    #[inline(always)]
    fn next_any(&mut self) -> Option<Result<(&'a [u8], Value<'_>), Error>> {
        let attribute = self.next()?;
        Some(attribute.map(|KeyValue { key, value }| (key, value)).map_err(Error::Malformed))
    }

    #[inline]
    fn truncated(&self) -> Option<usize> {
        None
    }
}

/// Attributes as the rules leave them.
pub struct Carried<'a> {
    attributes: AttributesIter<'a>,
    carry: SetCarry<'a>,
    /// Whether only key-value lists are read.
    only_lists: bool,
    truncated: Option<usize>,
    /// The last value that was hashed.
    hash: Option<HashText>,
    /// A list that was written again.
    list: Vec<u8>,
}

impl<'a> Carried<'a> {
    pub fn new(attributes: &Attributes<'a>, carry: SetCarry<'a>) -> Self {
        Self {
            attributes: attributes.iter(),
            carry,
            only_lists: false,
            truncated: None,
            hash: None,
            list: Vec::new(),
        }
    }

    /// The key-value lists among them, for a second look: nothing is counted.
    pub fn lists(attributes: &Attributes<'a>, carry: SetCarry<'a>) -> Self {
        Self { only_lists: true, ..Self::new(attributes, carry.uncounted()) }
    }

    /// The beginning of a text, at most `valueBytesMax`, whole characters; of one that is not UTF-8, at most three bytes less.
    #[inline]
    fn text(&mut self, text: &'a [u8]) -> &'a [u8] {
        let max = self.carry.value_bytes_max;
        if text.len() <= max {
            return text;
        }
        let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        let end = (max.saturating_sub(3)..=max).rev().find(|end| !is_inside(*end)).unwrap_or(max);
        self.cut(text, end)
    }

    #[cold]
    fn cut(&mut self, bytes: &'a [u8], end: usize) -> &'a [u8] {
        self.truncated = Some(bytes.len());
        if let Some(truncated) = self.carry.truncated {
            truncated.update(|count| count + 1);
        }
        &bytes[..end]
    }

    fn value(&mut self, value: Value<'a>) -> Value<'a> {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Bytes(bytes) if bytes.len() > self.carry.value_bytes_max => {
                Value::Bytes(self.cut(bytes, self.carry.value_bytes_max))
            }
            other => other,
        }
    }

    /// The list of this key with the members that the rules leave it.
    fn edited_list(&mut self, key: &[u8], list: &Attributes<'_>) -> Result<(), Error> {
        self.list.clear();
        let editor = ListEditor { decider: self.carry.decider };
        editor.put(&mut self.list, key, list)
    }
}

impl<'a> Source<'a> for Carried<'a> {
    #[expect(clippy::inline_always, reason = "as the walk's own: the loop over the attributes of every span")]
    #[inline(always)]
    fn next_usual(&mut self) -> Option<(&'a [u8], Scalar<'_>)> {
        self.truncated = None;
        loop {
            let (key, scalar) = self.attributes.next_usual()?;
            match self.carry.decider.decide(key) {
                Some(AttributeAction::Drop) => {}
                Some(AttributeAction::Hash) => {
                    let Some(hash) = hash::of_scalar(scalar) else {
                        return Some((key, scalar));
                    };
                    return Some((key, Scalar::String(self.hash.insert(hash))));
                }
                Some(AttributeAction::Keep) | None => {
                    let scalar = match scalar {
                        Scalar::String(text) => Scalar::String(self.text(text)),
                        other => other,
                    };
                    return Some((key, scalar));
                }
            }
        }
    }

    fn next_any(&mut self) -> Option<Result<(&'a [u8], Value<'_>), Error>> {
        self.truncated = None;
        loop {
            let KeyValue { key, value } = match self.attributes.next()? {
                Ok(attribute) => attribute,
                Err(malformed) => return Some(Err(malformed.into())),
            };
            if self.only_lists && !matches!(value, Value::KeyValues(_)) {
                continue;
            }
            // Keys that are equal once they are UTF-8 are equal keys.
            let Ok(text) = mended(key, LIST_BYTES_MAX) else {
                return Some(Err(Error::RowTooLarge(RowLimit::Ruled)));
            };
            match (self.carry.decider.decide(&text), value) {
                (Some(AttributeAction::Drop), value) => {
                    if let Err(malformed) = value.check() {
                        return Some(Err(malformed.into()));
                    }
                }
                (Some(AttributeAction::Hash), _) if self.only_lists => {}
                (Some(AttributeAction::Hash), value) => {
                    return Some(match hash::of_value(value) {
                        Ok(Some(hash)) => Ok((key, Value::String(self.hash.insert(hash)))),
                        Ok(None) => Ok((key, value)),
                        Err(error) => Err(error),
                    });
                }
                (None, Value::KeyValues(list)) if self.carry.decider.keys.reach_below(&text) => {
                    let edited = self.edited_list(&text, &list);
                    return Some(edited.and_then(|()| Ok((key, Value::read(&self.list)?))));
                }
                (Some(AttributeAction::Keep) | None, value) => return Some(Ok((key, self.value(value)))),
            }
        }
    }

    #[inline]
    fn truncated(&self) -> Option<usize> {
        self.truncated
    }
}
