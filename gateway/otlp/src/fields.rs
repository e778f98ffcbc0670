//! The fields of the OTLP messages that a trace request is made of: numbers, wire types, names.
//!
//! Source: opentelemetry-proto 1.x, `trace/v1/trace.proto`, `common/v1/common.proto`, `resource/v1/resource.proto`
//! (<https://github.com/open-telemetry/opentelemetry-proto>). OTLP is stable: numbers are added, never changed.
//!
//! A field is named here by its *key*, the varint that stands before it on the wire:
//!
//! ```text
//! bit  31 ......... 3   2 1 0
//!      field number     wire type   0 varint, 1 eight bytes, 2 length then bytes, 5 four bytes
//! ```
//!
//! so that one comparison checks field and wire type. Only a key that matches none of its message is looked up in the tables, to
//! distinguish a wrong wire type (malformed) from an unknown field (skipped).

pub(crate) const VARINT: u32 = 0;
pub(crate) const EIGHT_BYTES: u32 = 1;
pub(crate) const LENGTH_DELIMITED: u32 = 2;
pub(crate) const GROUP_START: u32 = 3;
pub(crate) const GROUP_END: u32 = 4;
pub(crate) const FOUR_BYTES: u32 = 5;

/// Bits of a key that hold the wire type.
const WIRE_TYPE_BITS: u32 = 3;

const fn key(number: u32, wire_type: u32) -> u32 {
    number.wrapping_shl(WIRE_TYPE_BITS) | wire_type
}

/// The field number in a key; 0 is no field.
pub(crate) const fn field_number(key: u32) -> u32 {
    key.wrapping_shr(WIRE_TYPE_BITS)
}

/// The wire type in a key, 0 to 7; 6 and 7 are invalid.
pub(crate) const fn wire_type(key: u32) -> u32 {
    key & 0b111
}

/// Key and name of every field of one message.
type Fields = &'static [(u32, &'static str)];

