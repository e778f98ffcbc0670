//! Rows are removed from one of two shards, and other rows are on both. `sluice-gateway audit` counts the rows of all shards, partition by
//! partition, and names the messages whose rows are missing or doubled. While a shard is unreachable, it does not report missing rows; it
//! reports that it cannot ask.
//!
//! The gateway causes none of this. A person, a disk or a restored backup removes rows, and a list of shards in another order doubles them.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::scene::{Expected, PARTITIONS, Scene};
use e2e_fixtures::letters::Place;
use e2e_fixtures::spans::TRACE_SPANS;

/// Messages in each partition, each with a trace of its own.
const MESSAGES: u64 = 20;

/// Offsets whose rows are removed.
const VANISHED: Range<u64> = 5..8;

/// An offset whose rows are on the other shard, too.
const DOUBLED: u64 = 12;

/// The exit code of an audit that finds nothing.
const CLEAN: i32 = 0;

/// Its exit code if rows are missing or doubled.
const FOUND: i32 = 65;

/// Its exit code if a server does not answer.
const UNAVAILABLE: i32 = 69;

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    scene.write_to_both_shards()?;
    scene.start_gateway(Some("gateway-0"))?;
    let partitions = u64::try_from(PARTITIONS)?;
    let spans = MESSAGES * TRACE_SPANS;
    scene.produce(partitions * spans).await?;
    scene.wait_committed(0).await?;
    let whole = audit(scene, &[], CLEAN).await?;
    ensure_rows(&whole, |_| spans)?;
    let (first, second) = (&scene.stage.servers.server, scene.second_shard()?);
    let all = format!("SELECT count() FROM {}", scene.table());
    let rows = [first.count(&all).await?, second.server.count(&all).await?];
    ensure!(rows == [partitions * spans / 2; 2], "{rows:?} rows are on the shards");

    let partition = partition_of_second(scene).await?;
    let (missing, doubled) = spoil(scene, partition).await?;
    let found = audit(scene, &["--limit", "1000"], FOUND).await?;
    ensure_rows(&found, |of| if of == partition { spans - missing + doubled } else { spans })?;
    ensure_found(&found, "missing", missing, partition, VANISHED)?;
    ensure_found(&found, "doubled", doubled, partition, DOUBLED..DOUBLED + 1)?;
    ensure_parts(scene, partition).await?;

    scene.second_shard()?.kill().await?;
    let code = run(scene, &[]).await?.0;
    scene.second_shard()?.begin().await?;
    ensure!(code == Some(UNAVAILABLE), "an audit without one of the shards ended with {code:?}");
    Ok(Expected { lost: missing, doubled, ..Expected::default() })
}

/// Audits only the range, then what is beside it, and then the partitions of the other shard.
async fn ensure_parts(scene: &mut Scene<'_>, partition: u64) -> Result<()> {
    let [own, other] = [partition, 1 - partition].map(|number| number.to_string());
    let (first, next) = (VANISHED.start.to_string(), VANISHED.end.to_string());
    let range = audit(scene, &["--partition", &own, "--since", &first, "--until", &next], FOUND).await?;
    let totals = &range["totals"];
    let spans = (VANISHED.end - VANISHED.start) * TRACE_SPANS;
    ensure!(totals["spans"] == spans && totals["missing"] == spans && totals["rows"] == 0, "{totals}");
    audit(scene, &["--partition", &own, "--until", &first], CLEAN).await?;
    audit(scene, &["--partition", &other], CLEAN).await?;
    Ok(())
}

/// Removes rows of the partition from the second shard, to which it belongs, and copies some of it to the first. Returns how many.
async fn spoil(scene: &Scene<'_>, partition: u64) -> Result<(u64, u64)> {
    let shard = scene.second_shard()?;
    let table = scene.table();
    let traces: Vec<String> = VANISHED.map(|offset| trace(scene, partition, offset)).collect();
    let vanish = format!("DELETE FROM {table} WHERE TraceId IN ({})", traces.join(", "));
    shard.server.execute(&vanish).await?;
    let doubled = format!("TraceId = {}", trace(scene, partition, DOUBLED));
    let from = shard.table(scene.database.name());
    let double = format!("INSERT INTO {table} SELECT * FROM {from} WHERE {doubled}");
    scene.stage.servers.server.execute(&double).await?;
    Ok((traces.len() as u64 * TRACE_SPANS, TRACE_SPANS))
}

/// The trace of a message, as a literal: messages go to the partitions in turn.
fn trace(scene: &Scene<'_>, partition: u64, offset: u64) -> String {
    let message = partition + offset * u64::from(PARTITIONS.unsigned_abs());
    format!("'{}{message:016x}'", scene.producer.run().trace_id_prefix())
}

/// Partition 0 or 1: the one of the two that belongs to the second shard.
async fn partition_of_second(scene: &Scene<'_>) -> Result<u64> {
    let query = format!("SELECT count() FROM {} WHERE TraceId = {}", scene.table(), trace(scene, 0, 0));
    Ok(u64::from(scene.second_shard()?.server.count(&query).await? == 0))
}

/// Fails unless every partition has `expected` rows.
fn ensure_rows(report: &Value, expected: impl Fn(u64) -> u64) -> Result<()> {
    let partitions = report["partitions"].as_array().context("the report has partitions")?;
    ensure!(partitions.len() == usize::try_from(PARTITIONS)?, "{} partitions are audited", partitions.len());
    for partition in partitions {
        let number = partition["partition"].as_u64().context("a partition has its number")?;
        let ranges = partition["ranges"].as_array().into_iter().flatten();
        let rows: u64 = ranges.filter_map(|range| range["rows"].as_u64()).sum();
        ensure!(rows == expected(number), "partition {number}: {rows} rows, not {}", expected(number));
    }
    Ok(())
}

/// Fails unless the report has this many such spans, all of these messages.
fn ensure_found(report: &Value, what: &str, spans: u64, partition: u64, offsets: Range<u64>) -> Result<()> {
    ensure!(report["totals"][what] == spans, "not {spans} are {what}: {}", report["totals"]);
    let findings = report[what].as_array().with_context(|| format!("the report names what is {what}"))?;
    let place = |finding: &Value| {
        let partition = i32::try_from(finding["partition"].as_i64()?).ok()?;
        Some((partition, finding["offset"].as_i64()?))
    };
    let found: BTreeSet<Place> = findings.iter().filter_map(place).collect();
    let partition = i32::try_from(partition)?;
    let expected: BTreeSet<Place> =
        offsets.map(|offset| Ok((partition, i64::try_from(offset)?))).collect::<Result<_>>()?;
    ensure!(found == expected, "{what}: {found:?}, not {expected:?}");
    Ok(())
}

/// The report of an audit with these arguments, which must exit with this code.
async fn audit(scene: &mut Scene<'_>, arguments: &[&str], code: i32) -> Result<Value> {
    let (ended, said) = run(scene, arguments).await?;
    ensure!(ended == Some(code), "audit {arguments:?} ended with {ended:?}, not {code}: {said}");
    serde_json::from_str(&said).with_context(|| format!("understand an audit: {said}"))
}

/// Runs the program's audit with the config of gateway 0; returns its exit code and its output.
async fn run(scene: &mut Scene<'_>, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = tokio::process::Command::new(&scene.stage.program);
    command.args(["audit", "--json", "--config"]).arg(&scene.gateway(0).orders().config).args(arguments);
    let output = command.kill_on_drop(true).output().await.context("run an audit")?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}
