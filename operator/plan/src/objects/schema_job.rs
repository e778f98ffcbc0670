//! The Job that makes or compares the table, from the gateway's own image, so that both agree on the columns.

use crate::{
    names::{SCHEMA, SCHEMA_CONTAINER},
    objects::pod::{config_path, pod, resources},
    pipeline::resources::JOB_CPU_REQUEST,
    schema::{SCHEMA_MEMORY, SchemaPlan},
};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// The Job is ended after this many seconds, whatever it waits for: longer than any answer of a server that is up, and
/// short enough that a pipeline never seems to be at work when it is not.
const DEADLINE_SECONDS: i64 = 300;

/// The Job. It is kept as the record of what was done; the operator removes it when another one takes its place.
pub(crate) fn schema_job(metadata: ObjectMeta, schema: &SchemaPlan) -> Job {
    let name = metadata.name.clone().unwrap_or_default();
    Job { metadata, spec: Some(spec(schema, &name)), ..Job::default() }
}

/// Its spec, reading the ConfigMap of that name. A failure is final: the operator decides when to run another.
pub(crate) fn spec(schema: &SchemaPlan, config_map: &str) -> JobSpec {
    let identity = &schema.identity;
    JobSpec {
        backoff_limit: Some(0),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        template: PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(identity.pod_labels(SCHEMA)),
                annotations: identity.pod_annotations(None),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                restart_policy: Some("Never".into()),
                ..pod(identity, config_map, container(schema))
            }),
        },
        ..JobSpec::default()
    }
}

/// What may be done is in the config: `schema.management` says whether a missing table is made or only compared.
fn container(schema: &SchemaPlan) -> Container {
    Container {
        name: SCHEMA_CONTAINER.into(),
        args: Some(vec!["ddl".into(), "apply".into(), "--config".into(), config_path()]),
        resources: Some(resources(SCHEMA_MEMORY, JOB_CPU_REQUEST, schema.cpu_limit.as_deref())),
        ..Container::default()
    }
}
