//! Reads what a decision needs: Kafka, the Secrets, the schema Job and the workload. Writes nothing and decides nothing.

use super::{
    Sources, gateway_report,
    gateways::{Gateway, full_volumes, logs, looks::Look, silence, unconnected, unfetched},
    kafka::{
        cluster::Cluster,
        refused_properties,
        sample::{self, Sample, Source},
        security::{KafkaSecrets, KafkaSecurity},
    },
    missing_table,
    not_ready_reason::{self, NotReady},
    refused_pods, volumes,
};
use crate::world::{
    World,
    api_error::ErrorClass,
    cache::{self, Cache, find},
    error::Error,
    memory::Key,
};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod, storage::v1::StorageClass},
    jiff::Timestamp,
};
use kube::{Api, ResourceExt};
use sluice_crds::{InitialOffset, KafkaSource, Lag, QueueMode, QueueStatus, SchemaManagement, TracePipeline};
use sluice_plan::{
    EdgeSeen, KeptVersions, Names, Observed, Partitions, SchemaSeen, Secrets, ServersSeen, StorageClassSeen,
    TopicSeen, Unresolved, WorkloadSeen, asks_first, group_of, group_owner, names,
    objects::{configs_of_pods, live_config_of},
    pods, schema_job_name,
    volumes::replacement::needs_class,
};
use std::sync::Arc;
use tracing::debug;

/// Facts as they are.
#[derive(Debug, Default)]
pub struct Facts {
    /// What the plan and the status are made from.
    pub observed: Observed,
    /// Messages behind, not rounded; with `source.otlp`, requests that wait in the logs of all gateways.
    pub lag_messages: Option<u64>,
    /// What Kafka answered; `None` when it did not, and with `source.otlp`.
    pub kafka: Option<Sample>,
    /// The gateways' workload: the very copy that `observed` tells of.
    pub stateful_set: Option<Arc<StatefulSet>>,
    /// Pods of gateways.
    pub pods: Vec<Pod>,
    /// Gateways that can be asked.
    pub gateways: Vec<Gateway>,
    /// The last answers of the gateways; `None` if there are none, or only old ones.
    pub look: Option<Arc<Look>>,
}

/// The facts about the gateways from the copies alone, without a request.
pub fn gateways(pipeline: &TracePipeline, world: &World) -> Facts {
    let Ok(names) = Names::of(pipeline) else { return Facts::default() };
    let pods = gateway_pods(&names, &world.cache);
    let stateful_set = find(&world.cache.stateful_sets, names.namespace(), &names.gateway());
    let workload = stateful_set.as_deref().map(|found| WorkloadSeen::of(found, &pods));
    let gateways = pods.iter().filter_map(Gateway::of).collect();
    let volumes = volumes::seen(pipeline, &names, &pods, stateful_set.as_deref(), world);
    let observed = Observed { workload, volumes, edge: edge(&names, &world.cache), ..Observed::default() };
    Facts { observed, stateful_set, pods, gateways, ..Facts::default() }
}

