//! Fields in which a status differs, after it was written, from what was written. Pure.
//!
//! - The API server drops fields that its CRD, which is older than the operator, does not have. Without this, the operator would write such a
//!   status at each reconcile: it never finds there what it wrote.
//! - Fields that another client has written stay, although the operator no longer applies them: server-side apply keeps a field that another
//!   manager owns. What is left of an object may lack fields that it requires, and then the API server refuses every apply.

use serde_json::Value;
use sluice_crds::{TracePipelineStatus, status::condition};

/// The fields of what was written that are not in what was stored, as JSON pointers.
pub fn dropped_fields(written: &TracePipelineStatus, stored: &TracePipelineStatus) -> Vec<String> {
    let (mut found, json) = (Vec::new(), |status| serde_json::to_value(status).unwrap_or_default());
    missing(&json(written), &json(stored), "", &mut found);
    found
}

/// Lists of the status whose entries have a key, by which server-side apply merges them.
const KEYED_LISTS: [(&str, &str); 3] = [("conditions", "type"), ("topics", "name"), ("memoryResizes", "pod")];

/// Whether a condition is one of the operator's. Other controllers may add theirs.
pub fn is_own(condition: &str) -> bool {
    condition::ALL.contains(&condition) || condition == condition::EDGE_READY
}

/// The merge patch that removes what is in `stored` and not in `written`; `None` if there is no such field. Conditions of other controllers stay.
pub fn removal(stored: &TracePipelineStatus, written: &TracePipelineStatus) -> Option<Value> {
    let mut patch = Value::Null;
    for pointer in dropped_fields(stored, written) {
        let fields: Vec<&str> = pointer.split('/').skip(1).collect();
        if fields.iter().any(|field| field.parse::<usize>().is_ok()) {
            continue;
        }
        let mut at = &mut patch["status"];
        for field in fields {
            at = &mut at[field];
        }
    }
    let json = |status| serde_json::to_value(status).unwrap_or_default();
    let (stored, written) = (json(stored), json(written));
    for (list, key) in KEYED_LISTS {
        let (Some(stored), Some(written)) = (stored[list].as_array(), written[list].as_array()) else {
            continue;
        };
        let has_more = |entry: &Value, known: &Value| {
            let mut more = Vec::new();
            missing(entry, known, "", &mut more);
            !more.is_empty()
        };
        let is_left = |entry: &&Value| {
            let known = written.iter().find(|known| known[key] == entry[key]);
            known.is_none_or(|known| has_more(entry, known))
        };
        let (own, foreign): (Vec<&Value>, Vec<&Value>) = stored
            .iter()
            .filter(is_left)
            .partition(|entry| list != "conditions" || entry[key].as_str().is_some_and(is_own));
        if !own.is_empty() {
            patch["status"][list] = written.iter().chain(foreign).cloned().collect();
        }
    }
    (!patch.is_null()).then_some(patch)
}

/// A status without these fields. If they are required, the whole status.
pub fn without(status: &TracePipelineStatus, dropped: &[String]) -> TracePipelineStatus {
    let mut json =
        if dropped.is_empty() { Value::Null } else { serde_json::to_value(status).unwrap_or_default() };
    for pointer in dropped {
        if let Some((parent, field)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = json.pointer_mut(parent)
        {
            fields.remove(field);
        }
    }
    serde_json::from_value(json).unwrap_or_else(|_| status.clone())
}

/// No key of a status has a character that a pointer would have to escape.
fn missing(written: &Value, stored: &Value, at: &str, found: &mut Vec<String>) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (field, value) in written {
                let at = format!("{at}/{field}");
                match stored.get(field) {
                    Some(stored) => missing(value, stored, &at, found),
                    None => found.push(at),
                }
            }
        }
        (Value::Array(written), Value::Array(stored)) if written.len() == stored.len() => {
            for (index, (value, stored)) in written.iter().zip(stored).enumerate() {
                missing(value, stored, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };
    use serde_json::json;
    use sluice_crds::{DrainState, DrainStatus, ScalingStatus, VolumesStatus};

    #[test]
    fn a_field_that_the_server_drops_is_no_difference() {
        let written = TracePipelineStatus {
            schema_job: Some("prod-schema-1".into()),
            volumes: Some(VolumesStatus { orphaned: 1, ..VolumesStatus::default() }),
            ..TracePipelineStatus::default()
        };
        assert!(dropped_fields(&written, &written).is_empty());
        assert_eq!(without(&written, &[]), written);
        let stored = TracePipelineStatus { schema_job: None, ..written.clone() };
        assert_eq!(dropped_fields(&written, &stored), ["/schemaJob"]);
        assert_eq!(without(&written, &["/schemaJob".into()]), stored);
        // A field with another value is not dropped.
        let other = TracePipelineStatus { volumes: Some(VolumesStatus::default()), ..written.clone() };
        assert!(dropped_fields(&written, &other).is_empty());
        // A required field is not removed: without it the text is not a status.
        assert_eq!(without(&written, &["/volumes/orphaned".into()]), written);
    }

    #[test]
    fn what_another_client_wrote_is_removed_and_its_conditions_stay() {
        let condition = |kind: &str| Condition {
            type_: kind.into(),
            status: "True".into(),
            reason: "Tested".into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let scaling = ScalingStatus { reason: "as the partitions want".into(), ..ScalingStatus::default() };
        let written = TracePipelineStatus {
            scaling: Some(scaling.clone()),
            conditions: vec![condition("Ready")],
            ..TracePipelineStatus::default()
        };
        assert_eq!(removal(&written, &written), None);
        let drain = DrainStatus {
            state: DrainState::Draining,
            target: 1,
            from: 3,
            since: Time(Timestamp::UNIX_EPOCH),
            reason: String::new(),
            outcome: None,
        };
        let stored = TracePipelineStatus {
            scaling: Some(ScalingStatus { drain: Some(drain), ..scaling }),
            conditions: vec![condition("Approved"), condition("Ready")],
            schema_job: Some("prod-schema-1".into()),
            ..TracePipelineStatus::default()
        };
        let expected = json!({"status": {"schemaJob": null, "scaling": {"drain": null}}});
        assert_eq!(removal(&stored, &written), Some(expected));
        // Of a condition of the operator's, only the type may be left, which the definition refuses.
        let conditions = vec![condition("Approved"), condition("EdgeReady"), condition("Ready")];
        let patch = removal(&TracePipelineStatus { conditions, ..written.clone() }, &written).unwrap();
        let types = patch["status"]["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone());
        assert_eq!(types.collect::<Vec<_>>(), ["Ready", "Approved"]);
    }
}
