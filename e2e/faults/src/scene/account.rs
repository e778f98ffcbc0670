//! The gateways' accounts of their rows: whether each row has a place, and which ranges are in doubt.
//!
//! Owner: the round. Limits: [`REST_PATIENCE`] for each metric at the end of a round, [`PATIENCE`] while a fault lasts.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{PATIENCE, Scene};
use crate::course::volume::{DRAIN_PATIENCE, SPOOL_BLOCKS};
use e2e_fixtures::cluster::Seen;

/// Rows that were read and are neither inserted, nor a letter, nor on their way.
pub const IMBALANCE: &str = "sluice_gateway_ledger_imbalance_rows";

/// Ranges that may or may not be stored: the gateway does not know.
const IN_DOUBT: &str = "sluice_gateway_in_doubt_ranges";

/// Seconds since the first of them was sent.
const OLDEST_IN_DOUBT: &str = "sluice_gateway_oldest_in_doubt_seconds";

/// How long a gateway may take to report that nothing is in doubt, once everything is inserted: it reports every five seconds.
const REST_PATIENCE: Duration = Duration::from_secs(30);

impl Scene<'_> {
    /// Waits until a gateway reports ranges in doubt and the age of the oldest, or none.
    pub async fn wait_doubt(&mut self, number: usize, wanted: bool) -> Result<()> {
        let what = if wanted { "ranges in doubt" } else { "no range in doubt" };
        self.wait(what, PATIENCE, async |scene| {
            // Both values come from one answer: between two answers, a range may have left.
            let said = scene.members[number].gateway.metrics([IN_DOUBT, OLDEST_IN_DOUBT]).await;
            let is_so =
                said.is_some_and(|[ranges, seconds]| (ranges > 0.0, seconds > 0.0) == (wanted, wanted));
            Ok(Seen::when(is_so, || format!("their number, and seconds of the oldest: {said:?}")))
        })
        .await
    }

    /// Waits until no gateway has a block on its volume: with `commit: AfterEnqueue`, only the volume may have committed rows. A gateway
    /// without a volume has none, and the course has already checked a retired one. With `source.otlp`, gateways are drained.
    pub(super) async fn wait_volumes_empty(&mut self) -> Result<()> {
        for number in 0..self.members.len() {
            if self.members[number].is_retired {
                continue;
            }
            if self.otlp.is_some() {
                self.drain_logs(number).await?;
                continue;
            }
            let what = format!("nothing on the volume of gateway {number}");
            self.wait(&what, DRAIN_PATIENCE, async |scene| {
                let blocks = scene.members[number].gateway.metric(SPOOL_BLOCKS).await.unwrap_or(0.0);
                Ok(Seen::when(blocks == 0.0, || format!("{blocks} blocks")))
            })
            .await?;
        }
        Ok(())
    }

    /// Drains a gateway with `source.otlp`, and waits until it reports that everything on its volume is inserted.
    async fn drain_logs(&mut self, number: usize) -> Result<()> {
        let what = format!("nothing in the logs of gateway {number}");
        self.wait(&what, PATIENCE, async |scene| {
            // Sends the request each time, because a restarted gateway does not know of it.
            let left = scene.gateway(number).admin().drain().await?;
            Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
        })
        .await
    }

    /// Waits until every gateway reports that no row is missing and none is in doubt. A retired gateway has ended and reports nothing.
    pub(super) async fn wait_at_rest(&mut self) -> Result<()> {
        for number in 0..self.members.len() {
            if self.members[number].is_retired {
                continue;
            }
            for name in [IMBALANCE, IN_DOUBT, OLDEST_IN_DOUBT] {
                let waited = self.wait_metric_within(number, name, REST_PATIENCE, |value| value == 0.0).await;
                waited.with_context(|| format!("gateway {number} is not at rest"))?;
            }
        }
        Ok(())
    }
}
