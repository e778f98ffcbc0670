//! The logs of gateways with `source.otlp`: what their answers say of them, without a question to anybody else.

use super::{Gateway, looks::Look};
use sluice_plan::scale::GatewayLogs;

/// Requests that wait in the logs of all gateways; `None` if a gateway that is ready gave no answer, or if none gave one.
pub fn waiting(look: &Look, gateways: &[Gateway]) -> Option<u64> {
    let mut waiting = None;
    for gateway in gateways {
        match of(look, gateway) {
            Some(logs) => waiting = Some(waiting.unwrap_or(0_u64).saturating_add(logs.waiting)),
            None if gateway.is_ready => return None,
            None => {}
        }
    }
    waiting
}

/// The logs of one gateway, as this very process reports them.
fn of(look: &Look, gateway: &Gateway) -> Option<GatewayLogs> {
    let said = look.said.iter().find(|said| said.gateway.is_same_process(gateway))?;
    said.report.as_ref().ok()?.numbers.as_ref().ok()?.logs()
}
