//! A consumer group and a topic that the gateway's user may not read, because of the broker's ACL, which is corrected later. The right is
//! missing at the gateway's start, or is taken from it while it reads.

use sluice_gateway_config::UnfetchedCause::{GroupRefused, TopicRefused};

use super::Secured;
use super::broker::{Kind, USER};
use crate::delivery::process;
use crate::prelude::*;

/// A user that nobody logs in as. A group or a topic that has an ACL is open only to the users that its ACLs name.
const NOBODY: &str = "nobody";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn a_group_and_a_topic_that_may_not_be_read_are_named_until_they_may() -> Result<()> {
    let turn = Uses::Servers.turn().await?;
    let secured = Secured::start("unreadable").await?;
    let change = secured.reads_with_password();
    process::run_on(turn, "unreadable", Some(&secured.broker.host), 2, async |stage| {
        let (broker, topic) = (&secured.broker, stage.topic.name());
        let group = stage.group("running");
        broker.allow(NOBODY, "Read", Kind::Group, &group)?;
        stage.send(0, Some(&good("before"))).await?;
        let running = stage.start("running", &change).await?;
        running.wait_unfetched(Some((GroupRefused, None))).await?;
        broker.allow(USER, "Read", Kind::Group, &group)?;
        running.wait_lag(0).await?;
        running.wait_unfetched(None).await?;

        // Without the right to describe it, the topic would be as one that does not exist.
        broker.allow(USER, "Describe", Kind::Topic, topic)?;
        stage.send(1, Some(&good("after"))).await?;
        let started = stage.start("started", &change).await?;
        for gateway in [&running, &started] {
            gateway.wait_unfetched(Some((TopicRefused, Some(topic)))).await?;
        }
        broker.allow(USER, "Read", Kind::Topic, topic)?;
        for gateway in [running, started] {
            gateway.wait_lag(0).await?;
            gateway.wait_unfetched(None).await?;
            let names = gateway.select("SpanName", "ORDER BY SpanName").await?;
            ensure!(names == [[json!("after")], [json!("before")]], "{names:?}");
            gateway.stop().await?;
        }
        Ok(())
    })
    .await?;
    secured.remove()
}
