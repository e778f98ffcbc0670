//! The id of the Kafka cluster.
//!
//! The cluster's id is part of every deduplication token, so that equal offsets of equal topics of two clusters get
//! different tokens. Event Hubs, and Redpanda without `cluster_id`, report none: all such clusters are [`UNNAMED`].
//! Tokens also contain topic, offsets and content. Two unnamed clusters therefore share a token only for copies of
//! the same messages at the same offsets.

use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaResult;

/// The name of a cluster whose brokers report no id. Kafka's own ids are 22 characters of base64.
pub const UNNAMED: &str = "unnamed";

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
    // librdkafka returns no id both if no broker answered and if the broker reports none.
    client.fetch_metadata(Some(topic), timeout)?;
    Ok(client.fetch_cluster_id(Duration::ZERO).unwrap_or_else(|| UNNAMED.to_owned()))
}
