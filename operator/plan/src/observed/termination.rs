//! What a container said when it ended: its termination message. If the program wrote none, that is the end of its log.
//!
//! A line of JSON with exactly two fields is written for this reader: `reason`, a word from the list of reasons, and `message`, a text for
//! people. It counts at any place. The container runtime copies standard output and standard error independently, so lines may not stand
//! in the order in which they were written.
//!
//! A killed program writes no reason, so the end of its log is about something else.
//!
//! Without such a line, a last line of JSON is a log line of ours. Both words may stand under `fields`, as the `tracing` crate nests them.
//! Plain lines at the end are a printed error, such as all violations of a config. They are taken together.

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use serde_json::Value;

/// The longest text of a log that is taken over into a condition, in characters: a termination message has up to 4,096 bytes,
/// and ten pods may have something to say.
const MESSAGE_CHARS_MAX: usize = 400;

/// The longest text that a program wrote for this reader, in characters. Chosen: all that the schema Job says. It ends its message behind
/// a whole statement, and the end of a log has 2,048 bytes.
const REPORT_CHARS_MAX: usize = 2_000;

/// Exit code of a killed program: 128 and `SIGKILL`.
pub(crate) const EXIT_KILLED: i32 = 137;

/// Kubernetes' word for a program that the kernel killed because of its memory limit.
const OOM_KILLED: &str = "OOMKilled";

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
        let is_killed = state.exit_code == EXIT_KILLED;
        let text = state.message.as_deref().unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let told = lines.iter().rev().filter_map(|line| object(line)).find(is_for_this_reader);
        let chars_max = if told.is_some() { REPORT_CHARS_MAX } else { MESSAGE_CHARS_MAX };
        let last = || object(lines.last()?).filter(|_| !is_killed);
        let (reason, message) = match told.or_else(last) {
            Some(json) => (word(&json, "reason"), word(&json, "message").unwrap_or_default()),
            None if is_killed => (None, String::new()),
            None => (None, plain_end(&lines)),
        };
        let of_kubernetes = match state.reason.as_deref() {
            Some("Error") if is_killed => "killed",
            reason => reason.unwrap_or_default(),
        };
        let message = if message.is_empty() { of_kubernetes.to_owned() } else { message };
        let message = message.chars().take(chars_max).collect();
        Self { exit_code: state.exit_code, reason, message }
    }

    /// Whether the kernel killed it because of its memory limit.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.exit_code == EXIT_KILLED && self.message == OOM_KILLED
    }
}

/// Whether it has the two words of a program's end alone: a line of a log also has a level and a time.
fn is_for_this_reader(json: &Value) -> bool {
    json.as_object().is_some_and(|json| {
        json.len() == 2 && json.contains_key("reason") && json.get("message").is_some_and(Value::is_string)
    })
}

/// The lines behind the last one of JSON.
fn plain_end(lines: &[&str]) -> String {
    let plain = lines.iter().rposition(|line| object(line).is_some()).map_or(0, |last| last + 1);
    lines[plain..].join("; ")
}

fn object(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok().filter(Value::is_object)
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
            ("first\nlast\n\n", None, "first; last"),
            ("{\"message\": \"started\"}\nfirst\nlast", None, "first; last"),
            ("noise\n{\"message\": \"last\"}", None, "last"),
            (r#"{"reason": "AuthFailed", "message": "no"}"#, Some("AuthFailed"), "no"),
            (r#"{"level":"ERROR","fields":{"message":"no","reason":"Timeout"}}"#, Some("Timeout"), "no"),
            (
                "{\"reason\": \"ServersNotReached\", \"message\": \"not reached: b\"}\n`d`.`t`\nas it must be",
                Some("ServersNotReached"),
                "not reached: b",
            ),
            ("{\"reason\": null, \"message\": \"no\"}\nthat was on standard output", None, "no"),
            ("{\"level\": \"WARN\", \"reason\": \"Timeout\", \"message\": \"m\"}\nlast", None, "last"),
            ("{\"message\":", None, "{\"message\":"),
            ("[1]", None, "[1]"),
            ("", None, "Error"),
            ("{}", None, "Error"),
        ] {
            assert_eq!(said(text), (reason.map(str::to_owned), message.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_log_of_a_program_that_was_killed_is_about_something_else() {
        for (reason, expected) in [("OOMKilled", "OOMKilled"), ("Error", "killed")] {
            let state = ContainerStateTerminated {
                exit_code: EXIT_KILLED,
                reason: Some(reason.into()),
                message: Some(r#"{"level": "INFO", "message": "partitions assigned"}"#.into()),
                ..ContainerStateTerminated::default()
            };
            assert_eq!(Termination::of(&state).message, expected);
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(said(&"ä".repeat(4_000)).1.chars().count(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn a_message_for_this_reader_is_taken_whole() {
        let message = "ALTER TABLE ".repeat(150);
        let line = serde_json::json!({"reason": "SchemaDiffers", "message": &message}).to_string();
        assert!(line.len() < 2_048);
        assert_eq!(said(&line), (Some("SchemaDiffers".into()), message));
    }
}
