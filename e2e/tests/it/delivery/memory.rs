//! Peak memory stays under the limit, as the kernel measures it. The long selection is `cargo run --release -p e2e-bench -- memory`.
//!
//! It runs the release build as a process of this machine, in its own memory cgroup.

use e2e_bench::memory::{Plan, QueueMode};

use crate::delivery::process;
use crate::environment;
use crate::prelude::*;

/// Spans of backlog: four seconds of the gateway's work. A second of inserts is seen before the sink goes away, and two seconds are left
/// after it.
const SPANS: u64 = 2_000_000;

/// How long the sink is unreachable. The pools are full within two seconds.
const OUTAGE: Duration = Duration::from_secs(6);

fn all_hold(uses: Uses, queue: QueueMode, names: &[&str]) -> Result<()> {
    let report = block_on(async {
        let _turn = uses.turn().await?;
        let broker = environment::servers().await?.kafka;
        let program = process::program();
        Plan { program, broker, queue, spans: SPANS, outage: OUTAGE }.check(names).await
    })?;
    for line in report.table() {
        say::line(&line);
    }
    ensure!(report.holds(), "not everything held; the table says what");
    Ok(())
}

#[test]
#[ignore = "group release"]
fn peak_memory_stays_under_the_limit() -> Result<()> {
    // Alone: full speed must be back in time, and other tests would use some of the CPU.
    let alone = Uses::ServersAlone;
    all_hold(alone, QueueMode::Spill, &["192-slow", "192-silent", "1024-steady", "turns-silent"])?;
    all_hold(alone, QueueMode::Disabled, &["384-refused", "padded-silent"])
}

#[test]
#[ignore = "group release"]
fn a_batch_beyond_the_budget_stops_its_partition_alone() -> Result<()> {
    let names = ["oversized-zstd", "oversized-gzip", "oversized-lz4", "oversized-snappy", "oversized-none"];
    all_hold(Uses::Servers, QueueMode::Spill, &names)
}
