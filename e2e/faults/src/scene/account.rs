//! What gateways say of their rows: whether all are accounted for, and what is in doubt.
//!
//! Owner: the round. Limits: [`REST_PATIENCE`] for each metric at the end of a round, [`PATIENCE`] while a fault lasts.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{PATIENCE, Scene};
use crate::course::volume::{DRAIN_PATIENCE, SPOOL_BLOCKS};
use e2e_fixtures::cluster::Seen;

/// What was walked and is neither in, nor a letter, nor on its way.
pub const IMBALANCE: &str = "sluice_gateway_ledger_imbalance_rows";

/// Ranges of which the gateway does not know whether they are stored.
const IN_DOUBT: &str = "sluice_gateway_in_doubt_ranges";

/// Seconds since the first of them was sent.
const OLDEST_IN_DOUBT: &str = "sluice_gateway_oldest_in_doubt_seconds";

/// How long a gateway may take to say that nothing is in doubt, once everything is in: it tells that every five seconds.
const REST_PATIENCE: Duration = Duration::from_secs(30);

impl Scene<'_> {
    /// Waits until a gateway says that ranges are in doubt and how old the oldest is, or that there are none.
    ///
    /// # Errors
    /// When it does not within [`PATIENCE`].
    pub async fn wait_doubt(&mut self, number: usize, wanted: bool) -> Result<()> {
        let what = if wanted { "ranges in doubt" } else { "no range in doubt" };
        self.wait(what, PATIENCE, async |scene| {
            // Of one answer: between two of them a range may have left.
            let said = scene.members[number].gateway.metrics([IN_DOUBT, OLDEST_IN_DOUBT]).await;
            Ok(match said {
                Some([ranges, seconds]) if (ranges > 0.0, seconds > 0.0) == (wanted, wanted) => {
                    Seen::Done(())
                }
                _ => Seen::NotYet(format!("their number, and seconds of the oldest: {said:?}")),
            })
        })
        .await
    }

    /// Waits until no gateway has a block on its volume: with `commit: AfterEnqueue` what is committed may be there alone. One without a volume
    /// has none, and one that is retired has been looked after. With `source.otlp`, gateways are drained.
    ///
    /// # Errors
    /// The first gateway that has some after [`DRAIN_PATIENCE`].
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
                Ok(if blocks == 0.0 { Seen::Done(()) } else { Seen::NotYet(format!("{blocks} blocks")) })
            })
            .await?;
        }
        Ok(())
    }

    /// Drains a gateway with `source.otlp`, and waits until it says that everything on its volume is inserted.
    async fn drain_logs(&mut self, number: usize) -> Result<()> {
        let what = format!("nothing in the logs of gateway {number}");
        self.wait(&what, PATIENCE, async |scene| {
            // Asked each time: one that was started again knows nothing of it.
            let left = scene.gateway(number).admin().drain().await?;
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
        })
        .await
    }

    /// Waits until every gateway says that no row is missing and none is in doubt. One that is retired has ended, and says nothing.
    ///
    /// # Errors
    /// The first gateway and metric that is not 0 within [`REST_PATIENCE`], and its value.
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
