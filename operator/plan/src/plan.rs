//! From a spec and facts to a checked plan, to what must come first, or to violations.

use crate::{
    Names, Observed, StorageClassSeen,
    as_it_runs::as_it_runs,
    gateway_config::{self, Share},
    hash,
    image::Image,
    lifecycle,
    pod_template::check_labels,
    resources::{self, Sized},
    rollout,
    scale::{Policy, drain::Terms},
    schema::{Identity, SchemaPlan, SchemaStep},
    secrets::{Unusable, mounted},
    size,
    source::is_to_be_seen_first,
    topics::{partitions_known, sum, topics},
    volumes::{Growth, Volume},
};
use sluice_crds::{DrainState, PodMonitoring, ScalingMode, TopicStatus, TracePipeline, status::reason};
use sluice_gateway_config::{
    ByteSize, CheckedConfig, Duration, Format, InsertFormat, Sizing, Violations, parse,
};
use std::collections::BTreeMap;

/// What the operator brings to every plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The gateway image of pipelines that name none and have not begun with another one.
    pub gateway_image: String,
    /// Pull Secrets of the gateways' ServiceAccounts. Kubernetes gives them to pods that name none, so that they are in no pod template.
    pub gateway_image_pull_secrets: Vec<String>,
    /// The operator's version. Only the status has it, so a new operator with the same image changes no pod.
    pub operator_version: String,
    /// Who may tell gateways to drain; `None` for an operator that runs in no pod, or does not know the labels of its own.
    pub operator_pods: Option<OperatorPods>,
}

/// The pods of the operator, as a NetworkPolicy names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorPods {
    /// Their namespace.
    pub namespace: String,
    /// Labels that they have and no other pod of the namespace.
    pub labels: BTreeMap<String, String>,
}

/// What follows from a valid spec.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    /// All facts are there.
    Ready(Box<Plan>),
    /// Something outside of the spec must come first; what was applied before stays unchanged.
    Waiting(Waiting),
}

impl Planned {
    /// The plan, once all facts are there.
    pub fn ready(&self) -> Option<&Plan> {
        match self {
            Self::Ready(plan) => Some(plan),
            Self::Waiting(_) => None,
        }
    }
}

/// What must come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The reason of the condition `Ready`.
    pub reason: &'static str,
    /// What is waited for, for people.
    pub message: String,
}

/// A pipeline, decided: checked by the gateway's own rules, and sized. Only [`plan`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) identity: Identity,
    pub(crate) image: Image,
    pub(crate) topics: Vec<TopicStatus>,
    pub(crate) replicas: u32,
    pub(crate) config: CheckedConfig,
    pub(crate) resources: Sized,
    pub(crate) grace: Duration,
    pub(crate) volume: Option<Volume>,
    pub(crate) schema: Option<SchemaPlan>,
    pub(crate) schema_step: SchemaStep,
    pub(crate) operator_version: String,
    pub(crate) pull_secrets: Vec<String>,
    pub(crate) drain_seconds: u32,
    pub(crate) has_network_policy: bool,
    /// `None` without a `PodMonitor`.
    pub(crate) pod_monitoring: Option<PodMonitoring>,
    pub(crate) operator_pods: Option<OperatorPods>,
    /// Whether the config or Secrets have brokers or credentials with which Kafka does not answer.
    pub(crate) holds_source: bool,
    /// Gateways that may be evicted at the same time; `None` without a budget.
    pub(crate) evicted_max: Option<u32>,
    /// Gateways that stay unready, and take no place among those.
    pub(crate) stay_unready: u32,
}

impl Plan {
    /// Names of the pipeline's objects.
    pub fn names(&self) -> &Names {
        &self.identity.names
    }

    /// Number of gateways. It is not in the StatefulSet that [`crate::build`] makes, since a field manager of its own
    /// writes it.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Partitions of all topics.
    pub fn partitions(&self) -> u32 {
        sum(&self.topics)
    }

    /// Topics with their partitions, by name.
    pub fn topics(&self) -> &[TopicStatus] {
        &self.topics
    }

    /// The gateways' config.
    pub fn config(&self) -> &CheckedConfig {
        &self.config
    }

    /// The config as the gateways read it.
    pub fn config_yaml(&self) -> String {
        parse::to_yaml(self.config.config())
    }

    pub fn config_hash(&self) -> String {
        hash::of_text(&self.config_yaml())
    }

    /// The gateways' image.
    pub fn image(&self) -> &str {
        &self.identity.image
    }

    /// The schema Job; `None` when the spec wants none.
    pub fn schema(&self) -> Option<&SchemaPlan> {
        self.schema.as_ref()
    }

    /// What must happen to the schema before gateways are started or changed.
    pub fn schema_step(&self) -> SchemaStep {
        self.schema_step
    }

    /// How the queue volumes grow; `None` without them.
    pub fn growth(&self) -> Option<&Growth> {
        self.volume.as_ref().map(|volume| &volume.growth)
    }

    /// The gateway that is to get a new volume next; `None` when none is, or something else is under way.
    pub fn replaced_next(&self) -> Option<u32> {
        self.volume.as_ref()?.replaced_next
    }

