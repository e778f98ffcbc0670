//! What the planner says of a pipeline, beside what the API server's checks say.

use super::{
    Assumed,
    documents::{Documents, of_connection},
};
use crate::admission::{self, is_within};
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_crds::{RepeatedRules, TracePipeline, repeated_rules};
use sluice_plan::{
    Defaults, Observed, Planned, Refused, SchemaSeen, SecretSeen, TopicSeen, Violation, Violations,
    endpoints_left_out, plan_or_refuse, servers_of_two_shards,
};
use std::sync::LazyLock;

/// The rules of the definitions that the planner repeats.
static REPEATED: LazyLock<RepeatedRules> = LazyLock::new(repeated_rules);

/// What becomes of a pipeline that can be read.
pub(super) struct Trial {
    /// What is wrong with its connections.
    pub of_connections: Violations,
    /// What the planner makes of it.
    pub outcome: Result<Planned, Refused>,
    /// What the plan leaves out of the spec.
    pub warnings: Vec<String>,
    /// The pipeline with what its connections say.
    pub pipeline: TracePipeline,
}

impl Trial {
    pub fn of(documents: &Documents, pipeline: &TracePipeline, assumed: &Assumed) -> Self {
        let mut of_connections = Violations::default();
        let (pipeline, unresolved) = documents.resolved(pipeline, &mut of_connections);
        let defaults = defaults(assumed.gateway_image.clone());
        let facts = Observed { unresolved, ..observed(&pipeline, assumed.partitions) };
        let warnings = [endpoints_left_out(&pipeline.spec), servers_of_two_shards(&pipeline.spec)].concat();
        let outcome = plan_or_refuse(&pipeline, &facts, &defaults);
        Self { of_connections, outcome, warnings, pipeline }
    }
}

/// What the operator brings to a plan, as far as the plugin knows.
pub(super) fn defaults(gateway_image: String) -> Defaults {
    Defaults {
        gateway_image,
        // They are options of the operator, unknown here.
        gateway_image_pull_secrets: Vec::new(),
        operator_version: env!("CARGO_PKG_VERSION").to_owned(),
        // The operator's namespace and labels are unknown here.
        operator_pods: None,
    }
}

/// What is wrong with a pipeline beside the fields whose values the schema refuses, whatever stands there: found with each substitute.
pub(super) fn independent(documents: &Documents, given: &Value, assumed: &Assumed) -> Violations {
    let violations = |object: &Value| {
        let trial = Trial::of(documents, &TracePipeline::deserialize(object).ok()?, assumed);
        let mut found = trial.of_connections;
        found.extend(trial.outcome.err().map(|refused| refused.violations).unwrap_or_default());
        Some(found)
    };
    let found = admission::substitutes(given).and_then(|substitutes| {
        let all = violations(&substitutes.first)?;
        let mut found: Vec<&Violation> = all.iter().collect();
        found.retain(|one| !substitutes.paths.iter().any(|field| is_within(&one.path, field)));
        for others in &substitutes.others {
            let others: Vec<Violations> = others.iter().filter_map(violations).collect();
            // With one value alone, nothing tells what depends on the field.
            others.first()?;
            found.retain(|one| others.iter().all(|other| other.iter().any(|other| other == *one)));
        }
        let mut told = Violations::default();
        for one in found {
            told.add(one.path.clone(), one.message.clone());
        }
        Some(told)
    });
    found.unwrap_or_default()
}

/// Adds what the API server's checks do not say of the same fields.
pub(super) fn add_unsaid(others: &Violations, found: &mut Violations) {
    let said = found.clone();
    for other in others {
        // The planner names the field before its connection.
        let in_connection = other.path.split_once(" of the TraceConnection ");
        let field = in_connection
            .map_or_else(|| other.path.clone(), |(field, name)| of_connection(name.trim_matches('"'), field));
        if !said.iter().any(|one| is_about(one, &field, &other.message))
            && found.iter().all(|one| one != other)
        {
            found.add(other.path.clone(), other.message.clone());
        }
    }
}

/// Whether this is said of the field: at the field, at an entry of it, or by a rule that stands at an object around it and that the planner
/// repeats at the field with this message.
fn is_about(one: &Violation, field: &str, message: &str) -> bool {
    if let Some(entry) = one.path.strip_prefix(field) {
        return entry.is_empty() || entry.starts_with('[');
    }
    let inner = field.strip_prefix(&one.path).and_then(|rest| rest.strip_prefix('.'));
    inner.is_some_and(|inner| REPEATED.has(&one.message, inner, message))
}

/// Facts of a healthy cluster: only the spec can be wrong.
pub(super) fn observed(pipeline: &TracePipeline, partitions: u32) -> Observed {
    let topics = pipeline.spec.source.kafka.iter().flat_map(|kafka| &kafka.topics);
    let present = |keys: &[sluice_crds::UsedKey]| {
        let data = keys.iter().map(|key| (key.key.clone(), k8s_openapi::ByteString::default()));
        SecretSeen::of(keys, Some(&Secret { data: Some(data.collect()), ..Secret::default() }))
    };
    Observed {
        partitions: topics.map(|topic| (topic.clone(), TopicSeen::Known(partitions))).collect(),
        secrets: pipeline.spec.secrets().into_iter().map(|named| (named.of, present(&named.keys))).collect(),
        schema: SchemaSeen::Succeeded,
        ..Observed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_QUEUE: &str = "maxBytes must be at most 95 % of size, such as 9728Mi of 10Gi: the file system of the volume needs the rest";
    const OF_TLS: &str =
        "tls is set, but endpoints are http: write them as https://host:port, or leave tls out";

    #[test]
    fn a_rule_is_about_the_fields_that_it_says_and_not_about_those_of_its_words() {
        for (path, message, field, expected) in [
            ("spec.queue", OF_QUEUE, "spec.queue.maxBytes", true),
            ("spec.queue", OF_QUEUE, "spec.queue.size", false),
            ("spec.queue", "maxBytes must be another number", "spec.queue.maxBytes", false),
            ("spec", OF_QUEUE, "spec.queue.maxBytes", false),
            ("spec.sink.clickhouse", OF_TLS, "spec.sink.clickhouse.tls", true),
            (
                "TraceConnection main: spec.clickhouse",
                OF_TLS,
                "TraceConnection main: spec.clickhouse.tls",
                true,
            ),
            ("spec.replicas", "is a text", "spec.replicas", true),
            ("spec.source.kafka.topics[0]", "is empty", "spec.source.kafka.topics", true),
            ("spec.source.kafka", "is empty", "spec.source.kafkaesque", false),
        ] {
            let one = Violation { path: path.to_owned(), message: message.to_owned() };
            assert_eq!(is_about(&one, field, "is refused"), expected, "{path}: {message}; {field}");
        }
    }

    #[test]
    fn a_rule_is_about_what_the_planner_says_of_its_cause_and_nothing_else_at_the_field() {
        let (at, of_shards) = ("spec.clickhouse", "spec.clickhouse.shards");
        let one = |rule: &str| Violation { path: at.to_owned(), message: rule.to_owned() };
        let of_both =
            one("one of endpoints and shards is set, and not both: endpoints are replicas of a single shard");
        for (message, expected) in [
            ("is set together with endpoints, which are those of a single shard: remove one of them", true),
            ("\"http://a:99999\" is not http://host:port or https://host:port", false),
        ] {
            assert_eq!(is_about(&of_both, of_shards, message), expected, "{message}");
        }
    }
}
