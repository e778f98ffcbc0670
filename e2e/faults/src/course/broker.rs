//! Faults of brokers: they die, move the group, stop answering, lose answers, or delete messages.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use super::damage::refusing;
use super::spooled::is_same;
use super::volume::{SPANS_READ, as_real};
use super::{FEW, Family, MANY, ONE, unnamed_cluster};
use crate::front::Way;
use crate::kafka_front::{Leg, Passage, Verdict};
use crate::kafka_wire::{FETCH, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT};
use crate::report::Ends;
use crate::scene::{Expected, PARTITIONS, PATIENCE, SPANS_AFTER, Scene};
use e2e_fixtures::cluster::{Seen, until};
use e2e_fixtures::produce::Topic;
use e2e_fixtures::spans::Shape;
use e2e_stack::process::Signal;

/// Spans while a broker is silent: three seconds of load, shorter than the session.
const SPANS_SILENT_SHORT: u64 = 15_000;

/// Nine seconds of load, longer than the session.
const SPANS_SILENT_LONG: u64 = 45_000;

/// How many answers are lost in a row.
const ANSWERS_LOST: u32 = 4;

/// Spans before and behind the messages that Kafka deletes.
const SPANS_STORED: u64 = 16_000;

/// Spans of a topic that is deleted and made again. So many that the new topic is still shorter when the gateway notices it, half a minute
/// of load later.
const SPANS_OLD: u64 = 160_000;

/// Partitions that lose messages, and how many each: the messages behind the committed position.
const PARTITIONS_FORGOTTEN: i32 = 4;
const MESSAGES_FORGOTTEN: i64 = 10;

/// The exit code of a gateway that asks to be restarted.
pub(super) const EXIT_NEW_START: i32 = 69;

/// The gateway's metric of messages that Kafka deleted before it could read them.
pub(super) const MESSAGES_LOST: &str = "sluice_gateway_messages_lost_total";

/// Such messages before that metric counts them.
const MESSAGES_OVERTAKEN: &str = "sluice_gateway_messages_overtaken";

/// The gateway's metric of the time until Kafka deletes more of them.
const SECONDS_LEFT: &str = "sluice_gateway_retention_seconds_left";

/// The gateway's metric of partitions that began without knowing what was in flight.
pub(super) const FRESH_STARTS: &str = "sluice_gateway_fresh_starts_total";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Broker {
    /// SIGKILL of the broker, and a start
    #[value(name = "broker-kill")]
    Kill,
    /// SIGKILL of the group's coordinator, one of three brokers
    CoordinatorMove,
    /// no traffic for three seconds, shorter than the session timeout
    #[value(name = "broker-silent")]
    SilentShort,
    /// no traffic for nine seconds
    #[value(name = "broker-silent-longer")]
    SilentLong,
    /// four answers to commits are lost
    CommitAnswersLost,
    /// four answers with messages are lost
    FetchAnswersLost,
    /// two answers to join requests are lost while a member joins
    JoinAnswersLost,
    /// a heartbeat is lost; the group removes the member
    HeartbeatLost,
    /// each request to the coordinator ends its connection, until the gateway reports that it is not ready, and why
    GroupAway,
    /// messages behind the position are deleted: 4,000 spans are lost
    RetentionPasses,
    /// the same under a running gateway, also messages that it has read but not inserted: 4,000 spans that were not read are lost
    RetentionPassesRunning,
    /// the topic is deleted and recreated, and spans arrive at once
    TopicRecreated,
    /// the topic is deleted, recreated and longer than before while the gateway is stopped
    TopicRecreatedLonger,
    /// brokers report no cluster id; SIGKILL when the server has stored an INSERT and its answer is on its way
    UnnamedCluster,
}

impl Family for Broker {
    fn rounds(self) -> u32 {
        match self {
            Broker::Kill | Broker::CoordinatorMove => MANY,
            Broker::HeartbeatLost | Broker::GroupAway | Broker::TopicRecreated => ONE,
            _ => FEW,
        }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Broker::Kill => kill(scene, 1).await,
            Broker::CoordinatorMove => coordinator_move(scene).await,
            Broker::SilentShort => silent(scene, SPANS_SILENT_SHORT).await,
            Broker::SilentLong => silent(scene, SPANS_SILENT_LONG).await,
            Broker::CommitAnswersLost => answers_lost(scene, OFFSET_COMMIT, ANSWERS_LOST).await,
            Broker::FetchAnswersLost => answers_lost(scene, FETCH, ANSWERS_LOST).await,
            Broker::JoinAnswersLost => answers_lost(scene, JOIN_GROUP, 2).await,
            Broker::HeartbeatLost => heartbeat_lost(scene).await,
            Broker::GroupAway => group_away(scene).await,
            Broker::RetentionPasses => retention_passes(scene).await,
            Broker::RetentionPassesRunning => retention_passes_running(scene).await,
            Broker::TopicRecreated => topic_recreated(scene).await,
            Broker::TopicRecreatedLonger => topic_recreated_longer(scene).await,
            Broker::UnnamedCluster => unnamed_cluster::play(scene).await,
        }
    }
}

