//! The exception code in ClickHouse's text.
//!
//! Job: the one place that takes a number out of a server's text. Place in the flow: the insert client when the header with the code is
//! missing, and the probe, whose library returns only text. Limits: the texts are the server's, so a text without a code is not an error
//! here.
//!
//! Forms: `Code: 60. DB::Exception: Table …`, `Poco::Exception. Code: 1000, e.code() = 111, …`,
//! `std::exception. Code: 1001, type: …`.

/// The code of the (outermost) exception in a server's answer, if it has one.
pub fn code_of(text: &str) -> Option<u32> {
    const LABEL: &str = "Code: ";
    let digits = &text[text.find(LABEL)? + LABEL.len()..];
    let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// An error without the query: the server adds the query to errors about its names, as `… in scope SELECT …`.
pub fn without_query(text: &str) -> &str {
    text.split_once(" in scope ").map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_code_is_taken() {
        let table = [
            ("Code: 60. DB::Exception: Table default.nosuch does not exist. (UNKNOWN_TABLE)", Some(60)),
            ("Code: 516", Some(516)),
            ("Poco::Exception. Code: 1000, e.code() = 111, Connection refused", Some(1000)),
            ("std::exception. Code: 1001, type: std::bad_alloc", Some(1001)),
            ("__exception__\r\nabc\r\nCode: 241. DB::Exception: Memory limit. Code: 60.", Some(241)),
            ("<html>502 Bad Gateway</html>", None),
            ("Code: ", None),
            ("Code: x", None),
            ("Code: 99999999999999", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(code_of(text), expected, "{text}");
        }
    }
}
