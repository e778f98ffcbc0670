//! `Span.events`: what happened while a span ran.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, event};
use crate::malformed::Malformed;
use crate::repeated::{EVENT_ATTRIBUTES, Repeated, RepeatedIter};
use crate::wire::Reader;

/// The events of a span. The content of an event is read only when the iterator reaches it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Events<'a>(pub(crate) Repeated<'a>);

impl<'a> Events<'a> {
    /// Number of events; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no event.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the events in wire order. After an error the iterator ends.
    #[inline]
    pub fn iter(&self) -> EventsIter<'a> {
        EventsIter(self.0.occurrences())
    }
}

impl<'a> IntoIterator for &Events<'a> {
    type Item = Result<Event<'a>, Malformed>;
    type IntoIter = EventsIter<'a>;

    fn into_iter(self) -> EventsIter<'a> {
        self.iter()
    }
}

/// One event of a span.
#[derive(Debug, Clone, Copy, Default)]
pub struct Event<'a> {
    /// Nanoseconds since 1970; 0 means unknown.
    pub time_unix_nano: u64,
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub name: &'a [u8],
    /// The event's own attributes.
    pub attributes: Attributes<'a>,
}

impl<'a> Event<'a> {
    #[inline(always)]
    fn read(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut event = Self::default();
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                event::TIME_UNIX_NANO => event.time_unix_nano = reader.fixed64(key)?,
                event::NAME => event.name = reader.bytes(key)?,
                event::ATTRIBUTES => event.attributes.0.note_run(&EVENT_ATTRIBUTES, from, &mut reader)?,
                _ => reader.pass(key)?,
            }
        }
        Ok(event)
    }
}

/// Reads the events of a span.
#[derive(Debug, Clone)]
pub struct EventsIter<'a>(RepeatedIter<'a>);

impl<'a> EventsIter<'a> {
    #[inline(always)]
    fn read(&mut self) -> Result<Option<Event<'a>>, Malformed> {
        match self.0.read(OtlpMessage::Event)? {
            Some(reader) => Event::read(reader).map(Some),
            None => Ok(None),
        }
    }
}

impl<'a> Iterator for EventsIter<'a> {
    type Item = Result<Event<'a>, Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.read().inspect_err(|_| self.0.stop()).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.remaining()))
    }
}