    /// Whether volumes that no gateway uses are deleted once they are drained.
    pub fn deletes_drained_volumes(&self) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.retention.deletes_drained)
    }

    /// Whether gateways that read from Kafka would get brokers or credentials with which Kafka does not answer. They keep their present
    /// ones until it does, since it may never answer.
    pub fn holds_source(&self) -> bool {
        self.holds_source
    }

    /// Whether gateways may be given what is planned: the schema lets them start, and Kafka is there for them.
    pub fn lets_gateways_change(&self) -> bool {
        self.schema_step.lets_gateways_start() && !self.holds_source
    }

    /// Whether the StatefulSet may be applied: gateways may be changed, and it is not about to be recreated.
    pub fn lets_workload_change(&self) -> bool {
        self.lets_gateways_change() && !self.growth().is_some_and(Growth::holds_workload)
    }
}

/// Decides. Everything that is wrong with the spec is named at once.
pub fn plan(
    pipeline: &TracePipeline,
    observed: &Observed,
    defaults: &Defaults,
) -> Result<Planned, Violations> {
    // What does not depend on facts is checked first, so that a wrong spec is never said to be waiting.
    let of_source = mounted(&pipeline.spec, &observed.secrets, true);
    let of_sink = mounted(&pipeline.spec, &observed.secrets, false);
    let secrets = [&of_source, &of_sink].into_iter().flatten().flatten().cloned().collect();
    let image = Image::of(pipeline, observed.workload.as_ref(), defaults);
    let identity = Identity::of(pipeline, secrets, &image).and_then(|identity| in_group(pipeline, identity));
    let (identity, (sized, pod_monitoring)) =
        both(identity, both(Sizes::of(pipeline), pod_monitoring(pipeline)))?;
    let topics = topics(pipeline, &observed.partitions);
    let known = topics.as_deref().unwrap_or_default();
    let wanted = wanted(pipeline, observed);
    let (replicas, config) = sized.divide(pipeline, &identity.names, known, wanted)?;
    let schema = SchemaPlan::of(pipeline, &identity, partitions_known(pipeline, &observed.partitions))?;
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
                drain_seconds: sized.terms.timeout_seconds,
                schema_step: schema_step(pipeline, observed, schema.as_ref()),
                schema,
                operator_version: defaults.operator_version.clone(),
                operator_pods: defaults.operator_pods.clone(),
                pull_secrets: defaults.gateway_image_pull_secrets.clone(),
                has_network_policy: pipeline.spec.network_policy.unwrap_or_default().enabled,
                pod_monitoring,
                evicted_max: Some(budget.max_unavailable).filter(|_| budget.enabled),
                stay_unready: observed.workload.as_ref().map_or(0, |seen| seen.stay_unready),
            };
            let names = plan.identity.names.clone();
            let plan = as_it_runs(plan, pipeline, observed, |active| sized.config(pipeline, &names, active));
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

