//! What becomes of attributes on their way into rows: `attributes` of the config.

use crate::{units::ByteSize, violation::Violations};
use serde::{Deserialize, Serialize};

/// Maximum number of rules. Chosen: a rule is a decision of a person, and its number is a label of a metric.
pub const RULES_MAX: usize = 16;

/// Maximum number of keys of a rule. Chosen: with [`RULES_MAX`], more than OpenTelemetry's semantic conventions have for spans of one kind;
/// all keys of the largest config take 128 KiB, compiled 1 MiB, for all workers together.
pub const KEYS_MAX: usize = 64;

/// Maximum length of a key, in bytes. Chosen: twice the longest key of the semantic conventions.
pub const KEY_BYTES_MAX: usize = 128;

/// The smallest and the largest `valueBytesMax`. Chosen: a hash (71 bytes), an id and a URL always fit; a row has at most 4 MiB.
pub const VALUE_BYTES_RANGE: (ByteSize, ByteSize) = (ByteSize::kib(1), ByteSize::mib(1));

/// What becomes of attributes on their way into rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attributes {
    /// Longer strings and bytes are truncated: 1 KiB to 1 MiB. Absent means that none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes_max: Option<ByteSize>,
    /// The first rule with a key of the attribute decides; an attribute without a rule is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AttributeRule>,
    /// What a dead letter keeps of a message that cannot be read, to which rules cannot be applied.
    #[serde(default, skip_serializing_if = "UnreadableLetters::is_original")]
    pub unreadable_letters: UnreadableLetters,
}

impl Attributes {
    /// Whether attributes are stored as they are.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every rule about the fields, which are at `at`.
    pub(crate) fn check(&self, at: &str, found: &mut Violations) {
        let (least, most) = VALUE_BYTES_RANGE;
        let is_wrong = self.value_bytes_max.is_some_and(|bytes| bytes < least || bytes > most);
        found.add_if(is_wrong, &format!("{at}.valueBytesMax"), || format!("must be {least} to {most}"));
        found.add_if(self.rules.len() > RULES_MAX, &format!("{at}.rules"), || {
            format!("at most {RULES_MAX} rules; put keys with the same action into one")
        });
        for (number, rule) in self.rules.iter().enumerate() {
            rule.check(&format!("{at}.rules[{number}]"), found);
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttributeRule {
    pub action: AttributeAction,
    /// Keys; with `*` at the end, all keys that begin so.
    pub keys: Vec<String>,
    /// Whose attributes; absent means all.
    #[serde(default = "all_sets", skip_serializing_if = "are_all", rename = "in")]
    pub sets: Vec<AttributesOf>,
}

impl AttributeRule {
    fn check(&self, at: &str, found: &mut Violations) {
        let is_wrong = self.keys.is_empty() || self.keys.len() > KEYS_MAX;
        found.add_if(is_wrong, &format!("{at}.keys"), || format!("must be 1 to {KEYS_MAX} keys"));
        for key in &self.keys {
            let stem = key.strip_suffix('*').unwrap_or(key);
            let is_wrong = key.is_empty() || key.len() > KEY_BYTES_MAX || stem.contains('*');
            found.add_if(is_wrong, &format!("{at}.keys"), || {
                format!(
                    "{key:?} is not a key of 1 to {KEY_BYTES_MAX} bytes, such as http.route, or the beginning of one with * behind it, \
                     such as http.request.*"
                )
            });
        }
        found.add_if(self.sets.is_empty(), &format!("{at}.in"), || {
            "must name Resource, Scope, Span, Event or Link; leave it out for all".into()
        });
    }
}

/// What a rule does with an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeAction {
    /// It stays, whatever later rules say.
    Keep,
    /// It is left out.
    Drop,
    /// Its value is replaced by `sha256:` and the SHA-256 of its text.
    Hash,
}

/// Whose attributes a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributesOf {
    Resource,
    Scope,
    Span,
    Event,
    Link,
}

impl AttributesOf {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Resource, Self::Scope, Self::Span, Self::Event, Self::Link];
}

fn all_sets() -> Vec<AttributesOf> {
    AttributesOf::ALL.to_vec()
}

fn are_all(sets: &[AttributesOf]) -> bool {
    sets == AttributesOf::ALL
}

/// What a dead letter keeps of a message that cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnreadableLetters {
    /// The message.
    #[default]
    Original,
    /// Where it is in Kafka, its key and its headers.
    WithoutValue,
}

impl UnreadableLetters {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_original(&self) -> bool {
        *self == Self::Original
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixtures::SMALLEST, parse::from_yaml};

    fn with(attributes: &str) -> String {
        format!("{SMALLEST}attributes: {attributes}\n")
    }

    fn violations(attributes: &str) -> Vec<String> {
        let config = from_yaml(&with(attributes)).unwrap();
        config.check().unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_config_without_attributes_is_written_without_them() {
        let config = from_yaml(SMALLEST).unwrap();
        assert!(config.attributes.is_default());
        assert!(!serde_saphyr::to_string(&config).unwrap().contains("attributes"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = with(
            "{valueBytesMax: 4KiB, rules: [{action: Hash, keys: [user.id]}, {action: Drop, keys: ['http.*'], in: [Span]}], \
                         unreadableLetters: WithoutValue}",
        );
        let config = from_yaml(&text).unwrap();
        let rule = &config.attributes.rules[0];
        assert_eq!((rule.action, rule.sets.len()), (AttributeAction::Hash, 5));
        let written = serde_saphyr::to_string(&config).unwrap();
        assert_eq!(
            written.lines().filter(|line| line.trim_start().starts_with("in:")).count(),
            1,
            "{written}"
        );
        assert_eq!(from_yaml(&written).unwrap(), config);
        config.check().unwrap();
    }

    #[test]
    fn each_rule_names_its_field() {
        let many = vec!["{action: Drop, keys: [a]}"; RULES_MAX + 1].join(", ");
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        for (attributes, path) in [
            ("{valueBytesMax: 1023B}".to_owned(), "attributes.valueBytesMax"),
            ("{valueBytesMax: 2MiB}".to_owned(), "attributes.valueBytesMax"),
            (format!("{{rules: [{many}]}}"), "attributes.rules"),
            ("{rules: [{action: Drop, keys: []}]}".to_owned(), "attributes.rules[0].keys"),
            (
                "{rules: [{action: Keep, keys: [a]}, {action: Drop, keys: ['']}]}".to_owned(),
                "attributes.rules[1].keys",
            ),
            ("{rules: [{action: Drop, keys: ['a*b']}]}".to_owned(), "attributes.rules[0].keys"),
            ("{rules: [{action: Drop, keys: ['**']}]}".to_owned(), "attributes.rules[0].keys"),
            (format!("{{rules: [{{action: Drop, keys: [{long}]}}]}}"), "attributes.rules[0].keys"),
            ("{rules: [{action: Drop, keys: [a], in: []}]}".to_owned(), "attributes.rules[0].in"),
        ] {
            let found = violations(&attributes);
            assert!(found.iter().any(|one| one.starts_with(path)), "{attributes}: {found:?}");
        }
    }
}
