//! An idle topic has no gateways. Messages that arrive then are read from the offset at which the last gateway ended: none is lost, none
//! doubled.

use crate::prelude::*;

/// Spans before and after the idle time.
const SPANS: u64 = 20_000;

/// Time until the last gateway has left: a minute without a message, polls of 15 s, a drain, and a busy machine.
const LEFT: Duration = Duration::from_mins(5);

#[test]
#[ignore = "group autoscaled"]
fn an_idle_topic_has_no_gateways_until_a_message_arrives() -> Result<()> {
    scene::run("idle_topic", Uses::Servers, 4, async |scene: &mut Scene| {
        let idle = json!({"mode": "Auto", "minReplicas": 0, "maxReplicas": 2, "idle": {"after": "1m"}, "drain": {"timeout": "2m"}});
        scene.start(&json!({"scaling": idle})).await?;
        let feed = scene.feed(Shape::Numbered, None);
        let first = scene.producer.produce(&feed, 0..SPANS).await?;
        scene.wait_rows(SPANS, READY).await?;
        rests(scene).await?;
        assert_state(&scene.pipeline, "idle").await?;
        let second = scene.producer.produce(&feed, SPANS..2 * SPANS).await?;
        scene.wait_rows(2 * SPANS, READY).await?;
        scene.pipeline.wait_ready(READY).await?;
        scene.assert_nothing_lost(&first.and(second)).await?;
        rests(scene).await
    })
}

/// The pipeline reports that it is idle, and has no pods.
async fn rests(scene: &Scene) -> Result<()> {
    scene.pipeline.wait_told(kind::READY, ("True", reason::IDLE), LEFT, "idle").await?;
    scene.pipeline.gateways().wait("no gateways", READY, BTreeMap::is_empty).await
}
