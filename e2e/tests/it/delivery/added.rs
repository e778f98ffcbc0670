//! A partition is added to a topic while a gateway runs that begins at the end of partitions (`initialOffset: Latest`). The messages that
//! it has when the group finds it are newer than the pipeline, so the gateway reads them.

use crate::delivery::process::{self, Stage};
use crate::prelude::*;

const SPANS: u64 = Shape::Numbered.message_spans();

#[test]
#[ignore = "group delivery"]
fn latest_passes_over_nothing_of_an_added_partition() -> Result<()> {
    process::run("added", 1, async |stage: &Stage| {
        let feed = |partitions| Feed::numbered(stage.topic.name(), partitions);
        let run = Run::fresh();
        let producer = || Producer::new(stage.kafka(), Compression::Zstd, run);
        producer()?.produce(&feed(1), 0..SPANS).await?;
        let latest = json!({"source": {"kafka": {"initialOffset": "Latest"}}});
        let gateway = stage.start("added", &latest).await?;
        gateway.wait_lag(0).await?;
        stage.topic.clone().grow(2).await?;
        // The second message goes to the second partition. It is produced before the group looks for new partitions, by a client that knows
        // the partition.
        let sent = producer()?.produce(&feed(2), SPANS..2 * SPANS).await?;
        let oracle = gateway.oracle(run);
        oracle.wait_until_complete(&sent, PATIENCE, |_| {}).await?;
        // After the gateway has left, no INSERT is on its way that could double a row after the count.
        gateway.stop().await?;
        let verdict = oracle.wait_until_complete(&sent, PATIENCE, |_| {}).await?;
        ensure!(verdict.lost == 0 && verdict.doubled == 0, "{verdict:?}");
        let rows = oracle.rows().await?;
        ensure!(rows == SPANS, "{rows} rows: what was there before the gateway is not to be read");
        Ok(())
    })
}