/// Reads all facts about one pipeline.
pub async fn observe(
    (pipeline, unresolved): (&TracePipeline, Unresolved),
    world: &World,
    sources: &Sources,
) -> Result<Facts, Error> {
    // A pipeline without a usable name has no objects to look at; the plan says what is wrong with it.
    let Ok(names) = Names::of(pipeline) else { return Ok(Facts::default()) };
    let key = Key { namespace: names.namespace().to_owned(), name: names.pipeline().to_owned() };
    let (secrets, of_kafka) = secrets((pipeline, &unresolved), (&names, &key), world, sources).await?;
    let answer = ask((pipeline, &unresolved), &names, &of_kafka, sources).await;
    let kafka = answer.as_ref().and_then(|answer| answer.as_ref().ok()).cloned();
    let pods = gateway_pods(&names, &world.cache);
    let stateful_set = find(&world.cache.stateful_sets, names.namespace(), &names.gateway());
    let partitions = answer.map_or_else(Default::default, |answer| partitions(pipeline, answer));
    let mut workload = stateful_set.as_deref().map(|found| WorkloadSeen::of(found, &pods));
    let job = schema_job_name(pipeline, &secrets, &partitions, workload.as_ref(), &world.shared.defaults);
    let gateways: Vec<Gateway> = pods.iter().filter_map(Gateway::of).collect();
    let look = sources.looks.look(&key, &gateways).await;
    let lag_messages = lag(pipeline, kafka.as_ref(), (look.as_deref(), &gateways, workload.as_ref()));
    let reading = (&gateways[..], pipeline.spec.source.kafka.is_some());
    let (report, not_ready, silent, full_volumes) = sources.memory.with(&key, |memory| {
        let report = gateway_report::hear(&mut memory.report, look.as_deref(), reading, world.now());
        let not_ready = not_ready_reason::hear(&mut memory.reasons, look.as_deref(), &gateways, world.now());
        let silent = silence::hear(&mut memory.silence, look.as_deref(), &gateways);
        let full = full_volumes::hear(&mut memory.full_volumes, look.as_deref(), &gateways);
        (report, not_ready, silent, full)
    });
    let database = pipeline.spec.sink.clickhouse.database.as_str();
    let table = missing_table::hear(&report, &not_ready, (workload.as_ref(), database));
    if let Some(workload) = &mut workload {
        tell(workload, &pods, not_ready);
    }
    let volumes = volumes::look(pipeline, &names, &pods, stateful_set.as_deref(), world).await?;
    let is_class_needed = workload.is_none() || needs_class(&pipeline.spec.queue, &volumes);
    let pods_refused = refused_pods::look(pipeline, workload.as_ref(), &names, world).await;
    let sharing = group_of(pipeline).map(|group| world.shared.pipelines.sharing(&group)).unwrap_or_default();
    let observed = Observed {
        storage_class: storage_class(pipeline, is_class_needed, world).await?,
        group_owner: group_owner(pipeline, sharing.iter()),
        asks_for_group: asks_first(pipeline, sharing.iter()),
        servers: servers(stateful_set.as_deref(), &pods, &names, &world.cache),
        unresolved,
        schema: schema(pipeline, job.as_deref(), world).await,
        schema_job: job,
        partitions,
        refused_properties: pipeline.spec.source.kafka.as_ref().map(refused_properties).unwrap_or_default(),
        queue: queue(report.told.queue, &gateways, workload.as_ref()),
        workload,
        edge: edge(&names, &world.cache),
        lag: lag_messages.map(as_lag),
        has_committed: kafka.as_ref().is_some_and(Sample::has_committed),
        has_uncommitted: kafka.as_ref().is_some_and(Sample::has_uncommitted),
        secrets,
        delivery: report.told.delivery,
        has_empty_queue: report.told.has_empty_queue,
        messages_lost: report.messages_lost,
        messages: report.messages,
        open_transactions: report.open_transactions,
        silent,
        unconnected: unconnected::hear(look.as_deref(), &gateways),
        unfetched: unfetched::hear(look.as_deref(), &gateways),
        full_volumes,
        sink: report.sink,
        inserts_in_doubt: report.inserts_in_doubt,
        insert_error: report.insert_error,
        missing_table: table.missing,
        unusable_table: table.unusable,
        volumes,
        pods_refused,
        // What later steps find.
        ..Observed::default()
    };
    Ok(Facts { observed, lag_messages, kafka, stateful_set, pods, gateways, look })
}

/// Adds why gateways are not ready, as their pods and they themselves say.
fn tell(workload: &mut WorkloadSeen, pods: &[Pod], NotReady { reasons, unheard, .. }: NotReady) {
    let now = Timestamp::now();
    workload.count_unready(now);
    let unmounted = |pod: &Pod| Some((pods::ordinal(pod)?, pods::unmounted(pod, now)?));
    workload.told_by(&pods.iter().filter_map(unmounted).chain(reasons).collect(), &unheard);
}

/// What waits on the volumes of all gateways; `None` while one is missing or not ready. It may wait for its table, and reads its volume after that.
fn queue(
    told: Option<QueueStatus>,
    gateways: &[Gateway],
    workload: Option<&WorkloadSeen>,
) -> Option<QueueStatus> {
    let wanted = usize::try_from(workload?.wanted).ok()?;
    let is_known = gateways.len() >= wanted && gateways.iter().all(|gateway| gateway.is_ready);
    told.filter(|_| is_known)
}

