//! Prints one line per letter.

use super::{Error, Found, Use, format_name, utc::utc};
use serde_json::{Value, json};
use sluice_kafka::{Message as _, dead_letter::Head};
use std::io::Write;

pub(super) struct List {
    pub json: bool,
}

impl Use for List {
    fn letter(&mut self, letter: &Found, out: &mut dyn Write) -> Result<(), Error> {
        let line = if self.json { object(letter).to_string() } else { line(letter) };
        writeln!(out, "{line}").map_err(Error::Write)
    }
}

fn line(letter: &Found) -> String {
    let Head { reason, text, code, value, value_bytes, .. } = &letter.head;
    let written = letter.message.timestamp().to_millis().map_or("-".to_owned(), utc);
    let code = code.map_or(String::new(), |code| format!(" code {code}"));
    let bytes = value_bytes.map_or(String::new(), |bytes| format!(" {bytes} B"));
    // Control characters in a server's text must not start a new line.
    let text = text.replace(|char: char| char.is_control(), " ");
    format!("{written}  {}  {reason}{code}  {value}{bytes}  {text}", letter.about())
}

/// Everything except the value, for programs.
pub(super) fn object(letter: &Found) -> Value {
    let Head {
        coordinates,
        reason,
        text,
        code,
        gateway_version,
        timestamp_millis,
        value,
        value_bytes,
        format,
    } = &letter.head;
    json!({
        "topic": coordinates.topic,
        "partition": coordinates.partition,
        "offset": coordinates.offset,
        "row": coordinates.row,
        "reason": reason,
        "text": text,
        "code": code,
        "gatewayVersion": gateway_version,
        "timestampMillis": timestamp_millis,
        "value": value,
        "valueBytes": value_bytes,
        "format": format_name(*format),
        "letter": {
            "topic": letter.message.topic(),
            "partition": letter.message.partition(),
            "offset": letter.message.offset(),
            "timestampMillis": letter.message.timestamp().to_millis(),
        },
    })
}
