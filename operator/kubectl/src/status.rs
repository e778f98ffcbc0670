//! `kubectl sluice status`: a summary of a pipeline, from its spec and status; with its services, if gateways were asked for them.

mod guarantee;
mod lines;
mod services;

use crate::cluster::Said;
use lines::{
    behind, delivery, deprecated, edge, keep_claims, left_alone, queue, reads, runs, size_of, writes,
};
use serde::Serialize;
use services::Services;
use sluice_crds::{
    ManagementState, RolloutState, TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};
use sluice_plan::{size::resize, words::plural};
use std::fmt;

/// Conditions that are `False` for a cause that only a person, or a system outside of the cluster, can remove.
const TO_BE_MENDED: [&str; 3] =
    [condition::SOURCE_REACHABLE, condition::SINK_REACHABLE, condition::SCHEMA_READY];

/// Reasons with which `SourceReachable` is `True`, but a person must look at the messages.
const OF_MESSAGES: [&str; 2] = [reason::MESSAGES_REJECTED, reason::MESSAGES_WITHOUT_SPANS];

/// Reasons with which a condition is `False` only for a moment.
const PASSING: [&str; 2] = [reason::NOT_PROBED, reason::JOB_RUNNING];

/// Reasons with which a pipeline is not ready until a person acts; the condition's message says how.
const FOR_A_PERSON: [&str; 8] = [
    reason::REPLICAS_NOT_READY,
    reason::JOB_NOT_STARTED,
    reason::APPLY_FAILED,
    reason::PODS_REFUSED,
    reason::CONSUMER_GROUP_TAKEN,
    reason::PARTITIONS_LOST,
    reason::STORAGE_CLASS_MISSING,
    reason::VOLUME_OUT_OF_REACH,
];

/// Reasons with which not every pod of the edge is ready until a person acts.
const OF_EDGE: [&str; 5] = [
    reason::REPLICAS_NOT_READY,
    reason::PODS_REFUSED,
    reason::SECRET_MISSING,
    reason::SECRET_INCOMPLETE,
    reason::TOPIC_MISSING,
];

/// Conditions of queue volumes, with the reasons that need a person.
const OF_VOLUMES: [(&str, &str); 4] = [
    (condition::VOLUMES_RESIZED, reason::STORAGE_CLASS_MISSING),
    (condition::VOLUMES_DRAINED, reason::CLAIM_DELETED),
    (condition::VOLUMES_DRAINED, reason::DRAIN_FAILED),
    (condition::VOLUMES_DRAINED, reason::NOT_DELETED),
];

/// Parts of messages about a volume that needs a person, whatever the reason of the condition. `sluice-plan` writes these messages.
const VOLUME_IS_KEPT: [&str; 3] =
    ["does not let their claims be deleted", "does not grow (", "does not start: "];

/// Shown if the status has no conditions.
const UNSEEN: &str = "no operator has reconciled it yet: does one run, and does it watch this namespace?";

/// The summary of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    pub name: String,
    pub namespace: String,
    /// Whether the operator has reconciled the newest spec, and `Ready` is `True`.
    pub ready: bool,
    /// Whether the pipeline is suspended, and reads nothing.
    pub suspended: bool,
    /// Whether `managementState` is `Unmanaged`: the operator changes nothing of the pipeline.
    pub left_alone: bool,
    /// The lines of the summary, each named as in the output.
    pub runs: String,
    /// Not set if the pipeline has no edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    pub reads: String,
    pub writes: String,
    pub behind: String,
    pub queue: String,
    pub delivery: String,
    /// Messages that Kafka deleted before they were read.
    pub lost_messages: i64,
    /// Why the pipeline has this number of gateways.
    pub size: String,
    /// Changes in progress.
    pub now: String,
    /// What a person must do; empty if nothing.
    pub to_do: Vec<String>,
    /// What services have sent; not set if gateways were not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    services: Option<Services>,
}

impl Story {
    pub(super) fn of(pipeline: &TracePipeline) -> Self {
        let nothing = TracePipelineStatus::default();
        let status = pipeline.status.as_ref().unwrap_or(&nothing);
        let seen = Seen { status };
        let is_current = status.observed_generation == pipeline.metadata.generation;
        Self {
            name: pipeline.metadata.name.clone().unwrap_or_default(),
            namespace: pipeline.metadata.namespace.clone().unwrap_or_default(),
            ready: is_current && seen.is(condition::READY, "True"),
            suspended: is_current && seen.is(condition::SUSPENDED, "True"),
            left_alone: pipeline.spec.management_state == ManagementState::Unmanaged,
            runs: runs(pipeline, status),
            edge: edge(pipeline, status),
            reads: reads(pipeline, status),
            writes: writes(pipeline),
            behind: behind(pipeline, status),
            queue: queue(pipeline, status),
            delivery: delivery(pipeline, status),
            lost_messages: status.loss.as_ref().map_or(0, |loss| loss.messages),
            size: size_of(pipeline, status),
            now: if is_current || status.conditions.is_empty() {
                seen.now()
            } else {
                "the operator has not reconciled the newest spec yet".into()
            },
            to_do: left_alone(pipeline)
                .into_iter()
                .chain(seen.to_do())
                .chain(keep_claims(pipeline, status))
                .chain(deprecated(pipeline))
                .collect(),
            services: None,
        }
    }

