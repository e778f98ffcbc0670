//! `application/x-www-form-urlencoded`, as OAuth 2.0 sends parameters (RFC 6749, appendix B).

/// Encodes a name or value.
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            b' ' => encoded.push('+'),
            _ => {
                for digit in [byte >> 4, byte & 0xf] {
                    encoded.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                }
                let at = encoded.len() - 2;
                encoded.insert(at, '%');
            }
        }
        encoded
    })
}

/// Encodes pairs.
pub fn form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = pairs.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stay_spaces_are_plus_and_the_rest_is_percent() {
        assert_eq!(encoded("aZ09-._~"), "aZ09-._~");
        assert_eq!(encoded("a b&c=d%/é"), "a+b%26c%3Dd%25%2F%C3%A9");
        assert_eq!(form([("scope", "api://a/.default"), ("x", "")]), "scope=api%3A%2F%2Fa%2F.default&x=");
        assert_eq!(form([]), "");
    }
}
