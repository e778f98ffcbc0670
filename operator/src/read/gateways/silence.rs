//! Ready gateways that do not answer, and for how long: from the first look that got no answer to the last one. One answer ends it. A few
//! bytes for each gateway that is silent.

use super::{Gateway, looks::Look};
use sluice_plan::{
    Moment,
    observed::{Silence, SilentSeen},
};
use std::collections::HashMap;

/// Since when gateways of one pipeline do not answer.
#[derive(Debug, Default)]
pub struct SilenceMemory(HashMap<Gateway, Moment>);

/// The ready gateways that did not answer the last look. One that was not asked yet, as after a start of the operator, has been silent for 0
/// seconds.
pub fn hear(
    SilenceMemory(since): &mut SilenceMemory,
    look: Option<&Look>,
    gateways: &[Gateway],
) -> Vec<SilentSeen> {
    let mut before = std::mem::take(since);
    let mut silent = Vec::new();
    let mut ready: Vec<&Gateway> = gateways.iter().filter(|gateway| gateway.is_ready).collect();
    // The cache of pods has no order, and a message with another order is a write.
    ready.sort_unstable_by_key(|gateway| gateway.ordinal);
    for gateway in ready {
        let known = before.remove(gateway);
        let said = look.and_then(|look| Some((look.at, &look.of(gateway)?.report)));
        let (seconds, how) = match said {
            Some((_, Ok(_))) => continue,
            Some((at, Err(error))) => {
                // If the clock went back, the time begins again.
                let begun = known.filter(|begun| begun.0 <= at.0).unwrap_or(at);
                since.insert(gateway.clone(), begun);
                (at.0.saturating_sub(begun.0) / 1_000, error.silence())
            }
            None => {
                since.extend(known.map(|begun| (gateway.clone(), begun)));
                (0, Silence::NotAsked)
            }
        };
        let (name, address) = (gateway.name.clone(), gateway.address.to_string());
        silent.push(SilentSeen { name, address, seconds, how });
    }
    silent
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
    use hyper::StatusCode;
    use serde_json::json;
    use sluice_plan::drain::undrain::Says;
    use std::time::Duration;

    fn gateway() -> Gateway {
        let pod = json!({"metadata": {"namespace": "tracing", "name": "prod-gateway-1", "uid": "one"}, "status": {
            "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}]}});
        Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn look(seconds: u64, report: Result<Report, Error>) -> Look {
        let (absence, says) = (Absence::None, Says::TakesPart);
        let said = vec![Said { gateway: gateway(), after: Duration::ZERO, absence, says, report }];
        Look { at: Moment(seconds * 1_000), said }
    }

    fn address() -> std::net::SocketAddr {
        "10.0.0.1:9090".parse().unwrap()
    }

    #[test]
    fn a_ready_gateway_is_silent_from_the_first_look_without_an_answer_until_it_answers() {
        let mut memory = SilenceMemory::default();
        let mut heard = |look: Option<Look>| {
            let silent = hear(&mut memory, look.as_ref(), &[gateway()]);
            silent.into_iter().next().map(|silent| silent.seconds)
        };
        let timeout =
            |seconds| Some(look(seconds, Err(Error::Timeout { address: address(), path: "/state" })));
        let answer = |seconds| Some(look(seconds, Ok(Report::of(&exported()))));
        assert_eq!(heard(None), Some(0), "it was not asked yet");
        assert_eq!(heard(answer(0)), None);
        assert_eq!(heard(timeout(300)), Some(0), "one lost request, however long ago the last one was");
        assert_eq!(heard(None), Some(0));
        assert_eq!(heard(timeout(330)), Some(30));
        assert_eq!(heard(timeout(360)), Some(60));
        assert_eq!(heard(answer(365)), None);
        assert_eq!(heard(timeout(370)), Some(0));
        assert_eq!(heard(timeout(100)), Some(0), "the clock went back");
    }

    #[test]
    fn pod_and_address_are_named_and_an_answer_that_cannot_be_used_is_told_from_none() {
        let seen = |error| {
            let look = look(0, Err(error));
            hear(&mut SilenceMemory::default(), Some(&look), &[gateway()]).remove(0)
        };
        let silent = seen(Error::Timeout { address: address(), path: "/state" });
        assert_eq!((silent.name.as_str(), silent.address.as_str()), ("prod-gateway-1", "10.0.0.1:9090"));
        assert_eq!(silent.how, Silence::Hangs, "the kernel takes connections for a process that is stopped");
        assert_eq!(seen(Error::Unreached { address: address() }).how, Silence::Unreached);
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let refused = seen(Error::Refused { address: address(), path: "/state", status });
        let words = "10.0.0.1:9090 answers /state with status 500 Internal Server Error";
        assert_eq!(refused.how, Silence::Strange(words.into()));
    }
}
