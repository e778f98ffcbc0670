//! `kubectl sluice spool`: the blocks on the queue volume of each gateway, from the metrics of the gateways.

use super::{
    cluster::Said,
    table::{NOTHING, number, size, table, time},
};
use crate::read::gateways::metrics::exposition::lines;
use serde::Serialize;
use std::fmt;

/// Every gateway of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Spools {
    gateways: Vec<Spool>,
}

/// The queue volume of one gateway. Unknown values are not set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spool {
    gateway: String,
    blocks: Option<u64>,
    rows: Option<u64>,
    bytes: Option<u64>,
    /// Age of the oldest block.
    oldest_seconds: Option<u64>,
    volume_bytes: Option<u64>,
    volume_free_bytes: Option<u64>,
    /// Why the gateway does not answer; not set if it does.
    silent: Option<String>,
}

impl Spools {
    pub(super) fn of(said: &[Said]) -> Self {
        Self { gateways: said.iter().map(Spool::of).collect() }
    }

    /// Whether there is a gateway and all answer.
    pub(super) fn is_whole(&self) -> bool {
        !self.gateways.is_empty() && self.gateways.iter().all(|one| one.silent.is_none())
    }
}

impl Spool {
    fn of(said: &Said) -> Self {
        let mut one = Self { gateway: said.pod.clone(), ..Self::default() };
        let text = match &said.text {
            Ok(text) => text,
            Err(why) => return Self { silent: Some(why.clone()), ..one },
        };
        for line in lines(text) {
            match (line.name, line.label("state").as_deref()) {
                ("sluice_gateway_spool_blocks", _) => one.blocks = line.whole(),
                ("sluice_gateway_spool_rows", _) => one.rows = line.whole(),
                ("sluice_gateway_spool_bytes", _) => one.bytes = line.whole(),
                ("sluice_gateway_spool_oldest_seconds", _) => one.oldest_seconds = line.whole(),
                ("sluice_gateway_queue_volume_bytes", Some("total")) => one.volume_bytes = line.whole(),
                ("sluice_gateway_queue_volume_bytes", Some("free")) => one.volume_free_bytes = line.whole(),
                _ => {}
            }
        }
        one
    }
}

impl fmt::Display for Spools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = || NOTHING.to_owned();
        let header = ["GATEWAY", "BLOCKS", "ROWS", "BYTES", "OLDEST", "VOLUME", "FREE"];
        let rows = self.gateways.iter().map(|one| {
            vec![
                one.gateway.clone(),
                number(one.blocks),
                number(one.rows),
                one.bytes.map_or_else(nothing, size),
                one.oldest_seconds.map_or_else(nothing, time),
                one.volume_bytes.map_or_else(nothing, size),
                one.volume_free_bytes.map_or_else(nothing, size),
            ]
        });
        f.write_str(&table(&header, &rows.collect::<Vec<_>>()))?;
        for (gateway, why) in
            self.gateways.iter().filter_map(|one| Some((&one.gateway, one.silent.as_ref()?)))
        {
            writeln!(f, "{gateway} does not answer: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gateway_is_told() {
        let text = "sluice_gateway_spool_blocks 3\nsluice_gateway_spool_rows 30000\nsluice_gateway_spool_bytes 24000000\n\
            sluice_gateway_spool_oldest_seconds 61.5\nsluice_gateway_queue_volume_bytes{state=\"total\"} 1000000000\n\
            sluice_gateway_queue_volume_bytes{state=\"free\"} 970000000\n";
        let said = [
            Said { pod: "p-gateway-0".into(), text: Ok(text.into()) },
            Said { pod: "p-gateway-1".into(), text: Err("refused".into()) },
        ];
        let found = Spools::of(&said);
        assert_eq!(
            found.to_string(),
            "GATEWAY      BLOCKS   ROWS   BYTES     OLDEST   VOLUME     FREE\n\
             p-gateway-0       3  30000  22 MiB  1 min 1 s  953 MiB  925 MiB\n\
             p-gateway-1       -      -       -          -        -        -\n\
             p-gateway-1 does not answer: refused\n"
        );
        assert_eq!(
            (found.is_whole(), Spools::of(&said[..1]).is_whole(), Spools::of(&[]).is_whole()),
            (false, true, false)
        );
        assert_eq!(serde_json::to_value(&found).unwrap()["gateways"][0]["bytes"], 24_000_000);
    }
}
