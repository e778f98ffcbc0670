//! The edge's pods: a Deployment, since they keep nothing and none has a name of its own.

use crate::{
    edge::ReadyEdge,
    names::{CONFIG_FOLDER, EDGE, EDGE_CONFIG_FILE, EDGE_CONTAINER},
    objects::{
        pod::{admin_port, otlp_ports, pod, resources},
        workload::{of_pod, probe},
    },
    pipeline::edge_config::grace_seconds,
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

/// Old revisions that Kubernetes keeps: as of the gateways' StatefulSet.
const REVISIONS_KEPT: i32 = 3;

/// The Deployment, without `replicas`.
pub(super) fn workload(edge: &ReadyEdge) -> Deployment {
    let names = &edge.identity.names;
    Deployment {
        metadata: edge.identity.metadata(&names.edge(), EDGE),
        spec: Some(DeploymentSpec {
            selector: LabelSelector { match_labels: Some(names.selector(EDGE)), ..LabelSelector::default() },
            // No pod leaves before another one accepts spans in its place.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(REVISIONS_KEPT),
            template: template(edge),
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn template(edge: &ReadyEdge) -> PodTemplateSpec {
    let identity = &edge.identity;
    let config_hash = edge.config_hash();
    let config_map = identity.names.edge_config_map(&config_hash);
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(identity.pod_labels(EDGE)),
            annotations: identity.pod_annotations(Some(config_hash)),
            ..ObjectMeta::default()
        }),
        spec: Some(identity.added.place_gateway(PodSpec {
            termination_grace_period_seconds: i64::try_from(grace_seconds(&edge.config)).ok(),
            ..pod(identity, &config_map, container(edge))
        })),
    }
}

fn container(edge: &ReadyEdge) -> Container {
    let sized = &edge.resources;
    Container {
        name: EDGE_CONTAINER.into(),
        args: Some(vec!["edge".into(), "--config".into(), format!("{CONFIG_FOLDER}/{EDGE_CONFIG_FILE}")]),
        env: Some(vec![of_pod("POD_NAME", "metadata.name")]),
        ports: Some(otlp_ports(&edge.service).into_iter().chain([admin_port()]).collect()),
        resources: Some(resources(sized.memory, &sized.cpu_request, sized.cpu_limit.as_deref())),
        // A start takes a second; a pod that does not answer for a minute is restarted.
        startup_probe: Some(probe("/livez", 2, 30)),
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 5, 2)),
        ..Container::default()
    }
}
