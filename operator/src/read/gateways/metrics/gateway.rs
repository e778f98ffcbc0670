//! What one gateway says of itself at `/metrics`: the few numbers of it that a scaling decision is made from.
//!
//! The names are the gateway's, which the operator does not link: `tests/gateway-metrics.txt` is what it exports, and is read
//! here and compared with the gateway in the gateway's own tests.

use super::exposition::{Line, lines};
use sluice_plan::scale::{Moment, PodSample};
use std::collections::BTreeSet;

const WORKER_SECONDS: &str = "sluice_gateway_worker_seconds_total";
pub(super) const MESSAGES: &str = "sluice_gateway_messages_total";
const MESSAGE_BYTES: &str = "sluice_gateway_message_bytes_total";
pub(super) const INSERT_FAILURES: &str = "sluice_gateway_insert_failures_total";
const MEMORY_USED: &str = "sluice_gateway_memory_used_bytes";
const BLOCK_POOL: &str = "sluice_gateway_block_pool_bytes";
const MEMORY_BUDGET: &str = "sluice_gateway_memory_budget_bytes";
const PARTITIONS_OWNED: &str = "sluice_gateway_partitions_owned";
const COMMITTED_OFFSET: &str = "sluice_gateway_committed_offset";
const LAG_MESSAGES: &str = "sluice_gateway_lag_messages";
const POSITION: &str = "sluice_gateway_position";
pub(super) const SINK_BEHIND: &str = "sluice_gateway_sink_behind";
const ROWS_IN_FLIGHT: &str = "sluice_gateway_rows_in_flight";
const SPOOL_BLOCKS: &str = "sluice_gateway_spool_blocks";
const PARTITION_STILL: &str = "sluice_gateway_partition_still";

/// Classes of failures that are the rows' own: such a block is sent on in parts, or its rows go to the dead-letter topic, and nothing waits.
pub(super) const OF_ROWS: [&str; 2] = ["poison", "split"];

/// Reasons for which a partition stands still that are not its own: it waits as others do, for the sink, for a commit, for memory or for its
/// turn.
const STILL_FOR_OTHERS: [&str; 5] = ["sink", "plan", "commit", "buffers", "no_turn"];

/// A partition by its topic and its number there.
type Partition = (String, u32);

/// What one gateway says, before its partitions have their places among those of a sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    /// Without partitions.
    sample: PodSample,
    /// Partitions it owns, whether or not it says which.
    pub partitions_owned: u64,
    partitions: BTreeSet<Partition>,
    still: BTreeSet<Partition>,
    positions: Vec<(Partition, u64)>,
}

/// One gateway's numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayNumbers {
    /// For the decision.
    pub sample: PodSample,
    /// Partitions it owns, whether or not it says which.
    pub partitions_owned: u64,
    /// How far it has read, by the places of partitions in the sample.
    pub positions: Vec<(u32, u64)>,
}

