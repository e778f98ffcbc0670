//! Name, namespace, labels and annotations, as the API server checks them for every kind.

use serde_json::Value;
use sluice_plan::{
    Violations,
    labels::{is_domain, is_key, is_namespace, is_value, not_domain, not_key, not_namespace, not_value},
};

/// Where the name stands.
pub(super) const NAME: &str = "metadata.name";

/// Adds what is wrong. A rule of the kind about its name says more than the rule for every name.
pub(super) fn check(metadata: &Value, found: &mut Violations) {
    let name = metadata["name"].as_str().filter(|name| !is_domain(name));
    if let Some(name) = name.filter(|_| !found.iter().any(|one| one.path == NAME)) {
        found.add(NAME, not_domain(name));
    }
    if let Some(name) = metadata["namespace"].as_str().filter(|name| !is_namespace(name)) {
        found.add("metadata.namespace", not_namespace(name));
    }
    check_map(metadata, "labels", is_value, found);
    check_map(metadata, "annotations", |_| true, found);
}

fn check_map(metadata: &Value, field: &str, takes: impl Fn(&str) -> bool, found: &mut Violations) {
    let at = format!("metadata.{field}");
    for (key, value) in metadata[field].as_object().into_iter().flatten() {
        found.add_if(!is_key(key), &at, || not_key(key));
        match value.as_str() {
            Some(text) => found.add_if(!takes(text), &at, || not_value(key, text)),
            None => found.add(
                at.as_str(),
                format!("{value} of {key:?} is not a text: write it in quotes, \"{value}\""),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_no_object_can_have_is_said_with_an_example() {
        let long = "a".repeat(64);
        for (metadata, path, part) in [
            (json!({"name": "My_Traces"}), "metadata.name", "such as main"),
            (json!({"name": "a".repeat(254)}), "metadata.name", "at most 253"),
            (json!({"name": "a", "namespace": long}), "metadata.namespace", "at most 63"),
            (json!({"name": "a", "namespace": "a.b"}), "metadata.namespace", "such as tracing"),
            (json!({"name": "a", "labels": {"team": long}}), "metadata.labels", "such as team-a"),
            (json!({"name": "a", "labels": {&long: "a"}}), "metadata.labels", "such as example.com/team"),
            (json!({"name": "a", "labels": {"version": 1}}), "metadata.labels", "in quotes, \"1\""),
            (json!({"name": "a", "annotations": {"a b": "c d"}}), "metadata.annotations", "is not a key"),
        ] {
            let mut found = Violations::default();
            check(&metadata, &mut found);
            let all: Vec<_> = found.iter().collect();
            assert!(matches!(&all[..], [one] if one.path == path && one.message.contains(part)), "{found}");
        }
        let mut found = Violations::default();
        check(
            &json!({"name": "a.b", "namespace": "c", "labels": {"a": ""}, "annotations": {"a": "b c"}}),
            &mut found,
        );
        assert!(found.is_empty(), "{found}");
    }
}
