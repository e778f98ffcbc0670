//! Fields of a status that the API server drops, because its CRD is older than the operator. Without this, the operator would write such a status at
//! each reconcile: it never finds there what it wrote. Pure.

use serde_json::Value;
use sluice_crds::TracePipelineStatus;

/// The fields of what was written that are not in what was stored, as JSON pointers.
pub fn dropped_fields(written: &TracePipelineStatus, stored: &TracePipelineStatus) -> Vec<String> {
    let (mut found, json) = (Vec::new(), |status| serde_json::to_value(status).unwrap_or_default());
    missing(&json(written), &json(stored), "", &mut found);
    found
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
    use sluice_crds::VolumesStatus;

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
        // Another value is one.
        let other = TracePipelineStatus { volumes: Some(VolumesStatus::default()), ..written.clone() };
        assert!(dropped_fields(&written, &other).is_empty());
        // Without what every status has it is none.
        assert_eq!(without(&written, &["/volumes/orphaned".into()]), written);
    }
}
