//! `kubectl sluice lag`: the lag of each partition, or log, from the metrics of the gateways.

use crate::{
    cluster::Said,
    table::{NOTHING, number, table, time},
};
use serde::Serialize;
use sluice_crds::TopicStatus;
use sluice_gateway_config::exposition::lines;
use sluice_plan::words::plural;
use std::{collections::BTreeMap, fmt};

const LAG: &str = "sluice_gateway_lag_messages";
const COMMITTED: &str = "sluice_gateway_committed_offset";
const POSITION: &str = "sluice_gateway_position";
const RETENTION: &str = "sluice_gateway_retention_seconds_left";
const STILL: &str = "sluice_gateway_partition_still";
const OPEN_TRANSACTION_MESSAGES: &str = "sluice_gateway_open_transaction_messages";
const OPEN_TRANSACTION_SECONDS: &str = "sluice_gateway_open_transaction_seconds";
const OPEN_TRANSACTION_FIRST_OFFSET: &str = "sluice_gateway_open_transaction_first_offset";

/// All metrics of a partition.
const OF_PARTITIONS: [&str; 8] = [
    LAG,
    COMMITTED,
    POSITION,
    RETENTION,
    STILL,
    OPEN_TRANSACTION_MESSAGES,
    OPEN_TRANSACTION_SECONDS,
    OPEN_TRANSACTION_FIRST_OFFSET,
];

const ROWS_IN_FLIGHT: &str = "sluice_gateway_rows_in_flight";
const REQUESTS_REFUSED: &str = "sluice_gateway_otlp_requests_refused_total";

/// Every partition of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineLag {
    /// By topic and number.
    partitions: Vec<OfPartition>,
    /// Rows that gateways have read and that are not settled; not set if no gateway reports it.
    rows_in_flight: Option<u64>,
    /// OTLP requests that gateways with `source.otlp` have refused since they started, by reason. Reasons without any are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requests_refused: BTreeMap<String, u64>,
    /// Gateways that do not answer, with the reason.
    silent: BTreeMap<String, String>,
}

/// One partition. Unknown values are not set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfPartition {
    topic: String,
    partition: u32,
    /// The gateway that reads it.
    gateway: Option<String>,
    /// Messages between the committed offset and the end.
    lag_messages: Option<u64>,
    committed_offset: Option<u64>,
    /// The offset that is read next.
    position: Option<u64>,
    /// Seconds until Kafka's retention deletes messages that are not inserted.
    retention_seconds_left: Option<u64>,
    /// Messages behind an open transaction, which lag does not count; not set while none is open.
    open_transaction_messages: Option<u64>,
    /// Seconds for which the transaction has kept the gateway from reading them.
    open_transaction_seconds: Option<u64>,
    open_transaction_first_offset: Option<u64>,
    /// Why the partition makes no progress; not set while it does.
    still: Option<String>,
}

impl PipelineLag {
    /// Collects the metrics of the gateways. A partition that no gateway reports is listed without a gateway.
    pub(super) fn of(topics: &[TopicStatus], said: &[Said]) -> Self {
        let mut known = BTreeMap::new();
        for TopicStatus { name, partitions } in topics {
            for partition in 0..*partitions {
                let one = OfPartition { topic: name.clone(), partition, ..OfPartition::default() };
                known.insert((name.clone(), partition, String::new()), one);
            }
        }
        Self::with(known, said, |_| String::new())
    }

    /// The same of gateways with `source.otlp`: each has logs of its own, with the same names.
    pub(super) fn of_logs(said: &[Said]) -> Self {
        Self::with(BTreeMap::new(), said, str::to_owned)
    }

