//! Who else sets the number of gateways, in words for a person who has never heard of field managers.

/// What kubectl calls itself begins so: `kubectl`, `kubectl-edit`, `kubectl-client-side-apply`.
const KUBECTL: &str = "kubectl";

/// What is said when the API server does not let the number of gateways be changed, because these field managers have set it.
pub fn contested(managers: &[String], workload: &str) -> String {
    let all: Vec<String> = managers.iter().map(|manager| who(manager)).collect();
    let who = if all.is_empty() { "somebody else".to_owned() } else { all.join(" and ") };
    format!(
        "the replicas of the StatefulSet {workload} were set by {who}, and are left so: stop that, or let it scale the TracePipeline \
         itself, with scaling.mode: External; then give the field back with: kubectl delete statefulset {workload} --cascade=orphan"
    )
}

/// A field manager by its name, with what is known to go by it.
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
            (vec!["kubectl-edit"], "were set by \"kubectl-edit\" (a person or a script), and are left so"),
            (
                vec!["kube-controller-manager"],
                "by \"kube-controller-manager\" (a HorizontalPodAutoscaler, maybe of KEDA),",
            ),
            (vec!["keda", "our-own"], "by \"keda\" (KEDA) and \"our-own\", and"),
            (vec![], "by somebody else, and"),
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
