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
use sluice_crds::{
    TracePipeline,
    status::{condition, reason},
};

/// `None` while every ready gateway answers. A new operator keeps the condition of a gateway that has not answered it yet.
pub(super) fn unanswered(pipeline: &TracePipeline, observed: &Observed) -> Option<Progress> {
    let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let said = conditions
        .into_iter()
        .find(|one| one.type_ == condition::READY && one.reason == reason::REPLICAS_NOT_READY);
    let is_said = |silent: &SilentSeen| said.is_some_and(|said| said.message.contains(&in_words(silent)));
    let lasting = observed.silent.iter().filter(|silent| silent.seconds >= SILENT_SECONDS || is_said(silent));
    let lasting: Vec<&SilentSeen> = lasting.collect();
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

fn in_words(SilentSeen { name, address, refusal, .. }: &SilentSeen) -> String {
    match refusal {
        None => format!("{name} is ready, but does not answer the operator at {address}"),
        Some(refusal) => format!("{name} is ready, but the operator cannot use its answer: {refusal}"),
    }
}
