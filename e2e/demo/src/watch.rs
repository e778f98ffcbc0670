//! Waits with progress lines: one when something changes, and one every two seconds while spans flow.

use std::time::Duration;

use anyhow::bail;
use kube::api::Api;
use sluice_crds::TracePipeline;
use tokio::time::Instant;

use e2e_fixtures::cluster::Namespace;
use e2e_fixtures::oracle::{Count, Oracle, Patience, Verdict};
use e2e_fixtures::pipeline::condition;
use e2e_fixtures::produce::Load;
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(250);

/// Time between two lines while spans flow.
const LINE: Duration = Duration::from_secs(2);

/// How long to wait for rows: in all, and without a new one.
const PATIENCE: Patience = Patience { deadline: Duration::from_mins(30), stall: Duration::from_mins(2) };

/// Waits until the pipeline is ready, and prints each change of its condition `Ready`.
pub async fn until_ready(namespace: &Namespace, name: &str, deadline: Duration) -> anyhow::Result<()> {
    let api: Api<TracePipeline> = namespace.api();
    let (started, mut last) = (Instant::now(), String::new());
    loop {
        interrupt::check()?;
        let object = api.get(name).await?;
        let generation = object.metadata.generation;
        if let Some(status) = object.status.filter(|status| status.observed_generation == generation)
            && let Some(ready) = condition(&status, sluice_crds::status::condition::READY)
        {
            let said = format!("Ready={} {}: {}", ready.status, ready.reason, ready.message);
            if said != last {
                say::progress("pipeline", &said);
                last = said;
            }
            if ready.status == "True" {
                return Ok(());
            }
        }
        if started.elapsed() > deadline {
            bail!("the pipeline is not ready after {deadline:?}; the last condition was {last:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Shows rate, lag and rows until every span that the load brings is counted.
pub async fn counted(load: Load, oracle: &Oracle) -> anyhow::Result<Verdict> {
    let started = Instant::now();
    let mut shown = Progress::default();
    while !load.is_finished() {
        interrupt::check()?;
        let rows = oracle.rows_of_run().await.unwrap_or_default();
        shown.line(started, load.acked(), rows);
        tokio::time::sleep(LOOK).await;
    }
    let sent = load.stop().await?;
    let produced = sent.acked.count();
    let mut rows = 0;
    let verdict = oracle.wait_until_complete(&sent, PATIENCE, |count: &Count| {
        rows = count.rows;
        shown.line(started, produced, rows);
    });
    let verdict = verdict.await?;
    Ok(Verdict { seconds: started.elapsed().as_secs_f64(), ..verdict })
}

/// The last line, for the rate.
#[derive(Default)]
struct Progress {
    at: Option<Instant>,
    rows: u64,
}

impl Progress {
    fn line(&mut self, started: Instant, produced: u64, rows: u64) {
        if let Some(rate) = self.rate(started, rows) {
            let behind = produced.saturating_sub(rows);
            say::progress(
                "spans",
                &format!("{produced} produced, {rows} rows, {rate:.0} rows/s, {behind} behind"),
            );
        }
    }

    /// Rows per second since the last line; `None` within [`LINE`] of it.
    fn rate(&mut self, started: Instant, rows: u64) -> Option<f64> {
        let since = self.at.unwrap_or(started).elapsed();
        if since < LINE {
            return None;
        }
        let new = u32::try_from(rows.saturating_sub(self.rows)).unwrap_or(u32::MAX);
        (self.at, self.rows) = (Some(Instant::now()), rows);
        Some(f64::from(new) / since.as_secs_f64())
    }
}