    /// Adds what gateways report. `owner` is what tells apart partitions of the same name, by the gateway that reports them.
    fn with(
        mut known: BTreeMap<(String, u32, String), OfPartition>,
        said: &[Said],
        owner: impl Fn(&str) -> String,
    ) -> Self {
        for (gateway, text) in said.iter().filter_map(|said| Some((&said.pod, said.text.as_ref().ok()?))) {
            for line in lines(text).filter(|line| OF_PARTITIONS.contains(&line.name)) {
                let place =
                    (line.label("topic"), line.label("partition").and_then(|number| number.parse().ok()));
                let (Some(topic), Some(partition)) = place else { continue };
                let one = known.entry((topic.clone().into_owned(), partition, owner(gateway))).or_default();
                (one.topic, one.partition) = (topic.into_owned(), partition);
                one.gateway = Some(gateway.clone());
                match line.name {
                    LAG => one.lag_messages = line.whole(),
                    COMMITTED => one.committed_offset = line.whole(),
                    POSITION => one.position = line.whole(),
                    RETENTION => one.retention_seconds_left = line.whole(),
                    OPEN_TRANSACTION_MESSAGES => one.open_transaction_messages = line.whole(),
                    OPEN_TRANSACTION_SECONDS => one.open_transaction_seconds = line.whole(),
                    OPEN_TRANSACTION_FIRST_OFFSET => one.open_transaction_first_offset = line.whole(),
                    _ => one.still = line.label("reason").map(std::borrow::Cow::into_owned),
                }
            }
        }
        let silent =
            said.iter().filter_map(|said| Some((said.pod.clone(), said.text.as_ref().err()?.clone())));
        Self {
            partitions: known.into_values().collect(),
            rows_in_flight: rows_in_flight(said),
            requests_refused: requests_refused(said),
            silent: silent.collect(),
        }
    }

    /// Whether a gateway reports every partition and every gateway answers; `false` if no partition is known.
    pub(super) fn is_whole(&self) -> bool {
        let is_answered_for = self.partitions.iter().all(|one| one.gateway.is_some());
        self.silent.is_empty() && !self.partitions.is_empty() && is_answered_for
    }
}

impl OfPartition {
    /// Messages behind an open transaction, and for how long they wait.
    fn open_transaction(&self) -> Option<String> {
        let (messages, seconds) = self.open_transaction_messages.zip(self.open_transaction_seconds)?;
        Some(format!("{}, {}", plural(messages, "message"), time(seconds)))
    }
}

/// Rows between Kafka and the table, summed over all gateways that report them.
fn rows_in_flight(said: &[Said]) -> Option<u64> {
    let texts = said.iter().filter_map(|said| said.text.as_ref().ok());
    let rows = texts.flat_map(|text| lines(text)).filter(|line| line.name == ROWS_IN_FLIGHT);
    rows.filter_map(|line| line.whole()).reduce(u64::saturating_add)
}

/// Requests that were refused, summed over all gateways that report them.
fn requests_refused(said: &[Said]) -> BTreeMap<String, u64> {
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    let texts = said.iter().filter_map(|said| said.text.as_ref().ok());
    for line in texts.flat_map(|text| lines(text)).filter(|line| line.name == REQUESTS_REFUSED) {
        let (Some(reason), Some(more)) = (line.label("reason"), line.whole().filter(|more| *more > 0)) else {
            continue;
        };
        let sum = refused.entry(reason.into_owned()).or_default();
        *sum = sum.saturating_add(more);
    }
    refused
}

