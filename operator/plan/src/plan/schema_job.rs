//! Which schema Job a pipeline needs now.

use crate::{
    identity::{Defaults, Identity, image::Image, secrets::mounted},
    observed::{Partitions, Secrets, WorkloadSeen},
    plan::topics::partitions_known,
    schema::SchemaPlan,
};
use sluice_crds::{Side, TracePipeline};

/// Name of the Job that the schema needs now, for the operator to look at before it plans; `None` when none is needed
/// or none can be planned yet.
pub fn schema_job_name(
    pipeline: &TracePipeline,
    secrets: &Secrets,
    partitions: &Partitions,
    workload: Option<&WorkloadSeen>,
    defaults: &Defaults,
) -> Option<String> {
    let secrets = mounted(&pipeline.spec, secrets, Side::Sink).ok()?;
    let identity = Identity::of(pipeline, secrets, &Image::of(pipeline, workload, defaults)).ok()?;
    let partitions = partitions_known(pipeline, partitions);
    SchemaPlan::of(pipeline, &identity, partitions).ok()?.map(|schema| schema.name())
}
