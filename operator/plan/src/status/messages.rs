//! What gateways cannot read of the topics, as the condition `SourceReachable` says it.
//!
//! It is no fault of the pipeline's objects, so `Ready` does not change: gateways go on, and what they reject is in the dead-letter topic.

use super::verdict::Verdict;
use crate::{
    Observed,
    observed::{MessagesSeen, Unreadable},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{
    Format, TracePipeline,
    status::{condition, reason},
};

/// `None` while gateways read what the topics hold. While none of them says so, what was said before holds, as long as there are gateways
/// that it may be true of.
pub(super) fn unreadable(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Option<Verdict> {
    let Some(messages) = &observed.messages else { return said_before(pipeline, observed) };
    Some(match messages.unreadable(now.0)? {
        Unreadable::WithoutSpans => Verdict::yes(
            reason::MESSAGES_WITHOUT_SPANS,
            "no message that the gateways have read has a span; does the producer write traces to these topics?",
        ),
        Unreadable::Some => Verdict::yes(
            reason::MESSAGES_REJECTED,
            listed(pipeline, &format!("gateways reject some of the messages ({})", reasons(messages))),
        ),
        Unreadable::All => {
            let format = match pipeline.spec.source.kafka.format {
                Format::OtlpProto => "OtlpProto",
                Format::OtlpJson => "OtlpJson",
            };
            let found = format!(
                "gateways reject the messages ({}) and have read none with spans: are there traces in the format {format}?",
                reasons(messages)
            );
            Verdict::no(reason::MESSAGES_REJECTED, listed(pipeline, &found))
        }
    })
}

fn said_before(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let has_gateways = observed.workload.as_ref().is_some_and(|workload| workload.wanted > 0);
    let mut conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let said = conditions.find(|one| one.type_ == condition::SOURCE_REACHABLE).filter(|_| has_gateways)?;
    let reasons = [reason::MESSAGES_REJECTED, reason::MESSAGES_WITHOUT_SPANS];
    let reason = reasons.into_iter().find(|reason| *reason == said.reason)?;
    let verdict = if said.status == "True" { Verdict::yes } else { Verdict::no };
    Some(verdict(reason, said.message.clone()))
}

/// Without numbers: one that moves all the time would be written all the time.
fn reasons(messages: &MessagesSeen) -> String {
    let reasons: Vec<&str> = messages.reasons.iter().map(String::as_str).collect();
    reasons.join(", ")
}

fn listed(pipeline: &TracePipeline, found: &str) -> String {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    format!("{found} kubectl sluice dead-letter {name} list says why")
}