impl fmt::Display for PipelineLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "TOPIC",
            "PARTITION",
            "GATEWAY",
            "LAG",
            "COMMITTED",
            "POSITION",
            "RETENTION LEFT",
            "OPEN TRANSACTION",
            "STILL",
        ];
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| NOTHING.to_owned());
        let rows = self.partitions.iter().map(|one| {
            vec![
                one.topic.clone(),
                one.partition.to_string(),
                text(&one.gateway),
                number(one.lag_messages),
                number(one.committed_offset),
                number(one.position),
                one.retention_seconds_left.map_or_else(|| NOTHING.to_owned(), time),
                one.open_transaction().unwrap_or_else(|| NOTHING.to_owned()),
                text(&one.still),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let lag = self.partitions.iter().filter_map(|one| one.lag_messages).fold(0_u64, u64::saturating_add);
        f.write_str(&table(&header, &rows))?;
        let in_flight = self
            .rows_in_flight
            .map_or_else(String::new, |rows| format!(", {} in flight", plural(rows, "row")));
        let unknown = match self.partitions.iter().filter(|one| one.lag_messages.is_none()).count() {
            0 => String::new(),
            unknown => format!(" ({unknown} of them unknown)"),
        };
        let (messages, partitions) = (plural(lag, "message"), plural(rows.len(), "partition"));
        writeln!(f, "{messages} behind in {partitions}{unknown}{in_flight}")?;
        if !self.requests_refused.is_empty() {
            let each = self.requests_refused.iter().map(|(reason, number)| format!("{reason} {number}"));
            let each = each.collect::<Vec<_>>().join(", ");
            writeln!(f, "requests refused since the gateways started: {each}")?;
        }
        for (gateway, why) in &self.silent {
            writeln!(f, "{gateway} does not answer: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "sluice_gateway_lag_messages{partition=\"0\",topic=\"spans\"} 3\n\
        sluice_gateway_committed_offset{partition=\"0\",topic=\"spans\"} 17\n\
        sluice_gateway_position{partition=\"0\",topic=\"spans\"} 20\n\
        sluice_gateway_retention_seconds_left{partition=\"0\",topic=\"spans\"} 7260.5\n\
        sluice_gateway_lag_messages{partition=\"1\",topic=\"spans\"} 1200\n\
        sluice_gateway_partition_still{partition=\"1\",topic=\"spans\",reason=\"sink\"} 1\n\
        sluice_gateway_open_transaction_messages{partition=\"0\",topic=\"spans\"} 40\n\
        sluice_gateway_open_transaction_seconds{partition=\"0\",topic=\"spans\"} 1205.5\n\
        sluice_gateway_open_transaction_first_offset{partition=\"0\",topic=\"spans\"} 20\n\
        sluice_gateway_rows_in_flight 41000\n\
        sluice_gateway_spool_bytes 9\n";

    fn said(pod: &str, text: Result<&str, &str>) -> Said {
        Said { pod: pod.into(), text: text.map(str::to_owned).map_err(str::to_owned) }
    }

    fn topics() -> [TopicStatus; 1] {
        [TopicStatus { name: "spans".into(), partitions: 3 }]
    }

    #[test]
    fn every_partition_is_told_with_who_reads_it() {
        let found =
            PipelineLag::of(&topics(), &[said("p-gateway-0", Ok(ONE)), said("p-gateway-1", Err("refused"))]);
        assert_eq!(
            found.to_string(),
            "TOPIC  PARTITION  GATEWAY       LAG  COMMITTED  POSITION  RETENTION LEFT         OPEN TRANSACTION  STILL\n\
             spans          0  p-gateway-0     3         17        20       2 h 1 min  40 messages, 20 min 5 s  -\n\
             spans          1  p-gateway-0  1200          -         -               -                        -  sink\n\
             spans          2  -               -          -         -               -                        -  -\n\
             1203 messages behind in 3 partitions (1 of them unknown), 41000 rows in flight\n\
             p-gateway-1 does not answer: refused\n"
        );
        assert!(!found.is_whole());
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["partitions"][1]["lagMessages"], 1_200);
        assert_eq!(json["rowsInFlight"], 41_000);
        assert_eq!(json["partitions"][0]["openTransactionFirstOffset"], 20);
        assert_eq!(json["partitions"][2]["gateway"], serde_json::Value::Null);
        assert_eq!(json["silent"]["p-gateway-1"], "refused");
    }

    #[test]
    fn logs_of_the_same_number_are_told_apart_by_their_gateways() {
        const LOG: &str = "sluice_gateway_lag_messages{partition=\"0\",topic=\"otlp\"} 5\n\
            sluice_gateway_committed_offset{partition=\"0\",topic=\"otlp\"} 7\n\
            sluice_gateway_otlp_requests_refused_total{reason=\"busy\"} 0\n\
            sluice_gateway_otlp_requests_refused_total{reason=\"full\"} 3\n";
        let found = PipelineLag::of_logs(&[said("p-gateway-0", Ok(LOG)), said("p-gateway-1", Ok(LOG))]);
        let gateways: Vec<_> = found.partitions.iter().map(|one| one.gateway.as_deref()).collect();
        assert_eq!(gateways, [Some("p-gateway-0"), Some("p-gateway-1")]);
        assert!(found.is_whole());
        let text = found.to_string();
        assert!(
            text.ends_with(
                "10 messages behind in 2 partitions\nrequests refused since the gateways started: full 6\n"
            ),
            "{text}"
        );
        assert_eq!(serde_json::to_value(&found).unwrap()["requestsRefused"]["full"], 6);
    }

    #[test]
    fn it_is_whole_when_every_partition_is_answered_for() {
        let of_two = [TopicStatus { name: "spans".into(), partitions: 2 }];
        assert!(PipelineLag::of(&of_two, &[said("p-gateway-0", Ok(ONE))]).is_whole());
        assert!(!PipelineLag::of(&topics(), &[said("p-gateway-0", Ok(ONE))]).is_whole());
        assert!(!PipelineLag::of(&of_two, &[said("p-gateway-0", Ok(ONE)), said("b", Err("x"))]).is_whole());
        assert!(!PipelineLag::of(&[], &[]).is_whole(), "nothing is known");
    }
}
