//! Messages as OTLP/JSON, by a writer that shares no code with the reader: plainly, or in any equivalent form.

use std::fmt::Write as _;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};

use crate::rng::Rng;

/// How values are written; without choices, as the specification says.
pub struct Style(Option<Rng>);

impl Style {
    pub fn plain() -> Self {
        Self(None)
    }

    pub fn of(rng: Rng) -> Self {
        Self(Some(rng))
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.0.as_mut().is_some_and(|rng| rng.one_in(count))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.as_mut().map_or(0, |rng| rng.below(bound))
    }
}

pub fn written(message: &TracesData, style: &mut Style) -> String {
    let mut root = Object::new(style);
    let resources = message.resource_spans.iter().map(|resource_spans| {
        let mut object = Object::new(root.style);
        if let Some(resource) = &resource_spans.resource {
            let mut resource_object = Object::new(object.style);
            resource_object.attributes(&resource.attributes);
            resource_object.field("droppedAttributesCount", &resource.dropped_attributes_count.to_string());
            let text = resource_object.end();
            object.field("resource", &text);
        }
        let mut scopes = Vec::new();
        for scope_spans in &resource_spans.scope_spans {
            let mut scope_object = Object::new(object.style);
            if let Some(scope) = &scope_spans.scope {
                let mut inner = Object::new(scope_object.style);
                inner.text("name", &scope.name);
                inner.text("version", &scope.version);
                inner.attributes(&scope.attributes);
                inner.field("droppedAttributesCount", &scope.dropped_attributes_count.to_string());
                let text = inner.end();
                scope_object.field("scope", &text);
            }
            let spans: Vec<_> = scope_spans.spans.iter().map(|it| span(it, scope_object.style)).collect();
            scope_object.list("spans", &spans);
            scope_object.text("schemaUrl", &scope_spans.schema_url);
            scopes.push(scope_object.end());
        }
        object.list("scopeSpans", &scopes);
        object.text("schemaUrl", &resource_spans.schema_url);
        object.end()
    });
    let resources: Vec<_> = resources.collect();
    root.list("resourceSpans", &resources);
    root.end()
}

fn span(span: &Span, style: &mut Style) -> String {
    let mut object = Object::new(style);
    object.id("traceId", &span.trace_id);
    object.id("spanId", &span.span_id);
    object.id("parentSpanId", &span.parent_span_id);
    object.text("traceState", &span.trace_state);
    object.field("flags", &span.flags.to_string());
    object.text("name", &span.name);
    object.enumeration(
        "kind",
        span.kind,
        &["SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER"],
    );
    object.unsigned("startTimeUnixNano", span.start_time_unix_nano);
    object.unsigned("endTimeUnixNano", span.end_time_unix_nano);
    object.attributes(&span.attributes);
    object.field("droppedAttributesCount", &span.dropped_attributes_count.to_string());
    object.field("droppedEventsCount", &format!("\"{}\"", span.dropped_events_count));
    object.field("droppedLinksCount", &span.dropped_links_count.to_string());
    let events: Vec<_> = span.events.iter().map(|it| event(it, object.style)).collect();
    object.list("events", &events);
    let links: Vec<_> = span.links.iter().map(|it| link(it, object.style)).collect();
    object.list("links", &links);
    if let Some(status) = &span.status {
        let mut inner = Object::new(object.style);
        inner.text("message", &status.message);
        inner.enumeration("code", status.code, &["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"]);
        let text = inner.end();
        object.field("status", &text);
    }
    object.end()
}

fn event(event: &Event, style: &mut Style) -> String {
    let mut object = Object::new(style);
    object.unsigned("timeUnixNano", event.time_unix_nano);
    object.text("name", &event.name);
    object.attributes(&event.attributes);
    object.end()
}

fn link(link: &Link, style: &mut Style) -> String {
    let mut object = Object::new(style);
    object.id("traceId", &link.trace_id);
    object.id("spanId", &link.span_id);
    object.text("traceState", &link.trace_state);
    object.attributes(&link.attributes);
    object.end()
}

