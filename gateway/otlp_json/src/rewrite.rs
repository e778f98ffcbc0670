//! The rewriter: converts a JSON text to the same message in protobuf.

use serde::de::DeserializeSeed as _;
use serde_json::Deserializer;
use serde_json::error::Category;

use crate::malformed::{Malformed, Reason};
use crate::number::is_out_of_range;
use crate::value::{Output, Root, SpanIds};
use crate::wire::{MESSAGE_BYTES_MAX, Wire};

/// Maximum resident bytes per byte of a message while it is rewritten. The protobuf message takes one: it is never longer than the text.
/// The other is for the longest string with escapes: its memory doubles when it grows, so that the old and the new piece take twice its
/// bytes, but these are not in the protobuf message yet.
pub const SCRATCH_BYTES_PER_MESSAGE_BYTE: u64 = 2;

/// A byte order mark, which some editors and systems put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Rewrites messages one after the other into one buffer.
#[derive(Debug)]
pub struct JsonRewriter {
    wire: Wire,
    message_bytes_max: usize,
}

impl JsonRewriter {
    /// A rewriter for messages of up to this many bytes, at most [`MESSAGE_BYTES_MAX`]. It takes no memory before the first message.
    pub fn new(message_bytes_max: usize) -> Self {
        Self { wire: Wire::default(), message_bytes_max: message_bytes_max.min(MESSAGE_BYTES_MAX) }
    }

    /// The protobuf form of an OTLP/JSON message, valid until the next one. The walk can read it: it is never malformed.
    pub fn rewrite(&mut self, message: &[u8]) -> Result<&[u8], Malformed> {
        if message.len() > self.message_bytes_max {
            return Err(Malformed::new(0, Reason::TooLong));
        }
        self.wire.begin(message.len());
        if message.is_empty() {
            return Ok(&[]);
        }
        let text = message.strip_prefix(BYTE_ORDER_MARK).unwrap_or(message);
        let skipped = message.len() - text.len();
        // The whole message at once, because that is cheaper than string by string, and skipped parts count too.
        let text = std::str::from_utf8(text)
            .map_err(|error| Malformed::new(skipped + error.valid_up_to(), Reason::NotUtf8))?;
        if let Some(at) = control_character(text.as_bytes()) {
            return Err(Malformed::new(skipped + at, Reason::ControlCharacter));
        }
        let capacity = self.wire.capacity();
        let read = self.read(text);
        debug_assert_eq!(self.wire.capacity(), capacity, "the wire outgrew its room");
        read.map_err(|(position, reason)| Malformed::new(skipped + position, reason))?;
        debug_assert!(self.wire.as_bytes().len() <= message.len(), "the wire is longer than the text");
        Ok(self.wire.as_bytes())
    }

    /// Reads the text, or returns the position and reason of an error.
    fn read(&mut self, text: &str) -> Result<(), (usize, Reason)> {
        let mut output =
            Output { wire: &mut self.wire, failure: None, span_ids: SpanIds::default(), has_start: false };
        let mut json = Deserializer::from_str(text);
        // This package's own limit counts messages, like that of the wire format.
        json.disable_recursion_limit();
        let read = Root(&mut output).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|error| {
            let position = position(text, error.line(), error.column());
            let reason = output.failure.unwrap_or_else(|| match error.classify() {
                Category::Data => Reason::TypeWrong,
                Category::Eof => Reason::Truncated,
                // `serde_json` calls a number that no double holds an error of syntax.
                Category::Syntax if is_out_of_range(number_at(text, position)) => Reason::NumberOutOfRange,
                Category::Syntax | Category::Io => Reason::NotJson,
            });
            (position, reason)
        })
    }
}

/// The characters of a number before and behind this position; empty if there are none.
fn number_at(text: &str, position: usize) -> &str {
    let is_of_number = |letter: char| matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    // An error may be within a character: then there is no number.
    let Some((before, behind)) = text.split_at_checked(position) else { return "" };
    let begin = before.trim_end_matches(is_of_number).len();
    let end = text.len() - behind.trim_start_matches(is_of_number).len();
    text.get(begin..end).unwrap_or_default()
}

/// The position of an unescaped control character in a string, which RFC 8259 (7) forbids. `serde_json` does not check strings that it
/// returns as bytes: a name with a line feed would pass as an unknown name.
fn control_character(text: &[u8]) -> Option<usize> {
    // Nearly all messages have no blanks: one check of all bytes, which the compiler turns into vector instructions.
    if text.iter().copied().fold(u8::MAX, u8::min) >= b' ' {
        return None;
    }
    let (mut in_string, mut is_escaped) = (false, false);
    text.iter().position(|byte| {
        let is_wrong = in_string && *byte < b' ';
        match byte {
            _ if is_escaped => is_escaped = false,
            b'"' => in_string = !in_string,
            b'\\' => is_escaped = in_string,
            _ => {}
        }
        is_wrong
    })
}

/// The byte position of a line, counted from 1, and a column, counted in bytes, as `serde_json` reports them.
fn position(text: &str, line: usize, column: usize) -> usize {
    let lines_before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let line_start: usize = lines_before.map(str::len).sum();
    line_start.saturating_add(column).min(text.len())
}

/// Reads a whole message, including every attribute, and returns the number of its spans. For tools, tests and fuzzing: it panics if the
/// protobuf message is not what this package guarantees.
pub fn validate(message: &[u8]) -> Result<u64, Malformed> {
    let mut rewriter = JsonRewriter::new(MESSAGE_BYTES_MAX);
    let wire = rewriter.rewrite(message)?;
    assert!(wire.len() <= message.len(), "{} bytes became {} on the wire", message.len(), wire.len());
    Ok(sluice_otlp::validate(wire).expect("what was rewritten can be walked over"))
}
