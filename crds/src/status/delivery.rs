//! What gateways report for people: the delivery guarantee, and what waits on the queue volumes.

use kube::KubeSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The guarantee that every row is in the table once.
pub const EXACTLY_ONCE: &str = "ExactlyOnceEffect";

/// The word of a status for a word of a gateway: `WindowOff` for `window_off`. Words of a status do not change.
pub fn status_word(word: &str) -> String {
    let capitalised = |part: &str| {
        let mut letters = part.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    word.split('_').map(capitalised).collect()
}

/// Statuses of 0.1.0 have the gateways' own words.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(status_word(&String::deserialize(deserializer)?))
}

fn optional_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.as_deref().map(status_word))
}

/// The delivery guarantee, as the gateways have found it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// ExactlyOnceEffect: every row is in the table once. AtLeastOnce: none is missing, some may be there twice. The gateways' metric
    /// sluice_gateway_delivery_guarantee has the same words as exactly_once_effect and at_least_once.
    #[serde(deserialize_with = "word")]
    #[schemars(length(max = 64))]
    pub guarantee: String,
    /// Why it is not ExactlyOnceEffect, such as WindowOff or EngineForgets; not set for ExactlyOnceEffect. `sluice-gateway check` says what
    /// helps. The metric has the same words as window_off and engine_forgets.
    #[serde(default, deserialize_with = "optional_word", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// What acknowledged rows survive: Process (the end of its process), Fsync (a power failure of its host) or Quorum (the loss of a host).
    /// Unknown: the gateways' user may not read it, or the table's engine leaves it to other tables. The weakest of all servers and
    /// gateways. The gateways' metric sluice_gateway_durability has the same words in lower case. Not set while a gateway does not say it.
    #[serde(default, deserialize_with = "optional_word", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub durability: Option<String>,
}

/// What waits on the queue volumes.
#[derive(KubeSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Blocks that wait, over all gateways, in steps: the number stays until it is half or twice as many. 0 is exact:
    /// every gateway has read its volume, and nothing waits there.
    pub blocks: i64,
    /// Bytes of the files on the volumes, over all gateways, in the same steps.
    pub bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_of_gateways_become_words_of_a_status_once() {
        for (word, expected) in [
            ("exactly_once_effect", EXACTLY_ONCE),
            ("at_least_once", "AtLeastOnce"),
            ("window_off", "WindowOff"),
            ("fsync", "Fsync"),
            ("of__the_future_", "OfTheFuture"),
            ("", ""),
        ] {
            assert_eq!(status_word(word), expected);
            assert_eq!(status_word(expected), expected);
        }
    }

    #[test]
    fn a_status_of_an_earlier_version_is_read_in_the_words_of_this_one() {
        let read = |value| serde_json::from_value::<DeliveryStatus>(value).unwrap();
        let before =
            json!({"guarantee": "at_least_once", "reason": "servers_not_replicas", "durability": "process"});
        let now =
            json!({"guarantee": "AtLeastOnce", "reason": "ServersNotReplicas", "durability": "Process"});
        assert_eq!(read(before), read(now.clone()));
        assert_eq!(serde_json::to_value(read(now.clone())).unwrap(), now);
        let short = read(json!({"guarantee": "exactly_once_effect"}));
        assert_eq!(serde_json::to_value(short).unwrap(), json!({"guarantee": EXACTLY_ONCE}));
    }
}
