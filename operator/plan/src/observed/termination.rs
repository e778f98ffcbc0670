//! What a container said when it ended: its termination message, which is the end of its log when it wrote none.
//!
//! The last line that says something is taken. A line of JSON is a log line of ours: its `reason` is a word from the
//! list of reasons, its `message` is for people; in the form of the `tracing` crate both stand under `fields`.

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use serde_json::Value;

/// The longest text that is taken over into a condition, in characters: a termination message has up to 4,096 bytes,
/// and ten pods may have something to say.
const MESSAGE_CHARS_MAX: usize = 400;

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// Exit code: 64 for a config that cannot be right, 69 for a server that refuses or does not answer.
    pub exit_code: i32,
    /// A word from the list of reasons, when the program named one.
    pub reason: Option<String>,
    /// What it said, for people.
    pub message: String,
}

impl Termination {
    /// Reads the state of a container that ended.
    pub fn of(state: &ContainerStateTerminated) -> Self {
        let text = state.message.as_deref().unwrap_or_default();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let (reason, message) = match serde_json::from_str::<Value>(line) {
            Ok(json @ Value::Object(_)) => {
                (word(&json, "reason"), word(&json, "message").unwrap_or_default())
            }
            _ => (None, line.to_owned()),
        };
        let message = if message.is_empty() { state.reason.clone().unwrap_or_default() } else { message };
        let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
        Self { exit_code: state.exit_code, reason, message }
    }
}

fn word(json: &Value, field: &str) -> Option<String> {
    let found = json.get(field).or_else(|| json.get("fields")?.get(field))?;
    found.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str) -> (Option<String>, String) {
        let state = ContainerStateTerminated {
            exit_code: 69,
            reason: Some("Error".into()),
            message: Some(message.into()),
            ..ContainerStateTerminated::default()
        };
        let termination = Termination::of(&state);
        (termination.reason, termination.message)
    }

    #[test]
    fn the_last_line_is_taken_in_every_form() {
        for (text, reason, message) in [
            ("first\nlast\n\n", None, "last"),
            (r#"{"reason": "AuthFailed", "message": "no"}"#, Some("AuthFailed"), "no"),
            (r#"{"level":"ERROR","fields":{"message":"no","reason":"Timeout"}}"#, Some("Timeout"), "no"),
            ("{\"message\":", None, "{\"message\":"),
            ("[1]", None, "[1]"),
            ("", None, "Error"),
            ("{}", None, "Error"),
        ] {
            assert_eq!(said(text), (reason.map(str::to_owned), message.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(said(&"ä".repeat(4_000)).1.chars().count(), MESSAGE_CHARS_MAX);
    }
}
