//! Which cluster the brokers are.
//!
//! The cluster's id is a part of every deduplication token, so that equal offsets of equal topics of two clusters are told apart. Event Hubs,
//! and Redpanda without `cluster_id`, report none: all such clusters are [`UNNAMED`]. Topic, offsets and content are in a token all the same, so
//! that only copies of the same messages at the same offsets of another such cluster have the same one.

use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaResult;

/// What a cluster is called whose brokers report no id. Kafka's own ids are 22 characters of base64.
pub(crate) const UNNAMED: &str = "unnamed";

/// The id that the brokers report, or [`UNNAMED`].
///
/// # Errors
/// When no broker answers in time.
pub(crate) fn id<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> KafkaResult<String> {
    if let Some(id) = client.fetch_cluster_id(timeout) {
        return Ok(id);
    }
    // librdkafka says nothing both when no broker has answered, and when one has and names no id.
    client.fetch_metadata(Some(topic), timeout)?;
    Ok(client.fetch_cluster_id(Duration::ZERO).unwrap_or_else(|| UNNAMED.to_owned()))
}
