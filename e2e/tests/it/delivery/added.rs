//! A partition that is added to a topic under a running gateway which begins at the end of logs (`initialOffset: Latest`): what is in it by
//! the time that the group finds it came after the pipeline, and is read.

use anyhow::{Result, ensure};
use e2e_fixtures::produce::{Compression, Feed, Producer};
use e2e_fixtures::spans::{Run, Shape};
use serde_json::json;

use crate::delivery::process::{self, Stage};
use crate::scene::PATIENCE;

/// Spans of one message.
const SPANS: u64 = Shape::Numbered.message_spans();

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group delivery"]
async fn latest_passes_over_nothing_of_an_added_partition() -> Result<()> {
    process::run("added", 1, async |stage: &Stage| {
        let feed = |partitions| Feed::numbered(stage.topic.name(), partitions);
        let run = Run::fresh();
        let producer = || Producer::new(stage.kafka(), Compression::Zstd, run);
        producer()?.produce(&feed(1), 0..SPANS).await?;
        let latest = json!({"source": {"kafka": {"initialOffset": "Latest"}}});
        let gateway = stage.start_with("added", &latest).await?;
        gateway.wait_lag(0).await?;
        stage.topic.clone().grow(2).await?;
        // The second message, and so in the second partition: before the group looks for one, and by a client that knows of it.
        let sent = producer()?.produce(&feed(2), SPANS..2 * SPANS).await?;
        let oracle = gateway.oracle(run);
        oracle.wait_until_complete(&sent, PATIENCE, |_| {}).await?;
        // Once it has left, nothing is on its way any more that could double a row after the count.
        gateway.stop().await?;
        let verdict = oracle.wait_until_complete(&sent, PATIENCE, |_| {}).await?;
        ensure!(verdict.lost == 0 && verdict.doubled == 0, "{verdict:?}");
        let rows = oracle.rows().await?;
        ensure!(rows == SPANS, "{rows} rows: what was there before the gateway is not to be read");
        Ok(())
    })
    .await
}