fn as_lag(messages: u64) -> Lag {
    Lag { messages: i64::try_from(messages).unwrap_or(i64::MAX) }
}

/// What Kafka says of a pipeline's topics and its group. Without brokers, as with `source.otlp`, nothing is asked, and nothing is known of topics.
async fn ask(
    (pipeline, unresolved): (&TracePipeline, &Unresolved),
    names: &Names,
    secrets: &KafkaSecrets,
    sources: &Sources,
) -> Option<Result<Sample, sample::Error>> {
    let spec = pipeline.spec.source.kafka.as_ref().filter(|_| unresolved.source.is_none())?;
    Some(match KafkaSecurity::of(spec, secrets, &sources.own_logins) {
        Ok(security) => sources.kafka.sample(&source(spec, names, security)).await,
        Err(why) => Err(sample::Error::unasked(&why)),
    })
}

/// Messages behind: as Kafka says it, or with `source.otlp` the gateways.
fn lag(
    pipeline: &TracePipeline,
    kafka: Option<&Sample>,
    (look, gateways, workload): (Option<&Look>, &[Gateway], Option<&WorkloadSeen>),
) -> Option<u64> {
    match &pipeline.spec.source.otlp {
        Some(_) => logs::waiting(look?, gateways, workload?.wanted),
        None => kafka?.lag_messages,
    }
}

fn source(kafka: &KafkaSource, names: &Names, security: KafkaSecurity) -> Source {
    let given = kafka.consumer_group.clone().filter(|group| !group.is_empty());
    let consumer_group = given.unwrap_or_else(|| names.consumer_group());
    Source {
        cluster: Cluster::of(kafka, security),
        consumer_group,
        topics: kafka.topics.clone(),
        from_earliest: kafka.initial_offset == InitialOffset::Earliest,
    }
}

fn partitions(pipeline: &TracePipeline, answer: Result<Sample, sample::Error>) -> Partitions {
    of_topics(pipeline.spec.source.kafka.as_ref().map_or(&[][..], |spec| &spec.topics[..]), answer)
}

fn of_topics(topics: &[String], answer: Result<Sample, sample::Error>) -> Partitions {
    match answer {
        Ok(sample) => {
            let known = sample.topics.into_iter().map(|(topic, count)| (topic, TopicSeen::Known(count)));
            let missing = sample.missing.into_iter().map(|topic| (topic, TopicSeen::Missing));
            known.chain(missing).collect()
        }
        Err(sample::Error { failure, message, .. }) => {
            let seen = TopicSeen::Unavailable { failure, message };
            topics.iter().map(|topic| (topic.clone(), seen.clone())).collect()
        }
    }
}

/// Each named Secret as its use needs it; those of Kafka with their content, since the operator asks Kafka itself.
async fn secrets(
    (pipeline, unresolved): (&TracePipeline, &Unresolved),
    (names, key): (&Names, &Key),
    world: &World,
    sources: &Sources,
) -> Result<(Secrets, KafkaSecrets), Error> {
    let stateful_set = find(&world.cache.stateful_sets, names.namespace(), &names.gateway());
    let noted = stateful_set.as_deref().map(KeptVersions::noted_by).unwrap_or_default();
    let of = (&pipeline.spec, unresolved);
    sources.secrets.of(key, of, &noted, (&world.shared.client, &world.cache)).await
}

async fn schema(pipeline: &TracePipeline, job: Option<&str>, world: &World) -> SchemaSeen {
    if pipeline.spec.sink.clickhouse.schema.management == SchemaManagement::None {
        return SchemaSeen::NotNeeded;
    }
    let Some(name) = job else { return SchemaSeen::NotStarted };
    let namespace = pipeline.namespace().unwrap_or_default();
    let cache = &world.cache;
    let job = find(&cache.jobs, &namespace, name);
    let job_uid = job.as_deref().and_then(ResourceExt::uid).unwrap_or_default();
    let pods = match &job {
        Some(_) => pods(cache, &namespace, &pipeline.name_any(), |pod| cache::is_owned(pod, &job_uid)),
        None => Vec::new(),
    };
    let status = pipeline.status.as_ref();
    let before = status.and_then(|status| status.schema.as_ref());
    let mut seen = SchemaSeen::of(job.as_deref(), &pods, Timestamp::now());
    if let Some(job) = job.filter(|_| pods.is_empty() && seen == SchemaSeen::Running) {
        seen = seen.without_pod(refused_pods::of_job(&job, world).await.as_deref());
    }
    seen.not_started_before(status).remembering(name, before).succeeded_before(name, status)
}

