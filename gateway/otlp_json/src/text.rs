//! Bytes in strings: hex, base64, and unescaped text.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Reads hex of exactly `out`'s length; `false` if it is not.
pub(crate) fn read_hex(text: &[u8], out: &mut [u8]) -> bool {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != out.len() {
        return false;
    }
    // All digits are read before they are checked: a branch per digit would cost more than reading.
    let mut wrong = 0;
    for ([high, low], byte) in pairs.iter().zip(out) {
        let (high, low) = (hex_digit(*high), hex_digit(*low));
        wrong |= high | low;
        *byte = high << 4 | low & 0x0F;
    }
    wrong <= 0x0F
}

/// The value of a hex digit; above 15 if it is not one.
const fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0xFF,
    }
}

/// Number of bytes of this base64 text, if it is valid.
pub(crate) fn base64_bytes(text: &[u8]) -> usize {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    (text.len() - padding) / 4 * 3 + (text.len() - padding) % 4 * 3 / 4
}

/// Reads base64 of exactly `out`'s length; `false` if it is not.
pub(crate) fn read_base64(text: &[u8], out: &mut [u8]) -> bool {
    let engine = if text.iter().any(|byte| matches!(byte, b'-' | b'_')) { URL } else { STANDARD };
    engine.decode_slice(text, out).is_ok_and(|bytes| bytes == out.len())
}

/// Replaces surrogates without their other half by U+FFFD; both take three bytes. The text was UTF-8 before unescaping, so that no other
/// character looks like a surrogate.
pub(crate) fn replace_surrogates(text: &mut [u8]) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == 0xED) {
        let Some([first, second, third, behind @ ..]) = rest.get_mut(at..) else { return };
        if *second >= 0xA0 {
            [*first, *second, *third] = [0xEF, 0xBF, 0xBD];
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_in_either_case_and_in_its_length_alone() {
        let mut out = [0; 3];
        assert!(read_hex(b"0aF9bC", &mut out));
        assert_eq!(out, [0x0A, 0xF9, 0xBC]);
        for text in ["", "0aF9", "0aF9b", "0aF9bC00", "0aF9bg", "0aF9b ", "0aF9b\u{e9}", "-1-1-1"] {
            assert!(!read_hex(text.as_bytes(), &mut out), "{text}");
        }
    }

    #[test]
    fn base64_is_read_in_either_alphabet_with_or_without_padding() {
        let table: &[(&str, &[u8])] = &[
            ("", &[]),
            ("AA==", &[0]),
            ("AA", &[0]),
            ("AAE=", &[0, 1]),
            ("AAE", &[0, 1]),
            ("AAEC", &[0, 1, 2]),
            ("+/+/", &[0xFB, 0xFF, 0xBF]),
            ("-_-_", &[0xFB, 0xFF, 0xBF]),
            ("AB", &[0]), // bits beyond the last byte
        ];
        for (text, bytes) in table {
            let mut out = vec![0; base64_bytes(text.as_bytes())];
            assert!(read_base64(text.as_bytes(), &mut out), "{text}");
            assert_eq!(out, *bytes, "{text}");
        }
        for text in ["A", "AAAAA", "AA=A", "====", "A===", "+_+_", "AA C", "AAE=\n", "ab\u{e9}d"] {
            let mut out = vec![0; base64_bytes(text.as_bytes())];
            assert!(!read_base64(text.as_bytes(), &mut out), "{text}");
        }
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        // U+D7FF is the last character before the surrogates: ED 9F BF.
        let mut text = [b"a\xED\xA0\x80\xED\xBF\xBF".as_slice(), "\u{d7ff}é".as_bytes()].concat();
        replace_surrogates(&mut text);
        assert_eq!(text, "a\u{fffd}\u{fffd}\u{d7ff}é".as_bytes());
    }
}
