//! One span of a message, as a message of its own.
//!
//! Job: keeps everything that is known of a span that cannot be stored: the span, its resource, its scope, both schema URLs, and every
//! unknown field. Place in the flow: the dead letter of a refused row. Pure; total on any bytes.
//!
//! ```text
//! { unknown  ResourceSpans { resource url unknown  ScopeSpans { scope url unknown  Span } } }      the wanted span
//! { unknown  ResourceSpans { resource url unknown  ScopeSpans { scope url unknown  Span Span ... } ScopeSpans ... } ResourceSpans ... }
//! ```
//!
//! Fields are copied unchanged, so a message in pieces (a resource in two fields) stays in pieces. The span comes after everything else
//! of its holder: [`crate::walk_in_order`] reads the result in one pass, whatever the message's order.
//!
//! Limits: the result is at most as long as the message plus three keys and lengths; the content of a span is not examined.

use crate::edit::between;
use crate::encode::put_field;
use crate::fields::{OtlpMessage, resource_spans, scope_spans, traces_data};
use crate::malformed::Malformed;
use crate::wire::Reader;

/// The message with only span number `span`, counted from 0 in the order of the walk; `None` if there are fewer spans.
///
/// # Errors
/// [`Malformed`] if the message cannot be read up to its last `ResourceSpans`.
pub fn extract(message: &[u8], span: u64) -> Result<Option<Vec<u8>>, Malformed> {
    let mut search = Search { spans_before: span };
    search.in_holder(Reader::new(message), Level::TracesData)
}

/// The three messages that hold spans.
#[derive(Clone, Copy)]
enum Level {
    TracesData,
    ResourceSpans,
    ScopeSpans,
}

impl Level {
    /// The field that leads to spans, and its type.
    const fn child(self) -> (u32, OtlpMessage, Option<Self>) {
        match self {
            Self::TracesData => {
                (traces_data::RESOURCE_SPANS, OtlpMessage::ResourceSpans, Some(Self::ResourceSpans))
            }
            Self::ResourceSpans => {
                (resource_spans::SCOPE_SPANS, OtlpMessage::ScopeSpans, Some(Self::ScopeSpans))
            }
            Self::ScopeSpans => (scope_spans::SPANS, OtlpMessage::Span, None),
        }
    }
}

struct Search {
    /// The number of spans before the wanted one, from here on.
    spans_before: u64,
}

impl Search {
    /// The holder with only the wanted span and everything that is not a span; `None` if the span is not in it.
    fn in_holder(&mut self, mut reader: Reader<'_>, level: Level) -> Result<Option<Vec<u8>>, Malformed> {
        let (child_key, child, below) = level.child();
        let (mut others, mut found) = (Vec::new(), None);
        while !reader.is_empty() {
            let field = reader;
            let key = reader.key()?;
            if key != child_key {
                reader.pass(key)?;
                others.extend_from_slice(between(&field, &reader));
                continue;
            }
            let inner = reader.message(key, child)?;
            if found.is_none() {
                found = match below {
                    Some(below) => self.in_holder(inner, below)?,
                    None => self.is_wanted().then(|| inner.rest().to_vec()),
                };
            }
        }
        Ok(found.map(|found| {
            put_field(&mut others, child_key, &found);
            others
        }))
    }

    /// Whether this span is the wanted one.
    fn is_wanted(&mut self) -> bool {
        let wanted = self.spans_before == 0;
        self.spans_before = self.spans_before.wrapping_sub(1);
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two resources, the first behind its spans, with unknown fields (number 100) on every level.
    #[rustfmt::skip]
    const MESSAGE: &[u8] = &[
        0xA0, 0x06, 0x01,                           // unknown, of the message
        0x0A, 21,                                   // ResourceSpans
            0x12, 8,                                //   ScopeSpans
                0x12, 2, 0x2A, 0,                   //     Span 0: an empty name
                0x12, 0,                            //     Span 1
                0x1A, 0,                            //     schema_url
            0xA0, 0x06, 0x02,                       //   unknown
            0x12, 2, 0x12, 0,                       //   ScopeSpans: Span 2
            0x0A, 2, 0x10, 0x05,                    //   Resource: dropped_attributes_count
        0x0A, 4, 0x12, 2, 0x12, 0,                  // ResourceSpans: ScopeSpans: Span 3
    ];

    #[test]
    fn a_span_keeps_what_stands_around_it() {
        #[rustfmt::skip]
        let first: &[u8] = &[
            0xA0, 0x06, 0x01,
            0x0A, 15,
                0xA0, 0x06, 0x02,
                0x0A, 2, 0x10, 0x05,
                0x12, 6,
                    0x1A, 0,
                    0x12, 2, 0x2A, 0,
        ];
        assert_eq!(extract(MESSAGE, 0).unwrap().unwrap(), first);
        let last = [0xA0, 0x06, 0x01, 0x0A, 4, 0x12, 2, 0x12, 0];
        assert_eq!(extract(MESSAGE, 3).unwrap().unwrap(), last);
        assert_eq!(extract(MESSAGE, 4), Ok(None));
        assert_eq!(extract(MESSAGE, u64::MAX), Ok(None));
        assert_eq!(extract(b"", 0), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        let (_, cut_short) = MESSAGE.split_last().unwrap();
        assert!(extract(cut_short, 0).is_err());
    }
}
