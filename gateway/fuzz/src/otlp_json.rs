//! A message in JSON is rewritten to one that the walk reads, or is malformed.

use std::cell::RefCell;

use sluice_otlp_json::{JsonRewriter, RESERVED_BYTES_MAX};

/// The longest message, bytes: above the longest input.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

thread_local! {
    // Kept from input to input, as a worker keeps it.
    static REWRITER: RefCell<JsonRewriter> = RefCell::new(JsonRewriter::new(MESSAGE_BYTES_MAX));
}

/// Rewrites any bytes.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    REWRITER.with_borrow_mut(|rewriter| match rewriter.rewrite(bytes) {
        Ok(wire) => {
            assert!(
                wire.len() <= bytes.len() + RESERVED_BYTES_MAX,
                "{} bytes became {}",
                bytes.len(),
                wire.len()
            );
            let spans = sluice_otlp::validate(wire).expect("what was written is read");
            assert_eq!(sluice_otlp_json::validate(bytes), Ok(spans), "two rewritings of the same bytes");
        }
        Err(malformed) => {
            assert!(malformed.position() <= bytes.len(), "{malformed:?} in {} bytes", bytes.len());
            assert!(!malformed.to_string().is_empty());
        }
    });
}
