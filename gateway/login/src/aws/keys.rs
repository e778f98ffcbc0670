//! The keys of a user or a session of AWS. They are never printed.

use crate::token::TOKEN_BYTES_MAX;

/// Keys that can sign.
pub(super) struct Keys {
    pub id: String,
    pub secret: String,
    /// The keys of a session have one.
    pub session: Option<String>,
    /// When they expire, in milliseconds since 1970; `None` if the answer does not say it.
    pub expires_ms: Option<i64>,
}

impl Keys {
    /// # Errors
    /// What is wrong with which of them, without its text.
    pub fn new(
        id: String,
        secret: String,
        session: Option<String>,
        expires_ms: Option<i64>,
    ) -> Result<Self, String> {
        let texts = [
            ("access key id", Some(&id)),
            ("secret access key", Some(&secret)),
            ("session token", session.as_ref()),
        ];
        for (what, text) in texts {
            let Some(text) = text else { continue };
            if text.is_empty() {
                return Err(format!("the {what} is empty"));
            }
            if text.len() > TOKEN_BYTES_MAX {
                return Err(format!("the {what} has more than {TOKEN_BYTES_MAX} bytes"));
            }
            if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "the {what} has characters that are neither letters, digits nor signs of ASCII"
                ));
            }
        }
        Ok(Self { id, secret, session, expires_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_named_and_not_repeated() {
        let of = |id: &str, secret: &str, session: Option<&str>| {
            Keys::new(id.into(), secret.into(), session.map(str::to_owned), None).map(|_| ())
        };
        assert_eq!(of("AKID", "a+/=", Some("IQo//=="),), Ok(()));
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for (id, secret, session, expected) in [
            ("", "s3cret", None, "the access key id is empty"),
            ("a", "", None, "the secret access key is empty"),
            ("a", "s3cret", Some(""), "the session token is empty"),
            ("a", "s3cret s3cret", None, "the secret access key has characters"),
            ("a", "s3crét", None, "the secret access key has characters"),
            ("a", "s3cret", Some(long.as_str()), "the session token has more than 65536 bytes"),
        ] {
            let said = of(id, secret, session).unwrap_err();
            assert!(said.starts_with(expected) && !said.contains("s3cr"), "{said}");
        }
    }
}