/// A group that gateways have read in is never left: another one would read everything again. The definition's rule cannot see that an
/// empty `consumerGroup` stands for one, and lets it be set and taken back.
fn in_group(pipeline: &TracePipeline, identity: Identity) -> Result<Identity, Violations> {
    let asked = gateway_config::consumer_group(&identity.names, &pipeline.spec);
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

/// How a `PodMonitor` is to read the gateways' metrics; `None` where none is asked for.
fn pod_monitoring(pipeline: &TracePipeline) -> Result<Option<PodMonitoring>, Violations> {
    let mut found = Violations::default();
    let asked = pipeline.spec.observability.clone().unwrap_or_default().pod_monitor;
    check_labels(&asked.labels, "spec.observability.podMonitor.labels", &mut found);
    found.or(Some(asked).filter(|asked| asked.enabled))
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

/// What other objects of the cluster forbid. What runs keeps running.
fn refused(pipeline: &TracePipeline, observed: &Observed) -> Option<Waiting> {
    if let Some(rival) = &observed.rival {
        let message = format!(
            "the pipeline {rival} came first and has the same consumer group at the same brokers: they would take each other's \
             partitions. Set another source.kafka.consumerGroup in one of them"
        );
        return Some(Waiting { reason: reason::CONSUMER_GROUP_TAKEN, message });
    }
    // Claims are made with the first gateway, and cannot be changed after it.
    let is_missing = observed.storage_class == StorageClassSeen::Missing && observed.workload.is_none();
    let named = pipeline.spec.queue.storage_class_name.as_ref().filter(|_| is_missing);
    named.map(|class| Waiting {
        reason: reason::STORAGE_CLASS_MISSING,
        message: format!("queue.storageClassName: there is no StorageClass {class:?}"),
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
    let as_it_is = || {
        let target = leaving.map(|drain| drain.target);
        target.or_else(|| observed.workload.as_ref().map(|workload| workload.wanted)).or(made_anew)
    };
    // A pipeline that resumes has no samples for a decision yet.
    let remembered =
        lifecycle::suspension(pipeline, observed.workload.as_ref()).map(|before| before.replicas);
    let remembered = remembered.filter(|before| *before > 0);
    match pipeline.spec.scaling.mode {
        ScalingMode::Fixed | ScalingMode::External => pipeline.spec.replicas,
        // The decision is only reported.
        ScalingMode::Recommend => pipeline.spec.replicas.or(remembered).or_else(as_it_is),
        ScalingMode::Auto => remembered.or(decided).or_else(as_it_is),
    }
}

/// The sizes that the spec gives, as numbers.
struct Sizes {
    resources: Sized,
    grace: Duration,
    record_batch_bytes_max: ByteSize,
    format: Format,
    insert_concurrency: u32,
    insert_format: InsertFormat,
    workers: u32,
    policy: Policy,
    terms: Terms,
}

impl Sizes {
    fn of(pipeline: &TracePipeline) -> Result<Self, Violations> {
        let spec = &pipeline.spec;
        let mut found = Violations::default();
        let resources = resources::read(&spec.gateway.resources, &mut found);
        let grace = gateway_config::grace_period(spec, &mut found);
        let batch = gateway_config::record_batch_bytes_max(spec, &mut found);
        let policy = Policy::of(spec).map_err(|others| found.extend(others)).ok();
        let terms = Terms::of(spec).map_err(|others| found.extend(others)).ok();
        rollout::Terms::of(spec).map_err(|others| found.extend(others)).ok();
        let (Some(resources), Some(grace), Some(record_batch_bytes_max), Some(policy), Some(terms)) =
            (resources, grace, batch, policy, terms)
        else {
            return Err(found);
        };
        let workers = spec.gateway.workers.unwrap_or(resources.cores);
        let format = gateway_config::format(spec);
        let insert_concurrency = gateway_config::insert_concurrency(spec);
        let insert_format = gateway_config::insert_format(spec);
        found.or(Self {
            resources,
            grace,
            record_batch_bytes_max,
            format,
            insert_concurrency,
            insert_format,
            workers,
            policy,
            terms,
        })
    }

    /// The number of gateways and their config. Without topics a partition is assumed, so that a memory limit that can
    /// never do is refused before Kafka has answered.
    fn divide(
        &self,
        pipeline: &TracePipeline,
        names: &Names,
        topics: &[TopicStatus],
        wanted: Option<u32>,
    ) -> Result<(u32, CheckedConfig), Violations> {
        let spec = &pipeline.spec;
        let partitions = sum(topics).max(1);
        let wanted = wanted.or_else(|| self.policy.replicas_at_first(partitions));
        let replicas = size::replicas(wanted, partitions, spec.partitions_per_replica);
        // None at all is no reason to make those anew that leave: as many as there would be unless they were given.
        let planned = if replicas > 0 {
            replicas
        } else {
            size::replicas(None, partitions, spec.partitions_per_replica)
        };
        let sized_for = self.policy.replicas_sized_for(planned);
        let active = size::partitions_active(&self.sizing(), partitions, sized_for);
        // Too little memory is one violation among others: the rest of the config is checked with one that would do.
        let memory = active.as_ref().map_or_else(|smallest| *smallest, |_| self.resources.memory);
        let share = Share { workers: self.workers, partitions_active_max: active.unwrap_or(1), memory };
        let config = gateway_config::build(names, spec, share)?.check();
        let mut found = Violations::default();
        if let Err(smallest) = active {
            found.add("spec.gateway.resources.memory", self.too_small(smallest));
        }
        match config {
            Ok(config) => found.or((replicas, config)),
            Err(others) => {
                found.extend(gateway_config::of_spec(&others));
                Err(found)
            }
        }
    }

    /// The config of gateways that read so many partitions at the same time; `None` where that does not fit their memory.
    fn config(&self, pipeline: &TracePipeline, names: &Names, active: u32) -> Option<CheckedConfig> {
        let memory = self.resources.memory;
        let share = Share { workers: self.workers, partitions_active_max: active, memory };
        gateway_config::build(names, &pipeline.spec, share).ok()?.check().ok()
    }

    fn sizing(&self) -> Sizing {
        Sizing {
            limit: self.resources.memory,
            workers: self.workers,
            partitions_active_max: 1,
            record_batch_bytes_max: self.record_batch_bytes_max,
            format: self.format,
            insert_concurrency: self.insert_concurrency,
            insert_format: self.insert_format,
        }
    }

    fn too_small(&self, smallest: ByteSize) -> String {
        format!(
            "{}Mi is too small for {} workers and record batches of {}; set at least {}Mi",
            self.resources.memory.mib_ceil(),
            self.workers,
            self.record_batch_bytes_max,
            smallest.mib_ceil(),
        )
    }
}

/// Whether neither a rollout nor a rescale is under way, or about to begin, and no gateway gets a new volume.
fn is_settled(observed: &Observed, plan: &Plan) -> bool {
    let Some(seen) = &observed.workload else { return false };
    let is_rescaled = seen.wanted != plan.replicas || seen.replicas != plan.replicas;
    let is_anybody_leaving = observed.scaling.drain.is_some() || observed.volumes.replacing.is_some();
    rollout::is_over(seen, plan) && !is_rescaled && !is_anybody_leaving
}
