//! Words that many messages need.

use std::fmt::Display;

/// A count with its noun: `1 gateway`, `0 gateways`, `2 gateways`. `one` is the singular of a noun whose plural ends in `s`.
pub fn plural<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// The form of a word that goes with a count: `reads` for 1, `read` for all others.
pub fn form<'a, N: Copy + PartialEq + From<u8>>(count: N, one: &'a str, more: &'a str) -> &'a str {
    if count == N::from(1) { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_everything_else_plural() {
        assert_eq!(
            [0_u32, 1, 2].map(|count| plural(count, "gateway")),
            ["0 gateways", "1 gateway", "2 gateways"]
        );
        assert_eq!(
            (plural(1_i64, "message"), plural(1_usize, "topic")),
            ("1 message".into(), "1 topic".into())
        );
        assert_eq!([0_u32, 1, 2].map(|count| form(count, "is", "are")), ["are", "is", "are"]);
    }
}
