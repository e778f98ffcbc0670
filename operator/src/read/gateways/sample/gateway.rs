//! What one gateway says of itself: the few numbers of it that a scaling decision is made from.

use sluice_gateway_config::{GatewaySample, PartitionState};
use sluice_plan::{
    Moment,
    scale::{GatewayLogs, MergesBehind, PodSample},
};
use std::collections::BTreeSet;

/// Reasons for which a partition stands still that are not its own: it waits as others do, for the sink, for a commit, for memory or for its
/// turn.
const STILL_FOR_OTHERS: [&str; 5] = ["sink", "plan", "commit", "buffers", "no_turn"];

/// The reason of a log of `source.otlp` that cannot be read.
const UNREADABLE: &str = "unreadable";

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
    /// With `source.otlp`, its partitions are logs that only it has.
    logs: GatewayLogs,
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

/// Takes them from a sample.
pub fn read(said: &GatewaySample) -> Result<Numbers, Missing> {
    let partitions_owned = said.partitions_owned.ok_or(Missing("partitionsOwned"))?;
    let sample = PodSample {
        workers: said.workers.max(1),
        busy_seconds: seconds(said.busy_seconds).ok_or(Missing("busySeconds"))?,
        source_seconds: seconds(said.source_seconds).ok_or(Missing("sourceSeconds"))?,
        messages: said.messages.ok_or(Missing("messages"))?,
        message_bytes: said.message_bytes.ok_or(Missing("messageBytes"))?,
        insert_failures: said.insert_failures,
        requests_refused: said.requests_refused,
        memory_bytes: memory_bytes(said)?,
        memory_limit_bytes: said.memory_limit_bytes.ok_or(Missing("memoryLimitBytes"))?,
        rows_in_flight: said.rows_in_flight,
        spool_blocks: said.queue.map_or(0, |queue| queue.blocks),
        sink_behind: said.sink_behind.ok_or(Missing("sinkBehind"))?,
        merges: merges(said),
        ..PodSample::default()
    };
    let mut numbers = Numbers { sample, partitions_owned, ..Numbers::default() };
    for topic in &said.topics {
        for partition in &topic.partitions {
            numbers.see(&topic.name, partition);
        }
    }
    Ok(numbers)
}

/// The parts of the table, if merges are behind.
fn merges(said: &GatewaySample) -> Option<MergesBehind> {
    let found = said.table_parts.filter(|found| found.merges_behind)?;
    Some(MergesBehind { parts: found.parts, delay_from: found.delay_from })
}

fn seconds(said: Option<f64>) -> Option<f64> {
    said.filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
}

/// Memory in use. Chunks of the pool go round and stay resident once each of them was used, after a slow hour of ClickHouse
/// at the latest: the resident set alone would look like pressure for ever.
fn memory_bytes(said: &GatewaySample) -> Result<u64, Missing> {
    let resident = said.resident_bytes.ok_or(Missing("residentBytes"))?;
    Ok(resident.saturating_sub(said.pool_free_bytes.ok_or(Missing("poolFreeBytes"))?))
}

impl Numbers {
    fn see(&mut self, topic: &str, said: &PartitionState) {
        let partition = || (topic.to_owned(), said.partition);
        if said.committed_offset.is_some() || said.lag_messages.is_some() {
            self.partitions.insert(partition());
        }
        self.see_log(said);
        // Others stand still for a reason of their own.
        if said.still.as_deref().is_some_and(|reason| !STILL_FOR_OTHERS.contains(&reason)) {
            self.still.insert(partition());
        }
        self.positions.extend(said.position.map(|position| (partition(), position)));
    }

    /// Adds a partition, taken as a log. Of one that cannot be read, it may say nothing but that.
    fn see_log(&mut self, said: &PartitionState) {
        let logs = &mut self.logs;
        if said.still.as_deref() == Some(UNREADABLE) {
            logs.unreadable = logs.unreadable.saturating_add(1);
            logs.unread = logs.unread.saturating_add(said.lag_messages.unwrap_or(0));
        } else if let Some(waiting) = said.lag_messages {
            let appended = said.committed_offset.unwrap_or(0).saturating_add(waiting);
            logs.readable = logs.readable.saturating_add(1);
            logs.appended = logs.appended.saturating_add(appended);
            logs.waiting = logs.waiting.saturating_add(waiting);
        }
    }

    /// Its partitions, taken as logs that only it has; `None` before it tells of them, which it does of all at once.
    pub fn logs(&self) -> Option<GatewayLogs> {
        (!self.partitions.is_empty() || self.logs.unreadable > 0).then_some(self.logs)
    }

    /// The partitions that it owns by topic and number; `None` while it does not name all: it does once each was committed.
    pub fn named(&self) -> Option<&BTreeSet<(String, u32)>> {
        (u64::try_from(self.partitions.len()) == Ok(self.partitions_owned)).then_some(&self.partitions)
    }

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
    use super::{super::report::tests::exported, *};
    use sluice_gateway_config::TablePartsState;

