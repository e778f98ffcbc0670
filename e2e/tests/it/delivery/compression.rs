//! Spans become rows once, whatever the compression of their messages.

use crate::delivery::process::{self, Stage};
use crate::prelude::*;

/// Spans for each codec: 200 messages, which Kafka's clients put into several compressed batches.
const SPANS: u64 = 20_000;

#[test]
#[ignore = "group delivery"]
fn every_compression_loses_and_doubles_nothing() -> Result<()> {
    process::run("compression", 4, async |stage: &Stage| {
        let gateway = stage.start("codecs", &json!({})).await?;
        let feed = Feed::numbered(stage.topic.name(), stage.topic.partitions());
        let mut sent = Vec::new();
        for codec in Compression::ALL {
            let producer = Producer::new(stage.kafka(), codec, Run::fresh())?;
            sent.push((codec, producer.run(), producer.produce(&feed, 0..SPANS).await?));
        }
        gateway.wait_lag(0).await?;
        for (codec, run, sent) in sent {
            ensure!(sent.acked.count() == SPANS, "{codec:?}: Kafka took {} spans", sent.acked.count());
            let verdict = gateway.oracle(run).wait_until_complete(&sent, PATIENCE, |_| {}).await?;
            ensure!(verdict.lost == 0 && verdict.doubled == 0, "{codec:?}: {verdict:?}");
        }
        gateway.stop().await
    })
}
