//! `Span`: one operation, the row of the table.

use crate::attributes::Attributes;
use crate::events::Events;
use crate::fields::{OtlpMessage, span, status};
use crate::links::Links;
use crate::malformed::Malformed;
use crate::repeated::{SPAN_ATTRIBUTES, SPAN_EVENTS, SPAN_LINKS};
use crate::wire::Reader;

/// One self. A field that the wire does not have is empty or 0, as protobuf says.
///
/// `flags` and the counts of what the SDK dropped are not given: no column of the table holds them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span<'a> {
    /// 16 bytes by the OTLP rules; any length here.
    pub trace_id: &'a [u8],
    /// 8 bytes by the OTLP rules; any length here.
    pub span_id: &'a [u8],
    /// 8 bytes, or empty for a root span, by the OTLP rules; any length here.
    pub parent_span_id: &'a [u8],
    /// W3C trace state; bytes that should be UTF-8 but are not checked.
    pub trace_state: &'a [u8],
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub name: &'a [u8],
    /// `SpanKind`, 0 unspecified to 5 consumer; may be any number.
    pub kind: i32,
    /// Nanoseconds since 1970; 0 means unknown.
    pub start_time_unix_nano: u64,
    /// Nanoseconds since 1970; 0 means unknown; may lie before the start.
    pub end_time_unix_nano: u64,
    /// The span's own attributes.
    pub attributes: Attributes<'a>,
    /// What happened meanwhile.
    pub events: Events<'a>,
    /// Other spans that it has to do with.
    pub links: Links<'a>,
    /// `StatusCode`, 0 unset, 1 ok, 2 error; may be any number.
    pub status_code: i32,
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub status_message: &'a [u8],
}

impl<'a> Span<'a> {
    /// Reads a span into this one, which is empty.
    #[inline(always)]
    pub(crate) fn merge(&mut self, mut reader: Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                span::TRACE_ID => self.trace_id = reader.bytes(key)?,
                span::SPAN_ID => self.span_id = reader.bytes(key)?,
                span::TRACE_STATE => self.trace_state = reader.bytes(key)?,
                span::PARENT_SPAN_ID => self.parent_span_id = reader.bytes(key)?,
                span::NAME => self.name = reader.bytes(key)?,
                span::KIND => self.kind = reader.int32(key)?,
                span::START_TIME_UNIX_NANO => self.start_time_unix_nano = reader.fixed64(key)?,
                span::END_TIME_UNIX_NANO => self.end_time_unix_nano = reader.fixed64(key)?,
                span::ATTRIBUTES => self.attributes.0.note_run(&SPAN_ATTRIBUTES, from, &mut reader)?,
                span::EVENTS => self.events.0.note_run(&SPAN_EVENTS, from, &mut reader)?,
                span::LINKS => self.links.0.note_run(&SPAN_LINKS, from, &mut reader)?,
                span::STATUS => self.merge_status(reader.message(key, OtlpMessage::Status)?)?,
                span::FLAGS => reader.pass_fixed32(key)?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn merge_status(&mut self, mut reader: Reader<'a>) -> Result<(), Malformed> {
        while !reader.is_empty() {
            let key = reader.key()?;
            match key {
                status::CODE => self.status_code = reader.int32(key)?,
                status::MESSAGE => self.status_message = reader.bytes(key)?,
                _ => reader.pass(key)?,
            }
        }
        Ok(())
    }
}