/// Why an answer is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {0} in what it says")]
pub struct Missing(&'static str);

/// Sums of what was found; `None` until it was found once.
#[derive(Default)]
struct Found {
    workers: BTreeSet<String>,
    busy_seconds: Option<f64>,
    source_seconds: Option<f64>,
    messages: Option<u64>,
    message_bytes: Option<u64>,
    insert_failures: u64,
    resident_bytes: Option<u64>,
    pool_free_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    partitions_owned: Option<u64>,
    rows_in_flight: Option<u64>,
    spool_blocks: Option<u64>,
    sink_behind: Option<u64>,
    partitions: BTreeSet<Partition>,
    still: BTreeSet<Partition>,
    positions: Vec<(Partition, u64)>,
}

/// Reads an answer.
pub fn read(text: &str) -> Result<Numbers, Missing> {
    let mut found = Found::default();
    for line in lines(text) {
        found.see(&line);
    }
    let partitions_owned = found.partitions_owned.ok_or(Missing(PARTITIONS_OWNED))?;
    let sample = PodSample {
        workers: u32::try_from(found.workers.len()).unwrap_or(u32::MAX).max(1),
        busy_seconds: found.busy_seconds.ok_or(Missing(WORKER_SECONDS))?,
        source_seconds: found.source_seconds.ok_or(Missing(WORKER_SECONDS))?,
        messages: found.messages.ok_or(Missing(MESSAGES))?,
        message_bytes: found.message_bytes.ok_or(Missing(MESSAGE_BYTES))?,
        insert_failures: found.insert_failures,
        memory_bytes: found.memory_bytes()?,
        memory_limit_bytes: found.memory_limit_bytes.ok_or(Missing(MEMORY_BUDGET))?,
        rows_in_flight: found.rows_in_flight.unwrap_or(0),
        spool_blocks: found.spool_blocks.unwrap_or(0),
        sink_behind: found.sink_behind.ok_or(Missing(SINK_BEHIND))? > 0,
        ..PodSample::default()
    };
    let Found { partitions, still, positions, .. } = found;
    Ok(Numbers { sample, partitions_owned, partitions, still, positions })
}

impl Numbers {
    /// The numbers of the gateway with this ordinal, which answered at this moment. `topics` are those of the sample, in its order, by which
    /// partitions are numbered.
    pub fn placed(&self, ordinal: u32, at: Moment, topics: &[(String, u32)]) -> GatewayNumbers {
        let places = |those: &BTreeSet<Partition>| -> Vec<u32> {
            let places: BTreeSet<u32> = those.iter().filter_map(|one| place(one, topics)).collect();
            places.into_iter().collect()
        };
        let partitions = places(&self.partitions);
        // A partition shows by name only once it was committed: an incomplete list would make others look idle.
        let is_whole = u64::try_from(partitions.len()) == Ok(self.partitions_owned);
        let sample = PodSample {
            ordinal,
            at,
            partitions: if is_whole { partitions } else { Vec::new() },
            still: places(&self.still),
            // It does not say so; its config does.
            partitions_active: 0,
            ..self.sample.clone()
        };
        let positions =
            self.positions.iter().filter_map(|(of, position)| Some((place(of, topics)?, *position)));
        GatewayNumbers { sample, partitions_owned: self.partitions_owned, positions: positions.collect() }
    }
}

impl Found {
    /// Memory in use. Chunks of the pool go round and stay resident once each of them was used, after a slow hour of ClickHouse
    /// at the latest: the resident set alone would look like pressure for ever.
    fn memory_bytes(&self) -> Result<u64, Missing> {
        let resident = self.resident_bytes.ok_or(Missing(MEMORY_USED))?;
        Ok(resident.saturating_sub(self.pool_free_bytes.ok_or(Missing(BLOCK_POOL))?))
    }

    fn see(&mut self, line: &Line<'_>) {
        match line.name {
            WORKER_SECONDS => self.see_worker(line),
            MESSAGES => add(&mut self.messages, line),
            MESSAGE_BYTES => add(&mut self.message_bytes, line),
            INSERT_FAILURES if !line.label("class").is_some_and(|class| OF_ROWS.contains(&&*class)) => {
                self.insert_failures = self.insert_failures.saturating_add(line.whole().unwrap_or(0));
            }
            MEMORY_USED if line.label("part").as_deref() == Some("process") => {
                add(&mut self.resident_bytes, line);
            }
            BLOCK_POOL if line.label("state").as_deref() == Some("free") => {
                add(&mut self.pool_free_bytes, line);
            }
            MEMORY_BUDGET => add(&mut self.memory_limit_bytes, line),
            PARTITIONS_OWNED => add(&mut self.partitions_owned, line),
            ROWS_IN_FLIGHT => add(&mut self.rows_in_flight, line),
            SPOOL_BLOCKS => add(&mut self.spool_blocks, line),
            SINK_BEHIND => add(&mut self.sink_behind, line),
            POSITION => self.positions.extend(partition(line).zip(line.whole())),
            PARTITION_STILL if line.whole() == Some(1) && is_its_own(line) => {
                self.still.extend(partition(line));
            }
            COMMITTED_OFFSET | LAG_MESSAGES => self.partitions.extend(partition(line)),
            _ => {}
        }
    }

    fn see_worker(&mut self, line: &Line<'_>) {
        let (Some(worker), Some(state)) = (line.label("worker"), line.label("state")) else { return };
        self.workers.insert(worker.into_owned());
        let sum = match &*state {
            "busy" => &mut self.busy_seconds,
            "source" => &mut self.source_seconds,
            _ => return,
        };
        if line.value.is_finite() && line.value >= 0.0 {
            *sum = Some(sum.unwrap_or(0.0) + line.value);
        }
    }
}

/// Whether a partition stands still for a reason of its own.
fn is_its_own(line: &Line<'_>) -> bool {
    line.label("reason").is_some_and(|reason| !STILL_FOR_OTHERS.contains(&&*reason))
}

fn add(sum: &mut Option<u64>, line: &Line<'_>) {
    if let Some(value) = line.whole() {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

fn partition(line: &Line<'_>) -> Option<Partition> {
    Some((line.label("topic")?.into_owned(), line.label("partition")?.parse().ok()?))
}

/// The partition's number over all topics.
fn place((topic, partition): &Partition, topics: &[(String, u32)]) -> Option<u32> {
    let mut first = 0_u32;
    for (name, partitions) in topics {
        if name == topic {
            return (*partition < *partitions).then(|| first.saturating_add(*partition));
        }
        first = first.saturating_add(*partitions);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = include_str!("../../../../tests/gateway-metrics.txt");

    fn read(
        text: &str,
        ordinal: u32,
        at: Moment,
        topics: &[(String, u32)],
    ) -> Result<GatewayNumbers, Missing> {
        super::read(text).map(|numbers| numbers.placed(ordinal, at, topics))
    }

    fn topics() -> Vec<(String, u32)> {
        vec![("other".to_owned(), 4), ("spans".to_owned(), 8)]
    }

    #[test]
    fn what_a_gateway_exports_is_read() {
        let numbers = read(EXPORTED, 3, Moment(7), &topics()).unwrap();
        assert_eq!(numbers.partitions_owned, 2);
        let expected = PodSample {
            ordinal: 3,
            at: Moment(7),
            workers: 2,
            busy_seconds: 3.5,
            source_seconds: 40.0,
            messages: 1_000,
            message_bytes: 900_000,
            insert_failures: 3,
            memory_bytes: 94_371_840,
            memory_limit_bytes: 268_435_456,
            rows_in_flight: 41_000,
            spool_blocks: 3,
            sink_behind: true,
            partitions: vec![4, 9],
            still: vec![],
            partitions_active: 0,
        };
        assert_eq!(numbers.sample, expected);
        assert_eq!(numbers.positions, [(9, 21)]);
    }

    #[test]
    fn who_stands_still_for_a_reason_of_its_own_is_told() {
        for (reason, expected) in
            [("no_fetch", vec![9]), ("stopped_by_message", vec![9]), ("sink", vec![]), ("no_turn", vec![])]
        {
            let line = format!(
                "sluice_gateway_partition_still{{partition=\"5\",reason=\"{reason}\",topic=\"spans\"}} 1\n"
            );
            let numbers = read(&(EXPORTED.to_owned() + &line), 0, Moment(0), &topics()).unwrap();
            assert_eq!(numbers.sample.still, expected, "{reason}");
        }
    }

    #[test]
    fn an_answer_without_one_of_the_numbers_is_none() {
        for name in [
            WORKER_SECONDS,
            MESSAGES,
            MESSAGE_BYTES,
            MEMORY_USED,
            BLOCK_POOL,
            MEMORY_BUDGET,
            PARTITIONS_OWNED,
            SINK_BEHIND,
        ] {
            let less: Vec<_> = EXPORTED.lines().filter(|line| !line.starts_with(name)).collect();
            assert_eq!(read(&less.join("\n"), 0, Moment(0), &topics()), Err(Missing(name)), "{name}");
        }
        assert!(read("", 0, Moment(0), &topics()).is_err());
    }

    #[test]
    fn negative_numbers_and_numbers_that_are_none_count_as_missing() {
        for value in ["-1", "NaN", "+Inf", "1e300"] {
            let text = EXPORTED.replace(
                "sluice_gateway_messages_total 1000",
                &format!("sluice_gateway_messages_total {value}"),
            );
            assert_eq!(read(&text, 0, Moment(0), &topics()), Err(Missing(MESSAGES)), "{value}");
        }
    }

    #[test]
    fn partitions_that_are_not_all_named_are_not_numbered() {
        let text = EXPORTED.replace("partitions_owned 2", "partitions_owned 3");
        let numbers = read(&text, 0, Moment(0), &topics()).unwrap();
        assert_eq!((numbers.partitions_owned, numbers.sample.partitions), (3, vec![]));
    }
}
