//! Whether a live object already is as desired, so that a reconcile without changes writes nothing.
//!
//! Two checks must both succeed:
//! - The object is the last one that was applied: an annotation carries the hash of the applied object. This finds fields that are no longer
//!   desired.
//! - The object is unchanged: every desired field equals that of the live object, in which the server filled in defaults. This finds changes
//!   by others.
//!
//! A false difference (the server writes a value in another form) costs one request without effect: a server-side apply of the same content
//! does not raise the resource version.

use serde_json::Value;
use sha2::{Digest, Sha256};
use sluice_plan::quantity::thousandths;
use std::fmt::Write;

/// The annotation with the hash of the object as it was applied.
pub const HASH_ANNOTATION: &str = "sluice.dev/applied-hash";
/// Hexadecimal digits of the hash that are kept: 64 bits, as there is no attacker who would search for a collision.
const HASH_DIGITS: usize = 16;

/// Writes the object's hash into its annotations.
pub fn stamp(mut desired: Value) -> Value {
    let hash = hash(&desired);
    desired["metadata"]["annotations"][HASH_ANNOTATION] = Value::String(hash);
    desired
}

/// Whether `live` is what `stamped` wants it to be.
pub fn is_as_desired(stamped: &Value, live: &Value) -> bool {
    holds(stamped, live) && (!is_exact(stamped) || is_same(&stamped["spec"], &live["spec"]))
}

/// Whether additions by others to the spec count as differences. An additional rule, peer or port in a NetworkPolicy allows more traffic,
/// and an additional label in a selector excludes pods. The server adds no defaults to the operator's policies, and each of these lists has one
/// owner, so that an apply reverts the addition.
fn is_exact(stamped: &Value) -> bool {
    stamped["kind"] == "NetworkPolicy"
}

/// Whether both are equal, with lists in the same order.
fn is_same(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let both = |key| {
                is_same(desired.get(key).unwrap_or(&Value::Null), live.get(key).unwrap_or(&Value::Null))
            };
            desired.keys().chain(live.keys()).all(|key| both(key.as_str()))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len()
                && desired.iter().zip(live).all(|(desired, live)| is_same(desired, live))
        }
        // Do not treat empty and missing as equal: an empty selector selects everything, a missing one may select nothing.
        _ => desired == live,
    }
}

fn hash(object: &Value) -> String {
    // Sort, so that equal objects have equal texts: serde_json keeps another order if any crate enables `preserve_order`.
    let mut sorted = object.clone();
    sorted.sort_all_objects();
    let digest = Sha256::digest(sorted.to_string());
    let mut text = digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    });
    text.truncate(HASH_DIGITS);
    text
}

/// Whether everything in `desired` is in `live`.
fn holds(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired
            .iter()
            .all(|(key, value)| live.get(key).map_or(is_nothing(value), |live| holds(value, live))),
        (Value::Array(desired), Value::Array(live)) if desired.iter().all(Value::is_object) => {
            // Others may add to these lists (owner references, finalizers, containers) at any place.
            desired.iter().all(|desired| live.iter().any(|live| holds(desired, live)))
        }
        (Value::String(desired), Value::String(live)) => desired == live || is_same_quantity(desired, live),
        _ => desired == live,
    }
}

/// Whether the server drops this value because it is empty.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Whether two texts are the same quantity: the server returns `1024Mi` as `1Gi`, and `1000m` as `1`.
fn is_same_quantity(one: &str, other: &str) -> bool {
    thousandths(one).is_some_and(|number| thousandths(other) == Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"ports": [{"name": "admin", "port": 9090}], "clusterIP": "None", "resources": {"memory": "1024Mi"}, "none": {}},
        })
    }

    /// What a server gives back: defaults filled in, quantities in its own words, owners added.
    fn live() -> Value {
        let mut live = stamp(desired());
        live["metadata"]["uid"] = "u".into();
        live["spec"] = json!({
            "type": "ClusterIP", "clusterIP": "None", "resources": {"memory": "1Gi"},
            "ports": [{"name": "other", "port": 1}, {"name": "admin", "port": 9090, "protocol": "TCP"}],
        });
        live
    }

    #[test]
    fn defaults_of_the_server_are_no_difference() {
        assert!(is_as_desired(&stamp(desired()), &live()));
    }

    #[test]
    fn a_change_by_somebody_else_is_a_difference() {
        for (path, value) in [
            ("/spec/ports/1/port", json!(9091)),
            ("/spec/resources/memory", json!("2Gi")),
            ("/metadata/labels/x", json!("2")),
            ("/metadata/annotations", json!({})),
        ] {
            let mut live = live();
            *live.pointer_mut(path).unwrap() = value;
            assert!(!is_as_desired(&stamp(desired()), &live), "{path}");
        }
    }

    #[test]
    fn a_field_that_is_no_longer_wanted_is_a_difference() {
        let mut less = desired();
        less["spec"].as_object_mut().unwrap().remove("clusterIP");
        assert!(!is_as_desired(&stamp(less), &live()));
    }

    #[test]
    fn a_network_policy_that_lets_more_through_is_a_difference() {
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"},
            "spec": {
                "podSelector": {"matchLabels": {"x": "1"}}, "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {"ports": [{"port": 9090, "protocol": "TCP"}]},
                    {"from": [{"podSelector": {"matchLabels": {"y": "1"}}}], "ports": [{"port": 9091, "protocol": "TCP"}]},
                ],
                "egress": [{"ports": [{"protocol": "TCP"}]}],
            },
        });
        let stamped = stamp(policy);
        let mut live = stamped.clone();
        live["metadata"]["uid"] = "u".into();
        assert!(is_as_desired(&stamped, &live));
        for (list, more) in [
            ("/spec/ingress", json!({})),
            ("/spec/egress", json!({})),
            ("/spec/ingress/0/ports", json!({"port": 22, "protocol": "TCP"})),
            ("/spec/ingress/1/from", json!({"namespaceSelector": {}})),
            ("/spec/egress/0/ports", json!({"protocol": "UDP"})),
        ] {
            let mut widened = live.clone();
            widened.pointer_mut(list).unwrap().as_array_mut().unwrap().push(more);
            assert!(!is_as_desired(&stamped, &widened), "{list}");
        }
        for (object, field, value) in [
            ("/spec/ingress/0/ports/0", "endPort", json!(65_535)),
            ("/spec/podSelector/matchLabels", "z", json!("1")),
        ] {
            let mut widened = live.clone();
            widened.pointer_mut(object).unwrap()[field] = value;
            assert!(!is_as_desired(&stamped, &widened), "{object}");
        }
    }

    #[test]
    fn lists_of_plain_values_are_compared_as_they_are() {
        assert!(!holds(&json!({"args": ["a", "b"]}), &json!({"args": ["a"]})));
        assert!(!holds(&json!({"args": ["a"]}), &json!({"args": ["a", "b"]})));
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_fields() {
        assert_eq!(hash(&json!({"a": 1, "b": 2})), hash(&json!({"b": 2, "a": 1})));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        assert!(is_same_quantity("1000m", "1"));
        assert!(is_same_quantity("0", "0"));
        assert!(
            is_same_quantity("1.5", "1500m")
                && is_same_quantity("2.0", "2")
                && is_same_quantity("0.125", "125m")
        );
        assert!(is_same_quantity("1.5Gi", "1536Mi"));
        assert!(!is_same_quantity("512Mi", "512M") && !is_same_quantity("1.5", "15"));
        assert!(!is_same_quantity("1.2.3", "1.23") && !is_same_quantity("0.0001", "0"));
        assert!(!is_same_quantity("", ""));
    }
}
