//! How many gateways, or pods of the edge, may be evicted at the same time.

use crate::identity::Identity;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

/// The PodDisruptionBudget: this many gateways may be evicted at a time, and a gateway that is not ready never blocks the drain of a node.
///
/// Kubernetes counts a gateway that is not ready as evicted. `stay_unready` gateways have not been ready for long. They are added to the
/// number that may be evicted; otherwise no other gateway could be evicted. An evicted gateway keeps its volume.
pub(crate) fn disruption_budget(
    identity: &Identity,
    component: &str,
    evicted_max: u32,
    stay_unready: u32,
) -> PodDisruptionBudget {
    let unavailable_max = evicted_max.saturating_add(stay_unready);
    PodDisruptionBudget {
        metadata: identity.metadata(&identity.names.of_component(component), component),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(i32::try_from(unavailable_max).unwrap_or(i32::MAX))),
            selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector(component)),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
