//! Schemas of Kubernetes' own types as they stand in the definition: bounded, and in a few words.
//!
//! Kubernetes publishes them without bounds, since its server checks their values in Go, and with descriptions of up to 2 KB that
//! `kubectl explain pod.spec` gives anyway. Here every text, list and number has a bound and every word of a fixed choice is named, so
//! that a wrong one is refused with the pipeline and not with the StatefulSet that is made from it; and a description is its first
//! sentence. Affinity alone, which says the same of pods four times, would otherwise be larger than the rest of the definition.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Characters of a text: the longest key of a label, 253 of its prefix, a slash and 63. Values, namespaces and topologies are shorter.
const TEXT_CHARS_MAX: u64 = 317;

/// Entries of a list, and of a map. Chosen: several times what anybody has, in lists that stand in lists.
const ITEMS_MAX: u64 = 32;

/// The largest number: seconds (68 years), skews and counts. Larger ones are no numbers of pods.
const NUMBER_MAX: u64 = 2_147_483_647;

/// The largest weight of a preference, by Kubernetes' own rules.
const WEIGHT_MAX: u64 = 100;

/// The schema of such a type.
pub(crate) fn bounded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>().to_value();
    bound(&mut schema, &mut Vec::new());
    // A schema is an object or a boolean, and stays what it was.
    Schema::try_from(schema).unwrap_or_default()
}

/// Bounds a schema in place, and all that is in it. `path` has the names of the fields on the way to it.
fn bound(schema: &mut Value, path: &mut Vec<String>) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = first_sentence(description);
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("string") => bound_text(fields, path),
        Some("integer") => bound_number(fields, path),
        Some("array") => {
            fields.insert("maxItems".into(), ITEMS_MAX.into());
        }
        _ => {}
    }
    if let Some(items) = fields.get_mut("items") {
        bound(items, path);
    }
    if let Some(values) = fields.get_mut("additionalProperties") {
        bound(values, path);
        fields.insert("maxProperties".into(), ITEMS_MAX.into());
    }
    for (name, field) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        path.push(name.clone());
        bound(field, path);
        path.pop();
    }
}

fn bound_text(fields: &mut Map<String, Value>, path: &[String]) {
    if let Some(words) = words(path) {
        fields.insert("enum".into(), json!(words));
        return;
    }
    fields.insert("maxLength".into(), TEXT_CHARS_MAX.into());
    // A topology without a name is none.
    if path.last().is_some_and(|name| name == "topologyKey") {
        fields.insert("minLength".into(), 1.into());
    }
}

fn bound_number(fields: &mut Map<String, Value>, path: &[String]) {
    let (least, most) = match path.last().map(String::as_str) {
        Some("weight") => (1, WEIGHT_MAX),
        Some("maxSkew" | "minDomains") => (1, NUMBER_MAX),
        _ => (0, NUMBER_MAX),
    };
    fields.insert("minimum".into(), least.into());
    fields.insert("maximum".into(), most.into());
}

/// The choice that a field is one of.
fn words(path: &[String]) -> Option<&'static [&'static str]> {
    let is_of_nodes = path.iter().any(|name| name == "nodeAffinity");
    Some(match path.last()?.as_str() {
        "effect" => &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        "whenUnsatisfiable" => &["DoNotSchedule", "ScheduleAnyway"],
        "nodeAffinityPolicy" | "nodeTaintsPolicy" => &["Honor", "Ignore"],
        // A toleration stands by itself; everything else that has an operator is a requirement of a selector.
        "operator" if path.len() == 1 => &["Exists", "Equal"],
        "operator" if is_of_nodes => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        "operator" => &["In", "NotIn", "Exists", "DoesNotExist"],
        _ => return None,
    })
}

/// Up to the first full stop behind which another sentence begins.
fn first_sentence(text: &str) -> String {
    let ends = text.match_indices(". ").map(|(at, _)| at);
    // `e.g. co-locate` and `etc. as` go on; a list of choices is another sentence.
    let end =
        ends.into_iter().find(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase() || c == '-'));
    end.map_or(text, |at| &text[..=at]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_its_first_sentence() {
        for (text, expected) in [
            ("One. Two.", "One."),
            ("One. - A does this.", "One."),
            (
                "Rules (e.g. co-locate this pod in the same node, zone, etc. as another).",
                "Rules (e.g. co-locate this pod in the same node, zone, etc. as another).",
            ),
            ("No end", "No end"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), expected);
        }
    }
}
