//! The topics of a pipeline with their partitions, as far as Kafka or the status say. With `source.otlp` there are none.

use crate::{
    observed::{Partitions, TopicSeen},
    pipeline::{
        Intent,
        otlp_config::{REPLICAS_OF_REQUESTS, logs},
        resources,
    },
    planned::Waiting,
};
use sluice_crds::{TopicStatus, TracePipeline, TracePipelineSpec, status::reason};
use sluice_gateway_config::Violations;

/// Every topic of the spec with its partitions; while Kafka is away, those that the status remembers. Else what is
/// waited for.
pub(crate) fn topics(pipeline: &TracePipeline, seen: &Partitions) -> Result<Vec<TopicStatus>, Waiting> {
    let mut topics = Vec::new();
    let mut waits: Vec<Waiting> = Vec::new();
    for name in pipeline.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics) {
        match partitions(pipeline, name, seen.get(name)) {
            Ok(partitions) => topics.push(TopicStatus { name: name.clone(), partitions }),
            Err(wait) => waits.push(wait),
        }
    }
    // Kafka says the same of each topic when it is away.
    waits.dedup();
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    let Some(first) = waits.first() else { return Ok(topics) };
    let messages: Vec<&str> = waits.iter().map(|wait| wait.message.as_str()).collect();
    Err(Waiting { reason: first.reason, message: messages.join("; ") })
}

fn partitions(pipeline: &TracePipeline, topic: &str, seen: Option<&TopicSeen>) -> Result<u32, Waiting> {
    let remembered = remembered(pipeline).iter().find(|status| status.name == topic);
    let last = remembered.map(|status| status.partitions);
    let unavailable = |message| Err(Waiting { reason: reason::SOURCE_UNAVAILABLE, message });
    match (seen, last) {
        // Kafka never removes partitions from a topic, so it is another topic. While the pipeline is suspended, that may be intended.
        (Some(TopicSeen::Known(now @ 1..)), Some(before))
            if *now < before && Intent::of(pipeline) != Intent::Suspend =>
        {
            Err(Waiting {
                reason: reason::PARTITIONS_LOST,
                message: format!(
                    "the topic {topic:?} has {now} partitions and had {before}: it was deleted and made again. Gateways read the new \
                     topic from its beginning; the operator does not change them. Make the topic again with {before} partitions; or, if \
                     {now} are intended, set suspend: true and, when the pipeline is suspended, suspend: false. Do not reset the \
                     consumer group's offsets, else messages are read twice"
                ),
            })
        }
        (Some(TopicSeen::Known(partitions @ 1..)), _) => Ok(*partitions),
        (Some(TopicSeen::Unavailable { .. }) | None, Some(partitions)) => Ok(partitions),
        (Some(TopicSeen::Missing | TopicSeen::Known(0)), _) => {
            unavailable(format!("the topic {topic:?} does not exist"))
        }
        (Some(TopicSeen::Unavailable { message, .. }), None) => unavailable(message.clone()),
        (None, None) => unavailable(format!("the partitions of the topic {topic:?} are not known yet")),
    }
}

fn remembered(pipeline: &TracePipeline) -> &[TopicStatus] {
    pipeline.status.as_ref().map_or(&[][..], |status| &status.topics)
}

/// Partitions of all topics, as far as Kafka or the status say. With `source.otlp`, the logs of the most gateways that the spec permits. This
/// many partitions are sent to the table.
pub(crate) fn partitions_known(pipeline: &TracePipeline, seen: &Partitions) -> u32 {
    if let Some(logs) = logs_at_most(&pipeline.spec) {
        return logs;
    }
    topics(pipeline, seen).map_or_else(|_| sum(remembered(pipeline)), |topics| sum(&topics))
}

/// Logs of all gateways together, at the most; `None` with `source.kafka`.
fn logs_at_most(spec: &TracePipelineSpec) -> Option<u32> {
    // What is wrong with the resources is said of gateways.
    let cores = resources::read(&spec.gateway.resources, &mut Violations::default()).map(|sized| sized.cores);
    let logs = logs(spec, spec.gateway.workers.or(cores).unwrap_or(1))?;
    let scheduled = spec.scaling.schedules.iter().filter_map(|schedule| schedule.max_replicas).max();
    let most = spec.scaling.max_replicas.max(scheduled).max(spec.replicas);
    let gateways = most.unwrap_or(REPLICAS_OF_REQUESTS);
    Some(logs.saturating_mul(gateways))
}

/// Partitions of all of them.
pub(crate) fn sum(topics: &[TopicStatus]) -> u32 {
    topics.iter().fold(0, |sum, topic| topic.partitions.saturating_add(sum))
}
