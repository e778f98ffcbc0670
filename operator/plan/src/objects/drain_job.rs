//! The Job that drains the volume of a gateway that is not there, from the gateway's own image: it inserts what is on the volume and
//! ends well when nothing is left. As confined as a gateway, with a gateway's memory.

use crate::{
    names::{CLAIM_UID, DRAIN, DRAIN_CONTAINER, QUEUE_CLAIM, WORKLOAD_VERSION},
    objects::{
        pod::{config_path, pod, resources},
        workload::{of_pod, queue_mount},
    },
    pipeline::resources::{JOB_CPU_REQUEST, of_job},
    planned::Plan,
    volumes::Drain,
};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{Container, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// It is not ended sooner, however soon gateways are to leave: its pod waits for a node, for the volume to come there, and for the image.
/// Chosen: within that time a volume is attached and an image pulled as a rule.
const DEADLINE_SECONDS_MIN: u32 = 120;

/// Pods that may fail before the Job has: one may meet a node that ends. What needs more patience is tried again by the operator.
const PODS_FAILED_MAX: i32 = 2;

/// Seconds that its pod may take to end after SIGTERM: it only has to release the volume.
const GRACE_SECONDS: i64 = 30;

/// The Job. Its deadline is the time that gateways may take to leave.
pub fn drain_job(plan: &Plan, drain: &Drain) -> Job {
    let identity = &plan.identity.of_job();
    let config_map = plan.names().config_map(&plan.config_hash());
    let annotations = [
        (CLAIM_UID.to_owned(), drain.claim_uid.clone()),
        (WORKLOAD_VERSION.to_owned(), drain.workload_version.clone()),
    ];
    let mut pod = PodSpec {
        restart_policy: Some("Never".into()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        ..pod(identity, &config_map, container(plan))
    };
    pod.volumes.get_or_insert_default().push(volume(&drain.claim));
    Job {
        metadata: ObjectMeta {
            annotations: Some(annotations.into()),
            ..identity.metadata(&plan.names().drain(drain.ordinal), DRAIN)
        },
        spec: Some(JobSpec {
            backoff_limit: Some(PODS_FAILED_MAX),
            active_deadline_seconds: Some(i64::from(plan.drain_seconds.max(DEADLINE_SECONDS_MIN))),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(identity.pod_labels(DRAIN)),
                    // A new Secret is not its business: the Job is made with whatever there is.
                    annotations: identity.annotations_added(),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn container(plan: &Plan) -> Container {
    Container {
        name: DRAIN_CONTAINER.into(),
        args: Some(vec!["drain".into(), "--config".into(), config_path()]),
        env: Some(vec![of_pod("POD_NAME", "metadata.name")]),
        resources: Some(resources(
            plan.resources.memory,
            JOB_CPU_REQUEST,
            of_job(plan.resources.cpu_limit.as_deref()),
        )),
        volume_mounts: Some(vec![queue_mount(plan)]),
        ..Container::default()
    }
}

fn volume(claim: &str) -> Volume {
    Volume {
        name: QUEUE_CLAIM.into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.into(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    }
}
