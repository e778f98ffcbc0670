//! ClickHouse is unreachable for a while, then refuses inserts, then stores some whose answers are lost. The gateway accepts requests all
//! the time.

use std::time::Instant;

use anyhow::Result;

use super::{begin, ensure_answered};
use crate::course::refuse::{Refusal, refuse_some};
use crate::front::Way;
use crate::scene::{Expected, SPANS_AFTER, Scene};

/// Spans that are accepted while ClickHouse is unreachable: two seconds of load.
const SPANS_AWAY: u64 = 10_000;

/// How ClickHouse answers once it is back: the first is not stored, the second is.
const REFUSALS: [Refusal; 2] = [Refusal::Parts, Refusal::ResetAfterCommit];

pub(super) async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    scene.while_sink_goes(Way::Refused, async |scene| scene.wait_acked(SPANS_AWAY).await).await?;
    let mut longest = scene.recovered(Instant::now()).await?;
    for refusal in REFUSALS {
        let (over, _) = refuse_some(scene, refusal).await?;
        longest = longest.max(scene.recovered(over).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    ensure_answered(scene)?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}
