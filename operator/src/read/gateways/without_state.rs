//! Reads gateways that have no `/state`, those from before the release of version 0.1.0: from `/metrics`, `/readyz` and `/drainz`. Their
//! sample has the type that `/state` has.
//!
//! Such gateways run while an upgraded operator has not rolled out its image yet, and for as long as a spec names an old image. This file
//! and its uses in [`super`] go in version 0.2.0: every gateway of 0.1.0 has `/state`.
//!
//! `tests/gateway-metrics.txt` is what such a gateway exports. The gateway's own tests compare it with what a gateway of today exports, so
//! that an older operator can read it while an upgrade is taken back.

use super::{Absence, Error, Gateway};
use crate::read::gateways::sample::{delivery::least, report::Report};
use hyper::{Method, StatusCode};
use sluice_crds::{EXACTLY_ONCE, status_word};
use sluice_gateway_config::{
    DeliveryState, GatewaySample, OpenTransactionState, PartitionState, QueueState, Readiness, Remaining,
    StateError, TopicState,
    exposition::{Line, lines},
};
use sluice_plan::drain::undrain::Says;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

const METRICS: &str = "/metrics";
const READINESS: &str = "/readyz";
const REMAINING: &str = "/drainz";

/// Reasons for which a gateway refuses OTLP requests that it would have stored with more memory, room or time.
const OF_WANT: [&str; 3] = ["busy", "full", "slow"];

/// Classes of failures that are the rows' own.
const OF_ROWS: [&str; 2] = ["poison", "split"];

/// All that it says. One that is ready is asked for its metrics alone. Of one that is not ready, why it is not comes first: its metrics may
/// hang with its disk.
pub(super) async fn look(gateway: &Gateway) -> (Absence, Says, Result<Report, Error>) {
    if gateway.is_ready {
        return (Absence::None, Says::Silent, report(gateway).await);
    }
    let readiness = match readiness(gateway).await {
        Ok(readiness) => readiness,
        Err(error) => return (Absence::Silent, Says::Silent, Err(error)),
    };
    let says = gateway.said_of(remaining(gateway).await);
    (gateway.absence(&readiness, says), says, report(gateway).await)
}

async fn report(gateway: &Gateway) -> Result<Report, Error> {
    let (status, body) = gateway.ask(Method::GET, METRICS).await?;
    if status != StatusCode::OK {
        return Err(gateway.refused(METRICS, status));
    }
    Ok(Report::of(&read(&String::from_utf8_lossy(&body))))
}

async fn readiness(gateway: &Gateway) -> Result<Readiness, Error> {
    let (status, body) = gateway.ask(Method::GET, READINESS).await?;
    if status == StatusCode::MISDIRECTED_REQUEST {
        return Err(gateway.refused(READINESS, status));
    }
    let words = String::from_utf8_lossy(&body).trim().to_owned();
    let is_reason = status == StatusCode::SERVICE_UNAVAILABLE && !words.is_empty();
    Ok(Readiness { ready: !is_reason, reasons: Vec::from_iter(Some(words).filter(|_| is_reason)) })
}

/// What it must finish; `None` for one that is so old that it cannot be drained.
pub(super) async fn remaining(gateway: &Gateway) -> Result<Option<Remaining>, Error> {
    match gateway.ask(Method::GET, REMAINING).await? {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (status, body) if status.is_success() => serde_json::from_slice(&body).map(Some).map_err(|error| {
            let source = StateError::Unreadable { at: ".".into(), why: error.to_string() };
            gateway.unreadable(REMAINING, source)
        }),
        (status, _) => Err(gateway.refused(REMAINING, status)),
    }
}

/// What was found beside the sample.
#[derive(Default)]
struct Found {
    sample: GatewaySample,
    workers: BTreeSet<String>,
    queue_blocks: Option<u64>,
    queue_bytes: Option<u64>,
    guarantee: Option<(String, Option<String>)>,
    durability: Option<String>,
    topics: BTreeMap<String, BTreeMap<u32, Partition>>,
}

