//! The framing of requests to the OTLP server: messages of gRPC, frames of HTTP/2, and lines of credentials.
//!
//! The first byte says how the others are cut into the chunks in which a socket gives them.

use bytes::Bytes;

use crate::otlp_server::{
    credential_lines::{LineKind, lines},
    http2_frames::Frames,
    message_head::{HeadReader, MessageHead, WrongFlag},
};

/// Bytes of a chunk, at most.
const CHUNK_BYTES_MAX: usize = 32;

/// Reads any bytes.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let chunk_bytes = 1 + usize::from(*cut) % CHUNK_BYTES_MAX;
    check_message(bytes, chunk_bytes);
    check_frames(bytes, chunk_bytes);
    for kind in [LineKind::Token, LineKind::User] {
        check_lines(kind, bytes);
    }
}

/// What the first bytes of a message say, and how many of them were read.
fn head(bytes: &[u8], chunk_bytes: usize) -> (Result<Option<MessageHead>, WrongFlag>, usize) {
    let (mut reader, mut found, mut taken) = (HeadReader::default(), Ok(None), 0);
    for chunk in bytes.chunks(chunk_bytes) {
        let mut left = Bytes::copy_from_slice(chunk);
        found = reader.read(&mut left);
        taken += chunk.len() - left.len();
        if found != Ok(None) {
            break;
        }
        assert!(left.is_empty(), "it needs more, and leaves bytes");
    }
    (found, taken)
}

fn check_message(bytes: &[u8], chunk_bytes: usize) {
    let (found, taken) = head(bytes, chunk_bytes);
    assert_eq!(found, head(bytes, bytes.len().max(1)).0, "in chunks of {chunk_bytes}");
    match (bytes, found) {
        ([flag @ (0 | 1), a, b, c, d, ..], Ok(Some(head))) => {
            assert_eq!((taken, head.is_compressed), (5, *flag == 1));
            assert_eq!(head.bytes, u32::from_be_bytes([*a, *b, *c, *d]));
        }
        ([flag, ..], Err(wrong)) if *flag > 1 => assert!(!wrong.to_string().is_empty()),
        (_, found) => assert!(bytes.len() < 5 && found == Ok(None), "{found:?} of {} bytes", bytes.len()),
    }
}

fn check_frames(bytes: &[u8], chunk_bytes: usize) {
    let (mut whole, mut pieces) = (Frames::default(), Frames::default());
    let ended = whole.read(bytes);
    let ended_in_pieces = bytes.chunks(chunk_bytes).fold(false, |ended, chunk| pieces.read(chunk) || ended);
    assert_eq!((ended, whole.is_open()), (ended_in_pieces, pieces.is_open()), "in chunks of {chunk_bytes}");
}

fn check_lines(kind: LineKind, bytes: &[u8]) {
    match lines(kind, bytes) {
        Ok(found) => {
            for line in found {
                assert!(!line.is_empty() && !line.iter().any(u8::is_ascii_control));
                assert!(kind == LineKind::User || line.iter().all(u8::is_ascii_graphic));
            }
        }
        Err(wrong) => {
            let count = bytes.split(|byte| *byte == b'\n').count();
            assert!((1..=count).contains(&wrong.line) && wrong.others < count);
            assert!(wrong.to_string().is_ascii(), "nothing of the line is repeated");
        }
    }
}
