//! The services with the most bytes, summed over the gateways of a pipeline, from their metrics.

use crate::{
    cluster::Said,
    table::{size, table},
};
use serde::Serialize;
use sluice_gateway_config::exposition::lines;
use std::{collections::BTreeMap, fmt};

const SPANS: &str = "sluice_gateway_service_spans_total";
const ROW_BYTES: &str = "sluice_gateway_service_row_bytes_total";

/// The label of all services that a gateway does not name. A service of this name is among them.
const OTHER: &str = "other";

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
    /// Gateways that do not answer, with the reason; their numbers are missing.
    silent: BTreeMap<String, String>,
}

impl Services {
    /// Sums what the gateways say.
    pub(in crate::status) fn of(said: &[Said]) -> Self {
        let mut sums: BTreeMap<String, Volume> = BTreeMap::new();
        for text in said.iter().filter_map(|said| said.text.as_ref().ok()) {
            for line in lines(text).filter(|line| line.name == SPANS || line.name == ROW_BYTES) {
                let (Some(name), Some(value)) = (line.label("service_name"), line.whole()) else { continue };
                let volume = sums.entry(name.into_owned()).or_default();
                let sum = if line.name == SPANS { &mut volume.spans } else { &mut volume.row_bytes };
                *sum = sum.saturating_add(value);
            }
        }
        let all = sums.values().fold(0_u64, |sum, volume| sum.saturating_add(volume.row_bytes));
        let other = sums.remove(OTHER).unwrap_or_default();
        let service = |(name, volume): (String, Volume)| Service {
            name,
            volume,
            share_percent: share(volume.row_bytes, all),
        };
        let mut largest: Vec<Service> = sums.into_iter().map(service).collect();
        // Equal ones stay in the order of their names.
        largest.sort_by_key(|service| std::cmp::Reverse(service.volume.row_bytes));
        let silent =
            said.iter().filter_map(|said| Some((said.pod.clone(), said.text.as_ref().err()?.clone())));
        Self { largest, other, silent: silent.collect() }
    }

    /// Bytes of all services.
    fn row_bytes(&self) -> u64 {
        let named = self.largest.iter().map(|service| service.volume.row_bytes);
        named.fold(self.other.row_bytes, u64::saturating_add)
    }
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
        let rest = self.largest.iter().skip(SHOWN_MAX).fold(self.other, |sum, service| Volume {
            spans: sum.spans.saturating_add(service.volume.spans),
            row_bytes: sum.row_bytes.saturating_add(service.volume.row_bytes),
        });
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
            writeln!(f, "    {pod} does not answer, its services are missing: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pod: &str, text: &str) -> Said {
        Said { pod: pod.into(), text: Ok(text.into()) }
    }

    fn series(name: &str, spans: u64, bytes: u64) -> String {
        format!(
            "{SPANS}{{service_name=\"{name}\"}} {spans}\n{ROW_BYTES}{{service_name=\"{name}\"}} {bytes}\n"
        )
    }

    #[test]
    fn services_are_summed_over_gateways_and_the_largest_comes_first() {
        let one = series("shop", 1, 100) + &series("cart", 5, 600) + &series("other", 2, 50);
        let two = series("shop", 1, 150) + &series("", 3, 100);
        let silent = Said { pod: "c".into(), text: Err("refused".into()) };
        let services = Services::of(&[said("a", &one), said("b", &two), silent]);
        assert_eq!(
            services.to_string(),
            "  services  since the gateways started:\n\
            \x20   SERVICE            SPANS  BYTES OF ROWS   SHARE\n\
            \x20   cart                   5          600 B  60.0 %\n\
            \x20   shop                   2          250 B  25.0 %\n\
            \x20   (no service.name)      3          100 B  10.0 %\n\
            \x20   (all others)           2           50 B   5.0 %\n\
            \x20   c does not answer, its services are missing: refused\n"
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
        let text: String = (0..15).map(|number| series(&format!("s{number:02}"), 1, 100 - number)).collect();
        let services = Services::of(&[said("a", &text)]);
        let shown = services.to_string();
        assert!(shown.contains("s09") && !shown.contains("s10"), "{shown}");
        assert!(shown.contains("(all others)") && services.largest.len() == 15, "{shown}");
        assert_eq!(
            Services::of(&[said("a", "")]).to_string(),
            "  services  none have sent spans since the gateways started\n"
        );
    }

    #[test]
    fn a_share_is_of_all() {
        assert_eq!((share(1, 3), share(0, 0), share(u64::MAX, u64::MAX)), (33.3, 0.0, 100.0));
    }
}