#[derive(Default)]
struct Partition {
    state: PartitionState,
    /// Messages, seconds and first offset of its open transaction.
    open: [Option<u64>; 3],
}

/// Reads what `/metrics` answers.
pub fn read(text: &str) -> GatewaySample {
    let mut found = Found::default();
    for line in lines(text) {
        match line.name.strip_prefix("sluice_gateway_") {
            Some(name) if line.label("partition").is_some() => found.see_partition(name, &line),
            Some(name) => found.see(name, &line),
            None => {}
        }
    }
    let Found { sample, workers, queue_blocks, queue_bytes, guarantee, durability, topics } = found;
    GatewaySample {
        workers: u32::try_from(workers.len()).unwrap_or(u32::MAX),
        queue: queue_blocks.zip(queue_bytes).map(|(blocks, bytes)| QueueState { blocks, bytes }),
        delivery: guarantee.map(|(guarantee, reason)| DeliveryState { guarantee, reason, durability }),
        topics: topics.into_iter().map(topic).collect(),
        ..sample
    }
}

impl Found {
    fn see(&mut self, name: &str, line: &Line<'_>) {
        let sample = &mut self.sample;
        let label = |name| line.label(name).map(Cow::into_owned);
        match name {
            "worker_seconds_total" => self.see_worker(line),
            "messages_total" => sample.messages = line.whole(),
            "message_bytes_total" => sample.message_bytes = line.whole(),
            "messages_without_spans_total" => add(&mut sample.messages_without_spans, line),
            "messages_rejected_total" => {
                if let Some((reason, count)) = label("reason").zip(line.whole()) {
                    sample.messages_rejected.insert(reason, count);
                }
            }
            "message_rejected_timestamp_seconds" => sample.message_rejected_at = line.whole(),
            "messages_lost_total" => sample.messages_lost = line.whole(),
            "dead_letters_refused_total" => add(&mut sample.dead_letters_refused, line),
            "otlp_requests_refused_total" if label("reason").is_some_and(|why| OF_WANT.contains(&&*why)) => {
                add(&mut sample.requests_refused, line);
            }
            "rows_inserted_total" => add(&mut sample.rows_inserted, line),
            "dead_letters_total" if label("reason").as_deref() == Some("row_refused") => {
                add(&mut sample.rows_refused, line);
            }
            "rows_in_flight" => add(&mut sample.rows_in_flight, line),
            "blocks_inserted_total" => sample.blocks_inserted = line.whole(),
            "insert_failures_total" if label("class").is_some_and(|class| OF_ROWS.contains(&&*class)) => {
                add(&mut sample.insert_failures_of_rows, line);
            }
            "insert_failures_total" => add(&mut sample.insert_failures, line),
            "sink_behind" => sample.sink_behind = line.whole().map(|is_behind| is_behind > 0),
            "spool_blocks" => self.queue_blocks = line.whole(),
            "spool_bytes" => self.queue_bytes = line.whole(),
            "memory_used_bytes" if label("part").as_deref() == Some("process") => {
                sample.resident_bytes = line.whole();
            }
            "block_pool_bytes" if label("state").as_deref() == Some("free") => {
                sample.pool_free_bytes = line.whole();
            }
            "memory_budget_bytes" => add(sample.memory_limit_bytes.get_or_insert(0), line),
            "partitions_owned" => sample.partitions_owned = line.whole(),
            "delivery_guarantee" | "durability" if line.value > 0.0 => self.see_delivery(line),
            _ => {}
        }
    }

    /// Of each there are two for a moment, while it changes: the lesser one counts.
    fn see_delivery(&mut self, line: &Line<'_>) {
        let label = |name| line.label(name).map(Cow::into_owned);
        if let Some(guarantee) = label("guarantee") {
            let is_once = status_word(&guarantee) == EXACTLY_ONCE;
            if self.guarantee.is_none() || !is_once {
                self.guarantee = Some((guarantee, label("reason").filter(|_| !is_once)));
            }
        }
        self.durability = least(self.durability.take(), label("durability"));
    }

