//! What the planner says of a pipeline, beside what the API server's checks say.

use super::{
    Assumed,
    documents::{Documents, of_connection},
};
use crate::admission::{self, is_within};
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_crds::TracePipeline;
use sluice_plan::{
    Defaults, Observed, Planned, Refused, SchemaSeen, SecretSeen, TopicSeen, Violation, Violations,
    endpoints_left_out, plan_or_refuse, servers_of_two_shards,
};

/// What becomes of a pipeline that can be read.
pub(super) struct Trial {
    /// What is wrong with its connections.
    pub of_connections: Violations,
    /// What the planner makes of it.
    pub outcome: Result<Planned, Refused>,
    /// What the plan leaves out of the spec.
    pub warnings: Vec<String>,
}

impl Trial {
    pub fn of(documents: &Documents, pipeline: &TracePipeline, assumed: &Assumed) -> Self {
        let mut of_connections = Violations::default();
        let (pipeline, unresolved) = documents.resolved(pipeline, &mut of_connections);
        let defaults = Defaults {
            gateway_image: assumed.gateway_image.clone(),
            // They are options of the operator, unknown here.
            gateway_image_pull_secrets: Vec::new(),
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            // The operator's namespace and labels are unknown here.
            operator_pods: None,
        };
        let facts = Observed { unresolved, ..observed(&pipeline, assumed.partitions) };
        let warnings = [endpoints_left_out(&pipeline.spec), servers_of_two_shards(&pipeline.spec)].concat();
        Self { of_connections, outcome: plan_or_refuse(&pipeline, &facts, &defaults), warnings }
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
        if !said.iter().any(|one| is_about(one, &field)) && found.iter().all(|one| one != other) {
            found.add(other.path.clone(), other.message.clone());
        }
    }
}

/// Whether this is said of the field: at the field, at an entry of it, or by a rule that stands at an object around it.
fn is_about(one: &Violation, field: &str) -> bool {
    if let Some(entry) = one.path.strip_prefix(field) {
        return entry.is_empty() || entry.starts_with('[');
    }
    let inner = field.strip_prefix(&one.path).and_then(|rest| rest.strip_prefix('.'));
    inner.is_some_and(|inner| demands(&one.message, inner, field))
}

/// Whether a rule demands something of the field, and does not only mention it: "maxBytes must be at most 95 % of size" is about `maxBytes`,
/// and "source.otlp needs queue.mode Spill" about `queue.mode`. A rule about names of properties lists their beginnings. `inner` is the field
/// within the object of the rule.
fn demands(rule: &str, inner: &str, field: &str) -> bool {
    let begins = |words: &str| {
        let subject = words.split([' ', ':']).next().unwrap_or_default();
        subject.ends_with(inner) && field.strip_suffix(subject).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_needed = rule.split_once(" needs ").is_some_and(|(_, needed)| begins(needed));
    let beginnings = rule.split_once(" a beginning ").map_or("", |(_, beginnings)| beginnings);
    let is_listed = |word: &str| word.len() > 1 && word.ends_with('.') && inner.starts_with(word);
    begins(rule) || is_needed || beginnings.split([' ', ',']).any(is_listed)
}

/// Facts of a healthy cluster: only the spec can be wrong.
fn observed(pipeline: &TracePipeline, partitions: u32) -> Observed {
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
