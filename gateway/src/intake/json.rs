//! The memory for rewriting a request in JSON to protobuf, within the request's permit.

use crate::intake::serving::PERMIT_WAIT;
use sluice_otlp_json::SCRATCH_BYTES_PER_MESSAGE_BYTE;
use sluice_otlp_server::Request;

/// Bytes of memory for each byte of a request in JSON, beside it: [`SCRATCH_BYTES_PER_MESSAGE_BYTE`].
pub const JSON_SCRATCH_PER_BYTE: usize = 2;

const _: () = assert!(SCRATCH_BYTES_PER_MESSAGE_BYTE == 2, "the rewriter needs what is taken for it");

/// Why there is no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// There never is.
    TooLarge(String),
    /// There is none now.
    Busy(&'static str),
}

/// Bytes of the largest request in JSON, if all requests have this much memory together.
pub fn bytes_max(requests: usize) -> usize {
    // Beside the body, twice as much is taken for rewriting it.
    requests / (1 + JSON_SCRATCH_PER_BYTE)
}

/// Takes the memory, before the request waits for a thread: one that waited for memory would keep others from giving theirs back.
///
/// # Errors
/// [`NoRoom`] if the request is larger than `bytes_max`, or if no memory is free in time.
pub async fn make_room(request: &mut Request, bytes_max: usize) -> Result<(), NoRoom> {
    let bytes = request.body.len();
    if bytes > bytes_max {
        return Err(NoRoom::TooLarge(format!(
            "a request in JSON may have {bytes_max} bytes, because it is rewritten to protobuf in memory; send fewer spans in a request, or send \
             protobuf"
        )));
    }
    let scratch = bytes.saturating_mul(JSON_SCRATCH_PER_BYTE);
    let grown = request.permit.grow_within(scratch, PERMIT_WAIT).await;
    grown.map_err(|_| {
        NoRoom::Busy("there is no memory to rewrite JSON now: requests before this one are not stored yet")
    })
}