/// `TracesData` and `ExportTraceServiceRequest`.
pub(crate) mod traces_data {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(crate) const RESOURCE_SPANS: u32 = key(1, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[(RESOURCE_SPANS, "resource_spans")];
}

pub(crate) mod resource_spans {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(crate) const RESOURCE: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const SCOPE_SPANS: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const SCHEMA_URL: u32 = key(3, LENGTH_DELIMITED);
    /// The field for spans before `scope_spans`. Current schemas reserve the number.
    pub(crate) const INSTRUMENTATION_LIBRARY_SPANS: u32 = key(1000, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[
        (RESOURCE, "resource"),
        (SCOPE_SPANS, "scope_spans"),
        (SCHEMA_URL, "schema_url"),
        (INSTRUMENTATION_LIBRARY_SPANS, "instrumentation_library_spans"),
    ];
}

pub(crate) mod resource {
    use super::{Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const ATTRIBUTES: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = key(2, VARINT);
    pub(crate) const ENTITY_REFS: u32 = key(3, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[
        (ATTRIBUTES, "attributes"),
        (DROPPED_ATTRIBUTES_COUNT, "dropped_attributes_count"),
        (ENTITY_REFS, "entity_refs"),
    ];
}

/// Not used; only its framing is checked.
mod entity_ref {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(super) const FIELDS: Fields = &[
        (key(1, LENGTH_DELIMITED), "schema_url"),
        (key(2, LENGTH_DELIMITED), "type"),
        (key(3, LENGTH_DELIMITED), "id_keys"),
        (key(4, LENGTH_DELIMITED), "description_keys"),
    ];
}

pub(crate) mod scope_spans {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(crate) const SCOPE: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const SPANS: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const SCHEMA_URL: u32 = key(3, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[(SCOPE, "scope"), (SPANS, "spans"), (SCHEMA_URL, "schema_url")];
}

/// `InstrumentationScope`.
pub(crate) mod scope {
    use super::{Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const NAME: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const VERSION: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const ATTRIBUTES: u32 = key(3, LENGTH_DELIMITED);
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = key(4, VARINT);
    pub(super) const FIELDS: Fields = &[
        (NAME, "name"),
        (VERSION, "version"),
        (ATTRIBUTES, "attributes"),
        (DROPPED_ATTRIBUTES_COUNT, "dropped_attributes_count"),
    ];
}

pub(crate) mod span {
    use super::{EIGHT_BYTES, FOUR_BYTES, Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const TRACE_ID: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const SPAN_ID: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const TRACE_STATE: u32 = key(3, LENGTH_DELIMITED);
    pub(crate) const PARENT_SPAN_ID: u32 = key(4, LENGTH_DELIMITED);
    pub(crate) const NAME: u32 = key(5, LENGTH_DELIMITED);
    pub(crate) const KIND: u32 = key(6, VARINT);
    pub(crate) const START_TIME_UNIX_NANO: u32 = key(7, EIGHT_BYTES);
    pub(crate) const END_TIME_UNIX_NANO: u32 = key(8, EIGHT_BYTES);
    pub(crate) const ATTRIBUTES: u32 = key(9, LENGTH_DELIMITED);
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = key(10, VARINT);
    pub(crate) const EVENTS: u32 = key(11, LENGTH_DELIMITED);
    pub(crate) const DROPPED_EVENTS_COUNT: u32 = key(12, VARINT);
    pub(crate) const LINKS: u32 = key(13, LENGTH_DELIMITED);
    pub(crate) const DROPPED_LINKS_COUNT: u32 = key(14, VARINT);
    pub(crate) const STATUS: u32 = key(15, LENGTH_DELIMITED);
    pub(crate) const FLAGS: u32 = key(16, FOUR_BYTES);
    pub(super) const FIELDS: Fields = &[
        (TRACE_ID, "trace_id"),
        (SPAN_ID, "span_id"),
        (TRACE_STATE, "trace_state"),
        (PARENT_SPAN_ID, "parent_span_id"),
        (NAME, "name"),
        (KIND, "kind"),
        (START_TIME_UNIX_NANO, "start_time_unix_nano"),
        (END_TIME_UNIX_NANO, "end_time_unix_nano"),
        (ATTRIBUTES, "attributes"),
        (DROPPED_ATTRIBUTES_COUNT, "dropped_attributes_count"),
        (EVENTS, "events"),
        (DROPPED_EVENTS_COUNT, "dropped_events_count"),
        (LINKS, "links"),
        (DROPPED_LINKS_COUNT, "dropped_links_count"),
        (STATUS, "status"),
        (FLAGS, "flags"),
    ];
}

/// `Span.Event`.
pub(crate) mod event {
    use super::{EIGHT_BYTES, Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const TIME_UNIX_NANO: u32 = key(1, EIGHT_BYTES);
    pub(crate) const NAME: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const ATTRIBUTES: u32 = key(3, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[
        (TIME_UNIX_NANO, "time_unix_nano"),
        (NAME, "name"),
        (ATTRIBUTES, "attributes"),
        (key(4, VARINT), "dropped_attributes_count"),
    ];
}

/// `Span.Link`.
pub(crate) mod link {
    use super::{FOUR_BYTES, Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const TRACE_ID: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const SPAN_ID: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const TRACE_STATE: u32 = key(3, LENGTH_DELIMITED);
    pub(crate) const ATTRIBUTES: u32 = key(4, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[
        (TRACE_ID, "trace_id"),
        (SPAN_ID, "span_id"),
        (TRACE_STATE, "trace_state"),
        (ATTRIBUTES, "attributes"),
        (key(5, VARINT), "dropped_attributes_count"),
        (key(6, FOUR_BYTES), "flags"),
    ];
}

/// `Status`; its field 1 is reserved.
pub(crate) mod status {
    use super::{Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const MESSAGE: u32 = key(2, LENGTH_DELIMITED);
    pub(crate) const CODE: u32 = key(3, VARINT);
    pub(super) const FIELDS: Fields = &[(MESSAGE, "message"), (CODE, "code")];
}

pub(crate) mod key_value {
    use super::{Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const KEY: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const VALUE: u32 = key(2, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[(KEY, "key"), (VALUE, "value"), (key(3, VARINT), "key_strindex")];
}

/// `AnyValue`: all its fields are members of one `oneof`.
pub(crate) mod any_value {
    use super::{EIGHT_BYTES, Fields, LENGTH_DELIMITED, VARINT, key};
    pub(crate) const STRING: u32 = key(1, LENGTH_DELIMITED);
    pub(crate) const BOOL: u32 = key(2, VARINT);
    pub(crate) const INT: u32 = key(3, VARINT);
    pub(crate) const DOUBLE: u32 = key(4, EIGHT_BYTES);
    pub(crate) const ARRAY: u32 = key(5, LENGTH_DELIMITED);
    pub(crate) const KVLIST: u32 = key(6, LENGTH_DELIMITED);
    pub(crate) const BYTES: u32 = key(7, LENGTH_DELIMITED);
    pub(crate) const STRING_STRINDEX: u32 = key(8, VARINT);
    pub(super) const FIELDS: Fields = &[
        (STRING, "string_value"),
        (BOOL, "bool_value"),
        (INT, "int_value"),
        (DOUBLE, "double_value"),
        (ARRAY, "array_value"),
        (KVLIST, "kvlist_value"),
        (BYTES, "bytes_value"),
        (STRING_STRINDEX, "string_value_strindex"),
    ];
}

pub(crate) mod array_value {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(crate) const VALUES: u32 = key(1, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[(VALUES, "values")];
}

pub(crate) mod key_value_list {
    use super::{Fields, LENGTH_DELIMITED, key};
    pub(crate) const VALUES: u32 = key(1, LENGTH_DELIMITED);
    pub(super) const FIELDS: Fields = &[(VALUES, "values")];
}

/// The OTLP message types that a trace request is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtlpMessage {
    /// `TracesData` or `ExportTraceServiceRequest`, the outermost message.
    TracesData,
    ResourceSpans,
    /// What made the spans.
    Resource,
    /// A reference from a resource to an entity.
    EntityRef,
    ScopeSpans,
    /// The instrumentation library that made the spans.
    InstrumentationScope,
    Span,
    /// `Span.Event`.
    Event,
    /// `Span.Link`.
    Link,
    /// `Span.status`.
    Status,
    /// One attribute.
    KeyValue,
    /// The value of an attribute, or of an element of an array.
    AnyValue,
    /// An array inside an `AnyValue`.
    ArrayValue,
    /// A list of attributes inside an `AnyValue`.
    KeyValueList,
}

impl OtlpMessage {
    /// All messages.
    pub const ALL: [Self; 14] = [
        Self::TracesData,
        Self::ResourceSpans,
        Self::Resource,
        Self::EntityRef,
        Self::ScopeSpans,
        Self::InstrumentationScope,
        Self::Span,
        Self::Event,
        Self::Link,
        Self::Status,
        Self::KeyValue,
        Self::AnyValue,
        Self::ArrayValue,
        Self::KeyValueList,
    ];

    /// The name of the message in opentelemetry-proto.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TracesData => "TracesData",
            Self::ResourceSpans => "ResourceSpans",
            Self::Resource => "Resource",
            Self::EntityRef => "EntityRef",
            Self::ScopeSpans => "ScopeSpans",
            Self::InstrumentationScope => "InstrumentationScope",
            Self::Span => "Span",
            Self::Event => "Event",
            Self::Link => "Link",
            Self::Status => "Status",
            Self::KeyValue => "KeyValue",
            Self::AnyValue => "AnyValue",
            Self::ArrayValue => "ArrayValue",
            Self::KeyValueList => "KeyValueList",
        }
    }

    /// The name of this message's field with that number, if it has one.
    pub fn field_name(self, number: u32) -> Option<&'static str> {
        self.entry(number).map(|(_, name)| *name)
    }

    /// The key of this message's field with that number, with its wire type.
    pub(crate) fn known_key(self, number: u32) -> Option<u32> {
        self.entry(number).map(|(key, _)| *key)
    }

    fn entry(self, number: u32) -> Option<&'static (u32, &'static str)> {
        self.fields().iter().find(|(key, _)| field_number(*key) == number)
    }

    const fn fields(self) -> Fields {
        match self {
            Self::TracesData => traces_data::FIELDS,
            Self::ResourceSpans => resource_spans::FIELDS,
            Self::Resource => resource::FIELDS,
            Self::EntityRef => entity_ref::FIELDS,
            Self::ScopeSpans => scope_spans::FIELDS,
            Self::InstrumentationScope => scope::FIELDS,
            Self::Span => span::FIELDS,
            Self::Event => event::FIELDS,
            Self::Link => link::FIELDS,
            Self::Status => status::FIELDS,
            Self::KeyValue => key_value::FIELDS,
            Self::AnyValue => any_value::FIELDS,
            Self::ArrayValue => array_value::FIELDS,
            Self::KeyValueList => key_value_list::FIELDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_byte_that_stands_on_the_wire() {
        assert_eq!(traces_data::RESOURCE_SPANS, 0x0A); // field 1, length-delimited
        assert_eq!(span::KIND, 0x30); // field 6, varint
        assert_eq!(span::START_TIME_UNIX_NANO, 0x39); // field 7, eight bytes
        assert_eq!(span::FLAGS, 0x85); // field 16, four bytes: the first key of two bytes (0x85 0x01)
        assert_eq!((field_number(span::FLAGS), wire_type(span::FLAGS)), (16, FOUR_BYTES));
    }

    #[test]
    fn the_fields_of_a_message_stand_in_order_and_once() {
        let counts = [1, 4, 3, 4, 3, 4, 16, 4, 6, 2, 3, 8, 1, 1];
        for (message, count) in OtlpMessage::ALL.into_iter().zip(counts) {
            let numbers: Vec<u32> = message.fields().iter().map(|(key, _)| field_number(*key)).collect();
            assert_eq!(numbers.len(), count, "{}", message.name());
            assert!(numbers.is_sorted_by(|a, b| a < b), "{}: {numbers:?}", message.name());
        }
    }
}
