//! Events that follow from two statuses: messages were lost, messages or rows become dead letters, a transaction hangs, a topic has more
//! partitions, another client sets the number of gateways. Each is reported once, when it happens.

use crate::ground::words::{form, plural};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_crds::{
    TopicStatus, TracePipelineStatus,
    status::{condition, reason},
};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneTimeEvent {
    /// Its word.
    pub reason: &'static str,
    /// Whether it is a warning: a person has to act.
    pub is_bad: bool,
    /// What the operator or the gateways were doing.
    pub action: &'static str,
    /// All of it.
    pub words: String,
}

/// What happened between two statuses of one pipeline.
pub fn one_time_events(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Vec<OneTimeEvent> {
    let grown = after.topics.iter().filter_map(|topic| grown(before, topic, after));
    let refused = [
        (condition::SOURCE_REACHABLE, reason::MESSAGES_REJECTED),
        (condition::SINK_REACHABLE, reason::ROWS_REFUSED),
    ];
    let refused =
        refused.into_iter().filter_map(|(kind, reason)| refused_anew(before, after, (kind, reason)));
    let events = lost(before, after).into_iter().chain(grown).chain(replica_conflict(before, after));
    events.chain(refused).chain(hangs_anew(before, after)).collect()
}

/// Some messages or rows become dead letters, or another share than before. If all of them do, the event of `Ready` reports it.
fn refused_anew(
    before: &TracePipelineStatus,
    after: &TracePipelineStatus,
    (kind, reason): (&str, &'static str),
) -> Option<OneTimeEvent> {
    let said = |status: &TracePipelineStatus| {
        let mut all = status.conditions.iter();
        let is_it =
            |found: &&Condition| found.type_ == kind && found.reason == reason && found.status == "True";
        Some(all.find(is_it)?.message.clone())
    };
    let words = said(after).filter(|now| said(before).as_ref() != Some(now))?;
    let action = if reason == reason::ROWS_REFUSED { "Insert" } else { "Read" };
    Some(OneTimeEvent { reason, is_bad: true, action, words })
}

/// A transaction hangs, and none did before. `Ready` does not change. The age and the count in the message grow, which is no event.
fn hangs_anew(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Option<OneTimeEvent> {
    fn hanging(status: &TracePipelineStatus) -> Option<&Condition> {
        let source = status.condition(condition::SOURCE_REACHABLE);
        source.filter(|source| source.reason == reason::TRANSACTION_HANGING)
    }
    let words = hanging(after).filter(|_| hanging(before).is_none())?.message.clone();
    Some(OneTimeEvent { reason: reason::TRANSACTION_HANGING, is_bad: true, action: "Read", words })
}

fn replica_conflict(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Option<OneTimeEvent> {
    fn words(status: &TracePipelineStatus) -> Option<&String> {
        let limited = status.condition(condition::SCALING_LIMITED)?;
        (limited.reason == reason::SCALING_CONFLICT).then_some(&limited.message)
    }
    let words = words(after).filter(|now| words(before) != Some(now))?.clone();
    Some(OneTimeEvent { reason: reason::SCALING_CONFLICT, is_bad: true, action: "Scale", words })
}

fn lost(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Option<OneTimeEvent> {
    let all = after.loss.as_ref()?.messages;
    let more = all.saturating_sub(before.loss.as_ref().map_or(0, |loss| loss.messages));
    let so_far = if more == all { String::new() } else { format!(", {all} so far") };
    let messages = plural(more, "message");
    let words = if after.endpoints.is_empty() {
        format!(
            "Kafka deleted {messages} that no gateway had read{so_far}: Kafka cannot return them. Increase retention.ms and \
             retention.bytes of the topic, and find what keeps the pipeline behind (kubectl sluice lag)"
        )
    } else {
        format!(
            "gateways cannot read {messages} from damaged queue volumes{so_far}: they were accepted, and their rows are lost. The gateways' \
             logs name the files"
        )
    };
    (more > 0).then_some(OneTimeEvent { reason: "DataLoss", is_bad: true, action: "Read", words })
}

fn grown(
    before: &TracePipelineStatus,
    now: &TopicStatus,
    after: &TracePipelineStatus,
) -> Option<OneTimeEvent> {
    let was = before.topics.iter().find(|topic| topic.name == now.name)?;
    let gateways = match (before.desired_replicas, after.desired_replicas) {
        (Some(was), Some(now)) if was != now => format!("; the number of gateways goes from {was} to {now}"),
        (_, Some(now)) => {
            format!("; {} {} them, as before", plural(now, "gateway"), form(now, "reads", "read"))
        }
        (_, None) => String::new(),
    };
    let words = format!(
        "the topic {:?} has {} now, {} before{gateways}",
        now.name,
        plural(now.partitions, "partition"),
        was.partitions
    );
    let is_more = now.partitions > was.partitions;
    is_more.then_some(OneTimeEvent { reason: "PartitionsAdded", is_bad: false, action: "Read", words })
}
