//! A token, and what is read of it: when it expires, and whose it is. Its signature is the broker's to check.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Number;
use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// The longest token. Brokers take half a MiB in a login (`sasl.server.max.receive.size`); tokens of known issuers have up to 10 KiB. Chosen.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// The lifetime of a token if neither the token nor its issuer says when it expires. Chosen: shorter than that of any known issuer.
pub(crate) const LIFETIME_UNKNOWN_SECONDS: i64 = 300;

/// The longest lifetime that is believed. Chosen: librdkafka counts in microseconds, and no token lives for a year.
const LIFETIME_SECONDS_MAX: i64 = 366 * 24 * 3_600;

/// The principal of a token that does not name one. Brokers read the name in the token, and never use this one.
const NOBODY: &str = "sluice";

/// A token to log in with. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// What is sent.
    pub value: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whose it is.
    pub principal: String,
    /// SASL extensions that are sent with it.
    pub extensions: Vec<(String, String)>,
}

/// The claims that are read.
#[derive(Deserialize, Default)]
struct Claims {
    exp: Option<Number>,
    sub: Option<String>,
}

impl Token {
    /// A token as text. `lifetime_seconds` is what its issuer says beside it; the token's own `exp` holds if it is sooner.
    ///
    /// # Errors
    /// If it is empty, too long, has characters that no token has, or is over.
    pub(crate) fn new(value: &str, lifetime_seconds: Option<i64>, now_ms: i64) -> Result<Self, String> {
        if value.is_empty() {
            return Err("it is empty".into());
        }
        if value.len() > TOKEN_BYTES_MAX {
            return Err(format!("it has more than {TOKEN_BYTES_MAX} bytes"));
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it has characters that are neither letters, digits nor signs of ASCII".into());
        }
        let claims = claims(value).unwrap_or_default();
        let said = lifetime_seconds.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1_000)));
        let own = claims.exp.as_ref().and_then(whole).map(|seconds| seconds.saturating_mul(1_000));
        let unknown = || now_ms.saturating_add(LIFETIME_UNKNOWN_SECONDS * 1_000);
        let expires_ms = [said, own].into_iter().flatten().min().unwrap_or_else(unknown);
        let expires_ms = expires_ms.min(now_ms.saturating_add(LIFETIME_SECONDS_MAX * 1_000));
        if expires_ms <= now_ms {
            return Err("it has expired; check the clocks of this machine and of its issuer".into());
        }
        // librdkafka takes C strings.
        let principal = claims.sub.filter(|name| !name.is_empty() && !name.contains('\0'));
        Ok(Self {
            value: value.to_owned(),
            expires_ms,
            principal: principal.unwrap_or_else(|| NOBODY.to_owned()),
            extensions: Vec::new(),
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_ms", &self.expires_ms).finish_non_exhaustive()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The claims of a JSON Web Token; none of a token that is opaque.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&payload).ok()
}

/// A number as a whole one: a date may have decimals.
pub(crate) fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| format!("{:.0}", number.as_f64()?).parse().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A token with these claims and without a valid signature.
    pub(crate) fn jwt(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(r#"{"alg":"none"}"#), part(claims), part("signature"))
    }

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn a_token_expires_when_it_says_or_its_issuer_says_whichever_is_sooner() {
        for (claims, said, expected) in [
            (r#"{"exp":1700000600,"sub":"a"}"#, None, 600_000),
            (r#"{"exp":1700000600.4}"#, None, 600_000),
            (r#"{"exp":1700000600}"#, Some(60), 60_000),
            (r#"{"exp":1700000060}"#, Some(600), 60_000),
            (r#"{"exp":"soon"}"#, Some(600), 600_000),
            ("no json", None, LIFETIME_UNKNOWN_SECONDS * 1_000),
        ] {
            let token = Token::new(&jwt(claims), said, NOW).unwrap();
            assert_eq!(token.expires_ms - NOW, expected, "{claims} {said:?}");
        }
        assert_eq!(Token::new("opaque", None, NOW).unwrap().expires_ms - NOW, 300_000);
        assert_eq!(Token::new("a.b", Some(1), NOW).unwrap().principal, NOBODY);
        assert_eq!(Token::new(&jwt(r#"{"sub":"me"}"#), None, NOW).unwrap().principal, "me");
        assert_eq!(Token::new(&jwt("{\"sub\":\"a\\u0000b\"}"), None, NOW).unwrap().principal, NOBODY);
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_repeated() {
        for (text, part) in [
            (String::new(), "empty"),
            ("a b".into(), "characters"),
            ("é".into(), "characters"),
            ("x".repeat(TOKEN_BYTES_MAX + 1), "more than"),
            (jwt(r#"{"exp":1699999999}"#), "expired"),
            (jwt(r#"{"exp":-9223372036854775808}"#), "expired"),
        ] {
            let said = Token::new(&text, None, NOW).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        assert!(Token::new("a", Some(i64::MIN), NOW).is_err());
        let longest = Token::new("a", Some(i64::MAX), NOW).unwrap().expires_ms - NOW;
        assert_eq!(longest, LIFETIME_SECONDS_MAX * 1_000);
        let token = Token::new("s3cret", None, NOW).unwrap();
        assert!(!format!("{token:?}").contains("s3cret"));
    }
}