async fn kill(scene: &mut Scene<'_>, broker: u32) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let servers = &scene.stage.servers;
    servers.kill_broker(broker).await?;
    servers.start_broker(broker).await?;
    scene.recover(Instant::now()).await
}

/// Kills the broker that answers commits, the coordinator. It comes back only when another broker is the coordinator.
async fn coordinator_move(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let servers = &scene.stage.servers;
    let commit = |passage: &Passage| passage.leg == Leg::Answered && passage.request.api == OFFSET_COMMIT;
    let caught = servers.kafka_gate().trap("commit", commit).caught(PATIENCE).await?;
    let coordinator = caught.passage.broker;
    drop(caught);
    servers.kill_broker(coordinator).await?;
    let killed = Instant::now();
    let elsewhere = move |passage: &Passage| commit(passage) && passage.broker != coordinator;
    let moved = servers.kafka_gate().trap("commit to another coordinator", elsewhere).caught(PATIENCE).await;
    servers.start_broker(coordinator).await?;
    moved?;
    scene.recover(killed).await
}

async fn silent(scene: &mut Scene<'_>, spans: u64) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    scene.stage.servers.kafka_goes(Way::Blackhole);
    let waited = scene.wait_acked(spans).await;
    scene.stage.servers.kafka_goes(Way::Open);
    waited?;
    scene.recover(Instant::now()).await
}

/// The broker carries out a request. Its answer never arrives, nor does anything else on that connection.
async fn answers_lost(scene: &mut Scene<'_>, api: i16, times: u32) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    if api == JOIN_GROUP {
        // A member that joins.
        scene.start_gateway(Some("gateway-1"))?;
    }
    let lost = move |passage: &Passage| passage.leg == Leg::Answered && passage.request.api == api;
    let rule = scene.stage.servers.kafka_gate().rule(times, Verdict::Reset, lost);
    scene.wait_applied("lost answers", &rule, times).await?;
    drop(rule);
    scene.recover(Instant::now()).await
}

/// The client waits for the answer to its heartbeat and sends no other, so the group removes it.
async fn heartbeat_lost(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let gate = scene.stage.servers.kafka_gate();
    let heartbeat = |passage: &Passage| passage.leg == Leg::Asked && passage.request.api == HEARTBEAT;
    gate.trap("heartbeat", heartbeat).caught(PATIENCE).await?.decide(Verdict::Drop);
    let joins = |passage: &Passage| passage.leg == Leg::Answered && passage.request.api == JOIN_GROUP;
    gate.trap("member that joins again", joins).caught(PATIENCE).await?;
    scene.recover(Instant::now()).await
}

/// Brokers answer, but each request to the coordinator ends its connection. The gateway reads nothing, and no partition counts as stuck. It
/// reports the fault by not being ready.
async fn group_away(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    // Minutes of load would leave a backlog, which this scenario does not test.
    scene.stop_load().await?;
    let to_group = |passage: &Passage| {
        passage.leg == Leg::Asked && [HEARTBEAT, JOIN_GROUP].contains(&passage.request.api)
    };
    let away = scene.stage.servers.kafka_gate().rule(u32::MAX, Verdict::Reset, to_group);
    scene.produce(SPANS_AFTER).await?;
    let words = scene.wait_ready(false).await?.unwrap_or_default();
    ensure!(words.contains("out of the consumer group"), "it is not ready for another reason: {words}");
    drop(away);
    let back = Instant::now();
    scene.wait_ready(true).await?;
    let recovery_s = Some(back.elapsed().as_secs_f64());
    scene.produce(SPANS_AFTER).await?;
    Ok(Expected { recovery_s, ..Expected::default() })
}

/// Kafka deletes messages that no gateway has read: exactly their spans are lost.
async fn retention_passes(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.produce(SPANS_STORED).await?;
    scene.wait_committed(0).await?;
    scene.gateway(0).signal(Signal::TERM)?;
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    ensure!(code == 0, "a gateway with nothing in flight ended with code {code}");
    let messages = forget_next(scene).await?;
    let refusing = refusing(scene.stage);
    scene.start_again(0, Some("gateway-0"))?;
    // It does not know the timestamps of the messages that wait now.
    scene.wait_metric(0, SECONDS_LEFT, |seconds| seconds > 0.0).await?;
    drop(refusing);
    let recovery = scene.recovered(Instant::now()).await?;
    lost(scene, messages, recovery).await
}

/// More messages come, and Kafka deletes the first of them in some partitions; returns how many.
async fn forget_next(scene: &mut Scene<'_>) -> Result<u32> {
    let read = scene.topic.watermarks().await?;
    scene.produce(SPANS_STORED).await?;
    let forgotten = read.iter().filter(|found| found.partition < PARTITIONS_FORGOTTEN);
    let before: Vec<(i32, i64)> =
        forgotten.map(|found| (found.partition, found.high + MESSAGES_FORGOTTEN)).collect();
    scene.topic.delete_records(&before).await?;
    Ok(u32::try_from(i64::from(PARTITIONS_FORGOTTEN) * MESSAGES_FORGOTTEN)?)
}

