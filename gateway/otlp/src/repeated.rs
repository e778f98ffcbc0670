//! The occurrences of a repeated message field: found by a scan, returned by an iterator.
//!
//! Usually they are in one message, the *holder*. But protobuf merges repeated messages where one is expected. So the attributes of a
//! resource may be spread over several `Resource` messages in one `ResourceSpans`, and the content of an attribute over several fields of
//! several `AnyValue`s. A [`Place`] describes this.
//!
//! The iterator reads the holder from the first occurrence on, then the next holder on the level above, and stops when it has returned
//! the counted number. So a run of occurrences may end before its holders do, which the `oneof` of `AnyValue` needs: "array, string,
//! array" is the second array alone.
//!
//! ```text
//! far     |--- KeyValue ------------------------------------------------------------|
//! near         |--- AnyValue ------------------------------|    |--- AnyValue ---|
//! holder            |--- ArrayValue ---|   |- ArrayValue -|         |- Array... -|
//! field               element  element       element                  element
//! bytes               ^------------------------------------------------------------^
//!                     first            ^ holder_end       ^ near_end               ^ end
//! ```

use crate::fields::{OtlpMessage, any_value, array_value, event, key_value, key_value_list, link};
use crate::fields::{resource, resource_spans, scope, scope_spans, span};
use crate::malformed::Malformed;
use crate::wire::Reader;

/// The messages that contain the occurrences of a repeated field.
#[derive(Debug)]
pub(crate) struct Place {
    key: u32,
    holder: OtlpMessage,
    /// The key of the holder's field, and the message with that field, if holders may repeat.
    near: Option<(u32, OtlpMessage)>,
    /// The same for the message that contains the holder.
    far: Option<(u32, OtlpMessage)>,
}

impl Place {
    /// In one message, which is not repeated.
    const fn one(key: u32, holder: OtlpMessage) -> Self {
        assert!(key <= 0x7F, "a run is found by its keys of one byte");
        Self { key, holder, near: None, far: None }
    }

    const fn spread(key: u32, holder: OtlpMessage, near: (u32, OtlpMessage)) -> Self {
        Self { key, holder, near: Some(near), far: None }
    }

    const fn within_value_of_attribute(self) -> Self {
        Self { far: Some((key_value::VALUE, OtlpMessage::KeyValue)), ..self }
    }
}

pub(crate) static SPAN_ATTRIBUTES: Place = Place::one(span::ATTRIBUTES, OtlpMessage::Span);
pub(crate) static SPAN_EVENTS: Place = Place::one(span::EVENTS, OtlpMessage::Span);
pub(crate) static SPAN_LINKS: Place = Place::one(span::LINKS, OtlpMessage::Span);
pub(crate) static EVENT_ATTRIBUTES: Place = Place::one(event::ATTRIBUTES, OtlpMessage::Event);
pub(crate) static LINK_ATTRIBUTES: Place = Place::one(link::ATTRIBUTES, OtlpMessage::Link);
pub(crate) static RESOURCE_ATTRIBUTES: Place = Place::spread(
    resource::ATTRIBUTES,
    OtlpMessage::Resource,
    (resource_spans::RESOURCE, OtlpMessage::ResourceSpans),
);
pub(crate) static SCOPE_ATTRIBUTES: Place = Place::spread(
    scope::ATTRIBUTES,
    OtlpMessage::InstrumentationScope,
    (scope_spans::SCOPE, OtlpMessage::ScopeSpans),
);
pub(crate) static ARRAY_OF_ELEMENT: Place =
    Place::spread(array_value::VALUES, OtlpMessage::ArrayValue, (any_value::ARRAY, OtlpMessage::AnyValue));
pub(crate) static ARRAY_OF_ATTRIBUTE: Place =
    Place::spread(array_value::VALUES, OtlpMessage::ArrayValue, (any_value::ARRAY, OtlpMessage::AnyValue))
        .within_value_of_attribute();
/// A list of attributes in an array.
pub(crate) static LIST_OF_ELEMENT: Place = Place::spread(
    key_value_list::VALUES,
    OtlpMessage::KeyValueList,
    (any_value::KVLIST, OtlpMessage::AnyValue),
);
pub(crate) static LIST_OF_ATTRIBUTE: Place = Place::spread(
    key_value_list::VALUES,
    OtlpMessage::KeyValueList,
    (any_value::KVLIST, OtlpMessage::AnyValue),
)
.within_value_of_attribute();

/// The occurrences of one repeated field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeated<'a> {
    len: usize,
    place: &'static Place,
    /// From the first occurrence to the end of the outermost message of the place.
    bytes: &'a [u8],
    /// The end of `bytes`, in bytes from the start of the trace message. The next two are counted likewise.
    end: usize,
    holder_end: usize,
    near_end: usize,
    /// The depth of the holder.
    depth: u8,
}

impl Default for Repeated<'_> {
    #[inline]
    fn default() -> Self {
        Self { len: 0, place: &SPAN_ATTRIBUTES, bytes: &[], end: 0, holder_end: 0, near_end: 0, depth: 0 }
    }
}

