//! A message's spans as text, for people.
//!
//! Prints everything that can be read, then where and why reading failed.

use crate::rows::value_text;
use sluice_otlp::{Attributes, Malformed, Resource, Scope, Span, SpanSink, walk};
use std::fmt::Write as _;

/// Maximum number of printed spans. Chosen: some screens; a message has about a thousand.
const SPANS_MAX: u64 = 50;

/// The spans of a message, and what is wrong with it.
pub(super) fn of_message(message: &[u8]) -> String {
    let mut told = Told::default();
    let walked = walk(message, &mut told);
    if told.spans > SPANS_MAX {
        told.line(1, &format!("… {} spans more", told.spans - SPANS_MAX));
    }
    if let Err(malformed) = walked {
        let position = malformed.position();
        told.line(1, &format!("it cannot be read from byte {position} on: {malformed}"));
    }
    told.text
}

/// The longest printed value. Chosen: longer values are not read on a screen.
const VALUE_BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
struct Told {
    text: String,
    spans: u64,
}

impl Told {
    fn line(&mut self, depth: usize, text: &str) {
        writeln!(self.text, "{:1$}{text}", "", 2 * depth).expect("writing to a String cannot fail");
    }

    fn attributes(&mut self, depth: usize, attributes: &Attributes<'_>) -> Result<(), Malformed> {
        for attribute in attributes {
            let attribute = attribute?;
            let mut value = Vec::new();
            let told = value_text::put(&mut value, attribute.value, VALUE_BYTES_MAX);
            let value = match told {
                Ok(()) => text(&value),
                Err(crate::rows::attributes::Error::Malformed(malformed)) => return Err(malformed),
                Err(_) => "…".to_owned(),
            };
            self.line(depth, &format!("{} = {value}", text(attribute.key)));
        }
        Ok(())
    }
}

impl SpanSink for Told {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        if self.spans < SPANS_MAX {
            self.line(1, "resource");
            self.attributes(2, &resource.attributes)?;
        }
        Ok(())
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        if self.spans < SPANS_MAX {
            self.line(1, &format!("scope {} {}", text(scope.name), text(scope.version)));
            self.attributes(2, &scope.attributes)?;
        }
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        self.spans += 1;
        if self.spans > SPANS_MAX {
            return Ok(());
        }
        self.line(1, &format!("span {}", text(span.name)));
        self.line(
            2,
            &format!(
                "trace {} span {} parent {}",
                hex(Some(span.trace_id)),
                hex(Some(span.span_id)),
                hex(span.parent_span_id)
            ),
        );
        let nanos = span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano);
        self.line(
            2,
            &format!("start {} ns, duration {nanos} ns, kind {}", span.start_time_unix_nano, span.kind),
        );
        self.line(2, &format!("status {} {}", span.status_code, text(span.status_message)));
        self.attributes(2, &span.attributes)?;
        for event in &span.events {
            let event = event?;
            self.line(2, &format!("event {} at {} ns", text(event.name), event.time_unix_nano));
            self.attributes(3, &event.attributes)?;
        }
        for link in &span.links {
            let link = link?;
            self.line(2, &format!("link to trace {} span {}", hex(link.trace_id), hex(link.span_id)));
            self.attributes(3, &link.attributes)?;
        }
        Ok(())
    }
}

fn hex<const N: usize>(id: Option<&[u8; N]>) -> String {
    let Some(id) = id else { return "-".to_owned() };
    let mut digits = String::new();
    for byte in id {
        write!(digits, "{byte:02x}").expect("writing to a String cannot fail");
    }
    digits
}

/// One line of text, whatever the bytes are.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::{
        common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
        trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData},
    };
    use prost::Message as _;

    fn message(spans: usize) -> Vec<u8> {
        let value = AnyValue { value: Some(Value::StringValue("GET\n".into())) };
        let attribute = KeyValue { key: "http.method".into(), value: Some(value), ..KeyValue::default() };
        let span = Span {
            name: "name".into(),
            trace_id: vec![0xab; 16],
            span_id: vec![0xcd; 8],
            attributes: vec![attribute],
            ..Span::default()
        };
        let scope = Some(InstrumentationScope { name: "lib".into(), ..InstrumentationScope::default() });
        let scope_spans = vec![ScopeSpans { scope, spans: vec![span; spans], ..ScopeSpans::default() }];
        TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
            .encode_to_vec()
    }

    #[test]
    fn spans_are_told_with_their_attributes() {
        let text = of_message(&message(1));
        assert!(text.contains("  scope lib \n  span name\n"), "{text}");
        assert!(
            text.contains(&format!("trace {} span {} parent -", "ab".repeat(16), "cd".repeat(8))),
            "{text}"
        );
        assert!(text.contains("    http.method = GET \n"), "{text}");
    }

    #[test]
    fn a_long_message_is_cut_and_a_broken_one_says_where() {
        assert!(of_message(&message(60)).ends_with("… 10 spans more\n"));
        let mut broken = message(1);
        broken.extend_from_slice(b"\x0a\x7f");
        let text = of_message(&broken);
        assert!(text.contains("span name") && text.contains("cannot be read from byte"), "{text}");
    }
}
