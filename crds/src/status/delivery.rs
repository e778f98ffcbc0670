//! What gateways report for people: the delivery guarantee, and what waits on the queue volumes.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The words with which a gateway says that every row is in the table once. Source: the label of its metric.
pub const EXACTLY_ONCE: &str = "exactly_once_effect";

/// The delivery guarantee, as the gateways have found it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// exactly_once_effect: every row is in the table once. at_least_once: none is missing, some may be there twice. The words are
    /// those of the gateways' metric sluice_gateway_delivery_guarantee.
    #[schemars(length(max = 64))]
    pub guarantee: String,
    /// Why it is not exactly_once_effect, such as window_off or engine_forgets; not set for exactly_once_effect. `sluice-gateway check`
    /// says what helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// What acknowledged rows survive: process (the end of its process), fsync (a power failure of its host), quorum (the loss of a host),
    /// or unknown where the gateways' user may not read it or the table's engine leaves it to other tables. The weakest of all servers and
    /// gateways. The words are those of the gateways' metric sluice_gateway_durability. Not set while a gateway does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub durability: Option<String>,
}

/// What waits on the queue volumes.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Blocks that wait, over all gateways, rounded to two significant digits.
    pub blocks: i64,
    /// Bytes of the files on the volumes, over all gateways, rounded to two significant digits.
    pub bytes: i64,
}
