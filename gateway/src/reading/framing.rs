//! Finds the payload behind the frame that a serializer of a schema registry puts in front of it.
//!
//! Confluent's serializers write (Confluent Platform, "Wire format": Formats, Serializers, and Deserializers for Schema Registry):
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 0 | magic byte 0x00 |
//! | 1 to 4 | id of the schema, big-endian |
//! | with protobuf: from 5 | the message type within its file: the number of indexes, then each index, as zigzag varints. A single 0 stands for the first type of the file |
//! | then | the payload |
//!
//! A frame cannot be taken for a payload, so there is no setting for it. In protobuf, a first byte of 0 to 7 is a key of field 0, which is
//! invalid (protobuf, "Encoding": fields are numbered from 1). JSON begins with a brace, white space or a byte order mark, and all these
//! bytes are larger (RFC 8259, 2). So a first byte of 1 to 7 is the magic byte of another framing, and the message is rejected with that byte.
//!
//! The newer serializers of Confluent write the id of the schema into the header `__value_schema_id`. Then there is no frame.
//!
//! Some producers leave the indexes out. Then the payload begins with 0x0a, the key of `TracesData.resource_spans`. As a number of indexes
//! 0x0a would be 5, which is more than [`INDEXES_MAX`]: no byte of a payload is skipped as an index.
//!
//! The schema is not looked up: only OTLP is read, and its schema is known. Cost: one comparison a message. Limits: [`INDEXES_MAX`].

use sluice_gateway_config::Format;

/// First bytes below this one begin neither protobuf nor JSON.
const PAYLOAD_MIN: u8 = 0x08;

/// Magic byte and id of the schema.
const HEADER_BYTES: usize = 5;

/// Indexes of a message type. Chosen: OTLP's are on the outermost level of their files, so they have one index; 0x0a stands for 5.
const INDEXES_MAX: u64 = 4;

/// The first byte of a payload with spans: field 1, length-delimited (opentelemetry-proto, `trace.proto`, `TracesData.resource_spans`).
const RESOURCE_SPANS: u8 = 0x0a;

/// Bytes of the longest varint (protobuf, "Encoding").
const VARINT_BYTES_MAX: usize = 10;

/// Why no payload can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first byte is of an unknown framing.
    #[error(
        "it begins with the magic byte 0x{0:02x}, which is neither OTLP nor the framing of Confluent's serializers (0x00){note}; let the \
         producer write OTLP without it", note = note(.0)
    )]
    MagicUnknown(u8),
    /// It ends within the frame.
    #[error("it begins like the framing of Confluent's serializers (0x00), and ends within the frame")]
    CutShort,
    /// The indexes of the message type are no indexes, or too many.
    #[error(
        "it begins like the framing of Confluent's serializers (0x00), but does not name a message type by 1 to {INDEXES_MAX} indexes"
    )]
    TypeUnreadable,
}

/// Whose magic byte it is.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the error's text calls it with a reference")]
fn note(magic: &u8) -> &'static str {
    match magic {
        0x01 => "; 0x01 is Confluent's for a schema GUID, which belongs into the header __value_schema_id",
        // `HEADER_VERSION_BYTE` of awslabs/aws-glue-schema-registry.
        0x03 => "; 0x03 is that of the AWS Glue Schema Registry",
        _ => "",
    }
}

/// The payload of a message, without the frame if it has one.
#[inline]
pub fn payload(message: &[u8], format: Format) -> Result<&[u8], FrameError> {
    match message.first() {
        Some(first) if *first < PAYLOAD_MIN => framed(message, format),
        _ => Ok(message),
    }
}

/// Whether a message that can be read has a frame.
#[inline]
pub fn is_framed(message: &[u8]) -> bool {
    message.first() == Some(&0)
}

/// What comes behind magic byte and id of a frame; of other messages, all of it.
pub fn behind_header(message: &[u8]) -> &[u8] {
    if is_framed(message) { message.get(HEADER_BYTES..).unwrap_or_default() } else { message }
}

#[cold]
fn framed(message: &[u8], format: Format) -> Result<&[u8], FrameError> {
    match message {
        [0, ..] => {}
        [magic, ..] => return Err(FrameError::MagicUnknown(*magic)),
        [] => return Ok(message),
    }
    let behind = message.get(HEADER_BYTES..).ok_or(FrameError::CutShort)?;
    match format {
        Format::OtlpJson => Ok(behind),
        Format::OtlpProto => behind_indexes(behind),
    }
}

