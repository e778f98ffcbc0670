//! Gateways with `source.otlp` whose volume has no room for requests, as they say; each says for how long. What a gateway said holds until its
//! next answer. A few bytes for each that is full.

use super::{Gateway, looks::Look};
use sluice_plan::observed::FullVolumeSeen;
use std::collections::HashMap;

/// What full gateways of one pipeline said last.
#[derive(Debug, Default)]
pub struct FullVolumeMemory(HashMap<Gateway, FullVolumeSeen>);

/// Those whose volume is full, in their order.
pub fn hear(
    FullVolumeMemory(known): &mut FullVolumeMemory,
    look: Option<&Look>,
    gateways: &[Gateway],
) -> Vec<FullVolumeSeen> {
    let mut before = std::mem::take(known);
    for gateway in gateways {
        let said = look.and_then(|look| look.of(gateway)).and_then(|said| said.report.as_ref().ok());
        let seen = match said {
            Some(report) => report.volume_full.map(|full| FullVolumeSeen {
                ordinal: gateway.ordinal,
                name: gateway.name.clone(),
                seconds: full.seconds,
                bytes_max: full.bytes_max,
                limit: full.limit,
            }),
            None => before.remove(gateway),
        };
        known.extend(seen.map(|seen| (gateway.clone(), seen)));
    }
    let mut full: Vec<_> = known.values().cloned().collect();
    // A message with another order is a write.
    full.sort_unstable_by_key(|seen| seen.ordinal);
    full
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Absence, Error, looks::Said, sample::report::Report, unconnected::tests::gateway},
        *,
    };
    use sluice_gateway_config::{GatewaySample, VolumeFullState, VolumeLimit};
    use sluice_plan::{Moment, drain::undrain::Says};
    use std::time::Duration;

    #[test]
    fn gateways_whose_volume_is_full_are_known_in_their_order() {
        let all = [gateway(2), gateway(0), gateway(1), gateway(3)];
        let said = |ordinal: u32, seconds: Option<u64>| {
            let volume_full = seconds.map(|seconds| VolumeFullState {
                seconds,
                bytes_max: 1_000,
                limit: VolumeLimit::Segments,
            });
            let report = Report::of(&GatewaySample { volume_full, ..GatewaySample::default() });
            let (absence, says) = (Absence::None, Says::TakesPart);
            Said { gateway: gateway(ordinal), after: Duration::ZERO, absence, says, report: Ok(report) }
        };
        let mut look = Look {
            at: Moment(0),
            said: vec![said(0, Some(90)), said(1, None), said(2, Some(0)), said(3, None)],
        };
        look.said[3].report = Err(Error::Timeout { address: all[0].address, path: "/state" });
        let seen = |ordinal: u32, seconds| FullVolumeSeen {
            ordinal,
            name: format!("prod-gateway-{ordinal}"),
            seconds,
            bytes_max: 1_000,
            limit: VolumeLimit::Segments,
        };
        let mut memory = FullVolumeMemory::default();
        assert_eq!(hear(&mut memory, None, &all), []);
        assert_eq!(hear(&mut memory, Some(&look), &all), [seen(0, 90), seen(2, 0)]);
        // Gateway 0 misses one answer, and gateway 2 has room again.
        let mut later = Look { at: Moment(30_000), said: vec![said(0, None), said(2, None)] };
        later.said[0].report = Err(Error::Timeout { address: all[0].address, path: "/state" });
        assert_eq!(hear(&mut memory, Some(&later), &all), [seen(0, 90)]);
        assert_eq!(hear(&mut memory, None, &all), [seen(0, 90)]);
        assert_eq!(hear(&mut memory, None, &all[..1]), [], "it is gone");
    }
}
