//! `Span`: one operation, the row of the table.

use crate::attributes::Attributes;
use crate::events::Events;
use crate::fields::{OtlpMessage, field_number, span, status};
use crate::ids::{self, Id};
use crate::links::Links;
use crate::malformed::{Malformed, Reason};
use crate::metric;
use crate::repeated::{SPAN_ATTRIBUTES, SPAN_EVENTS, SPAN_LINKS};
use crate::wire::Reader;

/// One span. A field that is missing on the wire is empty or 0, as protobuf says.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// May be all zeros, which OTLP calls invalid.
    pub trace_id: &'a [u8; 16],
    /// May be all zeros, which OTLP calls invalid.
    pub span_id: &'a [u8; 8],
    /// `None` for a root span.
    pub parent_span_id: Option<&'a [u8; 8]>,
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
    /// The events of the span.
    pub events: Events<'a>,
    /// Other spans that it refers to.
    pub links: Links<'a>,
    /// `StatusCode`, 0 unset, 1 ok, 2 error; may be any number.
    pub status_code: i32,
    /// Bytes that should be UTF-8 but are not checked; may be empty.
    pub status_message: &'a [u8],
    /// The low 8 bits are the W3C trace flags; `SpanFlags` names the others.
    pub flags: u32,
    /// Attributes that the SDK dropped.
    pub dropped_attributes_count: u32,
    /// Events that the SDK dropped.
    pub dropped_events_count: u32,
    /// Links that the SDK dropped.
    pub dropped_links_count: u32,
}

impl Default for Span<'_> {
    #[inline(always)]
    fn default() -> Self {
        Self {
            trace_id: &[0; 16],
            span_id: &[0; 8],
            parent_span_id: None,
            trace_state: &[],
            name: &[],
            kind: 0,
            start_time_unix_nano: 0,
            end_time_unix_nano: 0,
            attributes: Attributes::default(),
            events: Events::default(),
            links: Links::default(),
            status_code: 0,
            status_message: &[],
            flags: 0,
            dropped_attributes_count: 0,
            dropped_events_count: 0,
            dropped_links_count: 0,
        }
    }
}

impl<'a> Span<'a> {
    /// Reads a span into this one, which is empty. A span without its ids is malformed: OTLP requires them. They distinguish spans from
    /// metrics and log records, which have strings in place of ids. A gauge whose strings have the lengths of ids is malformed too.
    #[inline(always)]
    pub(crate) fn read(&mut self, mut reader: Reader<'a>) -> Result<(), Malformed> {
        let whole = reader;
        let (mut trace_id, mut span_id, mut parent_span_id) = (&[][..], &[][..], &[][..]);
        while !reader.is_empty() {
            let from = reader;
            let key = reader.key()?;
            match key {
                span::TRACE_ID => trace_id = reader.bytes(key)?,
                span::SPAN_ID => span_id = reader.bytes(key)?,
                span::TRACE_STATE => self.trace_state = reader.bytes(key)?,
                span::PARENT_SPAN_ID => parent_span_id = reader.bytes(key)?,
                span::NAME => self.name = reader.bytes(key)?,
                span::KIND => self.kind = reader.int32(key)?,
                span::START_TIME_UNIX_NANO => self.start_time_unix_nano = reader.fixed64(key)?,
                span::END_TIME_UNIX_NANO => self.end_time_unix_nano = reader.fixed64(key)?,
                span::ATTRIBUTES => self.attributes.0.note_run(&SPAN_ATTRIBUTES, from, &mut reader)?,
                span::EVENTS => self.events.0.note_run(&SPAN_EVENTS, from, &mut reader)?,
                span::LINKS => self.links.0.note_run(&SPAN_LINKS, from, &mut reader)?,
                span::STATUS => self.merge_status(reader.message(key, OtlpMessage::Status)?)?,
                span::FLAGS => self.flags = reader.fixed32(key)?,
                span::DROPPED_ATTRIBUTES_COUNT => self.dropped_attributes_count = reader.uint32(key)?,
                span::DROPPED_EVENTS_COUNT => self.dropped_events_count = reader.uint32(key)?,
                span::DROPPED_LINKS_COUNT => self.dropped_links_count = reader.uint32(key)?,
                _ => reader.pass(key)?,
            }
        }
        let (Ok(trace_id), Ok(span_id), Ok(parent_span_id)) =
            (trace_id.try_into(), span_id.try_into(), ids::optional(parent_span_id))
        else {
            return Err(ids::wrong(whole, &Id::OF_SPAN));
        };
        if self.start_time_unix_nano == 0 && metric::is_gauge(whole.rest()) {
            let name = field_number(span::NAME);
            return Err(Malformed::new(whole.position(), Reason::Metric, OtlpMessage::Span, name));
        }
        (self.trace_id, self.span_id, self.parent_span_id) = (trace_id, span_id, parent_span_id);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Trace id and span id.
    #[rustfmt::skip]
    const IDS: [u8; 28] = [
        0x0A, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
        0x12, 8, 1, 2, 3, 4, 5, 6, 7, 8,
    ];

    /// Reads a span of these fields and none other; its position counts from the first of them.
    fn read_bare(bytes: &[u8]) -> Result<Span<'_>, (usize, Reason)> {
        let mut span = Span::default();
        match span.read(Reader::on(bytes, OtlpMessage::Span)) {
            Ok(()) => Ok(span),
            Err(malformed) => Err((malformed.position(), malformed.reason())),
        }
    }

