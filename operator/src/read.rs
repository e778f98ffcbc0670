//! Reads the facts that a decision needs. Writes nothing, but for the commands to gateways.
//!
//! | module | reads |
//! | --- | --- |
//! | [`observe`] | all facts about one pipeline, from the modules below |
//! | [`secrets`] | the Secrets that the spec names |
//! | [`kafka`], [`expired_offsets`] | partitions, offsets and lag |
//! | [`gateways`] | what gateways report; also sends them commands |
//! | [`gateway_report`], [`not_ready_reason`], [`missing_table`], [`unread_partitions`], [`memory`] | what follows from the gateways' reports |
//! | [`volumes`] | claims, drain Jobs and storage classes |
//! | [`refused_pods`] | why Kubernetes creates no pods |

pub mod expired_offsets;
pub mod gateway_report;
pub mod gateways;
pub mod kafka;
pub mod memory;
pub mod missing_table;
pub mod not_ready_reason;
pub mod observe;
pub mod refused_pods;
pub mod secrets;
pub mod unread_partitions;
pub mod volumes;

use crate::world::memory::Key;
use gateways::{commands::Commands, looks::Looks};
use kafka::{own_logins::OwnLogins, sample::Sampler};
use memory::GatewayMemories;
use secrets::KnownSecrets;

/// What the operator asks beside the copies of the watches, with the last answers. All scopes share it.
#[derive(Default)]
pub struct Sources {
    /// Kafka.
    pub kafka: Sampler,
    /// The operator's own logins to Kafka.
    pub own_logins: OwnLogins,
    /// The Secrets that pipelines name.
    pub secrets: KnownSecrets,
    /// Asks gateways for their state, beside the reconciles.
    pub looks: Looks,
    /// Sends gateways commands, beside the reconciles.
    pub commands: Commands,
    /// What is remembered of the gateways.
    pub memory: GatewayMemories,
}

impl Sources {
    /// Removes what is known of a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.secrets.forget(key);
        self.looks.forget(key);
        self.commands.forget(key);
        self.memory.forget(key);
    }
}
