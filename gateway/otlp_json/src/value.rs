//! Values: from the calls of `serde_json` to bytes on the wire.
//!
//! One visitor serves all fields. The JSON type and the kind of the field together decide what is written; every other pair is an error
//! of type. So no error quotes the value, which may be as long as the message.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sluice_otlp::OtlpMessage;
use std::fmt;

use crate::fields::{DOUBLE_VALUE, Field, Kind, START_TIME, TRACE_ID, field};
use crate::malformed::Reason;
use crate::number::{Number, is_out_of_range};
use crate::text::{base64_bytes, read_base64, read_hex, replace_surrogates};
use crate::wire::{Open, Wire};

/// The output for all values.
pub(crate) struct Output<'w> {
    pub(crate) wire: &'w mut Wire,
    /// Why reading stopped, if this package stopped it.
    pub(crate) failure: Option<Reason>,
    /// The required ids that the current span has; spans are never nested.
    pub(crate) span_ids: SpanIds,
    /// Whether the current span has a start.
    pub(crate) has_start: bool,
}

/// The required ids of a span.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpanIds {
    trace: bool,
    own: bool,
}

/// The set of names of an object.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    known: bool,
    unknown: bool,
}

impl Output<'_> {
    #[cold]
    fn fail<E: Error>(&mut self, reason: Reason) -> E {
        self.failure = Some(reason);
        E::custom(reason)
    }

    /// A message in a field, or in an element of one.
    fn message<'de, A: MapAccess<'de>>(
        &mut self,
        key: u8,
        of: OtlpMessage,
        object: A,
    ) -> Result<(), A::Error> {
        let open = self.open(key, of)?;
        if of == OtlpMessage::Span {
            self.span_ids = SpanIds::default();
            self.has_start = false;
        }
        self.fields(of, object)?;
        if of == OtlpMessage::Span && !(self.span_ids.trace && self.span_ids.own) {
            return Err(self.fail(Reason::IdMissing));
        }
        // The walk would call it a metric, and what is written here is never malformed.
        if of == OtlpMessage::Span && !self.has_start && sluice_otlp::is_gauge(self.wire.since(&open)) {
            return Err(self.fail(Reason::Metric));
        }
        self.wire.close(open);
        Ok(())
    }

    fn empty_message<E: Error>(&mut self, key: u8, of: OtlpMessage) -> Result<(), E> {
        if of == OtlpMessage::Span {
            return Err(self.fail(Reason::IdMissing));
        }
        let open = self.open(key, of)?;
        self.wire.close(open);
        Ok(())
    }

    fn open<E: Error>(&mut self, key: u8, of: OtlpMessage) -> Result<Open, E> {
        self.wire.open(key, of).ok_or_else(|| self.fail(Reason::NestedTooDeep))
    }

    /// Reads the members of an object. Not split: it is called for every message, and inlining saves a call per member.
    fn fields<'de, A: MapAccess<'de>>(&mut self, of: OtlpMessage, mut object: A) -> Result<Names, A::Error> {
        let mut names = Names::default();
        while let Some(found) = object.next_key_seed(Name(of))? {
            if let Some(field) = found {
                names.known = true;
                object.next_value_seed(Value { output: self, field })?;
            } else {
                names.unknown = true;
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(names)
    }

    /// Reads the members of the outermost object. Unknown names may occur beside `resourceSpans`; without it they belong to another
    /// message, which would silently be skipped.
    fn root<'de, A: MapAccess<'de>>(&mut self, object: A) -> Result<(), A::Error> {
        match self.fields(OtlpMessage::TracesData, object)? {
            Names { known: false, unknown: true } => Err(self.fail(Reason::NotTraces)),
            _ => Ok(()),
        }
    }

    /// A required id of a span.
    fn required_id(&mut self, key: u8, text: &[u8], bytes: usize) -> bool {
        match key {
            TRACE_ID => self.span_ids.trace = true,
            _ => self.span_ids.own = true,
        }
        self.wire.filled(key, bytes, |room| read_hex(text, room))
    }

    fn number<E: Error>(&mut self, Field { key, kind }: Field, number: Number) -> Result<(), E> {
        let fits = match kind {
            Kind::Fixed64 => number.time().map(|number| {
                self.has_start |= key == START_TIME;
                self.wire.fixed64(key, number);
            }),
            Kind::Int64 => {
                match number.signed() {
                    Some(number) => self.wire.varint(key, number.cast_unsigned()),
                    // JavaScript has only doubles, and its SDKs call whole ones integers, however large.
                    None => self.wire.fixed64(DOUBLE_VALUE, number.double().to_bits()),
                }
                Some(())
            }
            Kind::Double => {
                self.wire.fixed64(key, number.double().to_bits());
                Some(())
            }
            Kind::Count | Kind::Flags => {
                let number = number.signed().and_then(|number| u32::try_from(number).ok());
                match (number, kind) {
                    (Some(number), Kind::Flags) => self.wire.fixed32(key, number),
                    (Some(number), _) => self.wire.varint(key, number.into()),
                    (None, _) => {}
                }
                Some(())
            }
            Kind::Enumeration(_) => {
                // A negative value in its full width would take ten bytes; the walk reads the low 32 bits. What is no value of 32 bits is one
                // that OTLP does not know.
                if let Some(number) = number.signed().and_then(|number| i32::try_from(number).ok()) {
                    self.wire.varint(key, number.cast_unsigned().into());
                }
                Some(())
            }
            _ => return Err(self.fail(Reason::TypeWrong)),
        };
        fits.ok_or_else(|| self.fail(Reason::NumberDoesNotFit))
    }

    /// A string of a field that is not of type bytes.
    fn word<E: Error>(&mut self, field: Field, word: &str) -> Result<(), E> {
        let number = match (field.kind, word) {
            (Kind::Enumeration(names), _) => {
                // A name that OTLP does not know is the value 0, as a number that it does not know.
                match names.iter().zip(0..).find(|(name, _)| **name == word) {
                    Some((_, number)) => Number::Unsigned(number),
                    None => return Ok(()),
                }
            }
            (Kind::Double, "NaN") => Number::Float(f64::NAN),
            (Kind::Double, "Infinity") => Number::Float(f64::INFINITY),
            (Kind::Double, "-Infinity") => Number::Float(f64::NEG_INFINITY),
            (Kind::Double | Kind::Fixed64 | Kind::Int64, _) => {
                Number::quoted(word).ok_or_else(|| self.fail(no_number(word)))?
            }
            (Kind::Count | Kind::Flags, _) => match Number::quoted(word) {
                Some(number) => number,
                None => return Ok(()),
            },
            _ => return Err(self.fail(Reason::TypeWrong)),
        };
        self.number(field, number)
    }

    /// A string of a bytes field, without escapes.
    fn string<E: Error>(&mut self, Field { key, kind }: Field, text: &[u8], escaped: bool) -> Result<(), E> {
        let (read, otherwise) = match kind {
            Kind::Text if escaped => {
                let replace = |room: &mut [u8]| {
                    room.copy_from_slice(text);
                    replace_surrogates(room);
                    true
                };
                (self.wire.filled(key, text.len(), replace), Reason::TypeWrong)
            }
            Kind::Text => {
                self.wire.bytes(key, text);
                (true, Reason::TypeWrong)
            }
            Kind::Id(bytes, id) => {
                let otherwise = id_wrong(id, bytes);
                let bytes = if text.is_empty() { 0 } else { bytes.into() };
                (self.wire.filled(key, bytes, |room| read_hex(text, room)), otherwise)
            }
            Kind::RequiredId(bytes, id) => (self.required_id(key, text, bytes.into()), id_wrong(id, bytes)),
            Kind::Bytes => {
                let bytes = base64_bytes(text);
                (self.wire.filled(key, bytes, |room| read_base64(text, room)), Reason::NotBase64)
            }
            _ => (false, Reason::TypeWrong),
        };
        if read { Ok(()) } else { Err(self.fail(otherwise)) }
    }
}

/// What is wrong with an id that should have this many bytes.
const fn id_wrong(id: &'static str, bytes: u8) -> Reason {
    Reason::IdWrong { id, digits: bytes.saturating_mul(2) }
}

/// What is wrong with a string in place of a number.
#[cold]
fn no_number(word: &str) -> Reason {
    if is_out_of_range(word) { Reason::NumberOutOfRange } else { Reason::NotANumber }
}

/// The outermost message.
pub(crate) struct Root<'o, 'w>(pub(crate) &'o mut Output<'w>);

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Root<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.root(object)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.0.fail(Reason::TypeWrong))
    }
}

