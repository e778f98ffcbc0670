//! How gateways reach Kafka, and when their brokers or credentials may be changed.
//!
//! The operator connects with new brokers and credentials before any gateway gets them, which shows whether they are right. While Kafka
//! does not answer with them, gateways that read with the old ones are not changed. Without a difference nothing is held back: during a
//! mere outage, and before the first connection, gateways are changed as ever.

use crate::{
    facts::Observed,
    ground::hash,
    identity::secrets::{self, Mounted},
    observed::TopicSeen,
};
use sluice_crds::Side;
use sluice_gateway_config::CheckedConfig;

/// The hash of what the config says of Kafka, and of the version of Kafka's Secrets.
pub(crate) fn source_version(config: &CheckedConfig, secrets: &[Mounted]) -> String {
    let mut kafka = config.config().source.kafka.clone();
    // This follows from memory and partitions, and Kafka cannot refuse it.
    if let Some(kafka) = &mut kafka {
        kafka.partitions_active_max = 1;
    }
    let of_kafka: Vec<Mounted> =
        secrets.iter().filter(|one| one.of.side() == Side::Source).cloned().collect();
    let version = secrets::version(&of_kafka).unwrap_or_default();
    hash::of_text(&(hash::of_object(&kafka) + &version))
}

/// Whether gateways reach Kafka in another way than is planned, and Kafka does not answer when it is asked in the planned one.
pub(crate) fn is_to_be_seen_first(observed: &Observed, config: &CheckedConfig, secrets: &[Mounted]) -> bool {
    let runs = observed.workload.as_ref().and_then(|workload| workload.source_version.as_deref());
    let is_away = observed.partitions.values().any(|seen| matches!(seen, TopicSeen::Unavailable { .. }));
    is_away && runs.is_some_and(|runs| runs != source_version(config, secrets))
}
