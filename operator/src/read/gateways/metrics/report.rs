//! All that the operator takes from one answer at `/metrics`, read once for everybody who goes by it. The text is not kept: it is a
//! hundred times as long.

use super::{
    counted,
    delivery::{self, Told},
    gateway::{self, Missing, Numbers},
    messages, transactions,
};
use sluice_plan::{
    observed::{MessagesSeen, OpenTransaction},
    rollout::Counted,
    sink::Inserts,
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
    /// What it has counted of messages.
    pub messages: Option<MessagesSeen>,
    /// Open transactions that keep it from reading partitions.
    pub open_transactions: Vec<OpenTransaction>,
    /// What a canary is judged by.
    pub counted: Counted,
}

impl Report {
    /// Reads an answer in Prometheus' text format.
    pub fn read(text: &str) -> Self {
        Self {
            numbers: gateway::read(text),
            told: delivery::read(text),
            messages_lost: delivery::messages_lost(text),
            inserts: delivery::inserts(text),
            messages: messages::read(text),
            open_transactions: transactions::read(text),
            counted: counted::read(text),
        }
    }
}