fn attribute(attribute: &KeyValue, style: &mut Style) -> String {
    let mut object = Object::new(style);
    object.text("key", &attribute.key);
    if let Some(value) = &attribute.value {
        let text = any_value(value, object.style);
        object.field("value", &text);
    }
    object.end()
}

fn any_value(value: &AnyValue, style: &mut Style) -> String {
    let mut object = Object::new(style);
    match &value.value {
        None | Some(Value::StringValueStrindex(_)) => {}
        Some(Value::StringValue(text)) => object.text("stringValue", text),
        Some(Value::BoolValue(flag)) => object.field("boolValue", &flag.to_string()),
        Some(Value::IntValue(number)) => {
            let text = object.integer(&number.to_string());
            object.field("intValue", &text);
        }
        Some(Value::DoubleValue(number)) => object.field("doubleValue", &double(*number)),
        Some(Value::BytesValue(bytes)) => {
            let text = base64(bytes, object.style);
            object.field("bytesValue", &text);
        }
        Some(Value::ArrayValue(array)) => {
            let values: Vec<_> = array.values.iter().map(|it| any_value(it, object.style)).collect();
            let mut inner = Object::new(object.style);
            inner.list("values", &values);
            let text = inner.end();
            object.field("arrayValue", &text);
        }
        Some(Value::KvlistValue(list)) => {
            let values: Vec<_> = list.values.iter().map(|it| attribute(it, object.style)).collect();
            let mut inner = Object::new(object.style);
            inner.list("values", &values);
            let text = inner.end();
            object.field("kvlistValue", &text);
        }
    }
    object.end()
}

fn double(number: f64) -> String {
    match number {
        _ if number.is_nan() => "\"NaN\"".to_owned(),
        f64::INFINITY => "\"Infinity\"".to_owned(),
        f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
        // Debug writes the shortest text that reads back as the same number.
        _ => format!("{number:?}"),
    }
}

fn base64(bytes: &[u8], style: &mut Style) -> String {
    let url = style.one_in(2);
    let alphabet = |index: u8| match index {
        0..26 => (b'A' + index) as char,
        26..52 => (b'a' + index - 26) as char,
        52..62 => (b'0' + index - 52) as char,
        62 => {
            if url {
                '-'
            } else {
                '+'
            }
        }
        _ => {
            if url {
                '_'
            } else {
                '/'
            }
        }
    };
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=three.len() {
            text.push(alphabet(u8::try_from(bits >> (18 - 6 * digit) & 63).unwrap()));
        }
    }
    if !style.one_in(2) {
        text.extend(std::iter::repeat_n('=', (3 - bytes.len() % 3) % 3));
    }
    format!("\"{text}\"")
}

/// An object being written: fields by their names in lowerCamelCase and their values as JSON.
struct Object<'s> {
    style: &'s mut Style,
    fields: Vec<String>,
}

impl<'s> Object<'s> {
    fn new(style: &'s mut Style) -> Self {
        Self { style, fields: Vec::new() }
    }

    fn field(&mut self, name: &str, value: &str) {
        let name = if self.style.one_in(4) { snake(name) } else { name.to_owned() };
        if self.style.one_in(16) {
            self.fields.push(format!("{}:null", quoted(&name, self.style)));
        }
        let blanks = ["", " ", "\n", "\t\r\n "][self.style.below(4)];
        self.fields.push(format!("{}{blanks}:{blanks}{value}", quoted(&name, self.style)));
    }

    fn text(&mut self, name: &str, text: &str) {
        if text.is_empty() && self.style.one_in(2) && name != "stringValue" {
            return;
        }
        let text = quoted(text, self.style);
        self.field(name, &text);
    }

    fn id(&mut self, name: &str, id: &[u8]) {
        let upper = self.style.one_in(2);
        let hex: String =
            id.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect();
        let text = quoted(&hex, self.style);
        self.field(name, &text);
    }

