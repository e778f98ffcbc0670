//! Ids of traces and spans: of 16 and 8 bytes, by opentelemetry-proto (`trace/v1/trace.proto`: "of length other than 16 bytes is
//! considered invalid").
//!
//! The rule distinguishes spans from other messages with the same wire format: a metric has its name in place of a trace id, and its
//! description in place of a span id; a log record has neither. Ids of all zeros are invalid too, but pass: they have the form of an id.

use crate::fields::{field_number, link, span};
use crate::malformed::{Malformed, Reason};
use crate::wire::Reader;

/// An id among the fields of a span or of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Id {
    key: u32,
    bytes: usize,
    is_required: bool,
}

impl Id {
    pub(crate) const OF_SPAN: [Self; 3] = [
        Self { key: span::TRACE_ID, bytes: 16, is_required: true },
        Self { key: span::SPAN_ID, bytes: 8, is_required: true },
        Self { key: span::PARENT_SPAN_ID, bytes: 8, is_required: false },
    ];
    pub(crate) const OF_LINK: [Self; 2] = [
        Self { key: link::TRACE_ID, bytes: 16, is_required: false },
        Self { key: link::SPAN_ID, bytes: 8, is_required: false },
    ];

    /// What is wrong with an id of these bytes.
    fn reason(&self, id: &[u8]) -> Option<Reason> {
        match (self.bytes, id.len()) {
            (_, 0) if self.is_required => Some(Reason::IdMissing),
            (_, 0) => None,
            (wanted, found) if found == wanted => None,
            (16, 32) | (8, 16) if id.iter().all(u8::is_ascii_hexdigit) => Some(Reason::IdIsText),
            // Base64 encodes three bytes as four digits, and pads the last four.
            (16, 24) | (8, 12) if id.is_ascii() && id.ends_with(b"=") => Some(Reason::IdIsText),
            (16, 24) | (8, 12) if is_hex_as_base64(id) => Some(Reason::IdDecodedWrongly),
            _ => Some(Reason::IdLengthWrong),
        }
    }
}

/// Whether the base64 of these bytes, a multiple of three, has only hex digits. Ids of OTLP/JSON are hex; a parser that reads them as
/// ProtoJSON bytes decodes each four digits to three bytes.
fn is_hex_as_base64(bytes: &[u8]) -> bool {
    // The values of base64 digits (RFC 4648, 4): `A` to `F`, `a` to `f`, `0` to `9`.
    let is_hex = |six_bits: u32| matches!(six_bits & 63, 0..=5 | 26..=31 | 52..=61);
    bytes.chunks_exact(3).all(|three| {
        let bits = three.iter().fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
        [18, 12, 6, 0].into_iter().all(|shift| is_hex(bits >> shift))
    })
}

/// Bytes that are not an id.
#[derive(Debug)]
pub(crate) struct LengthWrong;

/// An optional id.
#[inline(always)]
pub(crate) fn optional<const N: usize>(bytes: &[u8]) -> Result<Option<&[u8; N]>, LengthWrong> {
    match bytes.try_into() {
        Ok(id) => Ok(Some(id)),
        Err(_) if bytes.is_empty() => Ok(None),
        Err(_) => Err(LengthWrong),
    }
}

/// What is wrong with this message's ids: the first wrong one, by `ids`. The position is that of the id, or of the message if the id is
/// missing. The message was completely read before.
#[cold]
#[inline(never)]
pub(crate) fn wrong<const N: usize>(mut holder: Reader<'_>, ids: &[Id; N]) -> Malformed {
    let (of, start) = (holder.of(), holder.position());
    // Of a repeated id the last counts.
    let mut found = [(start, &[][..]); N];
    while !holder.is_empty() {
        let Ok(key) = holder.key() else { break };
        let from = holder;
        if holder.pass(key).is_err() {
            break;
        }
        if let Some((_, place)) = ids.iter().zip(&mut found).find(|(id, _)| id.key == key) {
            let mut value = from;
            let bytes = value.bytes(key).unwrap_or_default();
            let position =
                if bytes.is_empty() { start } else { holder.position().saturating_sub(bytes.len()) };
            *place = (position, bytes);
        }
    }
    let wrong =
        ids.iter().zip(found).find_map(|(id, (position, bytes))| Some((id, position, id.reason(bytes)?)));
    let (id, position, reason) = wrong.expect("the caller has found an id that is wrong");
    Malformed::new(position, reason, of, field_number(id.key))
}
