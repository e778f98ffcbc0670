//! Who sets the number of gateways: read from the StatefulSet's `managedFields`.

use crate::names;
use k8s_openapi::api::apps::v1::StatefulSet;

/// Field managers of ours that have the number: the second, and the first while a StatefulSet is made.
const OURS: [&str; 2] = [names::OPERATOR, names::SCALER];

/// The field managers that own `spec.replicas` of the StatefulSet, in alphabetical order; empty if one of ours owns it too, or none does.
pub fn scaled_by_others(workload: &StatefulSet) -> Vec<String> {
    let entries = workload.metadata.managed_fields.iter().flatten();
    let having = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    });
    let mut managers: Vec<String> = having.map(|entry| entry.manager.clone().unwrap_or_default()).collect();
    if managers.iter().any(|manager| OURS.contains(&manager.as_str())) {
        return Vec::new();
    }
    managers.sort_unstable();
    managers.dedup();
    managers
}

/// Who set the number of gateways last, and when in seconds since 1970, as the API server notes it; `None` where it does not.
pub(crate) fn scaled_last(workload: &StatefulSet) -> Option<(i64, String)> {
    let entries = workload.metadata.managed_fields.iter().flatten();
    let having = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    });
    let times: Option<Vec<_>> = having
        .map(|entry| Some((entry.time.as_ref()?.0.as_second(), entry.manager.clone().unwrap_or_default())))
        .collect();
    times?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_number_is_theirs_when_they_have_the_field_and_none_of_ours_has() {
        let entry =
            |manager: &str, field: &str| json!({"manager": manager, "fieldsV1": {"f:spec": {field: {}}}});
        let others = |entries: Value| {
            let workload =
                json!({"metadata": {"managedFields": entries}, "spec": {"selector": {}, "template": {}}});
            scaled_by_others(&serde_json::from_value(workload).unwrap())
        };
        let hpa = entry("kube-controller-manager", "f:replicas");
        assert_eq!(
            others(json!([entry("sluice-operator", "f:template"), hpa, entry("keda", "f:replicas")])),
            ["keda", "kube-controller-manager"]
        );
        assert!(others(json!([hpa, entry(names::SCALER, "f:replicas")])).is_empty(), "it is shared with us");
        assert!(others(json!([entry("kubectl", "f:template"), {"manager": "old"}])).is_empty());
        assert!(others(json!([])).is_empty());
    }
}
