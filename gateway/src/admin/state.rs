//! The answer to `GET /state`: what other threads keep in memory, put together. It asks no disk, so that a disk that hangs keeps no gateway
//! from saying how it is.

use crate::{
    admin::{
        health::{Status, resident_bytes},
        server::Health as _,
    },
    source::{keeper::Keeper, numbers::SourceNumbers, opening::TOPIC, unreadable::UNREADABLE},
    volume::spool::Spool,
};
use sluice_clickhouse::outcome::Class;
use sluice_gateway_config::{
    GatewaySample, GatewayState, INSERT_ERROR_CHARS_MAX, InsertErrorState, OpenTransactionState,
    PartitionState, PodIdentity, QueueState, STATE_VERSION, TopicState, UNCONNECTED_CHARS_MAX,
    UnconnectedState, UnfetchedState, VolumeFullState, cut_in_the_middle,
};
use sluice_kafka::{ConsumerStats, LogKeeper as _, Unfetched};
use sluice_otlp_server::{Counters, Outcome, Protocol};
use sluice_ranges::PartitionId;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// The reason of a table that does not exist, which operators before `tableError` read as a flag.
const TABLE_MISSING: &str = "TableMissing";

impl Status {
    /// The state without the pod, which the server knows.
    pub(super) fn to_state(&self) -> GatewayState {
        GatewayState {
            version: STATE_VERSION,
            pod: PodIdentity::default(),
            readiness: self.readiness(),
            sample: self.sample(),
            remaining: self.remaining(),
        }
    }

    fn sample(&self) -> GatewaySample {
        let consumer = self.consumer.get();
        let owned = consumer.map_or(0, |stats| stats.partitions_owned.load(Ordering::Relaxed));
        let table_error = self.table_misfit().as_ref().and_then(|misfit| misfit.reason);
        let mut sample = GatewaySample {
            messages_lost: Some(consumer.map_or(0, |stats| stats.messages_lost.load(Ordering::Relaxed))),
            rows_in_flight: self.account.in_flight(),
            queue: self.queue(),
            resident_bytes: resident_bytes().and_then(count),
            table_error: table_error.map(str::to_owned),
            table_missing: (table_error == Some(TABLE_MISSING)).then_some(true),
            pool_free_bytes: u64::try_from(self.pool.free_bytes()).ok(),
            unconnected: consumer.and_then(|stats| self.unconnected(stats)),
            unfetched: consumer.and_then(|stats| self.unfetched(stats)),
            partitions_owned: count(owned),
            topics: consumer.map_or_else(Vec::new, |stats| topics(stats)),
            ..self.metrics.sample()
        };
        if let Some((numbers, keeper)) = self.source.get() {
            self.add_source(keeper, &mut sample);
            add_unreadable(&numbers.unreadable.numbers(), &mut sample.topics);
            let unread = refused_unread(&numbers.counters);
            sample.requests_refused = sample.requests_refused.saturating_add(unread);
            sample.volume_full = volume_full(numbers);
        }
        sample
    }

    /// What a gateway with `source.otlp` says before it reads its logs, too: it is ready and takes requests, whether or not the table can be used.
    fn add_source(&self, keeper: &Keeper, sample: &mut GatewaySample) {
        sample.busy_seconds.get_or_insert(0.0);
        sample.source_seconds.get_or_insert(0.0);
        if sample.topics.is_empty() {
            sample.topics = logs(keeper);
        }
        let failures = self.table_failures.load(Ordering::Relaxed);
        sample.insert_failures = sample.insert_failures.saturating_add(failures);
        if failures == 0 {
            return;
        }
        if let Some(misfit) = &*self.table_misfit() {
            let message = Some(cut_in_the_middle(&misfit.why, INSERT_ERROR_CHARS_MAX));
            let class = Class::RefreshSchema.label().to_owned();
            sample.insert_error = Some(InsertErrorState { class, message, ..InsertErrorState::default() });
            sample.sink_behind = Some(true);
        }
    }

    /// A gateway that drains needs no broker any more once it has left.
    fn unconnected(&self, consumer: &ConsumerStats) -> Option<UnconnectedState> {
        let (reason, time) = consumer.unconnected().filter(|_| !self.drain_asked().is_requested())?;
        let reason = reason.chars().take(UNCONNECTED_CHARS_MAX).collect();
        Some(UnconnectedState { reason, seconds: time.as_secs() })
    }

