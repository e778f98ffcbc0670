//! Faults of a group with the KIP-848 protocol, in which the coordinator assigns the partitions. Every member is a dynamic one.
//!
//! Each scenario first waits for a `ConsumerGroupHeartbeat`, so that none passes with the other protocol by mistake.

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::Family;
use super::kill::Step;
use super::process::Process;
use crate::kafka_front::Leg;
use crate::kafka_wire::CONSUMER_GROUP_HEARTBEAT;
use crate::scene::{Expected, PATIENCE, Scene};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// SIGKILL at a step of a range.
    #[value(skip)]
    Kill(Step),
    /// groupProtocol: Consumer, three members leave and come back in turn
    Storm,
    /// groupProtocol: Consumer, SIGSTOP until another member has taken over; the INSERT on its way arrives after that
    Stop,
}

impl Family for Protocol {
    const PREFIX: &'static str = "kip-848-";

    fn change(self) -> Value {
        json!({"source": {"kafka": {"groupProtocol": "Consumer"}}})
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let wanted = |api: i16, leg: Leg| api == CONSUMER_GROUP_HEARTBEAT && leg == Leg::Asked;
        let gate = scene.stage.servers.kafka_gate();
        let heartbeat = gate
            .trap("heartbeat of the new protocol", move |passage| wanted(passage.request.api, passage.leg));
        let (played, seen) = tokio::join!(
            async {
                match self {
                    Protocol::Kill(step) => step.play(scene).await,
                    Protocol::Storm => Process::RebalanceStorm.play(scene).await,
                    Protocol::Stop => Process::StopLonger.play(scene).await,
                }
            },
            // Dropping the caught request forwards it.
            async { heartbeat.caught(PATIENCE).await.map(drop) },
        );
        seen?;
        played
    }
}
