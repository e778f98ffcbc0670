//! Gateways with `source.otlp` whose volume has no room for requests, as they say. Nothing is remembered: each gateway says for how long.

use super::{Gateway, looks::Look};
use sluice_plan::observed::FullVolumeSeen;

/// Those whose volume is full, in their order.
pub fn full(look: Option<&Look>, gateways: &[Gateway]) -> Vec<FullVolumeSeen> {
    let Some(look) = look else { return Vec::new() };
    let said = |gateway: &Gateway| {
        let full = look.of(gateway)?.report.as_ref().ok()?.volume_full?;
        let (ordinal, name) = (gateway.ordinal, gateway.name.clone());
        Some(FullVolumeSeen { ordinal, name, seconds: full.seconds, bytes_max: full.bytes_max })
    };
    let mut full: Vec<_> = gateways.iter().filter_map(said).collect();
    // The cache of pods has no order, and a message with another order is a write.
    full.sort_unstable_by_key(|seen| seen.ordinal);
    full
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Absence, Error, looks::Said, sample::report::Report, unconnected::tests::gateway},
        *,
    };
    use sluice_gateway_config::{GatewaySample, VolumeFullState};
    use sluice_plan::{Moment, drain::undrain::Says};
    use std::time::Duration;

    #[test]
    fn gateways_whose_volume_is_full_are_known_in_their_order() {
        let all = [gateway(2), gateway(0), gateway(1), gateway(3)];
        let said = |ordinal: u32, seconds: Option<u64>| {
            let volume_full = seconds.map(|seconds| VolumeFullState { seconds, bytes_max: 1_000 });
            let report = Report::of(&GatewaySample { volume_full, ..GatewaySample::default() });
            let (absence, says) = (Absence::None, Says::TakesPart);
            Said { gateway: gateway(ordinal), after: Duration::ZERO, absence, says, report: Ok(report) }
        };
        let mut said = vec![said(0, Some(90)), said(1, None), said(2, Some(0)), said(3, None)];
        said[3].report = Err(Error::Timeout { address: all[0].address, path: "/state" });
        let look = Look { at: Moment(0), said };
        let seen = |ordinal: u32, seconds| FullVolumeSeen {
            ordinal,
            name: format!("prod-gateway-{ordinal}"),
            seconds,
            bytes_max: 1_000,
        };
        assert_eq!(full(Some(&look), &all), [seen(0, 90), seen(2, 0)]);
        assert_eq!(full(None, &all), []);
    }
}
