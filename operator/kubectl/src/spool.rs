//! `kubectl sluice spool`: what the queue volume of each gateway holds, from the metrics of the gateways.

pub(super) mod blocks;
pub(super) mod logs;

use crate::{
    cluster::Said,
    table::{NOTHING, size, table},
};
use serde::Serialize;
use sluice_gateway_config::exposition::{Line, lines};
use std::fmt;

/// What one gateway holds on its volume. Unknown values are not set.
pub(super) trait Held: Default {
    /// Columns of the table.
    const COLUMNS: &'static [&'static str];

    /// Takes a sample that it knows.
    fn take(&mut self, line: &Line<'_>);

    /// One cell for each column.
    fn cells(&self) -> Vec<String>;
}

/// The volumes of every gateway of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Volumes<H> {
    gateways: Vec<GatewayVolume<H>>,
}

/// The queue volume of one gateway. Unknown values are not set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GatewayVolume<H> {
    gateway: String,
    #[serde(flatten)]
    held: H,
    volume_bytes: Option<u64>,
    volume_free_bytes: Option<u64>,
    /// Why the gateway does not answer; not set if it does.
    silent: Option<String>,
}

impl<H: Held> Volumes<H> {
    pub(super) fn of(said: &[Said]) -> Self {
        Self { gateways: said.iter().map(GatewayVolume::of).collect() }
    }

    /// Whether there is a gateway and all answer.
    pub(super) fn is_whole(&self) -> bool {
        !self.gateways.is_empty() && self.gateways.iter().all(|one| one.silent.is_none())
    }
}

impl<H: Held> GatewayVolume<H> {
    fn of(said: &Said) -> Self {
        let mut one = Self { gateway: said.pod.clone(), ..Self::default() };
        let text = match &said.text {
            Ok(text) => text,
            Err(why) => return Self { silent: Some(why.clone()), ..one },
        };
        for line in lines(text) {
            match (line.name, line.label("state").as_deref()) {
                ("sluice_gateway_queue_volume_bytes", Some("total")) => one.volume_bytes = line.whole(),
                ("sluice_gateway_queue_volume_bytes", Some("free")) => one.volume_free_bytes = line.whole(),
                _ => one.held.take(&line),
            }
        }
        one
    }
}

/// A cell with a size.
fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), size)
}

impl<H: Held> fmt::Display for Volumes<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [&["GATEWAY"][..], H::COLUMNS, &["VOLUME", "FREE"]].concat();
        let rows = self.gateways.iter().map(|one| {
            let volume = [bytes(one.volume_bytes), bytes(one.volume_free_bytes)];
            [vec![one.gateway.clone()], one.held.cells(), volume.to_vec()].concat()
        });
        f.write_str(&table(&header, &rows.collect::<Vec<_>>()))?;
        for one in &self.gateways {
            if let Some(why) = &one.silent {
                writeln!(f, "{} does not answer: {why}", one.gateway)?;
            }
        }
        Ok(())
    }
}