    fn unsigned(&mut self, name: &str, number: u64) {
        let text = self.integer(&number.to_string());
        self.field(name, &text);
    }

    /// The specification asks for a string; a number means the same.
    fn integer(&mut self, digits: &str) -> String {
        match self.style.below(4) {
            0 | 1 => format!("\"{digits}\""),
            2 if digits.len() < 15 => format!("{digits}.0e0"),
            _ => digits.to_owned(),
        }
    }

    fn enumeration(&mut self, name: &str, number: i32, names: &[&str]) {
        let word = usize::try_from(number).ok().and_then(|number| names.get(number));
        match word {
            Some(word) if self.style.one_in(2) => self.field(name, &format!("\"{word}\"")),
            _ => self.field(name, &number.to_string()),
        }
    }

    fn list(&mut self, name: &str, elements: &[String]) {
        // The two parts of a list that is written twice are joined.
        let (one, other) = elements.split_at(self.style.below(elements.len() + 1));
        if self.style.one_in(4) {
            self.field(name, &format!("[{}]", one.join(",")));
            self.field(name, &format!("[{}]", other.join(" ,")));
        } else {
            self.field(name, &format!("[{}]", elements.join(",")));
        }
    }

    fn attributes(&mut self, attributes: &[KeyValue]) {
        let texts: Vec<_> = attributes.iter().map(|it| attribute(it, self.style)).collect();
        self.list("attributes", &texts);
    }

    fn end(mut self) -> String {
        if self.style.one_in(4) {
            let unknown = ["0", "\"\\ud800\"", "{\"name\":[1,{\"spans\":null}]}", "[]", "-1.5e7", "true"];
            let unknown = unknown[self.style.below(unknown.len())];
            let at = self.style.below(self.fields.len() + 1);
            self.fields.insert(at, format!("\"unknown\":{unknown}"));
        }
        format!("{{{}}}", self.fields.join(","))
    }
}

fn snake(camel: &str) -> String {
    camel.chars().fold(String::new(), |snake, letter| {
        if letter.is_uppercase() {
            snake + "_" + &letter.to_lowercase().to_string()
        } else {
            snake + &letter.to_string()
        }
    })
}

/// A string in quotes, sometimes with unnecessary escapes.
fn quoted(text: &str, style: &mut Style) -> String {
    let mut out = String::from("\"");
    let escapes = style.one_in(4);
    for character in text.chars() {
        if escapes && style.one_in(3) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else if character == '"' || character == '\\' || character < ' ' {
            write!(out, "\\u{:04x}", u32::from(character)).unwrap();
        } else {
            out.push(character);
        }
    }
    out + "\""
}

/// The message with one kind of NaN: JSON does not distinguish others.
pub fn with_one_nan(mut message: TracesData) -> TracesData {
    fn value(any: &mut AnyValue) {
        match &mut any.value {
            Some(Value::DoubleValue(number)) if number.is_nan() => *number = f64::NAN,
            Some(Value::ArrayValue(array)) => array.values.iter_mut().for_each(value),
            Some(Value::KvlistValue(list)) => attributes(&mut list.values),
            _ => {}
        }
    }
    fn attributes(attributes: &mut [KeyValue]) {
        attributes.iter_mut().filter_map(|attribute| attribute.value.as_mut()).for_each(value);
    }
    for resource_spans in &mut message.resource_spans {
        resource_spans.resource.iter_mut().for_each(|it| attributes(&mut it.attributes));
        for scope_spans in &mut resource_spans.scope_spans {
            scope_spans.scope.iter_mut().for_each(|it| attributes(&mut it.attributes));
            for span in &mut scope_spans.spans {
                attributes(&mut span.attributes);
                span.events.iter_mut().for_each(|it| attributes(&mut it.attributes));
                span.links.iter_mut().for_each(|it| attributes(&mut it.attributes));
            }
        }
    }
    message
}
