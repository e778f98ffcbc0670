//! The gateways: a StatefulSet, since each of them has a name of its own and a volume that stays with the name.

use crate::{
    ground::hash,
    identity::secrets,
    names::{
        ADMIN_PORT_NAME, GATEWAY, GATEWAY_CONTAINER, PLAN_HASH, QUEUE_CLAIM, SECRETS_KEPT, SOURCE_VERSION,
    },
    objects::pod::{admin_port, config_path, otlp_ports, pod, resources},
    planned::Plan,
    rollout::source_change::source_version,
    volumes::Volume,
};
use k8s_openapi::{
    api::{
        apps::v1::{
            StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
            StatefulSetUpdateStrategy,
        },
        core::v1::{
            Container, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, PersistentVolumeClaim,
            PersistentVolumeClaimSpec, PodSpec, PodTemplateSpec, Probe, VolumeMount,
            VolumeResourceRequirements,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

/// The node's zone, as a label of the pod: Kubernetes puts it there when it binds the pod to a node (from 1.35 on; with the feature
/// gate `PodTopologyLabelsAdmission` from 1.33 on), so that the gateway needs no right to read nodes. Before, the variable is empty.
const ZONE: &str = "metadata.labels['topology.kubernetes.io/zone']";

/// Old revisions that Kubernetes keeps.
const REVISIONS_KEPT: i32 = 3;

/// The StatefulSet, without `replicas`.
pub(crate) fn workload(plan: &Plan) -> StatefulSet {
    let spec = spec(plan);
    let kept = secrets::kept(&plan.identity.secrets).map(|kept| (SECRETS_KEPT.to_owned(), kept));
    let annotations = [
        (PLAN_HASH.to_owned(), plan_hash(&spec)),
        (SOURCE_VERSION.to_owned(), source_version(&plan.config, &plan.identity.secrets)),
    ];
    let annotations = annotations.into_iter().chain(kept).collect();
    StatefulSet {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            ..plan.identity.metadata(&plan.names().gateway(), GATEWAY)
        },
        spec: Some(spec),
        ..StatefulSet::default()
    }
}

/// The hash by which a StatefulSet is recognised as the planned one.
pub(crate) fn plan_hash(spec: &StatefulSetSpec) -> String {
    hash::of_object(spec)
}

pub(crate) fn spec(plan: &Plan) -> StatefulSetSpec {
    let names = plan.names();
    StatefulSetSpec {
        service_name: Some(names.gateway()),
        selector: LabelSelector { match_labels: Some(names.selector(GATEWAY)), ..LabelSelector::default() },
        // No gateway waits for another one: each takes what partitions it is given.
        pod_management_policy: Some("Parallel".into()),
        update_strategy: Some(StatefulSetUpdateStrategy {
            type_: Some("RollingUpdate".into()),
            ..StatefulSetUpdateStrategy::default()
        }),
        revision_history_limit: Some(REVISIONS_KEPT),
        persistent_volume_claim_retention_policy: Some(retention(plan.volume.as_ref())),
        template: template(plan),
        volume_claim_templates: plan.volume.as_ref().map(|volume| vec![claim(plan, volume)]),
        ..StatefulSetSpec::default()
    }
}

/// Any volume may be the only copy of something, so that it stays, and the operator deletes it once it is drained. Without volumes it
/// says what it always has, so that nothing is written for it.
fn retention(volume: Option<&Volume>) -> StatefulSetPersistentVolumeClaimRetentionPolicy {
    let policy = |keeps: bool| Some(if keeps { "Retain" } else { "Delete" }.to_owned());
    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: policy(volume.is_some_and(|volume| volume.retention.keeps_deleted)),
        when_scaled: policy(volume.is_some()),
    }
}

fn template(plan: &Plan) -> PodTemplateSpec {
    let config_hash = plan.config_hash();
    let config_map = plan.names().config_map(&config_hash);
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(plan.identity.pod_labels(GATEWAY)),
            annotations: plan.identity.pod_annotations(Some(config_hash)),
            ..ObjectMeta::default()
        }),
        spec: Some(plan.identity.added.place_gateway(PodSpec {
            termination_grace_period_seconds: i64::try_from(plan.grace.as_millis() / 1_000).ok(),
            ..pod(&plan.identity, &config_map, container(plan))
        })),
    }
}

fn container(plan: &Plan) -> Container {
    let sized = &plan.resources;
    Container {
        name: GATEWAY_CONTAINER.into(),
        args: Some(vec!["run".into(), "--config".into(), config_path()]),
        env: Some(vec![of_pod("POD_NAME", "metadata.name"), of_pod("NODE_ZONE", ZONE)]),
        ports: Some([admin_port()].into_iter().chain(plan.otlp.iter().flat_map(otlp_ports)).collect()),
        resources: Some(resources(sized.memory, &sized.cpu_request, sized.cpu_limit.as_deref())),
        // A start may take a minute on a busy node; after it, a gateway that does not answer for a minute is replaced.
        startup_probe: Some(probe("/livez", 2, 30)),
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 5, 2)),
        volume_mounts: plan.volume.as_ref().map(|_| vec![queue_mount(plan)]),
        ..Container::default()
    }
}

/// What the pod is called, which is the gateway's identity in its consumer group, and the zone that it runs in.
pub(super) fn of_pod(name: &str, field: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: Some("v1".into()), field_path: field.into() }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

pub(super) fn probe(path: &str, period_seconds: i32, failure_threshold: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String(ADMIN_PORT_NAME.into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(2),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    }
}

pub(super) fn queue_mount(plan: &Plan) -> VolumeMount {
    VolumeMount {
        name: QUEUE_CLAIM.into(),
        mount_path: plan.config.config().queue.path.clone(),
        ..VolumeMount::default()
    }
}

/// The claim of each gateway. Its labels can never change with the StatefulSet, so that they are the selector's alone.
fn claim(plan: &Plan, volume: &Volume) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(QUEUE_CLAIM.into()),
            labels: Some(plan.names().selector(GATEWAY)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: volume.storage_class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(volume.size.clone()))].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
