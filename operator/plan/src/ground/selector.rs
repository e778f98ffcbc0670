//! A label selector as text, as `kubectl --selector` takes it: `a=b`, `a!=b`, `a`, `!a`, `a in (b, c)`, `a notin (b, c)`, with commas between.
//! All of its requirements must hold. As in Kubernetes, `!=` and `notin` hold for an object without the label.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Characters of a selector. Chosen: it is also in an annotation of each pipeline.
const CHARS_MAX: usize = 1_024;

/// A selector, which [`Selector::from_str`] makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    text: String,
}

/// One requirement of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    is: Is,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Is {
    In(Vec<String>),
    NotIn(Vec<String>),
    There,
    NotThere,
}

impl Selector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|Requirement { key, is }| match (is, labels.get(key)) {
            (Is::In(values), found) => found.is_some_and(|found| values.contains(found)),
            (Is::NotIn(values), found) => found.is_none_or(|found| !values.contains(found)),
            (Is::There, found) => found.is_some(),
            (Is::NotThere, found) => found.is_none(),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.len() > CHARS_MAX {
            return Err(format!("a selector has 1 to {CHARS_MAX} characters, such as team=a"));
        }
        let requirements = parts(text).map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements, text: text.to_owned() })
    }
}

/// The requirements: what stands between commas that are not within parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c: char| {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    let of = |key: &str, is| Ok(Requirement { key: word(key)?, is });
    if let Some((key, value)) = text.split_once("!=") {
        return of(key, Is::NotIn(vec![value_of(value)?]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return of(key, Is::In(vec![value_of(value)?]));
    }
    if let Some(key) = text.strip_prefix('!') {
        return of(key, Is::NotThere);
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else { return of(text, Is::There) };
    let (operator, rest) = rest.trim().split_once([' ', '(']).unwrap_or(("", ""));
    let values = rest.trim().trim_start_matches('(').strip_suffix(')').ok_or_else(|| not_one(text))?;
    let values = values.split(',').map(value_of).collect::<Result<_, _>>()?;
    match operator {
        "in" => of(key, Is::In(values)),
        "notin" => of(key, Is::NotIn(values)),
        _ => Err(not_one(text)),
    }
}

/// The key of a label.
fn word(text: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    if text.is_empty() || !text.bytes().all(legal) {
        return Err(format!("{text:?} is not the key of a label"));
    }
    Ok(text.to_owned())
}

/// The value of a label, which may be empty.
fn value_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if !text.bytes().all(legal) {
        return Err(format!("{text:?} is not the value of a label"));
    }
    Ok(text.to_owned())
}

fn not_one(text: &str) -> String {
    format!("{text:?} is not a requirement such as a=b, a!=b, a, !a, a in (b, c) or a notin (b, c)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_selector_selects_what_kubectl_would() {
        let (a, b, none) = (labels(&[("team", "a")]), labels(&[("team", "b"), ("x/y", "")]), labels(&[]));
        for (text, expected) in [
            ("team=a", [true, false, false]),
            ("team==a", [true, false, false]),
            (" team = a ", [true, false, false]),
            ("team!=a", [false, true, true]),
            ("team", [true, true, false]),
            ("!team", [false, false, true]),
            ("team in (a,c)", [true, false, false]),
            ("team in(a, b)", [true, true, false]),
            ("team notin (a, c)", [false, true, true]),
            ("team,team!=a", [false, true, false]),
            ("team in (a, b),x/y", [false, true, false]),
            ("x/y=", [false, true, false]),
        ] {
            let selector: Selector = text.parse().unwrap();
            let found = [&a, &b, &none].map(|labels| selector.matches(labels));
            assert_eq!(found, expected, "{text}");
            assert_eq!(selector.to_string(), text.trim());
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_part_that_is_not() {
        let long = "a".repeat(CHARS_MAX + 1);
        for text in [
            "",
            " ",
            ",",
            "a,",
            "=a",
            "a=b=c",
            "a b",
            "a in b",
            "a in (b",
            "a near (b)",
            "a=é",
            "!",
            "a b=c",
            &long,
        ] {
            let found = text.parse::<Selector>();
            assert!(found.is_err(), "{text}: {found:?}");
        }
    }
}
