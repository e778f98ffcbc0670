//! What a token endpoint answers (RFC 6749, 5.1 and 5.2).

use crate::{
    Error,
    http_client::Server,
    token::{Token, whole},
};
use serde::Deserialize;
use serde_json::Value;

/// The longest answer that is read. An answer is a token and a few short fields.
pub const ANSWER_BYTES_MAX: usize = 128 << 10;

/// Characters of an error code that is shown. The longest of the registered ones has 33.
const CODE_CHARS_MAX: usize = 64;

/// Characters of `error_description` that are shown. Chosen: a sentence.
const SENTENCE_CHARS_MAX: usize = 200;

/// An answer, read up to [`ANSWER_BYTES_MAX`].
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: Option<Value>,
    /// A number; a text from some servers.
    expires_in: Option<Value>,
}

/// A refusal.
#[derive(Deserialize)]
struct Denied {
    error: String,
    error_description: Option<Value>,
}

/// What of a refusal must not be shown, and what a person checks after it.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    /// They are not repeated, whatever the server says.
    pub secrets: &'a [&'a str],
    /// In words.
    pub check: &'static str,
}

impl Answer {
    /// Whether the server has done what it was asked.
    pub fn is_grant(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The token of an answer.
///
/// # Errors
/// [`Error::Refused`] or [`Error::Nonsense`].
pub fn token(endpoint: &str, answer: &Answer, refusal: Refusal<'_>, now_ms: i64) -> Result<Token, Error> {
    let server = Server::TokenEndpoint;
    if !answer.is_grant() {
        let status = answer.status;
        let (said, check) = match shown(&answer.body, refusal.secrets) {
            Some(said) => (said, refusal.check),
            None => without_error(status, refusal.check),
        };
        return Err(Error::Refused { server, endpoint: endpoint.to_owned(), status, said, check });
    }
    let nonsense = |reason: String| Error::Nonsense {
        server,
        endpoint: endpoint.to_owned(),
        bytes: answer.body.len(),
        reason,
    };
    // What serde says of a text may repeat a part of it.
    let granted: Granted =
        serde_json::from_slice(&answer.body).map_err(|_| nonsense("it is no JSON object".into()))?;
    let value = match granted.access_token {
        Some(Value::String(value)) => value,
        Some(_) => return Err(nonsense("its access_token is no text".into())),
        None => return Err(nonsense("it has no access_token".into())),
    };
    let lifetime = match &granted.expires_in {
        Some(Value::Number(seconds)) => whole(seconds),
        Some(Value::String(seconds)) => seconds.parse().ok(),
        _ => None,
    };
    Token::new(&value, lifetime, now_ms).map_err(|reason| nonsense(format!("of its access_token, {reason}")))
}

/// The error of a refusal: its code and the first sentence of its description, in one line, without secrets. Nothing else of an answer is
/// shown: a pipeline may name any server as its endpoint, and not every reader of a status may read that server's pages. Behind the first
/// sentence is often the number of the request, or its time, so the text would differ at each try.
fn shown(body: &[u8], secrets: &[&str]) -> Option<String> {
    let denied: Option<Denied> = serde_json::from_slice(body).ok();
    let denied = denied.filter(|denied| is_code(&denied.error))?;
    let description = match denied.error_description {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    Some(told(denied.error, description, secrets))
}

/// What an answer without an error of OAuth says by its status (RFC 9110), and what to check: `otherwise`, unless the request never came to a
/// token endpoint.
fn without_error(status: u16, otherwise: &'static str) -> (String, &'static str) {
    let (said, check) = match status {
        300..=399 => ("a redirect, which is not followed", "the URL: name the address that it leads to"),
        404 | 405 | 410 => ("an answer without an error of OAuth 2.0", "the path of the URL"),
        500.. => {
            ("an answer without an error of OAuth 2.0", "the log of that server, or of a proxy before it")
        }
        _ => ("an answer without an error of OAuth 2.0", otherwise),
    };
    (said.to_owned(), check)
}

/// A code and the first sentence of a description, in one line, without secrets.
pub(crate) fn told(code: String, description: String, secrets: &[&str]) -> String {
    let code = without(code, secrets);
    let sentence = first_sentence(&without(description, secrets));
    if sentence.is_empty() { code } else { format!("{code}: {sentence}") }
}

/// Whether a text is an error code such as `invalid_client`: a word.
pub(crate) fn is_code(text: &str) -> bool {
    let is_of_words = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=CODE_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_of_words)
}

fn without(text: String, secrets: &[&str]) -> String {
    let secrets = secrets.iter().filter(|secret| !secret.is_empty());
    secrets.fold(text, |text, secret| text.replace(secret, "…"))
}

/// Up to the first end of a sentence or line, or the bound.
fn first_sentence(text: &str) -> String {
    let line = text.trim().split(char::is_control).next().unwrap_or_default();
    let mut ends = line.match_indices([' ', '\t']).map(|(at, _)| &line[..at]);
    let sentence = ends.find(|before| before.ends_with(['.', '!', '?', ';'])).unwrap_or(line);
    let sentence: String = sentence.chars().take(SENTENCE_CHARS_MAX).collect();
    sentence.trim_end_matches(['.', ';', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn of(status: u16, body: &str) -> Result<Token, String> {
        let answer = Answer { status, body: body.as_bytes().to_vec() };
        let refusal = Refusal { secrets: &["s3cret"], check: "the client" };
        token("https://login", &answer, refusal, NOW).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grant_has_a_token_and_a_lifetime_as_a_number_or_a_text() {
        for (expires, expected) in [("3600", 3_600), (r#""3599""#, 3_599), ("null", 300), ("{}", 300)] {
            let body = format!(r#"{{"access_token":"t","token_type":"Bearer","expires_in":{expires}}}"#);
            let token = of(200, &body).unwrap();
            assert_eq!((token.value.as_str(), token.expires_ms - NOW), ("t", expected * 1_000), "{expires}");
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_status_code_and_first_sentence_and_without_the_secret() {
        for (body, expected) in [
            (r#"{"error":"invalid_client"}"#, "invalid_client;"),
            (r#"{"error":"invalid_client","error_description":""}"#, "invalid_client;"),
            (r#"{"error":"invalid_client","error_description":7}"#, "invalid_client;"),
            (r#"{"error":"a","error_description":"s3cret. s3cret is wrong"}"#, "a: …;"),
            (r#"{"error":"s3cret","error_description":"b"}"#, "…: b;"),
            (
                r#"{"error":"invalid_client","error_description":"AADSTS7000215: Wrong, at v2.0 of it. Trace ID: 0a-1"}"#,
                "invalid_client: AADSTS7000215: Wrong, at v2.0 of it;",
            ),
            (r#"{"error":"a","error_description":"\nOne line\r\nTimestamp: now"}"#, "a: One line;"),
        ] {
            let said = of(401, body).unwrap_err();
            assert!(
                said.contains(&format!("https://login answered 401: {expected} check the client")),
                "{body}: {said}"
            );
            assert!(!said.contains("s3cret") && !said.contains('\n'), "{said}");
        }
        let long = format!(r#"{{"error":"a","error_description":"{}"}}"#, "é".repeat(60_000));
        assert!(of(500, &long).unwrap_err().chars().count() < 400);
    }

    #[test]
    fn of_what_is_no_refusal_of_oauth_nothing_is_shown() {
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(65));
        for body in [
            "",
            "out of order",
            "<html>internal</html>",
            r#"{"message":"internal"}"#,
            r#"{"error":{"code":1,"message":"internal"}}"#,
            r#"{"error":"internal page"}"#,
            r#"{"error":""}"#,
            r#"["error"]"#,
            &long,
        ] {
            let said = of(400, body).unwrap_err();
            assert!(
                said.contains("answered 400: an answer without an error of OAuth 2.0; check the client"),
                "{body}: {said}"
            );
        }
    }

    #[test]
    fn an_answer_that_no_token_endpoint_gave_is_told_by_its_status() {
        for (status, expected) in [
            (302, "a redirect, which is not followed; check the URL: name the address that it leads to"),
            (404, "an answer without an error of OAuth 2.0; check the path of the URL"),
            (
                503,
                "an answer without an error of OAuth 2.0; check the log of that server, or of a proxy before it",
            ),
            (403, "an answer without an error of OAuth 2.0; check the client"),
        ] {
            let said = of(status, "<html>internal</html>").unwrap_err();
            assert!(said.ends_with(&format!("answered {status}: {expected}")), "{said}");
        }
        let said = of(503, r#"{"error":"temporarily_unavailable"}"#).unwrap_err();
        assert!(said.ends_with("answered 503: temporarily_unavailable; check the client"), "{said}");
    }

    #[test]
    fn nonsense_is_told_by_its_length_and_never_repeated() {
        for (body, reason) in [
            ("", "no JSON"),
            ("<html>t0ken</html>", "no JSON"),
            (r#"{"token":"t0ken"}"#, "no access_token"),
            (r#"{"access_token":null}"#, "no access_token"),
            (r#"{"access_token":{"a":"t0ken"}}"#, "its access_token is no text"),
            (r#"{"access_token":70}"#, "its access_token is no text"),
            (r#"{"access_token":"t0 ken"}"#, "characters"),
            (r#"{"access_token":""}"#, "empty"),
            (r#"{"access_token":"t0ken","expires_in":0}"#, "expired"),
            ("[[[[", "no JSON"),
        ] {
            let said = of(200, body).unwrap_err();
            assert!(said.contains(reason) && !said.contains("t0"), "{body}: {said}");
            assert!(said.contains(&format!("{} bytes", body.len())), "{said}");
        }
    }
}
