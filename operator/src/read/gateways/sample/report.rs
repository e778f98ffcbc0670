//! All that the operator takes from the sample of one gateway, read once for everybody who goes by it. The sample is not kept.

use super::{
    brokers, counted,
    delivery::{self, Told},
    gateway::{self, Missing, Numbers},
    messages, transactions,
};
use sluice_gateway_config::{GatewaySample, UnconnectedState, UnfetchedState, VolumeFullState};
use sluice_plan::{
    observed::{
        MessagesSeen, OpenTransaction,
        inserts::{InsertError, Inserts},
    },
    rollout::Counted,
};

/// What one gateway says of itself. What it does not say is unknown to that reader alone.
#[derive(Debug, Clone)]
pub struct Report {
    /// For scaling.
    pub numbers: Result<Numbers, Missing>,
    /// For people.
    pub told: Told,
    /// Messages that Kafka deleted before they were read.
    pub messages_lost: Option<i64>,
    /// What it has counted of its inserts.
    pub inserts: Option<Inserts>,
    /// How its last insert failed, if one did.
    pub insert_error: Option<InsertError>,
    /// Why the table cannot be used, as a reason of conditions, while it waits for it.
    pub table_error: Option<&'static str>,
    /// What it has counted of messages.
    pub messages: Option<MessagesSeen>,
    /// Open transactions that keep it from reading partitions.
    pub open_transactions: Vec<OpenTransaction>,
    /// Why it reaches no broker, while it does not.
    pub unconnected: Option<UnconnectedState>,
    /// Messages that Kafka does not give it.
    pub unfetched: Option<UnfetchedState>,
    /// Whether its volume has no room for requests.
    pub volume_full: Option<VolumeFullState>,
    /// What a canary is judged by.
    pub counted: Counted,
}

impl Report {
    /// Takes it from a sample.
    pub fn of(sample: &GatewaySample) -> Self {
        Self {
            numbers: gateway::read(sample),
            told: delivery::read(sample),
            messages_lost: delivery::messages_lost(sample),
            inserts: delivery::inserts(sample),
            insert_error: delivery::insert_error(sample),
            table_error: delivery::table_error(sample),
            messages: messages::read(sample),
            open_transactions: transactions::read(sample),
            unconnected: brokers::unconnected(sample),
            unfetched: brokers::unfetched(sample),
            volume_full: sample.volume_full,
            counted: counted::read(sample),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use sluice_gateway_config::GatewayState;

    /// What a gateway says. The tests of the format and of the gateway read the same.
    pub fn exported() -> GatewaySample {
        GatewayState::read(include_bytes!("../../../../tests/gateway-state.json")).unwrap().sample
    }
}
