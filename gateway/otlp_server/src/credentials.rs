//! Who may send: bearer tokens and users with passwords, in the header `Authorization`.
//!
//! Secrets are kept and compared as SHA-256, which all have the same length, and each is compared with every one: the time says neither
//! which was nearly right, nor how long one is.

use crate::{
    config::CredentialFiles,
    credential_lines::{LineKind, lines},
    failure::{Challenge, Failure},
    files::{Contents, Files, read},
    server::Error,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};
use std::{fmt, ops::Range, path::Path};
use subtle::{Choice, ConstantTimeEq as _};

type Secret = [u8; 32];

/// Who may send.
pub(crate) struct Credentials {
    tokens: Vec<Secret>,
    users: Vec<Secret>,
    /// The schemes that files are configured for.
    challenge: Challenge,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens and {} users", self.tokens.len(), self.users.len())
    }
}

impl Credentials {
    /// Whether a client with this header may send.
    pub fn check(&self, header: Option<&HeaderValue>) -> Result<(), Failure> {
        let refused = |words: String| Err(Failure::unauthenticated(words, self.challenge));
        let schemes = self.challenge.schemes();
        let Some(header) = header else {
            return refused(format!("the header Authorization is missing: send {schemes}"));
        };
        let (scheme, rest) = split(header.as_bytes());
        let (takes_tokens, takes_users) = (self.challenge.bearer, self.challenge.basic);
        let is_admitted = if takes_tokens && scheme.eq_ignore_ascii_case(b"bearer") {
            is_among(&self.tokens, rest)
        } else if takes_users && scheme.eq_ignore_ascii_case(b"basic") {
            STANDARD.decode(rest).is_ok_and(|user| is_among(&self.users, &user))
        } else {
            return refused(format!(
                "the header Authorization has a scheme that is not accepted: send {schemes}"
            ));
        };
        if is_admitted {
            Ok(())
        } else {
            refused("the token or the password in the header Authorization is wrong".to_owned())
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

/// The secrets of a file, or which of its lines is wrong.
fn secrets(kind: LineKind, file: &Path, content: &[u8]) -> Result<Vec<Secret>, Error> {
    let what = what(kind);
    let unusable = |reason| Error::Unusable { what, file: file.to_owned(), reason };
    let found = lines(kind, content).map_err(|wrong| unusable(wrong.to_string()))?;
    Ok(found.into_iter().map(|line| Sha256::digest(line).into()).collect())
}

fn what(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Token => "bearer tokens",
        LineKind::User => "users",
    }
}

impl CredentialFiles {
    /// All files, in a fixed order.
    fn all(&self) -> impl Iterator<Item = (LineKind, &Path)> {
        let tokens = self.bearer_tokens.iter().map(|file| (LineKind::Token, file.as_path()));
        tokens.chain(self.basic_users.iter().map(|file| (LineKind::User, file.as_path())))
    }
}

impl Files for CredentialFiles {
    type Made = Credentials;

    fn read(&self) -> Vec<Result<Vec<u8>, Error>> {
        self.all().map(|(kind, file)| read(what(kind), file)).collect()
    }

    /// Each file is used for itself.
    fn groups(&self) -> Vec<Range<usize>> {
        (0..self.all().count()).map(|place| place..place + 1).collect()
    }

    fn make(&self, contents: &Contents) -> Result<Credentials, Error> {
        let challenge =
            Challenge { bearer: !self.bearer_tokens.is_empty(), basic: !self.basic_users.is_empty() };
        let mut made = Credentials { tokens: Vec::new(), users: Vec::new(), challenge };
        for ((kind, file), content) in self.all().zip(contents) {
            let secrets = secrets(kind, file, content)?;
            match kind {
                LineKind::Token => made.tokens.extend(secrets),
                LineKind::User => made.users.extend(secrets),
            }
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        let files =
            CredentialFiles { bearer_tokens: vec!["a".into(), "b".into()], basic_users: vec!["c".into()] };
        let contents = [&b"one\n\ntwo\r\n"[..], b"three", b"anna:s: p\r\nbo:x\n"].map(<[u8]>::to_vec);
        files.make(&contents.to_vec()).unwrap()
    }

    fn is_admitted(header: &str) -> bool {
        credentials().check(Some(&HeaderValue::from_str(header).unwrap())).is_ok()
    }

    #[test]
    fn any_token_and_any_user_of_any_file_passes() {
        for header in ["Bearer one", "bearer two", "BEARER   three ", "Basic YW5uYTpzOiBw", "Basic Ym86eA=="]
        {
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
        let files = CredentialFiles { bearer_tokens: vec!["a".into()], basic_users: vec![] };
        let nobody = files.make(&vec![Vec::new()]).unwrap();
        assert!(nobody.check(Some(&HeaderValue::from_static("Bearer "))).is_err());
        assert_eq!(format!("{:?}", credentials()), "3 tokens and 2 users");
    }

    #[test]
    fn a_wrong_line_is_named_with_its_file_and_without_its_secret() {
        let files = CredentialFiles { bearer_tokens: vec!["t".into()], basic_users: vec!["/u/users".into()] };
        let error = files.make(&vec![b"one".to_vec(), b"a:b\nsecret\n".to_vec()]).unwrap_err().to_string();
        assert_eq!(error, "using the users from /u/users: line 2 has no colon: write user:password");
    }

    #[test]
    fn a_client_learns_the_schemes_that_are_configured() {
        let check = |bearer: &[&str], basic: &[&str], header: Option<&'static str>| {
            let of = |names: &[&str]| names.iter().map(std::path::PathBuf::from).collect();
            let files = CredentialFiles { bearer_tokens: of(bearer), basic_users: of(basic) };
            let contents = vec![b"a:b".to_vec(); bearer.len() + basic.len()];
            let made = files.make(&contents).unwrap();
            made.check(header.map(HeaderValue::from_static).as_ref()).unwrap_err()
        };
        let failure = check(&["t"], &[], None);
        assert!(failure.words.ends_with("send Bearer"), "{failure:?}");
        let failure = check(&["t"], &[], Some("Basic YTpi"));
        assert!(failure.words.contains("not accepted: send Bearer"), "{failure:?}");
        let failure = check(&[], &["u"], Some("Bearer a:b"));
        assert!(failure.words.ends_with("send Basic"), "{failure:?}");
        assert!(check(&["t"], &["u"], None).words.ends_with("send Bearer or Basic"));
    }
}
