//! Gateways that reach no broker while the operator does, as the condition `SourceReachable` reports them.
//!
//! The operator asks the brokers of the spec, and the controller that they name. Each gateway connects to the addresses that brokers announce
//! (`advertised.listeners`), from its own pod: a name of another network, or a policy that lets only the operator through, is seen there alone.

use super::{messages::said_before, verdict::Verdict};
use crate::{
    facts::Observed,
    ground::words::plural,
    observed::{UNCONNECTED_SECONDS, UnconnectedSeen},
};
use sluice_crds::{
    TracePipeline,
    status::{condition, reason},
};

/// How the condition begins, which tells it from what the operator finds itself.
const BEGINS: &str = "the operator reaches the brokers, but ";

/// `None` while each gateway reaches a broker, or has not tried for long. While no gateway answers, the former condition holds, as long as there
/// are gateways.
pub(super) fn unconnected(pipeline: &TracePipeline, observed: &Observed) -> Option<Verdict> {
    let Some(seen) = &observed.unconnected else {
        let before = said_before(pipeline, observed, condition::SOURCE_REACHABLE, &[reason::UNREACHABLE]);
        return before.filter(|said| said.begins(BEGINS));
    };
    let lasting: Vec<_> = seen.iter().filter(|one| one.seconds >= UNCONNECTED_SECONDS).collect();
    let UnconnectedSeen { name, reason, .. } = lasting.first()?;
    let gateways = match lasting.len() - 1 {
        0 => format!("{name} does not"),
        others => format!("{name} and {} do not", plural(others, "other gateway")),
    };
    Some(Verdict::no(
        reason::UNREACHABLE,
        format!(
            "{BEGINS}{gateways}: {reason}. Check that pods can reach this address, which may be one that a broker announces \
             (advertised.listeners)"
        ),
    ))
}
