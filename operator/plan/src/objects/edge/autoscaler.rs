//! The `HorizontalPodAutoscaler` of the edge.

use crate::{
    edge::{EdgeScale, ReadyEdge},
    names::EDGE,
};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec,
    MetricTarget, ResourceMetricSource,
};

/// The autoscaler; `None` if the spec says how many pods there are.
pub(super) fn autoscaler(edge: &ReadyEdge) -> Option<HorizontalPodAutoscaler> {
    let EdgeScale::Autoscaled { replicas_min, replicas_max, cpu_percent } = edge.scale else { return None };
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let name = edge.identity.names.edge();
    Some(HorizontalPodAutoscaler {
        metadata: edge.identity.metadata(&name, EDGE),
        spec: Some(HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".into()),
                kind: "Deployment".into(),
                name,
            },
            min_replicas: Some(number(replicas_min)),
            max_replicas: number(replicas_max),
            metrics: Some(vec![MetricSpec {
                type_: "Resource".into(),
                resource: Some(ResourceMetricSource {
                    name: "cpu".into(),
                    target: MetricTarget {
                        type_: "Utilization".into(),
                        average_utilization: Some(number(cpu_percent)),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            ..HorizontalPodAutoscalerSpec::default()
        }),
        ..HorizontalPodAutoscaler::default()
    })
}
