//! Gateways that Kafka gives no messages although some wait, as the conditions `SourceReachable` and `Ready` report them.
//!
//! The operator only describes topics and the group: whether the user may read them, only gateways see. `Ready` is false, because a user who
//! waits for it waits for rows in the table.

use super::{
    messages::said_before,
    progress::Progress,
    verdict::{Verdict, of_source},
};
use crate::{
    facts::Observed,
    ground::words::{form, plural},
    observed::{SourceFailure, UnfetchedSeen},
    pipeline::group_owner::group_of,
};
use sluice_crds::{
    KafkaSource, TracePipeline,
    status::{condition, reason},
};
use sluice_gateway_config::UnfetchedCause;

/// How the condition begins, which tells it from what the operator finds itself.
const BEGINS: &str = "messages wait unread: ";

/// `None` while gateways get the messages of their partitions, or have not waited for long. While no gateway answers, the former condition holds,
/// as long as there are gateways.
pub(super) fn unfetched(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let kafka = pipeline.spec.source.kafka.as_ref()?;
    let Some(seen) = &observed.unfetched else {
        let reasons = [reason::AUTH_FAILED, reason::TOPIC_MISSING, reason::UNREACHABLE];
        let before = said_before(pipeline, observed, condition::SOURCE_REACHABLE, &reasons);
        return before.filter(|said| said.begins(BEGINS));
    };
    let lasting: Vec<_> = seen.iter().filter(|one| one.is_lasting()).collect();
    let gravest = lasting.iter().copied().min_by_key(|one| (one.said.cause, &one.said.topic))?;
    let (cause, topic) = (gravest.said.cause, &gravest.said.topic);
    let same: Vec<_> =
        lasting.into_iter().filter(|one| one.said.cause == cause && one.said.topic == *topic).collect();
    let words = format!("{BEGINS}{}", in_words(pipeline, kafka, gravest, &same));
    Some(match cause {
        UnfetchedCause::GroupRefused | UnfetchedCause::TopicRefused => {
            Verdict::no(reason::AUTH_FAILED, of_source(pipeline, observed, SourceFailure::AuthFailed, &words))
        }
        UnfetchedCause::TopicUnknown => Verdict::no(reason::TOPIC_MISSING, words),
        UnfetchedCause::NoLeader | UnfetchedCause::Other => Verdict::no(reason::UNREACHABLE, words),
    })
}

/// The same for `Ready`.
pub(super) fn held(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    Some(Progress::waiting(reason::SOURCE_UNAVAILABLE, unfetched(pipeline, observed)?.words()))
}

/// Who gets nothing, from where, why, and what helps.
fn in_words(
    pipeline: &TracePipeline,
    kafka: &KafkaSource,
    first: &UnfetchedSeen,
    same: &[&UnfetchedSeen],
) -> String {
    let topic = first.said.topic.as_deref().unwrap_or_default();
    let who = match same.len() - 1 {
        0 => format!("{} gets", first.name),
        others => format!("{} and {} get", first.name, plural(others, "other gateway")),
    };
    let count = same.iter().fold(0, |sum: u64, one| sum.saturating_add(one.said.partitions));
    let found = format!("{who} none from {} of the topic {topic:?}", plural(count, "partition"));
    match first.said.cause {
        UnfetchedCause::GroupRefused => {
            let group = group_of(pipeline).unwrap_or_default();
            format!(
                "{who} none, because Kafka refuses the user the consumer group {group:?}. {}",
                right(kafka, "group", &group)
            )
        }
        UnfetchedCause::TopicRefused => {
            format!(
                "{found}, because Kafka refuses the user the right to read it. {}",
                right(kafka, "topic", topic)
            )
        }
        UnfetchedCause::TopicUnknown => format!(
            "{found}, because Kafka does not know {}. Make the topic with all of its partitions, or correct source.kafka.topics",
            form(count, "it", "them")
        ),
        UnfetchedCause::NoLeader => format!(
            "{found}, because no broker leads {}. Bring the brokers back that have replicas of the topic",
            form(count, "it", "them")
        ),
        UnfetchedCause::Other => match &first.said.error {
            Some(error) => {
                format!("{found}. Its last error: {error}. Check the brokers, and the log of {}", first.name)
            }
            None => format!(
                "{found}, and no error was reported. Check the brokers, and the log of {}",
                first.name
            ),
        },
    }
}

/// The right that is missing, and who gives it.
fn right(kafka: &KafkaSource, kind: &str, name: &str) -> String {
    let oauth = kafka.sasl.as_ref().and_then(|sasl| sasl.oauth.as_ref());
    if oauth.is_some_and(|oauth| oauth.aws_msk_iam.is_some()) {
        let action = if kind == "topic" { "ReadData" } else { "AlterGroup" };
        return format!("Allow kafka-cluster:{action} on the {kind} in the policies of AWS");
    }
    let broker = kafka.bootstrap_servers.first().map_or("", String::as_str);
    format!(
        "Give the user Read on the {kind} (kafka-acls.sh --bootstrap-server {broker} --add --allow-principal User:NAME --operation Read \
         --{kind} {name})"
    )
}