    /// The summary with what services have sent, as its gateways say it.
    pub(super) fn with_services(self, said: &[Said]) -> Self {
        Self { services: Some(Services::of(said)).filter(|_| !said.is_empty()), ..self }
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lines = [
            ("runs", Some(&self.runs)),
            ("edge", self.edge.as_ref()),
            ("reads", Some(&self.reads)),
            ("writes", Some(&self.writes)),
            ("behind", Some(&self.behind)),
            ("queue", Some(&self.queue)),
            ("delivery", Some(&self.delivery)),
            ("size", Some(&self.size)),
            ("now", Some(&self.now)),
        ];
        lines.into_iter().filter_map(|(name, line)| Some((name, line?.as_str())))
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.suspended, self.ready) {
            (true, _) => "suspended, nothing is read",
            (false, true) => "ready",
            (false, false) => "not ready",
        };
        let alone = if self.left_alone { ", unmanaged" } else { "" };
        writeln!(f, "{}/{}: {state}{alone}", self.namespace, self.name)?;
        for (name, line) in self.lines() {
            writeln!(f, "  {name:<9} {line}")?;
        }
        let nothing = ["nothing".to_owned()];
        let to_do = if self.to_do.is_empty() { &nothing[..] } else { &self.to_do };
        for (at, line) in to_do.iter().enumerate() {
            writeln!(f, "  {:<9} {line}", if at == 0 { "to do" } else { "" })?;
        }
        if let Some(services) = &self.services {
            write!(f, "{services}")?;
        }
        Ok(())
    }
}

/// The conditions of a status.
struct Seen<'a> {
    status: &'a TracePipelineStatus,
}

impl Seen<'_> {
    fn is(&self, kind: &str, value: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == kind && condition.status == value)
    }

    /// Reason and message of a condition that has this status.
    fn words(&self, kind: &str, value: &str) -> Option<(&str, &str)> {
        let conditions = self.status.conditions.iter();
        let mut found = conditions.filter(|condition| condition.type_ == kind && condition.status == value);
        found.next().map(|condition| (condition.reason.as_str(), condition.message.as_str()))
    }

    fn now(&self) -> String {
        if self.status.conditions.is_empty() {
            return UNSEEN.into();
        }
        let drain = self.status.scaling.as_ref().and_then(|scaling| scaling.drain.as_ref());
        let leaving = drain.map(|drain| {
            let gateways = plural(drain.target, "gateway");
            format!("{:?} from {} to {gateways}: {}", drain.state, drain.from, drain.reason)
        });
        let going_on = self.words(condition::RECONCILING, "True").map(|(reason, words)| {
            // The same reason covers gateways that are not ready for another cause.
            let is_rollout = reason != reason::ROLLING_OUT || self.rolls_out();
            if is_rollout { format!("{reason}: {words}") } else { words.to_owned() }
        });
        let rests = self.words(condition::SUSPENDED, "True").map(|(_, words)| words.to_owned());
        let all: Vec<_> = going_on.into_iter().chain(leaving).chain(rests).collect();
        if all.is_empty() { "nothing is on its way".into() } else { all.join("; ") }
    }

    /// Whether gateways are on their way to another revision, or back.
    fn rolls_out(&self) -> bool {
        let is_under_way =
            self.status.rollout.as_ref().is_none_or(|rollout| rollout.state != RolloutState::Complete);
        is_under_way || self.status.current_revision != self.status.update_revision
    }

    /// Messages of the conditions of queue volumes that need a person.
    fn of_volumes(&self) -> impl Iterator<Item = &str> {
        let all = self.status.conditions.iter();
        all.filter(|one| {
            let is_of_volumes = OF_VOLUMES.iter().any(|(kind, _)| one.type_ == *kind);
            let is_meant = OF_VOLUMES.contains(&(one.type_.as_str(), one.reason.as_str()));
            is_meant || is_of_volumes && VOLUME_IS_KEPT.iter().any(|words| one.message.contains(words))
        })
        .map(|one| one.message.as_str())
    }

    fn to_do(&self) -> Vec<String> {
        let mut found = Vec::new();
        for kind in TO_BE_MENDED {
            if let Some((reason, words)) =
                self.words(kind, "False").filter(|(reason, _)| !PASSING.contains(reason))
            {
                found.push(format!("{kind} is false ({reason}): {words}"));
            }
        }
        if let Some((_, words)) =
            self.words(condition::SOURCE_REACHABLE, "True").filter(|(reason, _)| OF_MESSAGES.contains(reason))
        {
            found.push(words.to_owned());
        }
        if let Some((reason, words)) = self.words(condition::READY, "False")
            && FOR_A_PERSON.contains(&reason)
            && !found.iter().any(|line| line.ends_with(words))
        {
            found.push(words.to_owned());
        }
        if let Some((reason, words)) = self.words(condition::EDGE_READY, "False")
            && OF_EDGE.contains(&reason)
            && !found.iter().any(|line| line.ends_with(words))
        {
            found.push(format!("{} is false ({reason}): {words}", condition::EDGE_READY));
        }
        for words in self.of_volumes() {
            if !found.iter().any(|line| line.ends_with(words)) {
                found.push(words.to_owned());
            }
        }
        if let Some((reason, words)) = self.words(condition::STALLED, "True")
            && !found.iter().any(|line| line.ends_with(words))
        {
            found.push(format!("the pipeline is stalled until you change something ({reason}): {words}"));
        }
        if let Some((reason, words)) = self.words(condition::SCALING_LIMITED, "True") {
            found.push(format!("scaling is limited ({reason}): {words}"));
        }
        found.extend(guarantee::to_do(self.status.delivery.as_ref()));
        if let Some(words) = resize::words(&self.status.memory_resizes)
            && !found.iter().any(|line| line.ends_with(&words))
        {
            found.push(words);
        }
        found
    }
}

#[cfg(test)]
mod tests;
