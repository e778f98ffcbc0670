//! Gateways that are not ready, as `Ready` names them: each cause once before a cause is repeated, the worst first, and what helps.

use super::{
    progress::{PODS_NAMED_MAX, named},
    remedies, verdict,
};
use crate::{facts::Observed, observed::PodSeen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{TracePipeline, status::condition};
use std::collections::BTreeSet;

/// A gateway with what keeps it from being ready.
type Trouble<'a> = (&'a PodSeen, String);

/// `None` while those that are not ready are on their way.
pub(super) fn troubles(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Option<String> {
    let found = found(observed, now);
    let words = named(found.iter().map(|(pod, why)| format!("{}: {why}", pod.name)).collect())?;
    let remedies = of_ends(pipeline, &found) + &of_waits(pipeline, observed);
    Some(format!("{words}{remedies}"))
}

/// What helps against the ends of gateways that a message names already, as its end.
pub(super) fn what_helps(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> String {
    of_ends(pipeline, &found(observed, now))
}

fn pods(observed: &Observed) -> &[PodSeen] {
    observed.workload.as_ref().map_or(&[][..], |workload| &workload.pods)
}

fn found<'a>(observed: &'a Observed, now: &Time) -> Vec<Trouble<'a>> {
    let found = pods(observed).iter().filter_map(|pod| Some((pod, pod.trouble_at(now.0)?)));
    each_cause_first(found.collect())
}

fn each_cause_first(mut found: Vec<Trouble<'_>>) -> Vec<Trouble<'_>> {
    found.sort_by_key(|(pod, why)| cause(pod, why).0);
    let mut causes = BTreeSet::new();
    let (mut first, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(pod, why)| causes.insert(cause(pod, why)));
    first.extend(others);
    first
}

/// What is equal for the same cause; a lower number is worse. Texts have addresses and counts in them, which say nothing of the cause.
fn cause(pod: &PodSeen, why: &str) -> (u8, i32, String) {
    let without_digits =
        |text: &str| -> String { text.chars().filter(|letter| !letter.is_ascii_digit()).collect() };
    let begin = || without_digits(why.split([':', ',']).next().unwrap_or_default());
    match (&pod.going, &pod.end) {
        (None, Some(end)) => (0, end.exit_code, without_digits(&end.message)),
        (None, None) if pod.trouble.is_some() => (1, 0, begin()),
        (Some(_), _) => (2, 0, String::new()),
        (None, None) => (3, 0, begin()),
    }
}

/// What helps against the ends of those that are named, each kind of end once.
fn of_ends(pipeline: &TracePipeline, found: &[Trouble<'_>]) -> String {
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let mut kinds = BTreeSet::new();
    let ended =
        found.iter().take(PODS_NAMED_MAX).filter_map(|(pod, _)| Some((pod.name.as_str(), pod.end.as_ref()?)));
    let first = ended.filter(|(_, end)| kinds.insert((end.exit_code, end.is_out_of_memory())));
    first.filter_map(|(pod, end)| remedies::of_end((namespace, pod), end)).collect()
}

/// Which condition has what helps a gateway that waits at its start for ClickHouse or its table.
fn of_waits(pipeline: &TracePipeline, observed: &Observed) -> String {
    let missing = observed.missing_table.iter().map(|seen| (seen.gateway.as_str(), seen.reason(), false));
    let unusable =
        observed.unusable_table.iter().map(|seen| (seen.gateway.as_str(), seen.reason, seen.is_of_sink()));
    let waits = |gateway: &str| pods(observed).iter().any(|pod| pod.name == gateway && pod.says.is_some());
    let found = missing.chain(unusable).filter(|(gateway, ..)| waits(gateway));
    let words = found.filter_map(|(_, reason, is_of_sink)| {
        let (kind, verdict) = if is_of_sink {
            (condition::SINK_REACHABLE, verdict::sink_reachable(pipeline, observed))
        } else {
            (condition::SCHEMA_READY, verdict::schema_ready(pipeline, observed))
        };
        match verdict.refusal() {
            Some(refusal) => Some(format!(". The condition {kind} ({refusal}) has what helps")),
            // Without a schema Job, no condition is about the table.
            None => remedies::of_sink(pipeline, reason).map(|remedy| format!(". What helps: {remedy}")),
        }
    });
    words.collect()
}

/// The pods that are not ready, behind the count of ready ones. Once a gateway gives a reason of its own, the message has that instead.
pub(super) fn those_not(pods: &[PodSeen]) -> String {
    let in_words = |pod: &PodSeen| {
        let going = if pod.going.is_some() { " (is being deleted)" } else { "" };
        format!("{}{going}", pod.name)
    };
    let names = named(pods.iter().map(in_words).collect());
    names.map(|names| format!("; not ready: {names}")).unwrap_or_default()
}
