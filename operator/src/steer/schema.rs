//! Runs the schema Job again when gateways miss the table: it was dropped since the Job succeeded.
//!
//! The Job is deleted, and the next reconcile makes it again, as for one that failed. It does what `schema.management` permits: make a table that
//! is missing, or only compare. [`RunsAgain`] bounds how often. The memory of the pipeline has a few bytes for it.
//!
//! [`RunsAgain`]: sluice_plan::RunsAgain

use crate::{
    read::observe::Facts,
    world::{
        World,
        cache::find,
        memory::{Key, SchemaMemory},
    },
    write::events,
};
use kube::ResourceExt;
use sluice_crds::TracePipeline;
use sluice_plan::{
    Intent, Plan, SchemaSeen, objects::plan_hash, observed::MissingTable, outdated_schema_job,
};
use tracing::info;

/// The schema Job as one that is due to run again; `None` while nothing asks for that.
pub async fn run_again(
    pipeline: &TracePipeline,
    key: &Key,
    (plan, facts): (Option<&Plan>, &Facts),
    world: &World,
) -> Option<SchemaSeen> {
    let observed = &facts.observed;
    let job = observed.schema_job.as_deref().filter(|_| Intent::of(pipeline) == Intent::Run)?;
    let uid = find(&world.cache.jobs, &key.namespace, job).and_then(|job| job.uid());
    // Gateways that are about to get another config may miss another table.
    let runs_as_planned = plan
        .zip(observed.workload.as_ref())
        .is_some_and(|(plan, workload)| workload.plan_hash.as_deref() == Some(plan_hash(plan).as_str()));
    let had_table = match &observed.schema {
        SchemaSeen::Succeeded | SchemaSeen::Remembered => true,
        SchemaSeen::Failed(failed) => failed.failure.lets_rows_in(),
        SchemaSeen::NotNeeded | SchemaSeen::NotStarted | SchemaSeen::Running | SchemaSeen::Again(_) => false,
    };
    let is_named = pipeline.status.as_ref().and_then(|status| status.schema_job.as_deref()) == Some(job);
    // If the database is missing, the server may be another one, and a table that is made there would take rows.
    let missing = observed.missing_table.as_ref().filter(|missing| missing.database.is_none());
    let missing = missing.filter(|_| runs_as_planned);
    let is_unknown = observed.missing_table.is_none() && observed.is_missing_table_unknown();
    let (seen, is_news) = world.shared.memory.with(key, |memory| {
        let memory = &mut memory.schema;
        memory.runs.hear(missing.is_some(), is_unknown, world.now());
        next(memory, (uid, is_named), missing.filter(|_| had_table), world)
    })?;
    if let Some(missing) = missing.filter(|_| is_news) {
        let Key { namespace, name } = key;
        let MissingTable { gateway, words, .. } = missing;
        info!(%namespace, pipeline = %name, %job, %gateway, %words, "the schema Job runs again: gateways miss a table");
        events::tell(pipeline, "SchemaJobRunsAgain", &missing.message(), &world.shared).await;
    }
    Some(seen)
}

/// What is seen of the Job, and whether that is news. The Job has this UID, if there is one; `is_named` says whether the status still names it.
fn next(
    memory: &mut SchemaMemory,
    (uid, is_named): (Option<String>, bool),
    missing: Option<&MissingTable>,
    world: &World,
) -> Option<(SchemaSeen, bool)> {
    if let Some((of, seen)) = &memory.outdated {
        // Its deletion failed, or the copy is older than that; or it is gone, and the status was not written.
        if uid.as_ref().map_or(is_named, |uid| uid == of) {
            return Some((seen.clone(), false));
        }
        memory.outdated = None;
    }
    let missing = missing.filter(|_| memory.runs.begin(world.now()))?;
    let seen = outdated_schema_job(missing, world.timestamp());
    memory.outdated = Some((uid.unwrap_or_default(), seen.clone()));
    Some((seen, true))
}
