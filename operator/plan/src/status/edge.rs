//! What is said of the edge: the condition `EdgeReady`, the counts, and when the pipeline is not ready because of it.

use super::{progress::Progress, verdict, verdict::Verdict};
use crate::{
    edge::EdgePlan,
    facts::Observed,
    ground::words::{form, plural},
    identity::secrets::mounted,
    observed::{EdgeSeen, TopicSeen},
    pipeline::edge_config::topic,
    planned::{Plan, Planned},
};
use sluice_crds::{Edge, EdgeStatus, Side, TracePipeline, status::reason};
use sluice_gateway_config::Violations;

/// Pods in trouble that are named in a message; the others are counted.
const PODS_NAMED_MAX: usize = 3;

/// Whether the edge is as the spec says; `None` if there is none and none is asked for.
pub(super) fn verdict(
    pipeline: &TracePipeline,
    observed: &Observed,
    outcome: Result<&Planned, &Violations>,
) -> Option<Verdict> {
    let seen = observed.edge.as_ref();
    let Some(edge) = pipeline.spec.edge.as_deref() else {
        let left = seen?.pods;
        let message = format!(
            "spec.edge is not set: the operator removes the edge, and {} {}",
            plural(left, "pod"),
            form(left, "ends", "end")
        );
        return Some(Verdict::no(reason::PROGRESSING, message));
    };
    Some(missing(pipeline, observed, edge).unwrap_or_else(|| match seen.filter(|seen| seen.is_made) {
        Some(seen) => of_pods(seen),
        None => not_made(outcome),
    }))
}

/// What is missing beside the pods: a connection, a Secret, or the topic.
fn missing(pipeline: &TracePipeline, observed: &Observed, edge: &Edge) -> Option<Verdict> {
    let seen = observed.edge.as_ref().filter(|seen| seen.is_made);
    let runs = seen.map_or_else(String::new, |seen| {
        format!("; {} and {} unchanged until then", ready(seen), form(seen.wanted, "stays", "stay"))
    });
    if let Some(message) = &observed.unresolved.source {
        return Some(Verdict::no(reason::CONNECTION_MISSING, message.clone() + &runs));
    }
    for side in [Side::Edge, Side::Source] {
        if let Err(unusable) = mounted(&pipeline.spec, &observed.secrets, side) {
            return Some(Verdict::no(unusable.reason, unusable.message + &runs));
        }
    }
    let topic = topic(&pipeline.spec, edge);
    match observed.partitions.get(topic) {
        Some(TopicSeen::Missing | TopicSeen::Known(0)) => Some(Verdict::no(
            reason::TOPIC_MISSING,
            format!(
                "Kafka has no topic {topic:?}: the edge accepts no spans until it exists; create it, or correct source.kafka.topics"
            ),
        )),
        Some(TopicSeen::Unavailable { failure, message }) if seen.is_none_or(|seen| seen.ready == 0) => {
            Some(Verdict::no(failure.reason(), verdict::of_source(pipeline, observed, *failure, message)))
        }
        Some(TopicSeen::Unavailable { .. } | TopicSeen::Known(_)) | None => None,
    }
}

fn not_made(outcome: Result<&Planned, &Violations>) -> Verdict {
    match outcome {
        Ok(Planned::Ready(_)) => Verdict::no(reason::PROGRESSING, "the edge is about to be started"),
        Ok(Planned::Waiting(waiting)) => {
            Verdict::no(reason::WAITING, format!("the edge is started after this: {}", waiting.message))
        }
        Err(_) => Verdict::no(reason::SPEC_INVALID, "the spec is refused: see Ready"),
    }
}

fn of_pods(seen: &EdgeSeen) -> Verdict {
    if let Some(why) = &seen.refused {
        let message = format!("{}; Kubernetes does not create the others: {why}", ready(seen));
        return Verdict::no(reason::PODS_REFUSED, message);
    }
    if !seen.troubles.is_empty() {
        return Verdict::no(reason::REPLICAS_NOT_READY, format!("{}; {}", ready(seen), troubles(seen)));
    }
    if !seen.is_observed {
        return Verdict::no(reason::PROGRESSING, format!("{}; the edge is about to be changed", ready(seen)));
    }
    if seen.ready < seen.wanted {
        let message = format!(
            "{}. A pod that stays unready gives the reason in its log: kubectl logs -l app.kubernetes.io/name=sluice-edge",
            ready(seen)
        );
        return Verdict::no(reason::REPLICAS_NOT_READY, message);
    }
    let accept = form(seen.wanted, "accepts", "accept");
    Verdict::yes(reason::RUNNING, format!("{} of the edge {accept} spans", plural(seen.wanted, "pod")))
}

fn ready(seen: &EdgeSeen) -> String {
    let EdgeSeen { ready, wanted, .. } = seen;
    format!("{ready} of {} of the edge {} ready", plural(*wanted, "pod"), form(*ready, "is", "are"))
}

fn troubles(seen: &EdgeSeen) -> String {
    let others = seen.troubles.len().saturating_sub(PODS_NAMED_MAX);
    let named = seen.troubles.iter().take(PODS_NAMED_MAX).map(|(name, why)| format!("{name}: {why}"));
    let named = named.collect::<Vec<_>>().join("; ");
    if others > 0 { format!("{named}; and {others} more") } else { named }
}

/// Why the pipeline is not ready although its gateways are: no pod of the edge accepts spans. With some of them it is ready.
pub(super) fn not_ready(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Option<Progress> {
    if matches!(plan.edge(), EdgePlan::None) || observed.edge.as_ref().is_some_and(|seen| seen.ready > 0) {
        return None;
    }
    let why = match missing(pipeline, observed, pipeline.spec.edge.as_deref()?) {
        Some(missing) => missing.words(),
        None => match observed.edge.as_ref().filter(|seen| seen.is_made) {
            Some(seen) => of_pods(seen).words(),
            None => "the edge is about to be started".to_owned(),
        },
    };
    Some(Progress::waiting(reason::EDGE_NOT_READY, why))
}

/// The counts; `None` if there is no edge.
pub(super) fn counts(observed: &Observed) -> Option<EdgeStatus> {
    let seen = observed.edge.as_ref()?;
    Some(EdgeStatus { replicas: seen.wanted, ready_replicas: seen.ready })
}
