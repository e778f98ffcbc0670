//! An error's text with its causes.
//!
//! Job: HTTP libraries say only "client error (Connect)" themselves; the reason is in what caused it. Place in the
//! flow: the insert client and the probe, when a connection fails.

use std::error::Error;

/// The error and each cause below it, joined by colons.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
