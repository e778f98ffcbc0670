//! How many gateways may be evicted at the same time.

use crate::{names::GATEWAY, schema::Identity};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

/// The PodDisruptionBudget: so many at a time, and a gateway that is not ready never holds up a node that is drained.
pub(crate) fn disruption_budget(identity: &Identity, evicted_max: u32) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(i32::try_from(evicted_max).unwrap_or(i32::MAX))),
            selector: Some(LabelSelector {
                match_labels: Some(identity.names.selector(GATEWAY)),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
