//! From a spec and facts to a checked plan, to what must come first, or to violations.

mod kept_revision;
mod schema_job;
mod shard_order;
mod topics;

pub use schema_job::schema_job_name;

use crate::{
    drain::lifecycle,
    edge::EdgePlan,
    facts::Observed,
    ground::refused::Refused,
    identity::{
        Defaults, Identity,
        image::Image,
        secrets::{Unusable, mounted},
    },
    objects,
    observed::{StorageClassSeen, WorkloadSeen},
    otlp_service::OtlpService,
    pipeline::{Pipeline, connections::located_all, gateway_config, group_owner::group_of},
    planned::{Plan, Planned, Waiting},
    rollout::source_change::is_to_be_seen_first,
    schema::{SchemaPlan, SchemaStep},
    volumes::Volume,
};
use kept_revision::as_it_runs;
use sluice_crds::{DrainState, ScalingMode, Side, TracePipeline, status::reason};
use sluice_gateway_config::Violations;
use topics::{partitions_known, sum, topics};

/// The fields of the schema.
const SCHEMA: &str = "spec.sink.clickhouse.schema";

/// Decides. Everything that is wrong with the spec is named at once, as far as it does not depend on what is wrong. The pipeline is one whose
/// references are resolved ([`crate::resolved`]).
pub fn plan(
    pipeline: &TracePipeline,
    observed: &Observed,
    defaults: &Defaults,
) -> Result<Planned, Violations> {
    plan_or_refuse(pipeline, observed, defaults).map_err(|refused| refused.violations)
}

/// The same, and whether something was not checked.
pub fn plan_or_refuse(
    pipeline: &TracePipeline,
    observed: &Observed,
    defaults: &Defaults,
) -> Result<Planned, Refused> {
    // Without its brokers or servers, nothing else of a spec can be checked.
    if let Some(message) = observed.unresolved.words() {
        return Ok(Planned::Waiting(Waiting { reason: reason::CONNECTION_MISSING, message }));
    }
    decide(pipeline, observed, defaults).map_err(|refused| Refused {
        violations: located_all(&pipeline.spec, refused.violations),
        is_partial: refused.is_partial,
    })
}

/// The same of a spec that names brokers and servers.
fn decide(pipeline: &TracePipeline, observed: &Observed, defaults: &Defaults) -> Result<Planned, Refused> {
    // What does not depend on facts is checked first, so that a wrong spec is never said to be waiting.
    let of_source = mounted(&pipeline.spec, &observed.secrets, Side::Source);
    let of_sink = mounted(&pipeline.spec, &observed.secrets, Side::Sink);
    let secrets = [&of_source, &of_sink].into_iter().flatten().flatten().cloned().collect();
    let image = Image::of(pipeline, observed.workload.as_ref(), defaults);
    let identity = Identity::of(pipeline, secrets, &image).and_then(|identity| in_group(pipeline, identity));
    let identity = both(identity, taken_properties(observed, image.runs == defaults.gateway_image))
        .map(|(identity, ())| identity);
    let servers = shard_order::kept(pipeline, observed);
    let (identity, sized) = both(identity, Pipeline::of(&pipeline.spec)).map_err(|mut found| {
        found.extend(servers.as_ref().err().cloned().unwrap_or_default());
        found
    })?;
    let topics = topics(pipeline, &observed.partitions);
    let known = topics.as_deref().unwrap_or_default();
    let wanted = wanted(pipeline, observed);
    let of_operator = (defaults.operator_pods.as_ref(), &*defaults.gateway_image_pull_secrets);
    let edge = EdgePlan::of(pipeline, &identity, observed, of_operator);
    let divided = sized.divide(&identity.names, sum(known), wanted);
    let sent = partitions_known(pipeline, &observed.partitions);
    let schema = SchemaPlan::of(pipeline, &identity, sent);
    let otlp = both(servers, OtlpService::of_gateways(&identity.names, &pipeline.spec));
    let (edge, ((), otlp), (replicas, config), schema) = together(edge, otlp, divided, schema)?;
    if let Some(waiting) = refused(pipeline, observed) {
        return Ok(Planned::Waiting(waiting));
    }
    let waiting = |reason, message| Ok(Planned::Waiting(Waiting { reason, message }));
    match (of_source, topics, of_sink) {
        (Err(Unusable { message, .. }), _, _) => waiting(reason::SOURCE_UNAVAILABLE, message),
        (_, Err(Waiting { reason, message }), _) => waiting(reason, message),
        (_, _, Err(Unusable { message, .. })) => waiting(reason::SINK_UNAVAILABLE, message),
        (Ok(_), Ok(topics), Ok(_)) => {
            let volume = Volume::of(pipeline, observed, false);
            let holds_source = is_to_be_seen_first(observed, &config, &identity.secrets);
            let budget = pipeline.spec.pod_disruption_budget.unwrap_or_default();
            let plan = Plan {
                identity,
                image,
                topics,
                replicas,
                config,
                resources: sized.resources.clone(),
                grace: sized.grace,
                volume,
                holds_source,
                drain_seconds: sized.drain.timeout_seconds,
                schema_step: schema_step(pipeline, observed, schema.as_ref()),
                schema,
                operator_version: defaults.operator_version.clone(),
                operator_pods: defaults.operator_pods.clone(),
                pull_secrets: defaults.gateway_image_pull_secrets.clone(),
                network: sized.network.clone(),
                pod_monitoring: sized.pod_monitoring.clone(),
                evicted_max: Some(budget.max_unavailable).filter(|_| budget.enabled),
                stay_unready: observed.workload.as_ref().map_or(0, |seen| seen.stay_unready),
                edge,
                otlp,
                sent,
            };
            let names = plan.identity.names.clone();
            let plan = as_it_runs(plan, pipeline, observed, |active| sized.config(&names, active));
            if observed.asks_for_group && plan.lets_gateways_change() {
                return Ok(Planned::Waiting(asks_for_group()));
            }
            // What is next for volumes depends on the pod template, which has nothing of them but where they are mounted.
            let volume = Volume::of(pipeline, observed, is_settled(observed, &plan));
            Ok(Planned::Ready(Box::new(Plan { volume, ..plan })))
        }
    }
}

