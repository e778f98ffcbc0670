//! An error's text with its causes.
//!
//! Job: HTTP libraries only say "client error (Connect)" themselves; the reason is in the causes. Place in the flow: the insert client
//! and the probe, when a connection fails.

use std::error::Error;

use crate::tls::{advice, tls_error};

/// The error and all its causes, joined by colons; after a TLS failure with advice.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if let Some(tls) = tls_error(error) {
        // An I/O error displays the error inside it, so rustls' own words are already in the text.
        text.push_str("; ");
        text.push_str(advice(tls));
    }
    text
}
