//! Gateways that Kafka gives no messages although some wait, as they say. The operator itself only describes topics: whether the user may read
//! them, it does not see. Nothing is remembered: each gateway says for how long.

use super::{Gateway, looks::Look, unconnected::answers};
use sluice_plan::observed::UnfetchedSeen;

/// Those that get none; `None` while no gateway has answered.
pub fn hear(look: Option<&Look>, gateways: &[Gateway]) -> Option<Vec<UnfetchedSeen>> {
    let unfetched = answers(look, gateways)?.into_iter().filter_map(|(gateway, report)| {
        let said = report.unfetched.clone()?;
        Some(UnfetchedSeen { name: gateway.name.clone(), said })
    });
    Some(unfetched.collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            sample::report::Report,
            unconnected::tests::{gateway, said},
        },
        *,
    };
    use sluice_gateway_config::{GatewaySample, UnfetchedState};
    use sluice_plan::Moment;

    #[test]
    fn gateways_without_messages_are_known_once_one_has_answered() {
        let all = [gateway(1), gateway(0)];
        let state = UnfetchedState { partitions: 4, seconds: 20, ..UnfetchedState::default() };
        let answer = |unfetched| Report::of(&GatewaySample { unfetched, ..GatewaySample::default() });
        let look = Look {
            at: Moment(0),
            said: vec![said(0, Ok(answer(Some(state.clone())))), said(1, Ok(answer(None)))],
        };
        assert_eq!(hear(None, &all), None);
        let seen = UnfetchedSeen { name: "prod-gateway-0".into(), said: state };
        assert_eq!(hear(Some(&look), &all), Some(vec![seen]));
    }
}
