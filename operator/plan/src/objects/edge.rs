//! The objects of the edge, in the order in which they are applied. Their labels are others than those of gateways, so that no selector of the
//! one selects the other.

mod autoscaler;
mod workload;

use crate::{
    edge::ReadyEdge,
    names::{EDGE, EDGE_CONFIG_FILE},
    objects::{config_map, disruption_budget, document, network_policy, service, service_account},
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use serde_json::Value;

/// The objects of the edge.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeParts {
    /// What its pods run as; it has no rights and no token.
    pub service_account: ServiceAccount,
    /// Its config.
    pub config_map: ConfigMap,
    /// What clients send to.
    pub service: Service,
    /// What its pods may be reached at; `None` where the spec leaves that to others.
    pub network_policy: Option<NetworkPolicy>,
    /// How many pods may be evicted at the same time; `None` where the spec leaves that to others.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// Its pods, without `replicas`: a field manager of its own, or the autoscaler, writes that.
    pub workload: Deployment,
    /// What sets their number; `None` where the spec does.
    pub autoscaler: Option<HorizontalPodAutoscaler>,
}

impl EdgeParts {
    /// Every object that there is, as it would be sent, in the order in which they are applied.
    pub fn documents(&self) -> Vec<Value> {
        let parts = [
            Some(document(&self.service_account)),
            Some(document(&self.config_map)),
            Some(document(&self.service)),
            self.network_policy.as_ref().map(document),
            self.disruption_budget.as_ref().map(document),
            Some(document(&self.workload)),
            self.autoscaler.as_ref().map(document),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// Builds every object of an edge.
pub fn edge(edge: &ReadyEdge) -> EdgeParts {
    let identity = &edge.identity;
    let name = identity.names.edge_config_map(&edge.config_hash());
    let metadata = identity.metadata(&name, EDGE);
    EdgeParts {
        service_account: service_account::service_account(identity, EDGE, &edge.pull_secrets),
        config_map: config_map::config_map(metadata, EDGE_CONFIG_FILE, edge.config_yaml()),
        service: service::otlp_service(identity, &edge.service),
        network_policy: edge
            .network
            .as_ref()
            .map(|peers| network_policy::edge_network_policy(identity, edge.operator_pods.as_ref(), peers)),
        disruption_budget: edge
            .evicted_max
            .map(|most| disruption_budget::disruption_budget(identity, EDGE, most, 0)),
        workload: workload::workload(edge),
        autoscaler: autoscaler::autoscaler(edge),
    }
}
