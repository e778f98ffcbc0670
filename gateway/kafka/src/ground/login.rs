//! Tokens for this package's clients, if the config has them log in with tokens.

use sluice_gateway_config::Kafka;
use sluice_login::{Login, Renewal};

/// The tokens of a client. All clients of a process with the same login share the thread that asks for them.
pub fn renewal(kafka: &Kafka) -> Renewal {
    Renewal::of(Login::of_config(kafka).as_ref())
}
