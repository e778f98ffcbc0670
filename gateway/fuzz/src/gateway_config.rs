//! A config is read, or refused with words; what is read can be checked and written.

use sluice_gateway_config::parse::{from_yaml, to_yaml};

/// Reads the bytes as a config.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = match from_yaml(text) {
        Ok(config) => config,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let again = from_yaml(&to_yaml(&config)).expect("what is written is read back");
    assert_eq!(again, config);
    match config.check() {
        Ok(checked) => assert_eq!(*checked.config(), again),
        Err(violations) => assert!(!violations.to_string().is_empty()),
    }
}