/// Waits until the gateway has counted this many lost messages.
async fn lost(scene: &mut Scene<'_>, messages: u32, recovery: f64) -> Result<Expected> {
    scene.wait_metric(0, MESSAGES_LOST, |lost| is_same(lost, f64::from(messages))).await?;
    Ok(Expected {
        lost: u64::from(messages) * Shape::Numbered.message_spans(),
        recovery_s: Some(recovery),
        ..Expected::default()
    })
}

/// ClickHouse is unreachable. Kafka deletes the messages of blocks that the gateway holds, and also earlier ones.
async fn retention_passes_running(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.produce(SPANS_STORED).await?;
    scene.wait_committed(0).await?;
    let messages = scene.while_sink_goes(Way::Refused, async |scene| overtake(scene).await).await?;
    let recovery = scene.recovered(Instant::now()).await?;
    let expected = lost(scene, messages, recovery).await?;
    // All other partitions continued at their positions.
    scene.wait_metric(0, FRESH_STARTS, |starts| starts == 0.0).await?;
    Ok(expected)
}

/// The gateway reads nothing while messages before its position come and are deleted; returns how many were deleted. No other place has the
/// blocks that it holds by then.
async fn overtake(scene: &mut Scene<'_>) -> Result<u32> {
    scene.produce(SPANS_STORED).await?;
    let read = as_real(2 * SPANS_STORED);
    scene.wait_metric(0, SPANS_READ, |spans| spans >= read).await?;
    let stage = scene.stage;
    let fetched = |passage: &Passage| passage.leg == Leg::Answered && passage.request.api == FETCH;
    let silent = stage.servers.kafka_gate().rule(u32::MAX, Verdict::Reset, fetched);
    let messages = forget_next(scene).await?;
    drop(silent);
    // The gateway reads the other partitions on. These wait for their blocks, and it knows which messages are missing.
    let others =
        read + as_real(SPANS_STORED) * f64::from(PARTITIONS - PARTITIONS_FORGOTTEN) / f64::from(PARTITIONS);
    scene.wait_metric(0, SPANS_READ, |spans| spans >= others).await?;
    scene.wait_metric(0, MESSAGES_OVERTAKEN, |overtaken| is_same(overtaken, f64::from(messages))).await?;
    let counted = scene.wait_metric(0, MESSAGES_LOST, |_| true).await?;
    ensure!(counted == 0.0, "{counted} messages are counted that the next owner would count again");
    Ok(messages)
}

/// Offsets begin at 0 again, with other messages.
async fn topic_recreated(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.produce(SPANS_OLD).await?;
    scene.wait_committed(0).await?;
    make_topic_again(scene).await?;
    let recreated = Instant::now();
    scene.start_load();
    let recovery = scene.recovered(recreated).await.context("nothing is read of the new topic")?;
    scene.wait_acked(SPANS_AFTER).await?;
    // The gateway may ask the brokers for the topic's id before it starts again, because the offset that it reads next does not exist.
    let ends = Ends::PerhapsWith(&[EXIT_NEW_START]);
    Ok(Expected { recovery_s: Some(recovery), ends, ..Expected::default() })
}

/// The new topic also has the offset that is read next, so only the topic's id shows the change. The gateway exits when it sees another id.
/// Until then it has read messages of the new topic, behind the old position, and reads them again.
async fn topic_recreated_longer(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_gateway(Some("gateway-0"))?;
    scene.produce(SPANS_STORED).await?;
    scene.wait_committed(0).await?;
    let before = scene.committed().await?;
    scene.gateway(0).signal(Signal::STOP)?;
    make_topic_again(scene).await?;
    scene.produce(2 * SPANS_STORED).await?;
    scene.gateway(0).signal(Signal::CONT)?;
    let woken = Instant::now();
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    ensure!(code == EXIT_NEW_START, "the gateway ended with {code}, not with {EXIT_NEW_START}");
    let after = scene.committed().await?;
    let read = |(partition, offset): (&i32, &i64)| offset - before.get(partition).unwrap_or(offset);
    let messages = u64::try_from(after.iter().map(read).sum::<i64>())?;
    scene.start_again(0, Some("gateway-0"))?;
    let recovery = scene.recovered(woken).await.context("nothing is read of the new topic")?;
    scene.wait_stored().await?;
    Ok(Expected {
        doubled: messages * Shape::Numbered.message_spans(),
        recovery_s: Some(recovery),
        ..Expected::default()
    })
}

async fn make_topic_again(scene: &mut Scene<'_>) -> Result<()> {
    scene.topic.delete().await?;
    let (brokers, name) = (scene.stage.servers.kafka(), scene.topic.name().to_owned());
    scene.topic = until("the topic made again", PATIENCE, async || {
        // The broker continues the deletion after its answer.
        let replicas = scene.stage.servers.brokers();
        Topic::create_replicated(&brokers, &name, PARTITIONS, replicas).await.map(Seen::Done)
    })
    .await?;
    scene.renew_producer()
}
