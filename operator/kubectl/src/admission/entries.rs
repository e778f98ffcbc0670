//! Fields that a schema does not have, and entries of lists that are the same entry to the API server: a JSON Schema says neither.

use serde_json::Value;
use sluice_plan::Violations;

/// Fields that objects of every kind have; the schema of a CRD does not name them.
const OF_EVERY_KIND: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Adds both, for a value at `path` and all that is in it. Unknown fields are misspelt or in the wrong place; the API server would drop them
/// without an error.
pub(super) fn check(schema: &Value, value: &Value, path: &str, found: &mut Violations) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            let of_others = schema.get("additionalProperties");
            for (name, field) in fields {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.and_then(|known| known.get(name)).or(of_others) {
                    Some(schema) => check(schema, field, &at, found),
                    None if path.is_empty() && OF_EVERY_KIND.contains(&name.as_str()) => {}
                    None if known.is_some() => found.add(at, "there is no such field"),
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            check_list(schema, items, path, found);
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Adds entries that an earlier one of the list is, too: the same value in a set, the same key in a map.
fn check_list(schema: &Value, items: &[Value], path: &str, found: &mut Violations) {
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_set = schema["x-kubernetes-list-type"] == "set";
    if !is_set && keys.is_empty() {
        return;
    }
    for (index, item) in items.iter().enumerate() {
        let is_same = |other: &&Value| {
            if is_set { *other == item } else { keys.iter().all(|key| other[*key] == item[*key]) }
        };
        // What is no object has no keys, and was reported.
        if (is_set || item.is_object()) && items[..index].iter().any(|other| is_same(&other)) {
            found.add(format!("{path}[{index}]"), words(item, &keys));
        }
    }
}

fn words(item: &Value, keys: &[&str]) -> String {
    let of = |key: &&str| format!("{key} {}", item[*key]);
    if keys.is_empty() {
        format!("{item} is listed twice")
    } else {
        format!(
            "another entry has {}, too: each is listed once",
            keys.iter().map(of).collect::<Vec<_>>().join(" and ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_another_one_by_its_keys_or_by_its_value() {
        let map = |keys: Value| json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
        let named = map(json!(["name"]));
        let spread = map(json!(["topologyKey", "whenUnsatisfiable"]));
        let set = json!({"x-kubernetes-list-type": "set"});
        for (schema, list, expected) in [
            (&named, json!([{"name": "a"}, {"name": "b"}]), ""),
            (
                &named,
                json!([{"name": "a"}, {"name": "b"}, {"name": "a", "value": 1}]),
                "at[2]: another entry has name \"a\", too: each is listed once",
            ),
            (&named, json!(["a", "a"]), ""),
            (
                &spread,
                json!([{"topologyKey": "z", "whenUnsatisfiable": "A"}, {"topologyKey": "z", "whenUnsatisfiable": "B"}]),
                "",
            ),
            (
                &spread,
                json!([{"topologyKey": "z", "whenUnsatisfiable": "A"}, {"topologyKey": "z", "whenUnsatisfiable": "A"}]),
                "at[1]: another entry has topologyKey \"z\" and whenUnsatisfiable \"A\", too: each is listed once",
            ),
            (&set, json!(["a", "b", "a"]), "at[2]: \"a\" is listed twice"),
            (&json!({}), json!(["a", "a"]), ""),
        ] {
            let mut found = Violations::default();
            check(schema, &list, "at", &mut found);
            assert_eq!(found.to_string(), expected, "{list}");
        }
    }

    #[test]
    fn a_field_is_known_by_its_name_or_as_one_of_a_map() {
        let schema = json!({"properties": {"spec": {"properties": {
            "labels": {"additionalProperties": {"type": "string"}},
            "list": {"items": {"properties": {"name": {}}}},
        }}}});
        let object = json!({
            "kind": "A", "metadata": {"anything": 1}, "spce": {},
            "spec": {"labels": {"anything": "a"}, "list": [{"name": "a", "nmae": "b"}]},
        });
        let mut found = Violations::default();
        check(&schema, &object, "", &mut found);
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["spce", "spec.list[0].nmae"]);
    }
}