    /// A gateway that drains fetches nothing.
    fn unfetched(&self, consumer: &ConsumerStats) -> Option<UnfetchedState> {
        let Unfetched { cause, topic, partitions, error, time } =
            consumer.unfetched().filter(|_| !self.drain_asked().is_requested())?;
        let error = error.map(|error| error.chars().take(UNCONNECTED_CHARS_MAX).collect());
        let topic = topic.map(|topic| topic.to_string());
        Some(UnfetchedState { cause, topic, partitions, error, seconds: time.as_secs() })
    }

    /// What waits on the volume. `None` while an earlier run may have left blocks there that are not counted yet. With `source.otlp` there are no
    /// blocks on it, and the bytes are those of the logs.
    fn queue(&self) -> Option<QueueState> {
        if let Some((numbers, _)) = self.source.get() {
            return Some(QueueState { blocks: 0, bytes: numbers.log_bytes.load(Ordering::Relaxed) });
        }
        match self.spool.get().map(Spool::usage) {
            Some(usage) => Some(QueueState { blocks: usage.blocks, bytes: usage.bytes }),
            None => (!self.may_hold_blocks).then(QueueState::default),
        }
    }
}

/// Whether the logs have no room.
fn volume_full(numbers: &SourceNumbers) -> Option<VolumeFullState> {
    let (time, limit) = numbers.fullness.full(Instant::now())?;
    let bytes_max = numbers.log_bytes_max.load(Ordering::Relaxed);
    Some(VolumeFullState { seconds: time.as_secs(), bytes_max, limit })
}

/// Requests whose body was not read, for want of memory or because there are too many.
fn refused_unread(counters: &Counters) -> u64 {
    let of = |protocol| {
        [Outcome::NoMemory, Outcome::Busy].map(|outcome| counters.requests(protocol, outcome)).into_iter()
    };
    Protocol::ALL.into_iter().flat_map(of).fold(0, u64::saturating_add)
}

/// The partitions of the consumer, by topic.
fn topics(consumer: &ConsumerStats) -> Vec<TopicState> {
    let mut topics = BTreeMap::<Arc<str>, BTreeMap<i32, PartitionState>>::new();
    for (PartitionId { topic, partition }, numbers) in consumer.partitions() {
        let state = PartitionState {
            position: numbers.position.and_then(count),
            committed_offset: numbers.committed_offset.and_then(count),
            lag_messages: numbers.lag_messages.and_then(count),
            ..PartitionState::default()
        };
        topics.entry(topic).or_default().insert(partition, state);
    }
    for still in consumer.still() {
        let state = topics.entry(still.id.topic).or_default().entry(still.id.partition).or_default();
        state.still = Some(still.reason.label().to_owned());
    }
    for (id, open) in consumer.open_transactions() {
        let state = topics.entry(id.topic).or_default().entry(id.partition).or_default();
        state.open_transaction = count(open.first_offset).map(|first_offset| OpenTransactionState {
            first_offset,
            messages: open.messages,
            seconds: open.age.as_secs(),
        });
    }
    let numbered = |(partition, state): (i32, PartitionState)| {
        u32::try_from(partition).ok().map(|partition| PartitionState { partition, ..state })
    };
    let topic = |(name, partitions): (Arc<str>, BTreeMap<i32, PartitionState>)| TopicState {
        name: name.to_string(),
        partitions: partitions.into_iter().filter_map(numbered).collect(),
    };
    topics.into_iter().map(topic).collect()
}

/// The logs as partitions.
fn logs(keeper: &Keeper) -> Vec<TopicState> {
    let mut topics = BTreeMap::<Arc<str>, Vec<PartitionState>>::new();
    for log in keeper.logs() {
        let Ok(partition) = u32::try_from(log.id.partition) else { continue };
        let state = PartitionState {
            partition,
            committed_offset: log.committed.and_then(count),
            lag_messages: Some(log.waiting()),
            ..PartitionState::default()
        };
        topics.entry(log.id.topic).or_default().push(state);
    }
    let topic = |(name, partitions): (Arc<str>, Vec<PartitionState>)| TopicState {
        name: name.to_string(),
        partitions,
    };
    topics.into_iter().map(topic).collect()
}

/// Names the logs that cannot be read. Of some of them nothing else is known.
fn add_unreadable(unreadable: &[i32], topics: &mut Vec<TopicState>) {
    for partition in unreadable.iter().filter_map(|log| u32::try_from(*log).ok()) {
        let still = Some(UNREADABLE.to_owned());
        let place = topics.iter().position(|topic| topic.name == TOPIC).unwrap_or_else(|| {
            topics.push(TopicState { name: TOPIC.to_owned(), partitions: Vec::new() });
            topics.len() - 1
        });
        let partitions = &mut topics[place].partitions;
        match partitions.binary_search_by_key(&partition, |state| state.partition) {
            Ok(place) => partitions[place].still = still,
            Err(place) => {
                partitions.insert(place, PartitionState { partition, still, ..PartitionState::default() });
            }
        }
    }
}

