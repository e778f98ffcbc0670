//! Who else sets the number of gateways: read from the StatefulSet's `managedFields`, and reported in words that need no knowledge of
//! field managers.

use crate::names;
use k8s_openapi::api::apps::v1::StatefulSet;

/// Field managers of ours that have the number: the second, and the first while a StatefulSet is made.
const OURS: [&str; 2] = [names::OPERATOR, names::SCALER];

/// What kubectl calls itself begins so: `kubectl`, `kubectl-edit`, `kubectl-client-side-apply`.
const KUBECTL: &str = "kubectl";

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

/// The message of `ScalingConflict`: the operator keeps the number that these field managers have set.
pub fn contested(managers: &[String], workload: &str) -> String {
    let all: Vec<String> = managers.iter().map(|manager| who(manager)).collect();
    let who = if all.is_empty() { "another client".to_owned() } else { all.join(" and ") };
    format!(
        "{who} set the replicas of the StatefulSet {workload}, and the operator keeps that number. Stop that, or let it scale the \
         TracePipeline with scaling.mode: External; then give the field back: kubectl delete statefulset {workload} --cascade=orphan"
    )
}

/// A field manager by its name, with the tool that uses this name.
fn who(manager: &str) -> String {
    let known = match manager {
        // It scales for every HorizontalPodAutoscaler, and KEDA scales by making one.
        "kube-controller-manager" => " (a HorizontalPodAutoscaler, maybe of KEDA)",
        "keda" => " (KEDA)",
        "helm" => " (Helm)",
        name if name.starts_with("argocd") => " (Argo CD)",
        name if name.starts_with(KUBECTL) => " (a person or a script)",
        _ => "",
    };
    format!("{manager:?}{known}")
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

    #[test]
    fn whoever_set_the_number_is_named_with_what_it_is() {
        for (managers, expected) in [
            (
                vec!["kubectl-edit"],
                "\"kubectl-edit\" (a person or a script) set the replicas of the StatefulSet prod-gateway, and",
            ),
            (
                vec!["kube-controller-manager"],
                "\"kube-controller-manager\" (a HorizontalPodAutoscaler, maybe of KEDA) set",
            ),
            (vec!["keda", "our-own"], "\"keda\" (KEDA) and \"our-own\" set"),
            (vec![], "another client set"),
        ] {
            let managers: Vec<String> = managers.into_iter().map(str::to_owned).collect();
            let words = contested(&managers, "prod-gateway");
            assert!(words.contains(expected), "{words}");
            assert!(
                words.contains("scaling.mode: External") && words.ends_with("prod-gateway --cascade=orphan")
            );
        }
    }
}
