//! The services with the most bytes, summed over the gateways of a pipeline, from their states.

use crate::{
    cluster::Said,
    table::{size, table},
};
use serde::Serialize;
use sluice_gateway_config::{GatewayState, OtherServices, ServiceVolume, ServiceVolumes};
use std::{collections::BTreeMap, fmt};

/// Services in the text. Chosen: one screen has them and the summary. `--json` has all that gateways name.
const SHOWN_MAX: usize = 10;

/// What a service has sent since its gateways started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    spans: u64,
    /// Bytes of the rows, before compression.
    row_bytes: u64,
}

impl Volume {
    fn add(&mut self, other: Self) {
        self.spans = self.spans.saturating_add(other.spans);
        self.row_bytes = self.row_bytes.saturating_add(other.row_bytes);
    }
}

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    /// Empty for spans without a service name.
    name: String,
    #[serde(flatten)]
    volume: Volume,
    /// Its bytes among those of all services.
    share_percent: f64,
}

/// The services of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::status) struct Services {
    /// The largest first.
    largest: Vec<Service>,
    other: Volume,
    /// Gateways whose numbers are missing, with the reason.
    silent: BTreeMap<String, String>,
}

impl Services {
    /// Sums what the gateways say.
    pub(in crate::status) fn of(said: &[Said]) -> Self {
        let mut sums: BTreeMap<String, Volume> = BTreeMap::new();
        let (mut other, mut silent) = (Volume::default(), BTreeMap::new());
        for Said { pod, text } in said {
            match text.as_ref().map_err(Clone::clone).and_then(|text| services_in(text)) {
                Ok(ServiceVolumes { largest, other: OtherServices { spans, row_bytes } }) => {
                    for ServiceVolume { name, spans, row_bytes } in largest {
                        sums.entry(name).or_default().add(Volume { spans, row_bytes });
                    }
                    other.add(Volume { spans, row_bytes });
                }
                Err(why) => {
                    silent.insert(pod.clone(), why);
                }
            }
        }
        let all = sums.values().fold(other.row_bytes, |sum, volume| sum.saturating_add(volume.row_bytes));
        let service = |(name, volume): (String, Volume)| Service {
            name,
            volume,
            share_percent: share(volume.row_bytes, all),
        };
        let mut largest: Vec<Service> = sums.into_iter().map(service).collect();
        // Equal ones stay in the order of their names.
        largest.sort_by_key(|service| std::cmp::Reverse(service.volume.row_bytes));
        Self { largest, other, silent }
    }

    /// Bytes of all services.
    fn row_bytes(&self) -> u64 {
        let named = self.largest.iter().map(|service| service.volume.row_bytes);
        named.fold(self.other.row_bytes, u64::saturating_add)
    }
}

/// The services in a gateway's state.
fn services_in(state: &str) -> Result<ServiceVolumes, String> {
    let state = GatewayState::read(state.as_bytes()).map_err(|error| format!("its state {error}"))?;
    state.sample.services.ok_or_else(|| "it is of a version that does not count services".to_owned())
}

