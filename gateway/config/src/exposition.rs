//! Prometheus' text format, as far as a gateway writes it: one sample a line, labels in braces, a number. The kubectl plugin reads it, and
//! [`crate::gateways::without_state`].
//!
//! Why not a package: the parsers on crates.io bring a date library and a regular expression for each line, or have had no release for
//! years. All of them build every series of the answer, where a few are needed. A line that cannot be read is skipped; the reader that
//! needs its sample reports that it is missing. The time is linear in the text, which the caller bounds.

use std::borrow::Cow;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// What was measured.
    pub value: f64,
    labels: &'a str,
}

/// Numbers up to here are exact in a float; larger ones are none of ours.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

impl<'a> Line<'a> {
    /// The value without its fraction, where it is a number that can be counted to.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is checked first")]
    pub fn whole(&self) -> Option<u64> {
        (0.0..EXACT_MAX).contains(&self.value).then_some(self.value as u64)
    }

    /// The value of a label.
    pub fn label(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        while let Some((name, quoted)) = rest.split_once("=\"") {
            let end = end_of_quotes(quoted)?;
            if name.trim_start_matches(',').trim() == wanted {
                return Some(unescaped(&quoted[..end]));
            }
            rest = &quoted[end + 1..];
        }
        None
    }
}

/// The samples of a text, in its order.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(line)
}

fn line(text: &str) -> Option<Line<'_>> {
    let text = text.trim();
    let name_end = text.find(['{', ' ', '\t'])?;
    let (name, rest) = text.split_at(name_end);
    let is_name = !name.is_empty() && !name.starts_with('#');
    let (labels, value) = match rest.strip_prefix('{') {
        Some(inside) => {
            let end = end_of_braces(inside)?;
            (&inside[..end], &inside[end + 1..])
        }
        None => ("", rest),
    };
    // A time may follow.
    let value = value.split_ascii_whitespace().next()?.parse().ok()?;
    is_name.then_some(Line { name, value, labels })
}

/// Where the braces close, with closing braces in quotes passed over.
fn end_of_braces(inside: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + inside[at..].find(['}', '"'])?;
        if inside.as_bytes()[next] == b'}' {
            return Some(next);
        }
        at = next + 1 + end_of_quotes(&inside[next + 1..])? + 1;
    }
}

/// Where the quotes close, with escaped ones passed over.
fn end_of_quotes(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}

fn unescaped(quoted: &str) -> Cow<'_, str> {
    if !quoted.contains('\\') {
        return Cow::Borrowed(quoted);
    }
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            (plain, false) => text.push(plain),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_the_rest_is_passed_over() {
        let text = "# HELP a What it is {\"}\n# TYPE a counter\na 1\na{x=\"1\"} 2.5\n\n a{x=\"1\",y=\"2\"} +Inf 1700000000\nb{} 3\n\
                    broken\nbroken{x=\"1\nbroken{x=\"1\"\nbroken x\n{x=\"1\"} 1\n";
        let found: Vec<_> = lines(text).map(|line| (line.name, line.value)).collect();
        assert_eq!(found, [("a", 1.0), ("a", 2.5), ("a", f64::INFINITY), ("b", 3.0)]);
    }

    #[test]
    fn labels_are_found_by_name_and_read_back() {
        let line = line(r#"a{topic="a}b",path="C:\\d\"e\n", last="z"} 1"#).unwrap();
        for (name, expected) in
            [("topic", Some("a}b")), ("path", Some("C:\\d\"e\n")), ("last", Some("z")), ("pat", None)]
        {
            assert_eq!(line.label(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn whatever_is_cut_off_is_no_panic() {
        let text = r#"a{topic="ä\"b",x="\\"} 12.5 7"#;
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            for line in lines(&text[..end]) {
                line.label("x");
            }
        }
    }
}
