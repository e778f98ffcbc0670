//! Between the death of a gateway with `source.otlp` and its next start, the end of a log is torn, or bits of records are flipped.
//!
//! Only what had no answer is torn: the last record while its sync is held, and bytes behind it. If a synced record is damaged, exactly its
//! requests are lost.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::kill::at;
use super::{begin, begin_on_disk};
use crate::course::broker::MESSAGES_LOST;
use crate::course::damage::{has_damaged, refusing};
use crate::course::spooled::is_same;
use crate::course::volume::as_real;
use crate::failing_disk::Hold;
use crate::front::Way;
use crate::otlp_clients::REQUEST_SPANS;
use crate::scene::{Expected, SPANS_AFTER, Scene};
use crate::segments::{self, Left, Part};

/// What the gateway logs of a torn end.
const SAYS_CUT: &str = "are cut off: their requests had no answer";

/// Bytes that no gateway has written.
const GARBAGE: [u8; 3_000] = [0x5a; 3_000];

/// Records after which a segment is nearly full: then its seal could be held instead of a record's sync.
const RECORDS_MAX: u32 = 1_000;

/// Spans that are accepted while nothing is inserted: one second of load, some hundred records.
const SPANS_KEPT: u64 = 5_000;

/// What the end of a log looks like after a crash.
#[derive(Clone, Copy, Debug)]
enum Tear {
    /// The last record is incomplete.
    Cut,
    /// The last record has its length, but its second half was not written.
    Zeros,
    /// Bytes follow that are no record.
    Garbage,
    /// Half of a record follows.
    Half,
}

/// The folder of the only log.
pub(super) fn log(scene: &Scene<'_>) -> PathBuf {
    scene.volume(0).join("log-00")
}

/// The last record of a log, whose sync was held or has failed: none of its requests was answered.
pub(super) fn unanswered(log: &Path) -> Result<Left> {
    let last = segments::left(log)?.pop().context("the log has no record")?;
    ensure!(last.ordinal < RECORDS_MAX, "the last segment may be full: it has {} records", last.ordinal);
    Ok(last)
}

/// Damages the end of the log in each way.
pub(super) async fn torn(scene: &mut Scene<'_>) -> Result<Expected> {
    let disk = begin_on_disk(scene).await?;
    let tears = [Tear::Cut, Tear::Zeros, Tear::Garbage, Tear::Half];
    let mut longest = 0.0_f64;
    for tear in tears {
        let killed = at(scene, &disk, Hold::RecordSync).await?;
        let last = unanswered(&log(scene))?;
        let torn = match tear {
            Tear::Cut => last.cut(),
            Tear::Zeros => last.tear(),
            Tear::Garbage => last.follow_with(&GARBAGE),
            Tear::Half => last.repeat_half(),
        };
        torn?;
        scene.start_again(0, Some("gateway-0"))?;
        longest = longest.max(scene.recovered(killed).await.with_context(|| format!("{tear:?}"))?);
    }
    let said = scene.lines_logged(SAYS_CUT)?;
    ensure!(said >= tears.len(), "{said} torn ends were logged, there were {}", tears.len());
    let damaged = scene.gateway(0).admin().drainz().await?.damaged;
    ensure!(!damaged && !has_damaged(&log(scene))?, "a torn end is taken for damage");
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}

/// Flips bits in records that are inserted and committed, and in a body and a header of records that no gateway has read.
pub(super) async fn flipped(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let inserted = leave_half_inserted(scene).await?;
    let unread = scene.while_sink_goes(Way::Refused, async |scene| leave_unread(scene).await).await?;

    let place = |records: &[Left], part: usize| records.len() * part / 5;
    inserted[place(&inserted, 2)].flip(Part::Body)?;
    inserted[place(&inserted, 3)].flip(Part::Header)?;
    // One of its requests has the bit. Without a header, all of the record's requests are lost.
    unread[place(&unread, 2)].flip(Part::Body)?;
    let headless = &unread[place(&unread, 3)];
    headless.flip(Part::Header)?;
    let lost = 1 + headless.rows;

    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(Instant::now()).await?;
    ensure!(
        scene.gateway(0).admin().drainz().await?.damaged,
        "/drainz does not say that the volume is damaged"
    );
    ensure!(has_damaged(&log(scene))?, "no segment was set aside");
    scene.start_load();
    scene.wait_acked(SPANS_AFTER).await?;
    let wanted = as_real(lost);
    scene.wait_metric(0, MESSAGES_LOST, |counted| is_same(counted, wanted)).await?;
    let measures = vec![("requests lost", wanted)];
    Ok(Expected { lost: lost * REQUEST_SPANS, recovery_s: Some(recovery), measures, ..Expected::default() })
}

/// The gateway is killed when only the first part of a segment is inserted and committed. Returns the records of that part.
async fn leave_half_inserted(scene: &mut Scene<'_>) -> Result<Vec<Left>> {
    let refusing = refusing(scene.stage);
    scene.wait_acked(SPANS_KEPT).await?;
    scene.stop_load().await?;
    scene.gateway(0).kill().await?;
    drop(refusing);
    let committed = segments::committed(&log(scene))?;
    let mut records = segments::left(&log(scene))?;
    let all = records.len();
    records.retain(|record| record.next <= committed);
    ensure!(records.len() >= 5, "{} of {all} records are committed", records.len());
    ensure!(records.len() < all, "all {all} records are committed: their segment will be gone");
    Ok(records)
}

/// The next gateway accepts requests, inserts none because ClickHouse is unreachable, and is killed. Returns the records that were
/// certainly answered.
async fn leave_unread(scene: &mut Scene<'_>) -> Result<Vec<Left>> {
    let before = segments::left(&log(scene))?;
    scene.start_again(0, Some("gateway-0"))?;
    scene.start_load();
    scene.wait_acked(SPANS_KEPT).await?;
    scene.stop_load().await?;
    scene.gateway(0).kill().await?;
    let mut records = segments::left(&log(scene))?;
    let is_new = |record: &Left| !before.iter().any(|other| other.is_beside(record));
    records.retain(|record| is_new(record) && record.is_synced);
    ensure!(records.len() >= 5, "{} new records are known to be synced", records.len());
    Ok(records)
}
