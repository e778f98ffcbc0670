//! A dead-letter topic that the gateway's user may read but not write, because of the broker's ACL, which is corrected later.

use super::Secured;
use super::broker::{Kind, USER};
use crate::delivery::process;
use crate::prelude::*;

/// The metric of letters that the broker refused for this cause.
const REFUSED: &str = r#"sluice_gateway_dead_letters_refused_total{cause="not_authorized"}"#;

/// The metric of partitions that have stopped before such a message.
const STOPPED: &str = "sluice_gateway_partitions_stopped";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn a_dead_letter_topic_that_may_not_be_written_to_stops_one_partition_until_it_may() -> Result<()> {
    let turn = Uses::Servers.turn().await?;
    let secured = Secured::start("unwritable").await?;
    let change = secured.reads_with_password();
    process::run_on(turn, "unwritable", Some(&secured.broker.host), 2, async |stage| {
        let letters = stage.topic.dead_letters()?.name().to_owned();
        Topic::create(stage.kafka(), &letters, 2).await?;
        // A topic without ACLs is open to all users. From now on, this user may only read this one.
        secured.broker.allow(USER, "Read", Kind::Topic, &letters)?;
        let bad = stage.send(0, Some(b"no trace")).await?;
        stage.send(0, Some(&good("behind"))).await?;
        let gateway = stage.start("gateway", &change).await?;
        gateway.wait_metric(STOPPED, Some(1.0)).await?;
        ensure!(gateway.metric(REFUSED).await? == Some(1.0), "{:?}", gateway.metric(REFUSED).await?);
        check_log(&gateway.log_lines()?, &letters)?;

        // Only now: it is read while the other partition is stopped.
        stage.send(1, Some(&good("beside"))).await?;
        gateway.wait_lag(2).await?;
        ensure!(names(&gateway).await? == [[json!("beside")]], "{:?}", names(&gateway).await?);
        ensure!(gateway.letters().await?.letters.is_empty());

        secured.broker.allow(USER, "Write", Kind::Topic, &letters)?;
        gateway.wait_lag(0).await?;
        ensure!(names(&gateway).await? == [[json!("behind")], [json!("beside")]]);
        let found = gateway.letters().await?;
        found.ensure_exactly(&stage.topic, "malformed", &BTreeSet::from([(0, bad)]))?;
        ensure!(found.doubled() == 0, "{found:?}");
        gateway.wait_metric(STOPPED, Some(0.0)).await?;
        ensure!(gateway.metric(REFUSED).await? == Some(1.0), "however often it was sent");
        gateway.stop().await
    })
    .await?;
    secured.remove()
}

async fn names(gateway: &process::Gateway) -> Result<Vec<Vec<Value>>> {
    gateway.select("SpanName", "ORDER BY SpanName").await
}

/// One line has the topic, the broker's message, and what to do.
fn check_log(lines: &[Value], letters: &str) -> Result<()> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let about: Vec<&Value> = lines.iter().filter(|line| line["refused"].is_string()).collect();
    let [line] = about[..] else { bail!("{} lines: {about:?}", about.len()) };
    let (refused, message) = (text(line, "refused"), text(line, "message"));
    ensure!(
        refused.starts_with(&format!(
            "Kafka does not authorize the gateway for the dead-letter topic {letters}: "
        )) && refused.contains("Topic authorization failed"),
        "{refused}"
    );
    ensure!(
        message.contains("its partition stops")
            && message.contains("once the gateway's user may describe the topic and write to it"),
        "{message}"
    );
    Ok(())
}
