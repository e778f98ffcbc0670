//! Gateways that reach no broker, as they say. The operator may reach the addresses of the spec where pods do not reach those that brokers
//! announce. Nothing is remembered: each gateway says for how long.

use super::{Gateway, looks::Look, sample::report::Report};
use sluice_plan::observed::UnconnectedSeen;

/// Those that reach none; `None` while no gateway has answered.
pub fn hear(look: Option<&Look>, gateways: &[Gateway]) -> Option<Vec<UnconnectedSeen>> {
    let unconnected = answers(look, gateways)?.into_iter().filter_map(|(gateway, report)| {
        let said = report.unconnected.clone()?;
        Some(UnconnectedSeen { name: gateway.name.clone(), reason: said.reason, seconds: said.seconds })
    });
    Some(unconnected.collect())
}

/// What gateways answered, in their order; `None` while none has.
pub(super) fn answers<'a>(
    look: Option<&'a Look>,
    gateways: &'a [Gateway],
) -> Option<Vec<(&'a Gateway, &'a Report)>> {
    let look = look?;
    let answer = |gateway| Some((gateway, look.of(gateway)?.report.as_ref().ok()?));
    let mut answers: Vec<_> = gateways.iter().filter_map(answer).collect();
    if answers.is_empty() {
        return None;
    }
    // The cache of pods has no order, and a message with another order is a write.
    answers.sort_unstable_by_key(|(gateway, _)| gateway.ordinal);
    Some(answers)
}

#[cfg(test)]
pub mod tests {
    use super::{
        super::{Absence, Error, looks::Said},
        *,
    };
    use serde_json::json;
    use sluice_gateway_config::{GatewaySample, UnconnectedState};
    use sluice_plan::{Moment, drain::undrain::Says};
    use std::time::Duration;

    /// A gateway that runs.
    pub fn gateway(ordinal: u32) -> Gateway {
        let pod = json!({"metadata": {"namespace": "tracing", "name": format!("prod-gateway-{ordinal}"), "uid": "one"}, "status": {
            "podIP": "10.0.0.1", "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"running": {}}}]}});
        Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    pub fn said(ordinal: u32, report: Result<Report, Error>) -> Said {
        let (absence, says) = (Absence::None, Says::TakesPart);
        Said { gateway: gateway(ordinal), after: Duration::ZERO, absence, says, report }
    }

    fn answer(seconds: Option<u64>) -> Report {
        let unconnected = seconds.map(|seconds| UnconnectedState { reason: "refused".into(), seconds });
        Report::of(&GatewaySample { unconnected, ..GatewaySample::default() })
    }

    #[test]
    fn gateways_without_a_broker_are_known_in_their_order_once_one_has_answered() {
        let all = [gateway(2), gateway(0), gateway(1)];
        let silent = || Err(Error::Timeout { address: all[0].address, path: "/state" });
        let look = |said: Vec<Said>| Look { at: Moment(0), said };
        assert_eq!(hear(None, &all), None);
        assert_eq!(hear(Some(&look(vec![said(0, silent()), said(1, silent())])), &all), None);
        assert_eq!(
            hear(Some(&look(vec![said(0, Ok(answer(None))), said(1, silent())])), &all),
            Some(Vec::new())
        );
        let both = look(vec![
            said(0, Ok(answer(Some(5)))),
            said(1, Ok(answer(None))),
            said(2, Ok(answer(Some(75)))),
        ]);
        let seen = |ordinal: u32, seconds| UnconnectedSeen {
            name: format!("prod-gateway-{ordinal}"),
            reason: "refused".into(),
            seconds,
        };
        assert_eq!(hear(Some(&both), &all), Some(vec![seen(0, 5), seen(2, 75)]));
    }
}
