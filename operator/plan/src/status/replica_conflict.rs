//! What the status says where another client sets the number of gateways, in words that need no knowledge of field managers.

/// What kubectl calls itself begins so: `kubectl`, `kubectl-edit`, `kubectl-client-side-apply`.
const KUBECTL: &str = "kubectl";

/// The message of `ScalingConflict`: the operator keeps the number that these field managers have set.
pub fn replica_conflict_message(managers: &[String], workload: &str) -> String {
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
            let words = replica_conflict_message(&managers, "prod-gateway");
            assert!(words.contains(expected), "{words}");
            assert!(
                words.contains("scaling.mode: External") && words.ends_with("prod-gateway --cascade=orphan")
            );
        }
    }
}
