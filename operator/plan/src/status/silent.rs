//! Gateways that are ready for the kubelet and do not answer the operator, as `Ready` names them.
//!
//! `Ready` is false then. Rows may flow, but nothing shows it: which partitions these gateways own, and whether their inserts fail, only they
//! can say. Nor can they be drained.

use super::progress::{Progress, named};
use crate::{
    facts::Observed,
    names::{ADMIN_PORT, CONTROL_PORT},
    observed::{SILENT_SECONDS, SilentSeen},
};
use sluice_crds::{SILENT_GATEWAYS_MAX, SilentGateway, TracePipeline, status::reason};
use std::collections::BTreeSet;

/// `None` while every ready gateway answers.
pub(super) fn unanswered(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    let lasting = lasting(pipeline, observed);
    let pods = named(lasting.iter().copied().map(in_words).collect())?;
    // One that answers can be reached.
    let remedy = if lasting.iter().any(|silent| silent.refusal.is_none()) {
        format!(
            ". Allow connections from the operator to ports {ADMIN_PORT} and {CONTROL_PORT} of gateways (NetworkPolicy, firewall)"
        )
    } else {
        String::new()
    };
    Some(Progress::waiting(reason::REPLICAS_NOT_READY, format!("{pods}{remedy}")))
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

fn in_words(SilentSeen { name, address, refusal, .. }: &SilentSeen) -> String {
    match refusal {
        None => format!("{name} is ready, but does not answer the operator at {address}"),
        Some(refusal) => format!("{name} is ready, but the operator cannot use its answer: {refusal}"),
    }
}
