//! An error's text with its causes.
//!
//! Job: HTTP libraries say only "client error (Connect)" themselves; the reason is in what caused it. Place in the
//! flow: the insert client and the probe, when a connection fails.

use std::error::Error;

use crate::tls::{advice, tls_error};

/// The error and each cause below it, joined by colons; where TLS failed, with what to look at.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if let Some(tls) = tls_error(error) {
        // An I/O error shows what it carries, so that rustls' own words stand in the text already.
        text.push_str("; ");
        text.push_str(advice(tls));
    }
    text
}
