//! Short names for content: an object named after its content never needs to be changed.

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Characters of a hash in a name. 40 bits: a pipeline has a handful of configs at a time, and a name must stay short.
pub(crate) const HASH_CHARS: usize = 10;

/// The hash of a text.
pub(crate) fn of_text(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let mut hex = String::with_capacity(HASH_CHARS);
    for byte in digest.iter().take(HASH_CHARS / 2) {
        // Writing to a String cannot fail.
        _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The hash of an object, as it would be sent to the API server.
pub(crate) fn of_object(object: &impl Serialize) -> String {
    of_text(
        &serde_json::to_string(object).expect("objects of Kubernetes serialise: their maps have string keys"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_short_hexadecimal_and_depends_on_the_content_alone() {
        assert_eq!(of_text(""), "e3b0c44298");
        assert_eq!(of_object(&"a"), of_text("\"a\""));
        assert_ne!(of_text("a"), of_text("b"));
    }
}
