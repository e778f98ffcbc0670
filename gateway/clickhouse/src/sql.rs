//! Names and texts inside SQL statements.
//!
//! Job: nothing from a config reaches a statement unquoted. Place in the flow: every statement built in this package.
//! Limits: none of its own.
//!
//! Source: <https://clickhouse.com/docs/sql-reference/syntax#identifiers>: backticks around a name, with backslash
//! escapes inside, as in string literals.

/// `name` as an identifier: in backticks, whatever it holds.
pub fn identifier(name: &str) -> String {
    quoted(name, '`')
}

/// `database.table`, both as identifiers.
pub fn table_name(database: &str, table: &str) -> String {
    format!("{}.{}", identifier(database), identifier(table))
}

/// `text` as a string literal: in single quotes, whatever it holds.
pub fn literal(text: &str) -> String {
    quoted(text, '\'')
}

fn quoted(text: &str, quote: char) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for char in text.chars() {
        match char {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\0' => quoted.push_str("\\0"),
            '\\' | '`' | '\'' => {
                quoted.push('\\');
                quoted.push(char);
            }
            other => quoted.push(other),
        }
    }
    quoted.push(quote);
    quoted
}

/// `text` with everything but unreserved characters percent-encoded, for a query string.
///
/// Source: RFC 3986, 2.3.
pub fn percent_encoded(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 0x0f)]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let table = [
            ("otel_traces", "`otel_traces`"),
            ("Events.Timestamp", "`Events.Timestamp`"),
            ("a`b", r"`a\`b`"),
            (r"a\", r"`a\\`"),
            (r"a\`; DROP TABLE x", r"`a\\\`; DROP TABLE x`"),
            ("a'b\n", r"`a\'b\n`"),
            ("", "``"),
            ("é", "`é`"),
        ];
        for (name, expected) in table {
            assert_eq!(identifier(name), expected);
        }
        assert_eq!(table_name("o`t", "t"), r"`o\`t`.`t`");
        assert_eq!(literal(r"it's"), r"'it\'s'");
    }

    #[test]
    fn only_unreserved_characters_stay_as_they_are() {
        assert_eq!(percent_encoded("Az09-._~"), "Az09-._~");
        assert_eq!(percent_encoded("a b&c=d`%/é"), "a%20b%26c%3Dd%60%25%2F%C3%A9");
    }
}
