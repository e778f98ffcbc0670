//! `kubectl sluice spool`: what the queue volume of each gateway holds, from the metrics of the gateways.

pub(super) mod blocks;
pub(super) mod logs;

use crate::{
    cluster::Said,
    table::{NOTHING, size, table},
};
use serde::Serialize;
use sluice_crds::{TracePipelineStatus, status::condition};
use sluice_gateway_config::exposition::{Line, lines};
use sluice_plan::words::{form, plural};
use std::fmt;

/// What is said of a gateway before it reads its volume.
const UNREAD: &str = "has not read its volume yet, and what the volume holds is not known: a gateway reads it once the table can be used; \
                      kubectl sluice status says what it waits for";

/// What one gateway holds on its volume. Unknown values are not set.
pub(super) trait Held: Default {
    /// Columns of the table.
    const COLUMNS: &'static [&'static str];

    /// Takes a sample that it knows.
    fn take(&mut self, line: &Line<'_>);

    /// One cell for each column.
    fn cells(&self) -> Vec<String>;

    /// Whether the gateway has a volume that it has not read yet: then its numbers are 0, whatever the volume holds.
    fn is_unread(&self) -> bool;
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
    /// Whether the gateway has not read its volume yet. Then the numbers are unknown.
    is_unread: bool,
    /// Why the gateway does not answer; not set if it does.
    silent: Option<String>,
}

impl<H: Held> Volumes<H> {
    pub(super) fn of(said: &[Said]) -> Self {
        Self { gateways: said.iter().map(GatewayVolume::of).collect() }
    }

    /// Whether there is a gateway, all answer, and all have read their volumes.
    pub(super) fn is_whole(&self) -> bool {
        let is_known = |one: &GatewayVolume<H>| one.silent.is_none() && !one.is_unread;
        !self.gateways.is_empty() && self.gateways.iter().all(is_known)
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
        if one.volume_bytes.is_some() && one.held.is_unread() {
            return Self { held: H::default(), is_unread: true, ..one };
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
            if one.is_unread {
                writeln!(f, "{} {UNREAD}", one.gateway)?;
            }
        }
        Ok(())
    }
}

/// What is said of volumes that no gateway uses, and that may hold blocks, requests or dead letters: gateways do not tell of them. `None` without
/// such a volume.
pub(super) fn left_out(status: Option<&TracePipelineStatus>) -> Option<String> {
    let status = status?;
    let count = status.volumes.as_ref()?.orphaned;
    if count == 0 {
        return None;
    }
    let (volumes, are) = (plural(count, "queue volume"), form(count, "is", "are"));
    let drained = status.condition(condition::VOLUMES_DRAINED);
    let message = drained.map_or("see the condition VolumesDrained", |drained| &drained.message);
    Some(format!("{volumes} without a gateway {are} not listed: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };
    use sluice_crds::VolumesStatus;

    #[test]
    fn volumes_that_no_gateway_tells_of_are_said_to_be_left_out() {
        let status = |orphaned| TracePipelineStatus {
            volumes: Some(VolumesStatus { orphaned, ..VolumesStatus::default() }),
            conditions: vec![Condition {
                type_: condition::VOLUMES_DRAINED.to_owned(),
                status: "False".to_owned(),
                reason: "DrainFailed".to_owned(),
                message: "queue-a-gateway-4 has dead letters".to_owned(),
                observed_generation: Some(1),
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }],
            ..TracePipelineStatus::default()
        };
        assert_eq!(
            left_out(Some(&status(1))).unwrap(),
            "1 queue volume without a gateway is not listed: queue-a-gateway-4 has dead letters"
        );
        assert!(
            left_out(Some(&status(2)))
                .unwrap()
                .starts_with("2 queue volumes without a gateway are not listed: ")
        );
        assert_eq!((left_out(Some(&status(0))), left_out(None)), (None, None));
    }
}
