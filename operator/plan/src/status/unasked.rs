//! What the conditions said of Kafka when an operator last asked it. It holds until this operator asks: at the limit of Kafka clients, one that has just
//! started asks one cluster after another. If a cluster waits for too long, it counts as [`SourceFailure::Unreachable`].

use super::{progress::Progress, verdict::Verdict};
use crate::{
    facts::Observed,
    observed::{SourceFailure, TopicSeen},
};
use sluice_crds::{
    TracePipeline,
    status::{condition, reason},
};

/// The reasons of `SourceReachable` that follow from what Kafka or gateways answered, or that they did not.
const FOUND: [&str; 8] = [
    reason::OK,
    reason::MESSAGES_REJECTED,
    reason::MESSAGES_WITHOUT_SPANS,
    reason::TOPIC_MISSING,
    reason::AUTH_FAILED,
    reason::TLS_FAILED,
    reason::UNREACHABLE,
    reason::TIMEOUT,
];

/// What was found of Kafka for the same spec, if it is not asked now.
pub(super) fn found_before(pipeline: &TracePipeline, failure: SourceFailure) -> Option<Verdict> {
    let said = pipeline.status.as_ref()?.condition(condition::SOURCE_REACHABLE)?;
    let is_same_spec = said.observed_generation == pipeline.metadata.generation;
    if failure != SourceFailure::NotAsked || !is_same_spec {
        return None;
    }
    let reason = FOUND.into_iter().find(|reason| *reason == said.reason)?;
    let verdict = if said.status == "True" { Verdict::yes } else { Verdict::no };
    Some(verdict(reason, said.message.clone()))
}

/// That the pipeline waits for Kafka, in the words of `Ready`, if that said so.
pub(super) fn waiting(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    let found = observed.partitions.values().find_map(|seen| match seen {
        TopicSeen::Unavailable { failure, .. } => found_before(pipeline, *failure),
        TopicSeen::Known(_) | TopicSeen::Missing => None,
    });
    found?.refusal()?;
    let ready = pipeline.status.as_ref()?.condition(condition::READY)?;
    let is_waiting = ready.reason == reason::SOURCE_UNAVAILABLE;
    is_waiting.then(|| Progress::waiting(reason::SOURCE_UNAVAILABLE, ready.message.clone()))
}