impl<'a> Repeated<'a> {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Skips an occurrence in the only holder, and those directly behind it. `from` is the reader before the first one's key, `holder`
    /// the reader behind it.
    #[inline(always)]
    pub(crate) fn note_run(
        &mut self,
        place: &'static Place,
        from: Reader<'a>,
        holder: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        if self.len == 0 {
            self.place = place;
            (self.bytes, self.end, self.depth) = (from.rest(), from.end(), from.depth());
        }
        loop {
            holder.bytes(place.key)?;
            // No message has more fields than bytes, so this does not saturate.
            self.len = self.len.saturating_add(1);
            if !holder.next_is(place.key) {
                return Ok(());
            }
            holder.key()?;
        }
    }

    /// Records an occurrence in one of several holders. `near_end` is the end of the message that contains the holder, and `outermost`
    /// the reader before the holder, in the message that contains it or in that message's own.
    pub(crate) fn note_spread(
        &mut self,
        place: &'static Place,
        holder: Reader<'a>,
        near_end: usize,
        outermost: Reader<'a>,
    ) {
        if self.len == 0 {
            *self = Self {
                len: 0,
                place,
                bytes: outermost.skipped_to(holder.position()).rest(),
                end: outermost.end(),
                holder_end: holder.end(),
                near_end,
                depth: holder.depth(),
            };
        }
        self.len = self.len.saturating_add(1);
    }

    #[inline(always)]
    pub(crate) fn occurrences(&self) -> RepeatedIter<'a> {
        let all = Reader::within(self.bytes, self.end, self.depth, self.place.holder);
        let holder = if self.place.near.is_some() { all.ended_at(self.holder_end) } else { all };
        RepeatedIter { holder, remaining: self.len, place: self.place, all, near_end: self.near_end }
    }
}

/// Returns the occurrences of one repeated field.
#[derive(Debug, Clone)]
pub(crate) struct RepeatedIter<'a> {
    holder: Reader<'a>,
    remaining: usize,
    place: &'static Place,
    /// All bytes of the place, from the first occurrence on.
    all: Reader<'a>,
    near_end: usize,
}

impl<'a> RepeatedIter<'a> {
    /// How many are left, if none is malformed.
    #[inline]
    pub(crate) const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Ends the iteration: nothing is read after an error.
    #[inline(always)]
    pub(crate) const fn stop(&mut self) {
        self.remaining = 0;
    }

    /// The next occurrence, if it is directly here, and the holder's reader behind it. Nothing is read until [`RepeatedIter::read_to`].
    /// It does not take a closure: the compiler might not inline that.
    #[inline(always)]
    pub(crate) fn look(&self, of: OtlpMessage) -> Option<(Reader<'a>, Reader<'a>)> {
        if self.remaining == 0 || !self.holder.next_is(self.place.key) {
            return None;
        }
        let mut behind = self.holder;
        let occurrence = behind.key().and_then(|key| behind.message(key, of)).ok()?;
        Some((occurrence, behind))
    }

    /// Reads the occurrence that [`RepeatedIter::look`] has found.
    #[inline(always)]
    pub(crate) fn read_to(&mut self, behind: Reader<'a>) {
        self.holder = behind;
        self.remaining = self.remaining.saturating_sub(1);
    }

    /// The next occurrence, a message of the type `of`.
    #[inline(always)]
    pub(crate) fn read(&mut self, of: OtlpMessage) -> Result<Option<Reader<'a>>, Malformed> {
        while self.remaining > 0 {
            if self.holder.is_empty() {
                match next_holder(self.place, self.all, self.holder.end(), self.near_end)? {
                    Some(next) => (self.holder, self.near_end) = next,
                    None => break,
                }
                continue;
            }
            let key = self.holder.key()?;
            if key == self.place.key {
                self.remaining = self.remaining.saturating_sub(1);
                return self.holder.message(key, of).map(Some);
            }
            self.holder.pass(key)?;
        }
        Ok(None)
    }
}

/// The holder behind the one that ended at `holder_end`, and the end of the message that contains it. The remaining count guarantees that
/// there is one.
#[cold]
#[inline(never)]
fn next_holder<'a>(
    place: &'static Place,
    all: Reader<'a>,
    holder_end: usize,
    near_end: usize,
) -> Result<Option<(Reader<'a>, usize)>, Malformed> {
    let Some((holder_key, near_of)) = place.near else {
        return Ok(None);
    };
    let depth = all.depth().saturating_sub(1);
    let mut near = all.skipped_to(holder_end).ended_at(near_end).renamed(depth, near_of);
    loop {
        if let Some(holder) = next_message(&mut near, holder_key, place.holder)? {
            return Ok(Some((holder, near.end())));
        }
        let Some((near_key, far_of)) = place.far else {
            return Ok(None);
        };
        let mut far = all.skipped_to(near.end()).renamed(depth.saturating_sub(1), far_of);
        match next_message(&mut far, near_key, near_of)? {
            Some(next) => near = next,
            None => return Ok(None),
        }
    }
}

/// The next message in the field `key`.
fn next_message<'a>(
    reader: &mut Reader<'a>,
    key: u32,
    of: OtlpMessage,
) -> Result<Option<Reader<'a>>, Malformed> {
    while !reader.is_empty() {
        let found = reader.key()?;
        if found == key {
            return reader.message(key, of).map(Some);
        }
        reader.pass(found)?;
    }
    Ok(None)
}
