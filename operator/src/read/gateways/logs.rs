//! The logs of gateways with `source.otlp`: what their answers say of them, without a question to anybody else.

use super::{Gateway, looks::Look};
use sluice_plan::scale::GatewayLogs;

/// Requests that wait in the logs of all gateways, also in logs that cannot be read, as far as that is known; `None` unless each of those that the workload wants gave an answer, and each other one that is
/// ready: what is on the volume of one that does not run is not known.
pub fn waiting(look: &Look, gateways: &[Gateway], wanted: u32) -> Option<u64> {
    let (mut waiting, mut answered) = (0_u64, 0_u32);
    for gateway in gateways {
        let is_wanted = gateway.ordinal < wanted;
        match of(look, gateway) {
            Some(logs) => {
                waiting = waiting.saturating_add(logs.waiting).saturating_add(logs.unread);
                answered = answered.saturating_add(u32::from(is_wanted));
            }
            None if is_wanted || gateway.is_ready => return None,
            None => {}
        }
    }
    (wanted > 0 && answered == wanted).then_some(waiting)
}

/// The logs of one gateway, as this very process reports them.
fn of(look: &Look, gateway: &Gateway) -> Option<GatewayLogs> {
    let said = look.said.iter().find(|said| said.gateway.is_same_process(gateway))?;
    said.report.as_ref().ok()?.numbers.as_ref().ok()?.logs()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Absence, Error,
            looks::Said,
            sample::report::{Report, tests::exported},
        },
        *,
    };
    use serde_json::json;
    use sluice_plan::{Moment, drain::undrain::Says};
    use std::time::Duration;

    fn gateway(ordinal: u32, is_ready: bool) -> Gateway {
        let pod = json!({"metadata": {"namespace": "tracing", "name": format!("prod-gateway-{ordinal}"), "uid": "one"}, "status": {
            "podIP": "10.0.0.1", "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"running": {}}}]}});
        Gateway { is_ready, ..Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap() }
    }

    #[test]
    fn what_waits_is_known_once_each_gateway_that_is_wanted_has_said_it() {
        let all = [gateway(0, true), gateway(1, false), gateway(2, true)];
        let look = |answers: [bool; 3]| {
            let said = all.iter().zip(answers).map(|(gateway, answers)| {
                let silent = Error::Timeout { address: gateway.address, path: "/state" };
                let report = if answers { Ok(Report::of(&exported())) } else { Err(silent) };
                let (absence, says) = (Absence::None, Says::TakesPart);
                Said { gateway: gateway.clone(), after: Duration::ZERO, absence, says, report }
            });
            Look { at: Moment(0), said: said.collect() }
        };
        for (answers, gateways, wanted, expected) in [
            ([true; 3], &all[..], 3, Some(9)),
            ([true; 3], &all[..], 4, None),
            ([true; 3], &all[..2], 3, None),
            ([true, false, true], &all[..], 3, None),
            // It leaves, and has said nothing; another one that leaves has.
            ([true, false, true], &all[..], 1, Some(6)),
            ([true, true, false], &all[..], 2, None),
            ([true; 3], &[][..], 0, None),
        ] {
            assert_eq!(waiting(&look(answers), gateways, wanted), expected, "{answers:?} of {wanted}");
        }
    }
}