/// What comes behind the indexes of the message type, if there are any.
fn behind_indexes(bytes: &[u8]) -> Result<&[u8], FrameError> {
    if bytes.first() == Some(&RESOURCE_SPANS) {
        return Ok(bytes);
    }
    let (count, mut rest) = varint(bytes)?;
    // Zigzag: an even number is twice the count, an odd one is negative.
    let is_count = count.is_multiple_of(2) && count / 2 <= INDEXES_MAX;
    if !is_count {
        return Err(FrameError::TypeUnreadable);
    }
    for _ in 0..count / 2 {
        (_, rest) = varint(rest)?;
    }
    Ok(rest)
}

/// A varint, and what comes behind it.
fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), FrameError> {
    let mut value = 0;
    for (number, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        // The tenth byte has one bit of 64; a number with more is too large for a count, which the shift must not hide.
        let bits = u64::from(byte & 0x7F);
        value |= if number == VARINT_BYTES_MAX - 1 && bits > 1 { u64::MAX } else { bits << (7 * number) };
        if byte & 0x80 == 0 {
            return Ok((value, &bytes[number + 1..]));
        }
    }
    Err(if bytes.len() < VARINT_BYTES_MAX { FrameError::CutShort } else { FrameError::TypeUnreadable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed_as(indexes: &[u8], payload: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0x12, 0x34][..], indexes, payload].concat()
    }

    #[test]
    fn a_frame_is_skipped_with_the_indexes_of_the_message_type() {
        let span = b"\x0a\x02\x12\x00";
        for indexes in [&[][..], &[0], &[2, 0], &[4, 2, 0], &[8, 2, 0, 0, 0], &[2, 0x80, 1], &[0x80, 0]] {
            let message = framed_as(indexes, span);
            assert_eq!(payload(&message, Format::OtlpProto), Ok(&span[..]), "{indexes:?}");
            assert!(is_framed(&message));
        }
        assert_eq!(payload(&framed_as(&[], b"{}"), Format::OtlpJson), Ok(&b"{}"[..]));
        assert_eq!(payload(&framed_as(&[0], b""), Format::OtlpProto), Ok(&b""[..]), "no spans");
    }

    #[test]
    fn what_has_no_frame_is_not_touched() {
        for message in [&b""[..], b"\x0a\x00", b"{}", b" {}", b"\t{}", b"\n{}", b"\xEF\xBB\xBF{}", b"\x08"] {
            for format in [Format::OtlpProto, Format::OtlpJson] {
                assert_eq!(payload(message, format), Ok(message));
            }
            assert_eq!(behind_header(message), message);
        }
    }

    #[test]
    fn what_is_no_frame_that_is_known_says_so() {
        for magic in 1..=7 {
            let message = [magic, 0x0a, 0];
            assert_eq!(payload(&message, Format::OtlpProto), Err(FrameError::MagicUnknown(magic)));
        }
        let told = FrameError::MagicUnknown(3).to_string();
        assert!(told.contains("magic byte 0x03") && told.contains("AWS Glue"), "{told}");
        for cut in [&[0][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 1, 4, 0], &[0, 0, 0, 0, 1, 0x80]]
        {
            assert_eq!(payload(cut, Format::OtlpProto), Err(FrameError::CutShort), "{cut:?}");
        }
        for indexes in [
            &[1][..],
            b"{}",
            &[0x80, 1],
            &[0xFF; 10],
            &[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 3],
        ] {
            let message = framed_as(indexes, &[0; 40]);
            assert_eq!(payload(&message, Format::OtlpProto), Err(FrameError::TypeUnreadable), "{indexes:?}");
        }
    }

    proptest::proptest! {
        /// Any bytes give the end of the message, or an error.
        #[test]
        fn a_payload_is_the_end_of_its_message(message in proptest::collection::vec(0u8..=255, 0..40), framed in proptest::bool::ANY) {
            let message = if framed { [&[0][..], &message].concat() } else { message };
            for format in [Format::OtlpProto, Format::OtlpJson] {
                if let Ok(found) = payload(&message, format) {
                    proptest::prop_assert!(message.ends_with(found));
                    proptest::prop_assert!(framed || found.len() == message.len() || message[0] == 0);
                }
            }
        }
    }
}