/// What must happen to the schema, in the light of the Job that the status remembers.
fn schema_step(pipeline: &TracePipeline, observed: &Observed, schema: Option<&SchemaPlan>) -> SchemaStep {
    let needed = schema.map(SchemaPlan::name);
    let usable = pipeline.status.as_ref().and_then(|status| status.schema_job.as_deref());
    SchemaStep::of(&observed.schema, needed.as_deref(), usable)
}

/// Gateways that have read in a group never leave it: in another group they would read everything again. An empty `consumerGroup` has a
/// default. The definition's rule cannot see that, so it permits setting and removing the field.
fn in_group(pipeline: &TracePipeline, identity: Identity) -> Result<Identity, Violations> {
    let Some(kafka) = &pipeline.spec.source.kafka else { return Ok(identity) };
    let asked = gateway_config::consumer_group(&identity.names, kafka);
    let started = pipeline.status.as_ref().filter(|status| status.image.is_some());
    let running = started.and_then(|status| status.consumer_group.clone());
    let mut found = Violations::default();
    if let Some(running) = running.filter(|running| *running != asked) {
        found.add(
            "spec.source.kafka.consumerGroup",
            format!(
                "cannot be {asked:?}: gateways read in the group {running:?}, and another group would read everything again. Set \
                 {running:?}, or nothing if it was not set before. For another group, make another pipeline"
            ),
        );
    }
    found.or(identity)
}

/// Properties that no gateway could start with. The definition cannot know all names and values, and only librdkafka does. Gateways of another
/// release may have another librdkafka (`is_own_release`), and say it themselves.
fn taken_properties(observed: &Observed, is_own_release: bool) -> Result<(), Violations> {
    let mut found = Violations::default();
    for (name, why) in observed.refused_properties.iter().filter(|_| is_own_release) {
        found.add(
            format!("spec.source.kafka.properties.{name}"),
            format!(
                "librdkafka refuses it ({why}): correct it as in librdkafka's CONFIGURATION.md, or remove it"
            ),
        );
    }
    found.or(())
}

/// Both, or all that is wrong with either.
fn both<A, B>(one: Result<A, Violations>, other: Result<B, Violations>) -> Result<(A, B), Violations> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(mut found), Err(others)) => {
            found.extend(others);
            Err(found)
        }
        (Err(found), Ok(_)) | (Ok(_), Err(found)) => Err(found),
    }
}

/// What does not depend on each other, or all that is wrong with any of it: the edge, what has no config, the gateways, the schema.
fn together<E, O, G, S>(
    edge: Result<E, Violations>,
    others: Result<O, Violations>,
    gateways: Result<G, Refused>,
    schema: Result<S, Violations>,
) -> Result<(E, O, G, S), Refused> {
    let is_partial = edge.is_err() || gateways.as_ref().is_err_and(|refused| refused.is_partial);
    let gateways = gateways.map_err(|refused| refused.violations);
    let schema = schema.map_err(|found| match &gateways {
        Ok(_) => found,
        Err(said) => unsaid_of_schema(&found, said),
    });
    let all = both(both(edge, others), both(gateways, schema));
    let ((edge, others), (gateways, schema)) =
        all.map_err(|violations| Refused { violations, is_partial })?;
    Ok((edge, others, gateways, schema))
}

