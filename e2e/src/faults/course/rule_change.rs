//! Two gateways of a group make ranges by different size rules, as while a change of settings is rolled out, and die in turn: what one
//! had in flight is sent again by the other, by the rule of the dead one up to where that may have been used.
//!
//! ```text
//! gateway 0: 3 messages a range  333333X        gateway 1 on its partitions:  333|555555
//! gateway 1: 5 messages a range  5555555555X    gateway 0 on its partitions:  55|3333333    the bar is the horizon
//! ```
//!
//! Ranges end by size here, so that no commit names their ends: whoever cuts an INSERT otherwise that was stored and not answered sends
//! its rows under another token, and doubles them.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use super::only_copy::PARTITIONS_OWNED;
use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::cluster::Seen;
use crate::faults::scene::{Expected, PARTITIONS, PATIENCE, Scene};
use crate::faults::sink_front::{Leg, Passage, Verdict};
use crate::spans::Shape;

/// Messages in a range of each gateway. Chosen: neither is a multiple of the other, and both come together within a second of load.
const MESSAGES: [u32; 2] = [3, 5];

/// Bytes that end a range of each, too: several times what so many messages have.
const BYTES: [&str; 2] = ["16MiB", "8MiB"];

/// A block closes by its age only after more than twice the time in which it is full.
const INTERVAL: &str = "2s";

/// How often one of them dies: each once.
const DEATHS: usize = 2;

/// What would say that a gateway does not know the other one's ranges: partitions begun anew, ranges cut somewhere else, partitions that
/// are not read.
const UNKNOWN: [&str; 3] = [
    "sluice_gateway_fresh_starts_total",
    "sluice_gateway_doubtful_ranges_total",
    "sluice_gateway_partitions_halted",
];

/// What a gateway is told otherwise than usual, by its number.
pub fn change(number: usize) -> Value {
    json!({"sink": {"clickhouse": {"insert": {
        "maxRows": MESSAGES[number], "maxBytes": BYTES[number], "maxInterval": INTERVAL,
    }}}})
}

/// Plays it.
///
/// # Errors
/// When what is waited for does not come, or a process could not be handled.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    for number in 0..MESSAGES.len() {
        scene.reconfigure(&change(number))?;
        scene.start_gateway(None)?;
    }
    wait_halves(scene).await?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let mut longest = 0.0_f64;
    for death in 0..DEATHS {
        let dying = (scene.round as usize + death) % MESSAGES.len();
        longest = longest.max(die(scene, dying).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    for number in 0..MESSAGES.len() {
        for name in UNKNOWN {
            scene.wait_metric(number, name, |count| count == 0.0).await?;
        }
    }
    Ok(Expected { measures: vec![("s until gone on by the other", longest)], ..Expected::default() })
}

/// A gateway dies when the server has stored a full range of its and it does not know yet, and comes back once the other has gone on with
/// its partitions, behind all that it may have sent. Gives the seconds until then.
async fn die(scene: &mut Scene<'_>, dying: usize) -> Result<f64> {
    let rows = u64::from(MESSAGES[dying]) * Shape::Numbered.message_spans();
    // Only who goes on with ranges of the other makes such, too; then the death is one like any other.
    let is_full = move |passage: &Passage| passage.leg == Leg::Answered && passage.written_rows == rows;
    let gate = scene.stage.servers.sink.gate();
    let caught = gate.trap("insert of a full range", is_full).caught(PATIENCE).await?;
    scene.gateway(dying).kill().await?;
    scene.retire(dying)?;
    let died = Instant::now();
    caught.decide(Verdict::Reset);
    let ends = scene.topic.watermarks().await?;
    scene
        .wait("commits behind all that the dead one may have sent", PATIENCE, async |scene| {
            let committed: BTreeMap<i32, i64> = scene.committed().await?.into_iter().collect();
            let is_behind =
                |partition: i32, end: i64| committed.get(&partition).is_none_or(|offset| *offset < end);
            let behind = ends.iter().filter(|marks| is_behind(marks.partition, marks.high)).count();
            Ok(if behind == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{behind} partitions are in front of it"))
            })
        })
        .await?;
    let seconds = died.elapsed().as_secs_f64();
    scene.start_again(dying, None)?;
    wait_halves(scene).await?;
    scene.wait_inserts(INSERTS_BEFORE).await?;
    Ok(seconds)
}

/// Waits until each of them has half of the partitions.
async fn wait_halves(scene: &mut Scene<'_>) -> Result<()> {
    let half = f64::from(PARTITIONS) / 2.0;
    for number in 0..MESSAGES.len() {
        // Whole numbers, so small that they are exact.
        scene.wait_metric(number, PARTITIONS_OWNED, |owned| (owned - half).abs() < 0.5).await?;
    }
    Ok(())
}