/// A part of all in percent, to a tenth; 0 of nothing.
fn share(part: u64, all: u64) -> f64 {
    let tenths = u128::from(part) * 1_000 / u128::from(all.max(1));
    f64::from(u16::try_from(tenths).unwrap_or(1_000)) / 10.0
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.row_bytes();
        let row = |name: &str, volume: Volume| {
            let share = format!("{:.1} %", share(volume.row_bytes, all));
            vec![name.to_owned(), volume.spans.to_string(), size(volume.row_bytes), share]
        };
        let shown = self.largest.iter().take(SHOWN_MAX);
        let mut rest = self.other;
        self.largest.iter().skip(SHOWN_MAX).for_each(|service| rest.add(service.volume));
        let mut rows: Vec<_> = shown
            .map(|service| {
                let name = if service.name.is_empty() { "(no service.name)" } else { &service.name };
                row(name, service.volume)
            })
            .collect();
        if rest != Volume::default() {
            rows.push(row("(all others)", rest));
        }
        if rows.is_empty() {
            writeln!(f, "  services  none have sent spans since the gateways started")?;
        } else {
            let text = table(&["SERVICE", "SPANS", "BYTES OF ROWS", "SHARE"], &rows);
            writeln!(f, "  services  since the gateways started:")?;
            for line in text.lines() {
                writeln!(f, "    {line}")?;
            }
        }
        for (pod, why) in &self.silent {
            writeln!(f, "    the services of {pod} are missing: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a gateway says of services: name, spans, bytes; and the bytes of others.
    fn said(pod: &str, largest: &[(&str, u64, u64)], other: u64) -> Said {
        let service = |(name, spans, bytes): &(&str, u64, u64)| json!({"name": name, "spans": spans, "rowBytes": bytes});
        let largest: Vec<_> = largest.iter().map(service).collect();
        let text = json!({
            "version": 1,
            "sample": {"services": {"largest": largest, "other": {"spans": other / 25, "rowBytes": other}}},
            "remaining": {"blocks": 0, "damaged": false, "draining": false},
        });
        Said { pod: pod.into(), text: Ok(text.to_string()) }
    }

    #[test]
    fn services_are_summed_over_gateways_and_the_largest_comes_first() {
        let one = said("a", &[("cart", 5, 600), ("shop", 1, 100)], 50);
        let two = said("b", &[("shop", 1, 150), ("", 3, 100)], 0);
        let silent = Said { pod: "c".into(), text: Err("refused".into()) };
        let services = Services::of(&[one, two, silent]);
        assert_eq!(
            services.to_string(),
            "  services  since the gateways started:\n\
            \x20   SERVICE            SPANS  BYTES OF ROWS   SHARE\n\
            \x20   cart                   5          600 B  60.0 %\n\
            \x20   shop                   2          250 B  25.0 %\n\
            \x20   (no service.name)      3          100 B  10.0 %\n\
            \x20   (all others)           2           50 B   5.0 %\n\
            \x20   the services of c are missing: refused\n"
        );
        let json = serde_json::to_value(&services).unwrap();
        assert_eq!(json["largest"][0]["name"], "cart");
        assert_eq!(
            (&json["largest"][0]["rowBytes"], &json["largest"][0]["sharePercent"]),
            (&600.into(), &60.0.into())
        );
        assert_eq!(json["other"]["spans"], 2);
    }

    #[test]
    fn the_text_has_ten_services_and_all_others_as_one() {
        let names: Vec<String> = (0..15).map(|number| format!("s{number:02}")).collect();
        let largest: Vec<_> =
            names.iter().zip(0..).map(|(name, number)| (name.as_str(), 1, 100 - number)).collect();
        let services = Services::of(&[said("a", &largest, 0)]);
        let shown = services.to_string();
        assert!(shown.contains("s09") && !shown.contains("s10"), "{shown}");
        assert!(shown.contains("(all others)") && services.largest.len() == 15, "{shown}");
        assert_eq!(
            Services::of(&[said("a", &[], 0)]).to_string(),
            "  services  none have sent spans since the gateways started\n"
        );
    }

    #[test]
    fn a_gateway_of_another_version_says_so() {
        let older = r#"{"version":1,"remaining":{"blocks":0,"damaged":false,"draining":false}}"#;
        for (text, expected) in [(older, "a version that does not count"), ("{}", "its state cannot be read")]
        {
            let services = Services::of(&[Said { pod: "a".into(), text: Ok(text.into()) }]);
            assert!(services.silent["a"].contains(expected), "{:?}", services.silent);
        }
    }

    #[test]
    fn a_share_is_of_all() {
        assert_eq!((share(1, 3), share(0, 0), share(u64::MAX, u64::MAX)), (33.3, 0.0, 100.0));
    }
}
