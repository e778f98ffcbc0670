//! What becomes of attributes on their way into rows.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of attributes on their way into rows.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attributes {
    /// The longest string or bytes of an attribute: a whole number of Ki or Mi, 1Ki to 1Mi. Longer values are truncated between two
    /// characters, and the attribute sluice.original_bytes.<key> has the length that the value had. Values in arrays and key-value lists are
    /// not truncated. When it is not set, none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Ki|Mi)$') && quantity(self).compareTo(quantity('1Ki')) >= 0 \
         && quantity(self).compareTo(quantity('1Mi')) <= 0")
        .message("valueBytesMax is a whole number of Ki or Mi from 1Ki to 1Mi, such as 4Ki"))]
    pub value_bytes_max: Option<String>,

    /// Rules by key, at most 16. The first rule with the key of an attribute decides what becomes of it; an attribute without a rule is
    /// kept. Rules are applied before rows are made, and to the dead letters of rows and messages that can be read. A member of a key-value
    /// list that has no rule itself is decided by its dotted path, such as account.email.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rules: Vec<AttributeRule>,

    /// What a dead letter keeps of a message that cannot be read: rules cannot be applied to it. Original (the default): the message.
    /// WithoutValue: its coordinates, key and headers; Kafka has the message until the topic's retention deletes it.
    #[serde(default)]
    pub unreadable_letters: UnreadableLetters,
}

/// A rule by key.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttributeRule {
    /// Keep: the attribute stays, whatever later rules say. Drop: it is left out. Hash: its value becomes sha256: and the SHA-256 of its
    /// text in hex, without a key. Who knows which values are possible can find out which one a hash stands for.
    pub action: AttributeAction,

    /// Keys, 1 to 64 of at most 128 characters, such as http.route. A * at the end stands for all keys that begin so; * alone for all.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 128)))]
    #[x_kube(
        validation = Rule::new("self.all(k, k.matches('^[^*]*[*]?$'))")
            .message("each of keys has no * but one at its end, such as http.route or http.*"),
        merge_strategy = ListMerge::Atomic
    )]
    pub keys: Vec<String>,

    /// Whose attributes: Resource, Scope, Span, Event, Link. When it is empty, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "in")]
    #[schemars(length(max = 5))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub sets: Vec<AttributesOf>,
}

/// What a rule does with an attribute.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeAction {
    /// It stays.
    Keep,
    /// It is left out.
    Drop,
    /// Its value is replaced by a hash of it.
    Hash,
}

/// Whose attributes a rule is for.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributesOf {
    /// Those of resources.
    Resource,
    /// Those of scopes.
    Scope,
    /// Those of spans.
    Span,
    /// Those of events of spans.
    Event,
    /// Those of links of spans.
    Link,
}

/// What a dead letter keeps of a message that cannot be read.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnreadableLetters {
    /// The message.
    #[default]
    Original,
    /// Coordinates, key and headers.
    WithoutValue,
}