/// Numbers below zero are Kafka's way to say that there is none.
fn count(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::buffers::Pool,
        ground::metrics::{Metrics, RequestRefusal, reference},
    };
    use sluice_gateway_config::{DeliveryState, Readiness, Remaining, ServiceVolumes, UnfetchedCause};
    use sluice_kafka::{
        OpenTransaction,
        watchdog::{Reason, Still},
    };
    use std::{collections::BTreeSet, time::Duration};

    fn id(partition: i32) -> PartitionId {
        PartitionId { topic: "spans".into(), partition }
    }

    fn status() -> Status {
        let metrics = Arc::new(reference::metrics());
        Status::new(metrics, Arc::new(Pool::new(1 << 20, 1, 1)), None)
    }

    /// What the operator's tests read as a gateway's state.
    const READ_BY_THE_OPERATOR: &str = include_str!("../../../operator/tests/gateway-state.json");

    /// Names of fields, with those of what they hold.
    fn fields(at: &str, value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields_of) => {
                for (name, value) in fields_of {
                    let at = format!("{at}.{name}");
                    fields(&at, value, found);
                    found.insert(at);
                }
            }
            serde_json::Value::Array(all) => all.iter().for_each(|value| fields(at, value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_operator_reads_what_is_written() {
        let status = status();
        status.metrics.worker(0);
        status.metrics.worker(1);
        let consumer = Arc::new(ConsumerStats::default());
        status.consumes(consumer.clone());
        let open = OpenTransaction { first_offset: 17, messages: 4, age: Duration::from_millis(961_500) };
        consumer.publish_open_transactions([(id(5), open)].into());
        let mut state = status.to_state();
        state.remaining.control = Some(9_091);
        state.pod =
            PodIdentity { namespace: Some("n".into()), name: Some("a".into()), uid: Some("b".into()) };
        let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
        fields("", &serde_json::to_value(&state).unwrap(), &mut written);
        fields("", &serde_json::from_str(READ_BY_THE_OPERATOR).unwrap(), &mut read);
        // librdkafka's statistics bring these.
        let of_partition = ["position", "committedOffset", "lagMessages"];
        written.extend(of_partition.map(|name| format!(".sample.topics.partitions.{name}")));
        let missing: Vec<_> = read.difference(&written).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Counts something of everything.
    fn count_all(metrics: &Metrics) {
        for worker in 0..2 {
            metrics.worker(worker).busy.inc_by(1.5);
            metrics.worker(worker).source.inc_by(20.0);
            metrics.worker(worker).sink.inc_by(3.0);
        }
        metrics.messages.count(2, Some(b"spans"));
        metrics.messages.count(0, None);
        metrics.messages.reject("malformed");
        for (class, failures) in
            [(Class::Retry, 2), (Class::InDoubt, 1), (Class::Poison, 4), (Class::Split, 8)]
        {
            metrics.insert_failures.with_label_values(&[class.label()]).inc_by(failures);
        }
        metrics.dead_letters_refused.with_label_values(&["not_authorized"]).inc_by(2);
        metrics.dead_letters_refused.with_label_values(&["unknown_topic"]).inc();
        metrics.dead_letters.with_label_values(&["malformed"]).inc_by(5);
        metrics.dead_letters.with_label_values(&["row_refused"]).inc_by(6);
        metrics.rows_inserted.inc_by(90);
        metrics.blocks_inserted.inc_by(7);
        for refusal in [RequestRefusal::Full, RequestRefusal::Slow, RequestRefusal::Busy] {
            metrics.requests.refuse(refusal);
        }
        metrics.requests.refuse(RequestRefusal::Draining);
        metrics.requests.refuse(RequestRefusal::Malformed);
        metrics.sink_behind.set(1);
        metrics.guarantee.promise(None);
    }

    #[test]
    fn what_is_counted_is_said() {
        let status = status();
        count_all(&status.metrics);
        let said = status.to_state().sample;
        assert!(said.message_rejected_at.unwrap() > 1_700_000_000);
        let expected = GatewaySample {
            workers: 2,
            busy_seconds: Some(3.0),
            source_seconds: Some(40.0),
            messages: Some(2),
            message_bytes: Some(5),
            messages_without_spans: 1,
            messages_rejected: [
                ("malformed", 1),
                ("not_traces", 0),
                ("message_too_long", 0),
                ("row_too_large", 0),
                ("message_too_large", 0),
                ("framing", 0),
            ]
            .map(|(reason, count)| (reason.to_owned(), count))
            .into(),
            message_rejected_at: said.message_rejected_at,
            messages_lost: Some(0),
            dead_letters_refused: 3,
            requests_refused: 3,
            rows_inserted: 90,
            rows_refused: 6,
            rows_in_flight: 0,
            blocks_inserted: Some(7),
            insert_failures: 3,
            insert_failures_of_rows: 12,
            insert_error: None,
            sink_behind: Some(true),
            queue: Some(QueueState { blocks: 0, bytes: 0 }),
            table_parts: None,
            delivery: Some(DeliveryState {
                guarantee: "exactly_once_effect".into(),
                reason: None,
                durability: Some("unknown".into()),
            }),
            services: Some(ServiceVolumes::default()),
            resident_bytes: said.resident_bytes,
            pool_free_bytes: Some(status.pool.free_bytes() as u64),
            memory_limit_bytes: Some(192 << 20),
            unconnected: None,
            unfetched: None,
            table_error: None,
            table_missing: None,
            volume_full: None,
            partitions_owned: Some(0),
            topics: Vec::new(),
        };
        assert_eq!(said, expected);
        assert!(said.resident_bytes.unwrap() > 1 << 20);
    }

    #[test]
    fn every_stuck_partition_is_a_reason_and_readiness_is_that_of_the_probe() {
        let status = status();
        status.table_fits();
        let consumer = Arc::new(ConsumerStats::default());
        status.consumes(consumer.clone());
        consumer.joined.store(true, Ordering::Release);
        let still = |partition: i32, reason: Reason, is_stuck: bool| Still {
            id: id(partition),
            reason,
            since: Duration::from_mins(2),
            is_stuck,
        };
        assert_eq!(status.to_state().readiness, Readiness { ready: true, reasons: Vec::new() });
        let all = (0..12).map(|partition| still(partition, Reason::NoFetch, partition > 0)).collect();
        consumer.publish_still(all);
        let Readiness { ready, reasons } = status.to_state().readiness;
        assert_eq!((ready, reasons.len()), (false, 9));
        assert_eq!(reasons[0], "partition spans/1 stands still: no message is fetched from it");
        assert_eq!(reasons[8], "and 3 more");
        assert_eq!(status.ready(), Err(reasons.join("; ")));
        let partitions = &status.to_state().sample.topics[0].partitions;
        assert_eq!((partitions.len(), partitions[0].still.as_deref()), (12, Some("no_fetch")));
    }

    #[test]
    fn what_is_not_fetched_is_said_until_the_gateway_drains() {
        let status = status();
        let consumer = Arc::new(ConsumerStats::default());
        status.consumes(consumer.clone());
        let (cause, time) = (UnfetchedCause::TopicRefused, Duration::from_millis(20_500));
        let error = Some("x".repeat(9_000));
        consumer.publish_unfetched(Some(Unfetched {
            cause,
            topic: Some("spans".into()),
            partitions: 4,
            error,
            time,
        }));
        let error = Some("x".repeat(UNCONNECTED_CHARS_MAX));
        let said = UnfetchedState { cause, topic: Some("spans".into()), partitions: 4, error, seconds: 20 };
        assert_eq!(status.to_state().sample.unfetched, Some(said));
        status.drain_asked().request();
        assert_eq!(status.to_state().sample.unfetched, None);
    }

    #[test]
    fn partitions_say_what_is_known_of_them() {
        let status = status();
        let consumer = Arc::new(ConsumerStats::default());
        status.consumes(consumer.clone());
        consumer.partitions_owned.store(2, Ordering::Relaxed);
        let open = OpenTransaction { first_offset: 17, messages: 4, age: Duration::from_millis(961_500) };
        consumer.publish_open_transactions([(id(5), open)].into());
        let said = status.to_state();
        assert_eq!(said.sample.partitions_owned, Some(2));
        let open_transaction = Some(OpenTransactionState { first_offset: 17, messages: 4, seconds: 961 });
        let partition = PartitionState { partition: 5, open_transaction, ..PartitionState::default() };
        assert_eq!(said.sample.topics, [TopicState { name: "spans".into(), partitions: vec![partition] }]);
        let remaining = Remaining { damaged: Some(false), draining: Some(false), ..Remaining::default() };
        assert_eq!((said.version, said.remaining), (STATE_VERSION, remaining));
    }
}
