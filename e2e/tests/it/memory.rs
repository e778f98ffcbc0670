//! Peak memory stays under the limit, as the kernel sees it. The long selection is `cargo run --release -p e2e -- memory`.
//!
//! It runs the release build as a process of this machine, in a memory group that it makes itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::memory::{Report, check};
use e2e::say;

/// Spans of backlog: two seconds of the gateway's work, so that its pools are full when the sink is gone.
const SPANS: u64 = 1_000_000;

/// How long the sink is gone. The pools are full within two seconds.
const OUTAGE: Duration = Duration::from_secs(6);

fn all_hold(report: &Report) -> Result<()> {
    for line in report.table() {
        say::line(&line);
    }
    ensure!(report.holds(), "not everything held; the table says what");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn peak_memory_stays_under_the_limit() -> Result<()> {
    let report = check(&["192-silent", "384-refused", "1024-steady", "padded-silent"], SPANS, OUTAGE).await?;
    all_hold(&report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_beyond_the_budget_stops_its_partition_alone() -> Result<()> {
    let names = ["oversized-zstd", "oversized-gzip", "oversized-lz4", "oversized-snappy"];
    all_hold(&check(&names, SPANS, OUTAGE).await?)
}
