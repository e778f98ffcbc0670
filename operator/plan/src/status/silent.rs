//! Gateways that are ready for the kubelet and do not answer the operator, as `Ready` names them.
//!
//! `Ready` is false then. Rows may flow, but nothing shows it: which partitions these gateways own, and whether their inserts fail, only they
//! can say. Nor can they be drained. Other gateways that are not ready do not hide them: their words follow those of the others.

use super::progress::{Progress, named};
use crate::{
    facts::Observed,
    names::{ADMIN_PORT, CONTROL_PORT},
    observed::{SILENT_SECONDS, Silence, SilentSeen, hanging_cause, hanging_remedy},
};
use sluice_crds::{
    SILENT_GATEWAYS_MAX, SilentGateway, TracePipeline,
    status::{condition, reason},
};
use std::collections::BTreeSet;

/// Follows the name of such a gateway.
const IS_READY: &str = " is ready, but";

/// `None` while every ready gateway answers.
pub(super) fn unanswered(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    words(pipeline, observed).map(|message| Progress::waiting(reason::REPLICAS_NOT_READY, message))
}

/// Whether a message names such gateways already.
pub(super) fn is_said(message: &str) -> bool {
    message.contains(IS_READY)
}

/// These gateways, and what helps.
pub(super) fn words(pipeline: &TracePipeline, observed: &Observed) -> Option<String> {
    let lasting = lasting(pipeline, observed);
    let pods = named(lasting.iter().copied().map(in_words).collect())?;
    if let Some(message) = said_before(pipeline, &lasting) {
        return Some(message);
    }
    let is_unreached = |silent: &SilentSeen| matches!(silent.how, Silence::Unreached | Silence::NotAsked);
    let network = lasting.iter().copied().any(is_unreached).then(|| {
        format!(
            ". Allow connections from the operator to ports {ADMIN_PORT} and {CONTROL_PORT} of gateways (NetworkPolicy, firewall)"
        )
    });
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let hanging = lasting.iter().find(|silent| silent.how == Silence::Hangs);
    let hanging = hanging.map(|silent| hanging_remedy(namespace, &silent.name));
    let remedies = network.unwrap_or_default() + &hanging.unwrap_or_default();
    Some(format!("{pods}{remedies}"))
}

/// What the former message said of these gateways, if one of them was not asked yet. The operator does not know how that gateway is silent, so
/// it holds. It is the end of the message.
fn said_before(pipeline: &TracePipeline, lasting: &[&SilentSeen]) -> Option<String> {
    let ready = pipeline.status.as_ref()?.condition(condition::READY)?;
    let before = Some(ready).filter(|before| before.status == "False")?;
    let place = |silent: &SilentSeen| before.message.find(&begins(&silent.name));
    let is_kept = |silent: &SilentSeen| silent.how == Silence::NotAsked && place(silent).is_some();
    let first = lasting.iter().copied().filter_map(place).min()?;
    let end = before.message.get(first..)?;
    lasting.iter().copied().any(is_kept).then(|| end.to_owned())
}

/// The same gateways, for the status: also while `Ready` says something else, so that another operator need not count their minute anew.
pub(super) fn listed(pipeline: &TracePipeline, observed: &Observed) -> Vec<SilentGateway> {
    let lasting = lasting(pipeline, observed).into_iter().take(SILENT_GATEWAYS_MAX);
    lasting.map(|seen| SilentGateway { pod: seen.name.clone(), address: seen.address.clone() }).collect()
}

/// Gateways that have been silent for a minute, or that the status lists: an operator that starts knows of no answer of theirs, and has not
/// counted for a minute. One answer takes a gateway out of the list.
fn lasting<'a>(pipeline: &TracePipeline, observed: &'a Observed) -> Vec<&'a SilentSeen> {
    let listed = pipeline.status.iter().flat_map(|status| &status.silent_gateways);
    let listed: BTreeSet<(&str, &str)> = listed.map(|one| (one.pod.as_str(), one.address.as_str())).collect();
    let is_lasting = |seen: &&SilentSeen| {
        seen.seconds >= SILENT_SECONDS || listed.contains(&(seen.name.as_str(), seen.address.as_str()))
    };
    observed.silent.iter().filter(is_lasting).collect()
}

fn in_words(SilentSeen { name, address, how, .. }: &SilentSeen) -> String {
    let name = begins(name);
    match how {
        Silence::NotAsked | Silence::Unreached => {
            format!("{name} does not answer the operator at {address}")
        }
        Silence::Hangs => format!("{name} {}", hanging_cause(address)),
        Silence::Strange(why) => format!("{name} the operator cannot use its answer: {why}"),
    }
}

/// How the words about a gateway begin.
fn begins(name: &str) -> String {
    format!("{name}{IS_READY}")
}
