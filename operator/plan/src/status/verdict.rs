//! What one condition says, and what the facts say of source and sink.

use crate::{Observed, SchemaSeen, TopicSeen, secrets::mounted};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_crds::{SchemaManagement, TracePipeline, status::reason};

/// Whether, why, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    pub(super) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    pub(super) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    pub(super) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }

    /// As a condition; the time is that of the last change of its status.
    pub(super) fn condition(
        self,
        kind: &str,
        pipeline: &TracePipeline,
        before: &[Condition],
        now: &Time,
    ) -> Condition {
        let same = before.iter().find(|condition| condition.type_ == kind && condition.status == self.status);
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message,
            observed_generation: pipeline.metadata.generation,
            last_transition_time: same.map_or(now, |condition| &condition.last_transition_time).clone(),
        }
    }
}

/// Whether Kafka answers and has every topic.
pub(super) fn source_reachable(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    if let Err(unusable) = mounted(&pipeline.spec, &observed.secrets, true) {
        return Verdict::no(unusable.reason, unusable.message);
    }
    let (topics, seen) = (&pipeline.spec.source.kafka.topics, &observed.partitions);
    let mut partitions = 0_u32;
    let mut missing = Vec::new();
    for topic in topics {
        match seen.get(topic) {
            Some(TopicSeen::Unavailable { failure, message }) => {
                return Verdict::no(failure.reason(), message);
            }
            Some(TopicSeen::Known(count @ 1..)) => partitions = partitions.saturating_add(*count),
            Some(TopicSeen::Missing | TopicSeen::Known(0)) => missing.push(format!("{topic:?}")),
            None => {
                return Verdict::unknown(
                    reason::NOT_PROBED,
                    format!("Kafka was not asked for the topic {topic:?} yet"),
                );
            }
        }
    }
    if missing.is_empty() {
        Verdict::yes(reason::OK, format!("{partitions} partitions in {} topics", topics.len()))
    } else {
        Verdict::no(reason::TOPIC_MISSING, format!("Kafka has no topic {}", missing.join(", ")))
    }
}

/// Whether ClickHouse answered with these credentials when the schema Job last asked.
pub(super) fn sink_reachable(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    if let Err(unusable) = mounted(&pipeline.spec, &observed.secrets, false) {
        return Verdict::no(unusable.reason, unusable.message);
    }
    match &observed.schema {
        _ if is_unmanaged(pipeline) => {
            Verdict::unknown(reason::NOT_MANAGED, "ClickHouse is not asked: schema.management is None")
        }
        SchemaSeen::Succeeded => Verdict::yes(reason::OK, "the schema Job reached ClickHouse"),
        SchemaSeen::Failed { failure, .. } if failure.is_about_the_table() => {
            Verdict::yes(reason::OK, "the schema Job reached ClickHouse")
        }
        SchemaSeen::Failed { failure, .. } if failure.reason == reason::JOB_FAILED => {
            Verdict::unknown(reason::JOB_FAILED, &failure.message)
        }
        SchemaSeen::Failed { failure, .. } => Verdict::no(failure.reason, &failure.message),
        waiting => not_yet(waiting),
    }
}

/// Whether the table is as it must be.
pub(super) fn schema_ready(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
    match &observed.schema {
        _ if is_unmanaged(pipeline) => {
            Verdict::yes(reason::NOT_MANAGED, "the table is taken as it is: schema.management is None")
        }
        SchemaSeen::Succeeded => Verdict::yes(reason::OK, "the table has the columns that are needed"),
        SchemaSeen::Failed { failure, .. } => Verdict::no(failure.reason, &failure.message),
        waiting => not_yet(waiting),
    }
}

fn not_yet(schema: &SchemaSeen) -> Verdict {
    match schema {
        SchemaSeen::Running => Verdict::unknown(reason::JOB_RUNNING, "the schema Job is at work"),
        _ => Verdict::unknown(reason::NOT_PROBED, "the schema Job did not run yet"),
    }
}

fn is_unmanaged(pipeline: &TracePipeline) -> bool {
    pipeline.spec.sink.clickhouse.schema.management == SchemaManagement::None
}
