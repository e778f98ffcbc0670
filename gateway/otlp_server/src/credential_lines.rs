//! Lines of a file with tokens or users, checked. No error repeats anything of a line: it may be a secret.
//!
//! A line ends with LF or CR LF. Lines without any character are ignored. Pure.

use std::fmt;

/// What a file has a line for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A bearer token, which is visible ASCII: it is sent in a header, after a space.
    Token,
    /// `user:password`.
    User,
}

/// Which line is wrong, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongLine {
    /// Counted from 1.
    pub line: usize,
    pub why: String,
    /// How many more are wrong.
    pub others: usize,
}

impl fmt::Display for WrongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, why, others } = self;
        write!(f, "line {line} {why}")?;
        match others {
            0 => Ok(()),
            1 => f.write_str(" (one more line is wrong)"),
            others => write!(f, " ({others} more lines are wrong)"),
        }
    }
}

/// The lines that have something in them, or the first that is wrong.
pub(crate) fn lines(kind: LineKind, content: &[u8]) -> Result<Vec<&[u8]>, WrongLine> {
    let mut first: std::collections::HashMap<&[u8], usize> = std::collections::HashMap::new();
    let (mut found, mut wrong) = (Vec::new(), None::<WrongLine>);
    for (index, text) in content.split(|byte| *byte == b'\n').enumerate() {
        let (line, text) = (index + 1, text.strip_suffix(b"\r").unwrap_or(text));
        if text.is_empty() {
            continue;
        }
        let why = match (fault(kind, text), first.get(text).copied()) {
            (Some(why), _) => why.to_owned(),
            (None, Some(other)) => format!("is the same as line {other}: remove one of them"),
            (None, None) => {
                first.insert(text, line);
                found.push(text);
                continue;
            }
        };
        match &mut wrong {
            Some(wrong) => wrong.others += 1,
            None => wrong = Some(WrongLine { line, why, others: 0 }),
        }
    }
    wrong.map_or(Ok(found), Err)
}

/// What is wrong with a line, if anything is.
fn fault(kind: LineKind, text: &[u8]) -> Option<&'static str> {
    if text.trim_ascii().is_empty() {
        return Some("has only spaces: remove it");
    }
    if text.starts_with(b"\xEF\xBB\xBF") {
        return Some("begins with a byte order mark: write the file as UTF-8 without it");
    }
    if text.trim_ascii().len() < text.len() {
        return Some("begins or ends with a space, which no client would send: remove it");
    }
    if text.iter().any(u8::is_ascii_control) {
        return Some("has a control character: write one a line, and end lines with LF or CR LF");
    }
    match kind {
        LineKind::Token if text.contains(&b' ') => {
            Some("has a space: write the token alone, without Bearer, and one a line")
        }
        LineKind::Token if !text.iter().all(u8::is_ascii_graphic) => {
            Some("has a character that no header can carry: tokens are visible ASCII")
        }
        LineKind::Token => None,
        LineKind::User => user_fault(text),
    }
}

fn user_fault(text: &[u8]) -> Option<&'static str> {
    match text.iter().position(|byte| *byte == b':') {
        None => Some("has no colon: write user:password"),
        Some(0) => Some("has no user before the colon: write user:password"),
        Some(colon) if colon + 1 == text.len() => {
            Some("has no password after the colon: write user:password")
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn why(kind: LineKind, content: &[u8]) -> String {
        lines(kind, content).unwrap_err().to_string()
    }

    #[test]
    fn lines_end_with_lf_or_cr_lf_and_empty_ones_are_ignored() {
        let tokens = lines(LineKind::Token, b"one\r\n\r\n\ntwo\nthree");
        assert_eq!(tokens, Ok(vec![&b"one"[..], b"two", b"three"]));
        let users = lines(LineKind::User, "anna:s: p\r\nb\u{f6}:\u{fc}\n".as_bytes());
        assert_eq!(users.unwrap().len(), 2);
        assert_eq!(lines(LineKind::User, b""), Ok(vec![]));
    }

    #[test]
    fn each_wrong_line_is_named_by_its_number() {
        use LineKind::{Token, User};
        for (kind, content, expected) in [
            (Token, &b"one\n  \n"[..], "line 2 has only spaces"),
            (Token, b"one\nBearer two\n", "line 2 has a space: write the token alone, without Bearer"),
            (Token, b"one ", "line 1 begins or ends with a space"),
            (Token, b"\xEF\xBB\xBFone", "line 1 begins with a byte order mark"),
            (Token, b"one\rtwo", "line 1 has a control character"),
            (Token, b"\xFC", "line 1 has a character that no header can carry"),
            (Token, b"one\n\none\n", "line 3 is the same as line 1"),
            (User, b"\nanna\n", "line 2 has no colon: write user:password"),
            (User, b":secret", "line 1 has no user before the colon"),
            (User, b"anna:", "line 1 has no password after the colon"),
            (User, b"anna:secret \n", "line 1 begins or ends with a space"),
            (User, b"a\nb\nc:d", "line 1 has no colon: write user:password (one more line is wrong)"),
        ] {
            let found = why(kind, content);
            assert!(found.starts_with(expected), "{found}");
        }
    }

    proptest! {
        #[test]
        fn no_error_repeats_a_line(secret in "[A-Z]{8,20}") {
            for content in [format!("{secret} {secret}"), format!("{secret}\n{secret}"), format!(" {secret}")] {
                for kind in [LineKind::Token, LineKind::User] {
                    let found = lines(kind, content.as_bytes()).map_err(|wrong| wrong.to_string());
                    prop_assert!(!found.err().unwrap_or_default().contains(&secret));
                }
            }
        }

        #[test]
        fn what_passes_is_one_a_line(content in proptest::collection::vec(any::<u8>(), 0..60)) {
            for kind in [LineKind::Token, LineKind::User] {
                for line in lines(kind, &content).unwrap_or_default() {
                    prop_assert!(!line.is_empty() && !line.contains(&b'\n') && !line.contains(&b'\r'));
                }
            }
        }
    }
}
