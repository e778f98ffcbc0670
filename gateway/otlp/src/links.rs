//! `Span.links`: other spans that a span refers to.

use crate::attributes::Attributes;
use crate::fields::{OtlpMessage, link};
use crate::ids::{self, Id};
use crate::malformed::Malformed;
use crate::repeated::{LINK_ATTRIBUTES, Repeated, RepeatedIter};
use crate::wire::Reader;

/// The links of a span. The content of a link is read only when the iterator reaches it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Links<'a>(pub(crate) Repeated<'a>);

impl<'a> Links<'a> {
    /// Number of links; costs nothing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no link.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads the links in wire order. After an error the iterator ends.
    #[inline]
    pub fn iter(&self) -> LinksIter<'a> {
        LinksIter(self.0.occurrences())
    }
}

impl<'a> IntoIterator for &Links<'a> {
    type Item = Result<Link<'a>, Malformed>;
    type IntoIter = LinksIter<'a>;

    fn into_iter(self) -> LinksIter<'a> {
        self.iter()
    }
}

/// One link of a span.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link<'a> {
    /// `None` in a link with only attributes or a trace state, which the OpenTelemetry API allows.
    pub trace_id: Option<&'a [u8; 16]>,
    /// `None` as for the trace id.
    pub span_id: Option<&'a [u8; 8]>,
    /// W3C trace state; bytes that should be UTF-8 but are not checked.
    pub trace_state: &'a [u8],
    /// The link's own attributes.
    pub attributes: Attributes<'a>,
}

impl<'a> Link<'a> {
    #[inline]
    fn read(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut link = Self::default();
        let whole = reader;
        let (mut trace_id, mut span_id) = (&[][..], &[][..]);
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                link::TRACE_ID => trace_id = reader.bytes(key)?,
                link::SPAN_ID => span_id = reader.bytes(key)?,
                link::TRACE_STATE => link.trace_state = reader.bytes(key)?,
                link::ATTRIBUTES => link.attributes.0.note_run(&LINK_ATTRIBUTES, from, &mut reader)?,
                _ => reader.pass(key)?,
            }
        }
        let (Ok(trace_id), Ok(span_id)) = (ids::optional(trace_id), ids::optional(span_id)) else {
            return Err(ids::wrong(whole, &Id::OF_LINK));
        };
        (link.trace_id, link.span_id) = (trace_id, span_id);
        Ok(link)
    }
}

/// Reads the links of a span.
#[derive(Debug, Clone)]
pub struct LinksIter<'a>(RepeatedIter<'a>);

impl<'a> LinksIter<'a> {
    #[inline]
    fn read(&mut self) -> Result<Option<Link<'a>>, Malformed> {
        match self.0.read(OtlpMessage::Link)? {
            Some(reader) => Link::read(reader).map(Some),
            None => Ok(None),
        }
    }
}

impl<'a> Iterator for LinksIter<'a> {
    type Item = Result<Link<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.read().inspect_err(|_| self.0.stop()).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.remaining()))
    }
}
