//! Brokers that report no cluster id, as Event Hubs and Redpanda do. A gateway reads from them. If it is killed and restarted, it sends
//! what is in doubt under the same tokens.

use anyhow::{Result, ensure};

use super::kill::{self, Step};
use crate::kafka_front::{Leg, Passage, Verdict};
use crate::kafka_wire::METADATA;
use crate::scene::{Expected, Scene};

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    let gate = scene.stage.servers.kafka_gate();
    let answers = |passage: &Passage| passage.leg == Leg::Answered && passage.request.api == METADATA;
    let unnamed = gate.rule(u32::MAX, Verdict::Unnamed, answers);
    scene.start_under_load(Some("gateway-0")).await?;
    let killed = kill::at(scene, Step::AfterServerCommit).await?;
    scene.start_again(0, Some("gateway-0"))?;
    let expected = scene.recover(killed).await?;
    ensure!(unnamed.applied() > 0, "no answer of a broker was without the cluster's id");
    Ok(expected)
}
