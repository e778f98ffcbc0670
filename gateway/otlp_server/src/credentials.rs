//! Who may send: bearer tokens and users with passwords, in the header `Authorization`.
//!
//! Secrets are kept and compared as SHA-256, which all have the same length, and each is compared with every one: the time says neither
//! which was nearly right, nor how long one is.

use crate::{
    config::CredentialFiles,
    failure::Failure,
    files::{Contents, Files, read},
    server::Error,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::{Choice, ConstantTimeEq as _};

type Secret = [u8; 32];

/// Who may send.
#[derive(Default)]
pub(crate) struct Credentials {
    tokens: Vec<Secret>,
    users: Vec<Secret>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens and {} users", self.tokens.len(), self.users.len())
    }
}

impl Credentials {
    /// Whether a client with this header may send.
    pub fn check(&self, header: Option<&HeaderValue>) -> Result<(), Failure> {
        let Some(header) = header else {
            return Err(Failure::unauthenticated(
                "the header Authorization is missing: send Bearer or Basic",
            ));
        };
        let (scheme, rest) = split(header.as_bytes());
        let is_admitted = if scheme.eq_ignore_ascii_case(b"bearer") {
            is_among(&self.tokens, rest)
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            STANDARD.decode(rest).is_ok_and(|user| is_among(&self.users, &user))
        } else {
            return Err(Failure::unauthenticated("the header Authorization is neither Bearer nor Basic"));
        };
        if is_admitted {
            Ok(())
        } else {
            Err(Failure::unauthenticated("the token or the password in the header Authorization is wrong"))
        }
    }
}

/// The scheme, and what follows its spaces.
fn split(header: &[u8]) -> (&[u8], &[u8]) {
    let end = header.iter().position(|byte| *byte == b' ').unwrap_or(header.len());
    let (scheme, rest) = header.split_at(end);
    (scheme, rest.trim_ascii())
}

fn is_among(secrets: &[Secret], shown: &[u8]) -> bool {
    let shown: Secret = Sha256::digest(shown).into();
    let any = secrets.iter().fold(Choice::from(0), |any, secret| any | secret.ct_eq(&shown));
    any.into()
}

fn secrets(content: &[u8]) -> impl Iterator<Item = Secret> {
    let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).map(|line| Sha256::digest(line).into())
}

impl Files for CredentialFiles {
    type Made = Credentials;

    fn read(&self) -> Result<Contents, Error> {
        let tokens = self.bearer_tokens.iter().map(|file| read("bearer tokens", file));
        let users = self.basic_users.iter().map(|file| read("users", file));
        tokens.chain(users).collect()
    }

    fn make(&self, contents: &Contents) -> Result<Credentials, Error> {
        let (tokens, users) = contents.split_at(self.bearer_tokens.len().min(contents.len()));
        let all = |contents: &[Vec<u8>]| contents.iter().flat_map(|content| secrets(content)).collect();
        Ok(Credentials { tokens: all(tokens), users: all(users) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        let files =
            CredentialFiles { bearer_tokens: vec!["a".into(), "b".into()], basic_users: vec!["c".into()] };
        let contents = [&b"one\n\n two \r\n"[..], b"three", b"anna:s: p\r\nbo:\n"].map(<[u8]>::to_vec);
        files.make(&contents.to_vec()).unwrap()
    }

    fn is_admitted(header: &str) -> bool {
        credentials().check(Some(&HeaderValue::from_str(header).unwrap())).is_ok()
    }

    #[test]
    fn any_token_and_any_user_of_any_file_passes() {
        for header in ["Bearer one", "bearer two", "BEARER   three ", "Basic YW5uYTpzOiBw", "Basic Ym86"] {
            assert!(is_admitted(header), "{header}");
        }
    }

    #[test]
    fn nothing_else_passes() {
        for header in [
            "Bearer",
            "Bearer ",
            "Bearer on",
            "Bearer one two",
            "one",
            "Digest one",
            "Basic one",
            "Basic !",
            "Basic YW5uYTpz",
        ] {
            assert!(!is_admitted(header), "{header}");
        }
        assert!(credentials().check(None).is_err());
        let nobody = Credentials::default();
        assert!(nobody.check(Some(&HeaderValue::from_static("Bearer "))).is_err());
        assert_eq!(format!("{:?}", credentials()), "3 tokens and 2 users");
    }
}
