//! Rules between fields that the operator's planner repeats: an object that was stored before there was the rule may break it.
//!
//! Such a rule stands at an object, and the planner names a field in it. So the rule says, where it is declared, at which fields the planner
//! refuses the same thing ([`repeated_at()`]). By that, `kubectl sluice plan` tells one cause once.
//!
//! The planner may refuse a field for several reasons, and the rule has one of them. Then the rule says how the message of that one begins, and
//! `plan` still tells the others.
//!
//! The fields travel in the rule's `fieldPath`, because the derive keeps nothing of our own beside a rule. The published definition has none of
//! them: an API server takes one path there, and our messages name fields as seen from the rule's object.

use kube::core::Rule;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The key of a schema's rules.
const RULES: &str = "x-kubernetes-validations";

/// The key of a rule under which its fields travel.
const FIELDS: &str = "fieldPath";

/// Between two fields. Neither the name of a field nor a message contains it.
const SEPARATOR: &str = "\n";

/// Between a field and the beginning of the planner's message. No name of a field contains it.
const BEFORE_MESSAGE: &str = ": ";

/// Every name in a map.
const EACH_NAME: &str = "*";

/// The rule, with the fields at which the planner refuses the same thing: their paths from the rule's object on, or `*` for every name in a map.
/// Behind `: ` stands the beginning of what the planner says there, if it refuses the field for other reasons, too.
pub(crate) fn repeated_at(fields: &[&str], rule: Rule) -> Rule {
    rule.field_path(fields.join(SEPARATOR))
}

/// The rules that the planner repeats, by their messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepeatedRules(BTreeMap<String, BTreeSet<String>>);

impl RepeatedRules {
    /// Takes the fields out of the rules of a definition.
    pub(crate) fn taken_from(definition: &mut Value) -> Self {
        let mut found = Self::default();
        found.take(definition);
        found
    }

    /// Appends those of another definition.
    pub(crate) fn extend(&mut self, others: Self) {
        for (message, fields) in others.0 {
            self.0.entry(message).or_default().extend(fields);
        }
    }

    /// Whether the planner, with what is `said` at this field, refuses what the rule with this message refuses. The path of the field begins at
    /// the rule's object.
    pub fn has(&self, message: &str, field: &str, said: &str) -> bool {
        let is_it = |one: &String| {
            let (at, beginning) = parts(one);
            (at == EACH_NAME || field == at) && said.starts_with(beginning)
        };
        self.0.get(message).is_some_and(|fields| fields.iter().any(is_it))
    }

    fn take(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let rules = fields.get_mut(RULES).and_then(Value::as_array_mut);
                rules.into_iter().flatten().for_each(|rule| self.take_rule(rule));
                fields.values_mut().for_each(|field| self.take(field));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.take(item)),
            _ => {}
        }
    }

    fn take_rule(&mut self, rule: &mut Value) {
        let fields = rule.as_object_mut().and_then(|rule| rule.remove(FIELDS));
        let (Some(Value::String(fields)), Some(message)) = (fields, rule["message"].as_str()) else { return };
        let fields = fields.split(SEPARATOR).map(str::to_owned);
        self.0.entry(message.to_owned()).or_default().extend(fields);
    }
}

/// The field, and the beginning of what the planner says there.
fn parts(one: &str) -> (&str, &str) {
    one.split_once(BEFORE_MESSAGE).unwrap_or((one, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceConnection, TracePipeline, connection_crd, crd, repeated_rules};
    use kube::CustomResourceExt as _;

    /// The fields that rules of a schema have and the schema lacks, and how many there are in all.
    fn misspelt(schema: &Value) -> (Vec<String>, usize) {
        let inner = match schema {
            Value::Object(fields) => fields.values().map(misspelt).collect::<Vec<_>>(),
            Value::Array(items) => items.iter().map(misspelt).collect(),
            _ => Vec::new(),
        };
        let rules = schema.get(RULES).and_then(Value::as_array).into_iter().flatten();
        let fields = rules.filter_map(|rule| rule[FIELDS].as_str()).flat_map(|all| all.split(SEPARATOR));
        let own: Vec<&str> = fields.collect();
        let missing =
            own.iter().filter(|field| !is_in(schema, parts(field).0)).map(|field| (*field).to_owned());
        let count = own.len() + inner.iter().map(|(_, count)| count).sum::<usize>();
        (missing.chain(inner.into_iter().flat_map(|(missing, _)| missing)).collect(), count)
    }

    fn is_in(schema: &Value, field: &str) -> bool {
        if field == EACH_NAME {
            return schema["additionalProperties"].is_object();
        }
        field.split('.').try_fold(schema, part).is_some()
    }

    /// A field, a value of a map, or an entry of a list whose entries have names.
    fn part<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
        let of_field = schema["properties"].get(name);
        let of_entry = || schema.get("items").filter(|_| schema.get("x-kubernetes-list-map-keys").is_some());
        of_field.or_else(|| schema.get("additionalProperties")).or_else(of_entry)
    }

    #[test]
    fn each_field_of_a_rule_is_one_of_its_object() {
        for (definition, expected) in [(TracePipeline::crd(), 40), (TraceConnection::crd(), 14)] {
            let (missing, count) = misspelt(&serde_json::to_value(definition).unwrap());
            assert!(missing.is_empty(), "{missing:?}");
            assert!(count >= expected, "{count} fields");
        }
    }

    #[test]
    fn the_published_definitions_have_no_fields_of_the_planner() {
        for mut definition in [crd(), connection_crd()] {
            assert_eq!(RepeatedRules::taken_from(&mut definition), RepeatedRules::default());
        }
    }

    #[test]
    fn a_rule_has_its_own_fields() {
        let rules = repeated_rules();
        let of_queue = "maxBytes must be at most 95 % of size, such as 9728Mi of 10Gi: the file system of the volume needs the rest";
        assert!(rules.has(of_queue, "maxBytes", "any words"));
        for (message, field) in
            [(of_queue, "size"), (of_queue, "maxBytes.a"), ("maxBytes must be something else", "maxBytes")]
        {
            assert!(!rules.has(message, field, "any words"), "{message} {field}");
        }
    }

    #[test]
    fn a_field_that_is_refused_for_several_reasons_is_that_of_the_rule_by_its_message() {
        let rules = repeated_rules();
        let of_engine = "engine Null stores nothing, so that ttl and orderBy must not be set";
        let has_names = "settings has a name that the gateway decides: one of a session (session_*) or of a query's parameters (param_*)";
        for (message, field, said, expected) in [
            (of_engine, "ttl", "must not be set with engine Null, which stores nothing", true),
            (of_engine, "orderBy", "must not be set with engine Null, which stores nothing", true),
            (of_engine, "ttl", "99999d is not between 1h and 36500d", false),
            (of_engine, "cluster", "must not be set with engine Null, which stores nothing", false),
            (has_names, "session_id", "cannot be set here: the gateway decides how it sends requests", true),
            (has_names, "insert_quorum", "is not a quorum, which schema.durability requires", false),
        ] {
            assert_eq!(rules.has(message, field, said), expected, "{message} {field} {said}");
        }
    }
}
