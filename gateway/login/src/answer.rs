//! What a token endpoint answers (RFC 6749, 5.1 and 5.2).

use crate::{
    Error,
    token::{Token, whole},
};
use serde::Deserialize;
use serde_json::Value;

/// The longest answer that is read. An answer is a token and a few short fields.
pub const ANSWER_BYTES_MAX: usize = 128 << 10;

/// Characters of a refusal that are shown. Chosen: `error` and the beginning of `error_description`.
const SHOWN_CHARS_MAX: usize = 200;

/// An answer, read up to [`ANSWER_BYTES_MAX`].
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: Option<String>,
    /// A number; a text from some servers.
    expires_in: Option<Value>,
}

/// The token of an answer. `secrets` are not repeated, whatever the endpoint says.
///
/// # Errors
/// [`Error::Refused`] or [`Error::Nonsense`].
pub fn token(endpoint: &str, answer: &Answer, secrets: &[&str], now_ms: i64) -> Result<Token, Error> {
    if !(200..300).contains(&answer.status) {
        let said = shown(&answer.body, secrets);
        return Err(Error::Refused { endpoint: endpoint.to_owned(), status: answer.status, said });
    }
    let nonsense =
        |reason: String| Error::Nonsense { endpoint: endpoint.to_owned(), bytes: answer.body.len(), reason };
    // What serde says of a text may repeat a part of it.
    let granted: Granted =
        serde_json::from_slice(&answer.body).map_err(|_| nonsense("it is no JSON object".into()))?;
    let value = granted.access_token.ok_or_else(|| nonsense("it has no access_token".into()))?;
    let lifetime = match &granted.expires_in {
        Some(Value::Number(seconds)) => whole(seconds),
        Some(Value::String(seconds)) => seconds.parse().ok(),
        _ => None,
    };
    Token::new(&value, lifetime, now_ms).map_err(|reason| nonsense(format!("of its access_token, {reason}")))
}

/// The beginning of a text, in one line, without secrets.
fn shown(body: &[u8], secrets: &[&str]) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "…");
    }
    let line: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(SHOWN_CHARS_MAX).collect();
    let line = line.trim();
    if line.is_empty() { "nothing".to_owned() } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn of(status: u16, body: &str) -> Result<Token, String> {
        let answer = Answer { status, body: body.as_bytes().to_vec() };
        token("https://login", &answer, &["s3cret"], NOW).map_err(|error| error.to_string())
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
    fn a_refusal_is_told_with_its_status_and_first_words_and_without_the_secret() {
        let said = of(401, "{\"error\":\"invalid_client\",\n\"error_description\":\"s3cret is wrong\"}")
            .unwrap_err();
        assert!(said.contains("https://login answered 401: {\"error\":\"invalid_client\""), "{said}");
        assert!(!said.contains("s3cret") && !said.contains('\n'), "{said}");
        assert!(of(500, &"x".repeat(1 << 20)).unwrap_err().len() < 500);
        assert!(of(302, "").unwrap_err().contains("302: nothing"));
    }

    #[test]
    fn nonsense_is_told_by_its_length_and_never_repeated() {
        for (body, reason) in [
            ("", "no JSON"),
            ("<html>t0ken</html>", "no JSON"),
            (r#"{"token":"t0ken"}"#, "no access_token"),
            (r#"{"access_token":null}"#, "no access_token"),
            (r#"{"access_token":{"a":"t0ken"}}"#, "no JSON"),
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