    /// Tells of a span of these fields behind its ids.
    fn read<R>(bytes: &[u8], tell: impl Fn(&Span<'_>) -> R) -> Result<R, (usize, Reason)> {
        let whole = [&IDS, bytes].concat();
        match read_bare(&whole) {
            Ok(span) => Ok(tell(&span)),
            Err((position, reason)) => Err((position.saturating_sub(IDS.len()), reason)),
        }
    }

    type Holds = fn(&Span<'_>) -> bool;

    /// The position and reason of a wrong id.
    type Wrong = Option<(usize, Reason)>;

    #[test]
    fn every_field_is_read_from_its_bytes() {
        let table: &[(&[u8], Holds)] = &[
            (&[], |span| span.name.is_empty() && span.kind == 0 && span.attributes.is_empty()),
            (&[], |span| span.trace_id[15] == 16 && *span.span_id == [1, 2, 3, 4, 5, 6, 7, 8]), // fields 1 and 2
            (&[0x12, 8, 8, 7, 6, 5, 4, 3, 2, 1], |span| span.span_id[0] == 8), // the last wins
            (&[0x1A, 3, b'a', b'=', b'b'], |span| span.trace_state == b"a=b"), // field 3
            (&[0x22, 8, 0, 0, 0, 0, 0, 0, 0, 4], |span| span.parent_span_id.is_some_and(|id| id[7] == 4)), // field 4
            (&[0x22, 0], |span| span.parent_span_id.is_none()), // field 4, a root span
            (&[0x2A, 1, 0xFF], |span| span.name == [0xFF]),     // field 5, not UTF-8
            (&[0x30, 3], |span| span.kind == 3),                // field 6, varint
            (&[0x30, 0x80, 0x80, 0x80, 0x80, 0x10], |span| span.kind == 0), // field 6, 1 << 32: only 32 bits count
            (&[0x39, 8, 7, 6, 5, 4, 3, 2, 1], |span| span.start_time_unix_nano == 0x0102_0304_0506_0708), // field 7
            (&[0x41, 1, 0, 0, 0, 0, 0, 0, 0], |span| span.end_time_unix_nano == 1), // field 8, eight bytes
            (&[0x4A, 0], |span| span.attributes.len() == 1), // field 9, an attribute without key and value
            (&[0x50, 7], |span| span.dropped_attributes_count == 7), // field 10, varint
            (&[0x5A, 0], |span| span.events.len() == 1),     // field 11
            (&[0x60, 7], |span| span.dropped_events_count == 7), // field 12, varint
            (&[0x6A, 0], |span| span.links.len() == 1),      // field 13
            (&[0x70, 0x87, 1], |span| span.dropped_links_count == 135), // field 14, varint
            (&[0x70, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F], |span| span.dropped_links_count == u32::MAX), // only 32 bits count
            (&[0x7A, 2, 0x18, 2], |span| span.status_code == 2), // field 15, in it field 3, varint
            (&[0x7A, 3, 0x12, 1, b'x'], |span| span.status_message == b"x"), // field 15, in it field 2
            (&[0x85, 0x01, 1, 3, 0, 0], |span| span.flags == 0x301), // field 16, four bytes
            (&[0x8A, 0x01, 1, 0], |span| span.kind == 0),        // field 17: unknown, passed
        ];
        for (bytes, holds) in table {
            assert_eq!(read(bytes, holds), Ok(true), "{bytes:02X?}");
        }
    }

    #[test]
    fn of_what_repeats_the_last_wins_and_the_status_is_merged() {
        assert_eq!(read(&[0x30, 1, 0x30, 2], |span| span.kind), Ok(2));
        assert_eq!(read(&[0x2A, 1, b'a', 0x2A, 0], |span| span.name.len()), Ok(0));
        let status = [0x7A, 5, 0x12, 1, b'x', 0x18, 1, 0x7A, 2, 0x18, 2];
        assert_eq!(read(&status, |span| span.status_message == b"x" && span.status_code == 2), Ok(true));
    }

    #[test]
    fn lists_may_be_mixed_with_each_other() {
        let bytes = [
            &IDS[..],
            &[0x4A, 2, 0x0A, 0],                               // attribute
            &[0x5A, 3, 0x12, 1, b'x'],                         // event x
            &[0x4A, 3, 0x0A, 1, b'b', 0x4A, 3, 0x0A, 1, b'c'], // attributes b and c
            &[0x6A, 10, 0x12, 8, 9, 9, 9, 9, 9, 9, 9, 9],      // link to span 9
            &[0x2A, 1, b'n'],                                  // name
            &[0x5A, 3, 0x12, 1, b'y'],                         // event y
        ]
        .concat();
        let span = read_bare(&bytes).unwrap();
        let keys: Vec<_> = span.attributes.iter().map(|attribute| attribute.unwrap().key).collect();
        let events: Vec<_> = span.events.iter().map(|event| event.unwrap().name).collect();
        let links: Vec<_> = span.links.iter().map(|link| link.unwrap().span_id).collect();
        assert_eq!(keys, [&b""[..], b"b", b"c"]);
        assert_eq!(events, [b"x", b"y"]);
        assert_eq!(links, [Some(&[9; 8])]);
        assert_eq!(span.name, b"n");
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        let table: &[(&str, &[u8], usize, Reason)] = &[
            ("the kind as bytes", &[0x32, 0], 1, Reason::WireTypeWrong),
            ("an attribute as a varint", &[0x48, 0], 1, Reason::WireTypeWrong),
            ("flags as a varint", &[0x80, 0x01, 0], 2, Reason::WireTypeWrong),
            ("a name that is too long", &[0x2A, 2, b'a'], 2, Reason::Truncated),
            ("an attribute that is too long", &[0x4A, 1], 2, Reason::Truncated),
            ("half a start time", &[0x39, 0, 0, 0, 0], 1, Reason::Truncated),
            ("half of the flags", &[0x85, 0x01, 0], 2, Reason::Truncated),
            ("a status that is too long", &[0x7A, 3, 0x18, 1], 2, Reason::Truncated),
            ("a status whose code is cut short", &[0x7A, 1, 0x18, 1], 3, Reason::Truncated),
        ];
        for (what, bytes, position, reason) in table {
            assert_eq!(read(bytes, |_| ()), Err((*position, *reason)), "{what}");
        }
    }

    #[test]
    fn a_span_has_a_trace_id_and_a_span_id_of_their_lengths() {
        let (trace, own) = IDS.split_at(18);
        let table: &[(&str, &[&[u8]], Wrong)] = &[
            ("both", &[trace, own], None),
            ("all zeros", &[&[0x0A, 16], &[0; 16], &[0x12, 8], &[0; 8]], None),
            ("neither", &[], Some((0, Reason::IdMissing))),
            ("no trace id", &[own], Some((0, Reason::IdMissing))),
            ("no span id", &[&[0x30, 1], trace], Some((0, Reason::IdMissing))),
            ("an empty trace id", &[own, &[0x0A, 0]], Some((0, Reason::IdMissing))),
            ("a short trace id", &[&[0x30, 1, 0x0A, 2, 1, 2], own], Some((4, Reason::IdLengthWrong))),
            ("a long span id", &[trace, &[0x12, 9], &[1; 9]], Some((20, Reason::IdLengthWrong))),
            ("a short parent", &[trace, own, &[0x22, 1, 4]], Some((30, Reason::IdLengthWrong))),
            ("the last trace id counts", &[&[0x0A, 1, 9], own, trace], None),
            ("the last span id counts", &[trace, own, &[0x12, 1, 9]], Some((30, Reason::IdLengthWrong))),
        ];
        for (what, fields, wrong) in table {
            let bytes = fields.concat();
            assert_eq!(read_bare(&bytes).err(), *wrong, "{what}");
        }
    }

    #[test]
    fn an_id_that_is_text_or_was_decoded_as_base64_is_called_so() {
        let (trace, own) = IDS.split_at(18);
        let of_trace = |id: &[u8]| [&[0x0A, u8::try_from(id.len()).unwrap()], id, own].concat();
        let of_span = |id: &[u8]| [trace, &[0x12, u8::try_from(id.len()).unwrap()], id].concat();
        // What base64 decodes `4bf92f3577b34da6a3ce929d0e0e4736` and `00f067aa0ba902b7` to.
        let trace_decoded = b"\xe1\xb7\xfd\xd9\xfd\xf9\xef\xb6\xf7\xe1\xd6\xba\x6b\x77\x1e\xf7\x6f\x5d\xd1\xed\x1e\xe3\xbd\xfa";
        let span_decoded = b"\xd3\x47\xf4\xeb\xb6\x9a\xd1\xb6\xbd\xd3\x66\xfb";
        for (what, bytes, reason) in [
            ("hex", of_trace(b"4bf92f3577b34da6a3ce929d0e0e4736"), Reason::IdIsText),
            ("hex in capitals", of_span(b"00F067AA0BA902B7"), Reason::IdIsText),
            ("32 letters", of_trace(b"a trace of thirty-two characters"), Reason::IdLengthWrong),
            ("base64", of_trace(b"S/kvNXezTaajzpKdDg5HNg=="), Reason::IdIsText),
            ("base64 of 8 bytes", of_span(b"APBnqgupArc="), Reason::IdIsText),
            ("hex as base64", of_trace(trace_decoded), Reason::IdDecodedWrongly),
            ("hex as base64, of 8 bytes", of_span(span_decoded), Reason::IdDecodedWrongly),
            ("24 other bytes", of_trace(&[255; 24]), Reason::IdLengthWrong),
            ("12 letters", of_span(b"request-0001"), Reason::IdLengthWrong),
        ] {
            assert_eq!(read_bare(&bytes).err().map(|(_, found)| found), Some(reason), "{what}");
        }
    }

    #[test]
    fn a_link_has_ids_of_their_lengths_or_none() {
        let table: &[(&str, &[u8], Wrong)] = &[
            ("none", &[0x6A, 0], None),
            ("empty ones", &[0x6A, 4, 0x0A, 0, 0x12, 0], None),
            ("a span id of 3 bytes", &[0x6A, 5, 0x12, 3, 1, 2, 3], Some((4, Reason::IdLengthWrong))),
            ("a trace id of 1 byte", &[0x6A, 3, 0x0A, 1, 1], Some((4, Reason::IdLengthWrong))),
        ];
        for (what, bytes, wrong) in table {
            let whole = [&IDS, *bytes].concat();
            let link = read_bare(&whole).unwrap().links.iter().next().unwrap();
            let found = link
                .err()
                .map(|malformed| (malformed.position().saturating_sub(IDS.len()), malformed.reason()));
            assert_eq!(found, *wrong, "{what}");
        }
    }
}
