//! What a person does about a guarantee that is less than once: one remedy for each reason that a gateway gives.

use sluice_crds::{DeliveryStatus, EXACTLY_ONCE};

/// Where all reasons are explained.
const EXPLAINED: &str = "gateway/DELIVERY.md, Reasons for at_least_once";

/// The line that says what to do. `None` while every row is stored once, while nothing is known, and if the reason ends without an action.
pub(super) fn to_do(delivery: Option<&DeliveryStatus>) -> Option<String> {
    let delivery = delivery.filter(|delivery| delivery.guarantee != EXACTLY_ONCE)?;
    let reason = delivery.reason.as_deref()?;
    let remedy = match reason {
        // Of the config, the server's version and a server that is away: nothing helps but time.
        "RangesAreNotPlanned" | "DestinationChanged" | "ServerUpgraded" => return None,
        "NotProbed" => "grant the gateways' user what gateway/TABLE.md lists (Grants), if ClickHouse answers",
        "PlanUnavailable" => "check the brokers and the rights of Kafka's user",
        "TopicCompacted" => "set cleanup.policy=delete on the topic",
        "EngineForwards" => "name the table behind the Distributed or Buffer table in sink.clickhouse.table",
        "EngineForgets" => "use a MergeTree table",
        "WindowOff" => {
            "ALTER TABLE … MODIFY SETTING non_replicated_deduplication_window = 10000 (or status.derived.deduplicationWindow, if it is \
             more); of a replicated table, replicated_deduplication_window"
        }
        "WindowShort" => {
            "increase non_replicated_deduplication_window of the table (replicated_deduplication_window of a replicated one)"
        }
        "ServersNotReplicas" => {
            "use a replicated table, or name each server as a shard of its own (sink.clickhouse.shards)"
        }
        "AddressBalances" => "give each shard an address of its own (sink.clickhouse.shards)",
        "AsyncInsertForced" | "SettingsForced" => {
            "change the settings profile of the gateways' user in ClickHouse"
        }
        "SettingsLost" => "let the proxy before ClickHouse pass all settings of the query string",
        "TimeZone" => "name a time zone in the table's PARTITION BY",
        "InDoubtTooOld" => "check the ClickHouse server that does not answer",
        "ViewsUnseen" => {
            "GRANT SHOW TABLES, SHOW COLUMNS on the materialized view and its table to the gateways' user; if INSERTs fail with 497, \
             also SELECT on the gateways' table"
        }
        "ViewsNotOnce" => "give the table of the materialized view a deduplication window",
        _ => EXPLAINED,
    };
    Some(format!("rows may be stored twice ({reason}): {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_crds::status_word;
    use std::collections::BTreeSet;

    /// The reasons that DELIVERY.md explains, as the status has them.
    fn documented() -> BTreeSet<String> {
        const DOCUMENT: &str = include_str!("../../../../gateway/DELIVERY.md");
        let begin = DOCUMENT.find("### Reasons for at_least_once").unwrap();
        let rows = DOCUMENT[begin..].lines().skip_while(|line| !line.starts_with("| `"));
        let first = |line: &str| line.split(" | ").next().unwrap().to_owned();
        let cells = rows.take_while(|line| line.starts_with("| `")).map(first);
        let words =
            cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(status_word).collect::<Vec<_>>());
        words.collect()
    }

    fn of(guarantee: &str, reason: Option<&str>) -> Option<String> {
        let reason = reason.map(str::to_owned);
        to_do(Some(&DeliveryStatus { guarantee: guarantee.into(), reason, durability: None }))
    }

    #[test]
    fn every_reason_has_a_remedy_or_goes_away_by_itself() {
        let documented = documented();
        assert!(documented.len() > 15, "{documented:?}");
        for reason in &documented {
            let passes = ["DestinationChanged", "ServerUpgraded"].contains(&reason.as_str());
            match of("AtLeastOnce", Some(reason)) {
                None => assert!(passes, "{reason} has nothing to do"),
                Some(line) => assert!(!passes && !line.contains(EXPLAINED), "{line}"),
            }
        }
        assert!(of("AtLeastOnce", Some("OfTheFuture")).unwrap().contains(EXPLAINED));
        for nothing in [of(EXACTLY_ONCE, Some("WindowOff")), of("AtLeastOnce", None), to_do(None)] {
            assert_eq!(nothing, None);
        }
    }
}
