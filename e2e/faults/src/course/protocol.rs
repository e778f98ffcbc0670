//! Faults of a group with the KIP-848 protocol, in which the coordinator assigns the partitions. Every member is a dynamic one.
//!
//! Each scenario first waits for a `ConsumerGroupHeartbeat`, so that none passes with the other protocol by mistake.

use anyhow::Result;
use serde_json::{Value, json};

use super::kill::{self, Step};
use super::process::Process;
use crate::kafka_front::Leg;
use crate::kafka_wire::CONSUMER_GROUP_HEARTBEAT;
use crate::scene::{Expected, PATIENCE, Scene};

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SIGKILL at a step of a range.
    Kill(Step),
    /// Three members come and go.
    Storm,
    /// A member is stopped for longer than its session, with an INSERT on its way. Its later commits have an old member epoch.
    Stop,
}

impl Protocol {
    /// Changes of the usual config of the gateways.
    pub fn change() -> Value {
        json!({"source": {"kafka": {"groupProtocol": "Consumer"}}})
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come, or a process could not be handled.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        let wanted = |api: i16, leg: Leg| api == CONSUMER_GROUP_HEARTBEAT && leg == Leg::Asked;
        let gate = scene.stage.servers.kafka_gate();
        let heartbeat = gate
            .trap("heartbeat of the new protocol", move |passage| wanted(passage.request.api, passage.leg));
        let (played, seen) = tokio::join!(
            async {
                match self {
                    Protocol::Kill(step) => kill::play(scene, step).await,
                    Protocol::Storm => Process::Storm.play(scene).await,
                    Protocol::Stop => Process::StopLong.play(scene).await,
                }
            },
            // Dropping the caught request forwards it.
            async { heartbeat.caught(PATIENCE).await.map(drop) },
        );
        seen?;
        played
    }
}