/// What is wrong with the fields of the schema alone: the schema Job's config repeats others of the gateways' config.
fn unsaid_of_schema(found: &Violations, said: &Violations) -> Violations {
    let mut unsaid = Violations::default();
    for one in found {
        let is_new = one.path.starts_with(SCHEMA) && said.iter().all(|other| other != one);
        unsaid.add_if(is_new, &one.path, || one.message.clone());
    }
    unsaid
}

/// What other objects of the cluster forbid. What runs keeps running.
fn refused(pipeline: &TracePipeline, observed: &Observed) -> Option<Waiting> {
    if let Some(owner) = &observed.group_owner {
        let group = group_of(pipeline).unwrap_or_default();
        let message = format!(
            "the pipeline {owner} has the same consumer group ({group:?}) at the same brokers and keeps it; this pipeline waits, because they \
             would take each other's partitions. Set another source.kafka.consumerGroup in one of them"
        );
        return Some(Waiting { reason: reason::CONSUMER_GROUP_TAKEN, message });
    }
    // Claims are made with the first gateway, and cannot be changed after it.
    let is_missing = observed.storage_class == StorageClassSeen::Missing && observed.workload.is_none();
    let named = pipeline.spec.queue.storage_class_name.as_ref().filter(|_| is_missing);
    named.map(|class| Waiting {
        reason: reason::STORAGE_CLASS_MISSING,
        message: format!(
            "queue.storageClassName: there is no StorageClass {class:?}; create it, or name an existing one"
        ),
    })
}

/// The pipeline could start, but others with the same group may be about to start at this moment.
fn asks_for_group() -> Waiting {
    let message = "gateways are about to be started; other pipelines that have not run yet want the same consumer group, and the first \
                   that can start gets it";
    Waiting { reason: reason::PROGRESSING, message: message.to_owned() }
}

/// The number of gateways that is asked for; `None` when it follows from the partitions.
fn wanted(pipeline: &TracePipeline, observed: &Observed) -> Option<u32> {
    let scaling = &observed.scaling;
    let decided = scaling.decision.as_ref().map(|decision| decision.replicas);
    // Without a decision the present number stays, and an operator that has just started does not interrupt a drain.
    let leaving = scaling.drain.as_ref().filter(|drain| drain.state == DrainState::Draining);
    // While the operator recreates the StatefulSet around its pods, the status still has the number.
    let remembered = pipeline.status.as_ref().and_then(|status| status.desired_replicas);
    let remembered = remembered.filter(|desired| *desired > 0);
    let made_anew = observed.volumes.left_alone.map(|pods| remembered.unwrap_or(pods));
    let target = leaving.map(|drain| drain.target);
    let there = observed.workload.as_ref().map(|workload| workload.wanted);
    // A pipeline that resumes has no samples for a decision yet.
    let remembered =
        lifecycle::suspension(pipeline, observed.workload.as_ref()).map(|before| before.replicas);
    let remembered = remembered.filter(|before| *before > 0);
    match pipeline.spec.scaling.mode {
        ScalingMode::Fixed | ScalingMode::External => pipeline.spec.replicas,
        // The decision is only reported. 0 is what idle topics left in the mode `Auto`, which alone ends that: it is no number to keep.
        ScalingMode::Recommend => {
            let present = [target, there, made_anew].into_iter().flatten().find(|number| *number > 0);
            pipeline.spec.replicas.or(remembered).or(present)
        }
        ScalingMode::Auto => remembered.or(decided).or(target).or(there).or(made_anew),
    }
}

/// Whether neither a rollout nor a rescale is under way, or about to begin, and no gateway gets a new volume.
fn is_settled(observed: &Observed, plan: &Plan) -> bool {
    let Some(seen) = &observed.workload else { return false };
    let is_rescaled = seen.wanted != plan.replicas || seen.replicas != plan.replicas;
    let is_anybody_leaving = observed.scaling.drain.is_some() || observed.volumes.replacing.is_some();
    is_over(seen, plan) && !is_rescaled && !is_anybody_leaving
}

/// Whether all gateways have the planned revision, and nothing is remembered to go back to. Only then may the StatefulSet be made
/// anew, which gives its template to all gateways and loses the memory; and only then do they run with the config that is planned.
fn is_over(workload: &WorkloadSeen, plan: &Plan) -> bool {
    let is_planned = match &workload.revision {
        Some(live) => *live == objects::revision(plan),
        None => workload.plan_hash.as_deref() == Some(objects::plan_hash(plan).as_str()),
    };
    is_planned && workload.proved.is_none() && workload.is_rolled_out()
}
