//! Who owns `spec.replicas` of a StatefulSet, as a real API server notes it: the one field that others set too.

use serde_json::{Value, json};

/// The managers that have the number.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let having = entries.iter().filter(|entry| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null());
    having.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

/// The others that have it, when it becomes another number by this manager.
pub fn losers(object: &Value, replicas: &Value, manager: &str) -> Vec<String> {
    if replicas.is_null() || object["spec"]["replicas"] == *replicas {
        return Vec::new();
    }
    owners(object).into_iter().filter(|owner| owner != manager).collect()
}

/// What an apply without force is answered, when others have set another number; in the words of an API server of 1.34.
pub fn conflict(object: Option<&Value>, body: &Value, manager: &str) -> Option<Value> {
    let losers = losers(object?, &body["spec"]["replicas"], manager);
    let causes: Vec<Value> = losers
        .iter()
        .map(|loser| {
            let message = format!("conflict with {loser:?} with subresource \"scale\" using apps/v1");
            json!({"reason": "FieldManagerConflict", "message": message, "field": ".spec.replicas"})
        })
        .collect();
    (!causes.is_empty()).then(|| {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
            "message": format!("Apply failed with {} conflict: .spec.replicas", causes.len()),
            "details": {"causes": causes},
        })
    })
}

/// Records which managers own the number now. `before` is the former number. A manager that applies the same number shares it, one that
/// applies another number becomes its only owner, and one that applies none gives it up.
pub fn note(object: &mut Value, before: &Value, (manager, says): (&str, bool)) {
    let mut having = owners(object);
    if object["spec"]["replicas"] != *before {
        having.clear();
    }
    having.retain(|owner| owner != manager);
    if says {
        having.push(manager.to_owned());
    }
    let entries = &mut object["metadata"]["managedFields"];
    let mut all = entries.as_array().cloned().unwrap_or_default();
    if all.iter().all(|entry| entry["manager"] != manager) {
        all.push(json!({"manager": manager, "operation": "Update", "subresource": "scale"}));
    }
    for entry in &mut all {
        let has = having.iter().any(|owner| entry["manager"] == **owner);
        if has {
            entry["fieldsV1"] = json!({"f:spec": {"f:replicas": {}}});
        } else {
            entry.as_object_mut().unwrap().remove("fieldsV1");
        }
    }
    // One that had nothing else is gone.
    all.retain(|entry| {
        entry["manager"] != sluice_operator::write::apply::SCALER || !entry["fieldsV1"].is_null()
    });
    *entries = all.into();
}
