//! Messages that gateways reject, and rows that ClickHouse refuses, as the conditions `SourceReachable` and `SinkReachable` report them.
//!
//! Gateways keep reading, and the dead-letter topic gets what is refused. If all messages or rows are refused, `Ready` is false with the
//! same reason: a user who waits for `Ready` waits for rows in the table.

use super::verdict::Verdict;
use crate::{
    facts::Observed,
    observed::{MessagesSeen, Share, Unreadable},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{
    Format, TracePipeline,
    status::{condition, reason},
};

/// How the condition begins while gateways reject a tenth or more of the messages.
const OFTEN: &str = "gateways reject many";
/// While they reject fewer.
const SOME: &str = "gateways reject some";

/// `None` while gateways can read the messages, and with `source.otlp`, whose requests are read before they are accepted. While no gateway
/// answers, the former condition holds, as long as there are gateways.
pub(super) fn unreadable(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Option<Verdict> {
    let kafka = pipeline.spec.source.kafka.as_ref()?;
    let before =
        |reasons: &[&'static str]| said_before(pipeline, observed, condition::SOURCE_REACHABLE, reasons);
    let Some(messages) = &observed.messages else {
        return before(&[reason::MESSAGES_REJECTED, reason::MESSAGES_WITHOUT_SPANS]);
    };
    let was_often = before(&[reason::MESSAGES_REJECTED]).is_some_and(|said| said.begins(OFTEN));
    let unreadable = messages.unreadable(now.0, was_often);
    let held = match unreadable {
        Some(Unreadable::Rejected(Share::NotKnown)) => before(&[reason::MESSAGES_REJECTED]),
        None if messages.is_idle() => before(&[reason::MESSAGES_WITHOUT_SPANS]),
        _ => None,
    };
    if held.is_some() {
        return held;
    }
    Some(match unreadable? {
        Unreadable::WithoutSpans => Verdict::yes(
            reason::MESSAGES_WITHOUT_SPANS,
            "none of the messages that gateways have read has a span; check that the producer writes traces to these topics",
        ),
        Unreadable::Rejected(share @ (Share::NotKnown | Share::Some | Share::Often)) => {
            rejected(pipeline, messages, share)
        }
        Unreadable::Rejected(Share::All) => {
            let format = match kafka.format {
                Format::OtlpProto => "OtlpProto",
                Format::OtlpJson => "OtlpJson",
            };
            let found = format!(
                "gateways reject the messages ({}) and have read none with spans; check that the topics hold traces in \
                 source.kafka.format {format}",
                reasons(messages)
            );
            Verdict::no(reason::MESSAGES_REJECTED, listed(pipeline, &found))
        }
    })
}

/// Gateways reject some or many of the messages, and read others.
fn rejected(pipeline: &TracePipeline, messages: &MessagesSeen, share: Share) -> Verdict {
    let begins = if share == Share::Often { OFTEN } else { SOME };
    let found = format!("{begins} of the messages ({})", reasons(messages));
    Verdict::yes(reason::MESSAGES_REJECTED, listed(pipeline, &found))
}

/// `None` while ClickHouse accepts all or most rows. While no gateway answers, the former condition holds as for messages.
pub(super) fn rows_refused(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let before = said_before(pipeline, observed, condition::SINK_REACHABLE, &[reason::ROWS_REFUSED]);
    let messages = observed.messages.as_ref();
    let share = messages.map_or(Share::NotKnown, |messages| messages.rows_refused(before.is_some()));
    let found = match share {
        Share::NotKnown => return before,
        Share::Some => return None,
        Share::Often => "many",
        Share::All => "all",
    };
    let verdict = if share == Share::All { Verdict::no } else { Verdict::yes };
    let found =
        format!("ClickHouse refuses {found} of the rows for their content, and they become dead letters");
    Some(verdict(reason::ROWS_REFUSED, listed(pipeline, &found)))
}

/// The former condition of this type, if it has one of these reasons and there are gateways.
pub(super) fn said_before(
    pipeline: &TracePipeline,
    observed: &Observed,
    kind: &str,
    reasons: &[&'static str],
) -> Option<Verdict> {
    let has_gateways = observed.workload.as_ref().is_some_and(|workload| workload.wanted > 0);
    let said = pipeline.status.as_ref()?.condition(kind).filter(|_| has_gateways)?;
    let reason = reasons.iter().copied().find(|reason| *reason == said.reason)?;
    let verdict = if said.status == "True" { Verdict::yes } else { Verdict::no };
    Some(verdict(reason, said.message.clone()))
}

/// Without counts: each changed count would be a write of the status.
fn reasons(messages: &MessagesSeen) -> String {
    let reasons: Vec<&str> = messages.reasons.iter().map(String::as_str).collect();
    reasons.join(", ")
}

fn listed(pipeline: &TracePipeline, found: &str) -> String {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    format!("{found}; kubectl sluice dead-letter {name} list shows why")
}
