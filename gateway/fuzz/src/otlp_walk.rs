//! A message is walked, or is malformed, and never read again and again.

use sluice_otlp::{
    Attributes, Malformed, Resource, Scope, Span, SpanSink, Value, keys_read, validate, walk, walk_in_order,
};

/// Keys read per byte at the most, by a sink that reads everything once: the figure of `sluice_otlp`'s own test.
const KEYS_READ_PER_BYTE_MAX: u64 = 4;

/// Walks over any bytes.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let length = bytes.len() as u64;
    keys_read::take();
    let mut everything = Everything::default();
    let walked = walk(bytes, &mut everything);
    let read = keys_read::take();
    assert!(read <= length * KEYS_READ_PER_BYTE_MAX, "{read} keys were read in {length} bytes");
    let Everything { spans, values } = everything;
    // A value, or a span, takes its key and its length.
    assert!(spans + values <= length / 2, "{spans} spans and {values} values in {length} bytes");
    match walked {
        Ok(counted) => assert_eq!(counted, spans),
        Err(malformed) => {
            assert!(malformed.position() <= bytes.len(), "{malformed:?} in {length} bytes");
            assert!(!malformed.to_string().is_empty());
        }
    }
    assert_eq!(validate(bytes), walked, "two walks over the same bytes");
    keys_read::take();
    if let Ok(Some(spans)) = walk_in_order(bytes, &mut Everything::default()) {
        assert_eq!(walked, Ok(spans), "in one pass and in any order");
    }
    let read = keys_read::take();
    assert!(read <= length * KEYS_READ_PER_BYTE_MAX, "{read} keys were read in {length} bytes in one pass");
}

/// Reads everything once, to the bottom, and counts it.
#[derive(Default)]
struct Everything {
    spans: u64,
    values: u64,
}

impl Everything {
    fn attributes(&mut self, attributes: &Attributes<'_>) -> Result<(), Malformed> {
        attributes.iter().try_for_each(|attribute| self.value(attribute?.value))
    }

    fn value(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        self.values += 1;
        match value {
            Value::Array(array) => array.iter().try_for_each(|element| self.value(element?)),
            Value::KeyValues(list) => self.attributes(&list),
            _ => Ok(()),
        }
    }
}

impl SpanSink for Everything {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        self.attributes(&resource.attributes)
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        self.attributes(&scope.attributes)
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        self.spans += 1;
        self.attributes(&span.attributes)?;
        for event in &span.events {
            self.attributes(&event?.attributes)?;
        }
        for link in &span.links {
            self.attributes(&link?.attributes)?;
        }
        Ok(())
    }
}