    fn see_worker(&mut self, line: &Line<'_>) {
        let (Some(worker), Some(state)) = (line.label("worker"), line.label("state")) else { return };
        self.workers.insert(worker.into_owned());
        let sum = match &*state {
            "busy" => &mut self.sample.busy_seconds,
            "source" => &mut self.sample.source_seconds,
            _ => return,
        };
        if line.value.is_finite() && line.value >= 0.0 {
            *sum = Some(sum.unwrap_or(0.0) + line.value);
        }
    }

    fn see_partition(&mut self, name: &str, line: &Line<'_>) {
        let partition = line.label("partition").and_then(|number| number.parse().ok());
        let Some((topic, partition)) = line.label("topic").zip(partition) else { return };
        let seen = self.topics.entry(topic.into_owned()).or_default().entry(partition).or_default();
        match name {
            "committed_offset" => seen.state.committed_offset = line.whole(),
            "lag_messages" => seen.state.lag_messages = line.whole(),
            "position" => seen.state.position = line.whole(),
            "partition_still" if line.whole() == Some(1) => {
                seen.state.still = line.label("reason").map(Cow::into_owned);
            }
            "open_transaction_messages" => seen.open[0] = line.whole(),
            "open_transaction_seconds" => seen.open[1] = line.whole(),
            "open_transaction_first_offset" => seen.open[2] = line.whole(),
            _ => {}
        }
    }
}

fn add(sum: &mut u64, line: &Line<'_>) {
    *sum = sum.saturating_add(line.whole().unwrap_or(0));
}

fn topic((name, partitions): (String, BTreeMap<u32, Partition>)) -> TopicState {
    let partition = |(partition, Partition { state, open }): (u32, Partition)| {
        let open_transaction = match open {
            [Some(messages), Some(seconds), Some(first_offset)] => {
                Some(OpenTransactionState { first_offset, messages, seconds })
            }
            _ => None,
        };
        PartitionState { partition, open_transaction, ..state }
    };
    TopicState { name, partitions: partitions.into_iter().map(partition).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::gateways::sample::report::tests::exported;

    const EXPORTED: &str = include_str!("../../../tests/gateway-metrics.txt");

    #[test]
    fn what_the_metrics_say_is_what_the_state_says() {
        assert_eq!(read(EXPORTED), exported());
    }

    #[test]
    fn what_the_metrics_do_not_say_is_not_known() {
        assert_eq!(read(""), GatewaySample::default());
        for value in ["-1", "NaN", "+Inf", "1e300"] {
            let text = EXPORTED.replace("messages_total 1000", &format!("messages_total {value}"));
            assert_eq!(read(&text), GatewaySample { messages: None, ..exported() }, "{value}");
        }
        let less = EXPORTED.lines().filter(|line| !line.contains("open_transaction_first_offset"));
        let said = read(&less.collect::<Vec<_>>().join("\n"));
        assert_eq!(said.topics[0].partitions[1].open_transaction, None);
    }

    #[test]
    fn while_a_guarantee_changes_the_lesser_one_counts() {
        let once = "sluice_gateway_delivery_guarantee{guarantee=\"exactly_once_effect\",reason=\"none\"} 1\n";
        let less = "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"window_off\"} 1\n";
        let durable = |word: &str| format!("sluice_gateway_durability{{durability=\"{word}\"}} 1\n");
        let expected = DeliveryState {
            guarantee: "at_least_once".into(),
            reason: Some("window_off".into()),
            durability: Some("process".into()),
        };
        for order in [[once, less], [less, once]] {
            let text = order.concat() + &durable("fsync") + &durable("process");
            assert_eq!(read(&text).delivery, Some(expected.clone()));
        }
        let alone = DeliveryState { guarantee: "exactly_once_effect".into(), ..DeliveryState::default() };
        assert_eq!(read(once).delivery, Some(alone));
    }

    #[test]
    fn a_partition_that_stands_still_says_why() {
        let still = "sluice_gateway_partition_still{partition=\"5\",reason=\"no_fetch\",topic=\"spans\"} 1\n";
        let said = read(&(EXPORTED.to_owned() + still));
        assert_eq!(said.topics[0].partitions[1].still.as_deref(), Some("no_fetch"));
    }
}