    fn read(
        said: &GatewaySample,
        ordinal: u32,
        at: Moment,
        topics: &[(String, u32)],
    ) -> Result<GatewayNumbers, Missing> {
        super::read(said).map(|numbers| numbers.placed(ordinal, at, topics))
    }

    fn topics() -> Vec<(String, u32)> {
        vec![("other".to_owned(), 4), ("spans".to_owned(), 8)]
    }

    #[test]
    fn what_a_gateway_says_is_read() {
        let numbers = read(&exported(), 3, Moment(7), &topics()).unwrap();
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
            requests_refused: 7,
            memory_bytes: 94_371_840,
            memory_limit_bytes: 268_435_456,
            rows_in_flight: 41_000,
            spool_blocks: 3,
            sink_behind: true,
            merges: None,
            partitions: vec![4, 9],
            still: vec![],
            partitions_active: 0,
            logs: None,
        };
        assert_eq!(numbers.sample, expected);
        assert_eq!(numbers.positions, [(9, 21)]);
    }

    #[test]
    fn merges_are_behind_where_a_gateway_says_so() {
        let of = |merges_behind| {
            let found = TablePartsState { parts: 600, delay_from: 1_000, refuse_from: 3_000, merges_behind };
            let said = GatewaySample { table_parts: Some(found), ..exported() };
            read(&said, 0, Moment(0), &topics()).unwrap().sample.merges
        };
        assert_eq!(of(true), Some(MergesBehind { parts: 600, delay_from: 1_000 }));
        assert_eq!(of(false), None);
    }

    #[test]
    fn who_stands_still_for_a_reason_of_its_own_is_told() {
        for (reason, expected) in
            [("no_fetch", vec![9]), ("stopped_by_message", vec![9]), ("sink", vec![]), ("no_turn", vec![])]
        {
            let mut said = exported();
            said.topics[0].partitions[1].still = Some(reason.to_owned());
            let numbers = read(&said, 0, Moment(0), &topics()).unwrap();
            assert_eq!(numbers.sample.still, expected, "{reason}");
        }
    }

    #[test]
    fn a_log_that_cannot_be_read_is_counted_by_itself() {
        let log = |partition, committed_offset, lag_messages, still: Option<&str>| PartitionState {
            partition,
            committed_offset,
            lag_messages,
            still: still.map(str::to_owned),
            ..PartitionState::default()
        };
        let mut said = exported();
        said.topics.truncate(1);
        let mut logs = |partitions: Vec<PartitionState>| {
            said.topics[0].partitions = partitions;
            super::read(&said).unwrap().logs()
        };
        let readable = GatewayLogs { readable: 1, appended: 120, waiting: 20, ..GatewayLogs::default() };
        assert_eq!(logs(vec![log(0, Some(100), Some(20), Some("sink"))]), Some(readable));
        let (one, other) =
            (log(1, Some(7), Some(900), Some(UNREADABLE)), log(2, None, None, Some(UNREADABLE)));
        let both = GatewayLogs { unreadable: 2, unread: 900, ..readable };
        assert_eq!(logs(vec![log(0, Some(100), Some(20), None), one, other.clone()]), Some(both));
        let none = GatewayLogs { unreadable: 1, ..GatewayLogs::default() };
        assert_eq!(logs(vec![other]), Some(none), "it tells of all that it has");
        assert_eq!(logs(Vec::new()), None);
    }

    #[test]
    fn a_sample_without_one_of_the_numbers_is_none() {
        type Take = fn(&mut GatewaySample);
        let without: [(&str, Take); 9] = [
            ("partitionsOwned", |said| said.partitions_owned = None),
            ("busySeconds", |said| said.busy_seconds = Some(-1.0)),
            ("sourceSeconds", |said| said.source_seconds = None),
            ("messages", |said| said.messages = None),
            ("messageBytes", |said| said.message_bytes = None),
            ("residentBytes", |said| said.resident_bytes = None),
            ("poolFreeBytes", |said| said.pool_free_bytes = None),
            ("memoryLimitBytes", |said| said.memory_limit_bytes = None),
            ("sinkBehind", |said| said.sink_behind = None),
        ];
        for (name, take) in without {
            let mut said = exported();
            take(&mut said);
            assert_eq!(read(&said, 0, Moment(0), &topics()), Err(Missing(name)), "{name}");
        }
        assert!(read(&GatewaySample::default(), 0, Moment(0), &topics()).is_err());
    }

    #[test]
    fn partitions_that_are_not_all_named_are_not_numbered() {
        let said = GatewaySample { partitions_owned: Some(3), ..exported() };
        let numbers = read(&said, 0, Moment(0), &topics()).unwrap();
        assert_eq!((numbers.partitions_owned, numbers.sample.partitions), (3, vec![]));
    }
}