/// The ClickHouse servers in the config of the present template; without a StatefulSet, those in the configs of the pods, which read on.
fn servers(workload: Option<&StatefulSet>, pods: &[Pod], names: &Names, cache: &Cache) -> Vec<ServersSeen> {
    let configs = match workload {
        Some(workload) => live_config_of(workload).map(str::to_owned).into_iter().collect(),
        None => configs_of_pods(pods.iter()),
    };
    let found = configs.iter().filter_map(|name| find(&cache.config_maps, names.namespace(), name));
    found.filter_map(|config| ServersSeen::of(&config)).collect()
}

/// Whether there is the storage class that the spec names. It is looked for until there are gateways, which have their volumes, and
/// while other volumes are to be made; who may not look leaves it to Kubernetes to say so.
async fn storage_class(
    pipeline: &TracePipeline,
    is_needed: bool,
    world: &World,
) -> Result<StorageClassSeen, Error> {
    let queue = &pipeline.spec.queue;
    let named = queue.storage_class_name.as_ref().filter(|_| queue.mode == QueueMode::Spill);
    let Some(name) = named.filter(|_| is_needed) else { return Ok(StorageClassSeen::NotAsked) };
    let classes: Api<StorageClass> = Api::all(world.shared.client.clone());
    match classes.get_metadata_opt(name).await {
        Ok(Some(_)) => Ok(StorageClassSeen::Present),
        Ok(None) => Ok(StorageClassSeen::Missing),
        Err(error) if ErrorClass::of(&error) == ErrorClass::Forbidden => {
            debug!(%error, storage_class = %name, "may not look for the storage class");
            Ok(StorageClassSeen::NotAsked)
        }
        Err(error) => Err(Error::request(format!("cannot look for the storage class {name}"), error)),
    }
}

/// The edge and its pods.
fn edge(names: &Names, cache: &Cache) -> Option<EdgeSeen> {
    let is_of_edge = |pod: &Pod| pod.labels().get(names::COMPONENT).is_some_and(|part| part == names::EDGE);
    let pods = pods(cache, names.namespace(), names.pipeline(), is_of_edge);
    let workload = find(&cache.deployments, names.namespace(), &names.edge());
    EdgeSeen::of(workload.as_deref(), &pods)
}

fn gateway_pods(names: &Names, cache: &Cache) -> Vec<Pod> {
    let is_gateway =
        |pod: &Pod| pod.labels().get(names::COMPONENT).is_some_and(|part| part == names::GATEWAY);
    pods(cache, names.namespace(), names.pipeline(), is_gateway)
}

fn pods(cache: &Cache, namespace: &str, pipeline: &str, is_meant: impl Fn(&Pod) -> bool) -> Vec<Pod> {
    let pods = cache.pods_of(namespace, pipeline);
    pods.into_iter().filter(|pod| is_meant(pod)).map(|pod| Pod::clone(&pod)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_plan::SourceFailure;

    #[test]
    fn every_topic_is_known_missing_or_unavailable() {
        let topics = ["a".to_owned(), "b".to_owned()];
        let sample = Sample { topics: vec![("a".into(), 4)], missing: vec!["b".into()], ..Sample::default() };
        let seen = of_topics(&topics, Ok(sample));
        assert_eq!((&seen["a"], &seen["b"]), (&TopicSeen::Known(4), &TopicSeen::Missing));
        let error = sample::Error::silence(SourceFailure::Timeout, "late".into());
        let seen = of_topics(&topics, Err(error));
        assert!(matches!(&seen["b"], TopicSeen::Unavailable { failure: SourceFailure::Timeout, .. }));
        assert_eq!(seen.len(), 2);
    }
}
