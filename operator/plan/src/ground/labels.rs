//! How Kubernetes spells the keys and values of labels, and the names of objects. Keys of annotations are spelt as those of labels.

use sluice_crds::OBJECT_NAME_FORM;

/// Characters of a domain: the prefix of a key, or the name of an object.
const DOMAIN_CHARS_MAX: usize = 253;
/// Characters of a key without its prefix, of a label's value, and of a namespace.
const NAME_CHARS_MAX: usize = 63;

/// Whether it is the key of a label or of an annotation.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// What is said of a key that is none.
pub fn not_key(key: &str) -> String {
    format!(
        "{key:?} is not a key: at most {NAME_CHARS_MAX} of a-z, A-Z, 0-9, '-', '_' and '.', with a domain and '/' in front of it if any, \
         such as example.com/team"
    )
}

/// Whether it is the value of a label.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// What is said of the value of a label that is none.
pub fn not_value(key: &str, value: &str) -> String {
    format!(
        "{value:?} of {key:?} is not the value of a label: at most {NAME_CHARS_MAX} of a-z, A-Z, 0-9, '-', '_' and '.', of which the first \
         and the last are letters or digits, such as team-a"
    )
}

/// Whether it is a key without a prefix, or the value of a label that has one.
pub fn is_name(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.bytes().all(legal)
        && text.starts_with(ends)
        && text.ends_with(ends)
}

/// Whether it is the name of an object, which is a domain.
pub fn is_domain(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(legal) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= DOMAIN_CHARS_MAX && text.split('.').all(is_part)
}

/// What is said of the name of an object that is none.
pub fn not_domain(name: &str) -> String {
    format!(
        "{name:?} is not the name of an object: at most {DOMAIN_CHARS_MAX} of {OBJECT_NAME_FORM}, such as main"
    )
}

/// Whether it is the name of a namespace.
pub fn is_namespace(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX && !text.contains('.') && is_domain(text)
}

/// What is said of the name of a namespace that is none.
pub fn not_namespace(name: &str) -> String {
    format!(
        "{name:?} is not the name of a namespace: at most {NAME_CHARS_MAX} of a-z, 0-9 and '-', with a letter or digit at both ends, such as tracing"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelt_as_kubernetes_wants_them() {
        for key in ["team", "example.com/team", "a", "A_b.C-1", "sidecar.istio.io/inject"] {
            assert!(is_key(key), "{key}");
        }
        let (long, long_prefix) = ("a".repeat(64), format!("{}/a", "a.".repeat(127)));
        for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "Example.com/team", "a b", "ä", &long, &long_prefix]
        {
            assert!(!is_key(key), "{key}");
        }
    }

    #[test]
    fn names_of_objects_are_domains_and_those_of_namespaces_one_part_of_one() {
        let (part, long) = ("a".repeat(63), "a".repeat(254));
        for (name, is_object, is_one_part) in [
            ("traces", true, true),
            ("0-a", true, true),
            (part.as_str(), true, true),
            (&long[..64], true, false),
            ("a.b-1", true, false),
            (long.as_str(), false, false),
            ("My_Secret", false, false),
            ("a..b", false, false),
            ("-a", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_domain(name), is_namespace(name)), (is_object, is_one_part), "{name}");
        }
    }
}