/// The name of a field of this message.
struct Name(OtlpMessage);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<Field>, D::Error> {
        // As bytes, so that a lone surrogate in an unknown name is not an error.
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Option<Field>, E> {
        Ok(field(self.0, name))
    }
}

/// The value of a field.
struct Value<'o, 'w> {
    output: &'o mut Output<'w>,
    field: Field,
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.field.kind {
            Kind::Text | Kind::Id(..) | Kind::RequiredId(..) | Kind::Bytes => json.deserialize_option(self),
            _ => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of the field's type")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        // As bytes, because a lone surrogate is an error in text.
        json.deserialize_bytes(self)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Bool => self.output.wire.varint(self.field.key, flag.into()),
            Kind::Count | Kind::Flags => {}
            _ => return Err(self.output.fail(Reason::TypeWrong)),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.output.number(self.field, Number::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.output.number(self.field, Number::Negative(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.output.number(self.field, Number::Float(number))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<(), E> {
        self.output.word(self.field, word)
    }

    fn visit_borrowed_bytes<E: Error>(self, text: &'de [u8]) -> Result<(), E> {
        self.output.string(self.field, text, false)
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<(), E> {
        self.output.string(self.field, text, true)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        match self.field.kind {
            Kind::One(of) => self.output.message(self.field.key, of, object),
            Kind::Count | Kind::Flags => {
                while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(())
            }
            _ => Err(self.output.fail(Reason::TypeWrong)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let key = self.field.key;
        match self.field.kind {
            Kind::List(of) => {
                while list.next_element_seed(Element { output: self.output, key, of })?.is_some() {}
            }
            Kind::Count | Kind::Flags => while list.next_element::<IgnoredAny>()?.is_some() {},
            Kind::Superseded if list.next_element::<IgnoredAny>()?.is_none() => {}
            Kind::Superseded => return Err(self.output.fail(Reason::Superseded)),
            _ => return Err(self.output.fail(Reason::TypeWrong)),
        }
        Ok(())
    }
}

/// An element of a list of messages.
struct Element<'o, 'w> {
    output: &'o mut Output<'w>,
    key: u8,
    of: OtlpMessage,
}

impl<'de> DeserializeSeed<'de> for Element<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.output.empty_message(self.key, self.of)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.output.message(self.key, self.of, object)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.output.fail(Reason::TypeWrong))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.output.fail(Reason::TypeWrong))
    }
}
