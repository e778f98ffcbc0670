use super::*;
use crate::group::{
    batch_remedy::BatchRemedy,
    watchdog::{RECOVERY_WAIT, STILL_MAX},
};
use std::time::Duration;

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: "spans".into(), partition }
}

fn inspection() -> Inspection {
    Inspection {
        watchdog: Watchdog::default(),
        retention: Retention::default(),
        transactions: OpenTransactions::default(),
        limits: None,
        past: None,
        overtaken: BTreeSet::new(),
        halted: BTreeSet::new(),
    }
}

/// Everything that was read is inserted.
fn known() -> Known {
    Known { committed: Some(10), settled: Some(10), tail: Some(10), active: true, ..Known::default() }
}

fn numbers() -> PartitionStats {
    PartitionStats {
        end_offset: Some(20),
        log_start_offset: Some(5),
        position: Some(10),
        ..PartitionStats::default()
    }
}

fn common(now: Instant, known: &BTreeMap<PartitionId, Known>) -> Common {
    let unsettled: usize = known.values().map(|known| known.unsettled).sum();
    Common { now, round: Duration::ZERO, blocks_in_flight: unsettled as u64 }
}

/// Inspects unchanging partitions twice: at the start, and once a partition without progress is stuck.
fn twice(partitions: &[(Known, PartitionStats)]) -> (Change, ConsumerStats) {
    let stats = ConsumerStats::default();
    let with_id = || (0..).map(id).zip(partitions);
    stats.replace(with_id().map(|(id, (_, numbers))| (id, *numbers)).collect());
    let known: BTreeMap<_, _> = with_id().map(|(id, (known, _))| (id, *known)).collect();
    let (mut inspection, start) = (inspection(), Instant::now());
    assert_eq!(inspection.look(common(start, &known), &known, &stats), Change::default());
    assert_eq!(stats.still(), []);
    let later = start + STILL_MAX + RECOVERY_WAIT + Duration::from_secs(5);
    (inspection.look(common(later, &known), &known, &stats), stats)
}

fn found(stats: &ConsumerStats) -> Vec<(i32, Reason, bool)> {
    stats.still().into_iter().map(|still| (still.id.partition, still.reason, still.is_stuck)).collect()
}

#[test]
fn what_is_not_fetched_is_paused_and_resumed_and_what_is_paused_is_resumed() {
    let (change, stats) = twice(&[(known(), numbers()), (Known { paused: true, ..known() }, numbers())]);
    assert_eq!(change, Change { pause: vec![id(0)], resume: vec![id(0), id(1)] });
    assert_eq!(found(&stats), [(0, Reason::NoFetch, true), (1, Reason::PausedThoughActive, true)]);
}

#[test]
fn what_kafka_refuses_or_nobody_leads_is_not_fetched_and_what_waits_for_the_sink_is_not_due() {
    use rdkafka::{error::KafkaError, types::RDKafkaErrorCode::TopicAuthorizationFailed};
    use sluice_gateway_config::UnfetchedCause::{NoLeader, Other, TopicRefused};
    let cause = |known: Known, numbers: PartitionStats, is_refused: bool| {
        let stats = ConsumerStats::default();
        stats.replace([(id(0), numbers)].into());
        if is_refused {
            stats.fails_to_fetch(&id(0), &KafkaError::MessageConsumption(TopicAuthorizationFailed));
        }
        let known = BTreeMap::from([(id(0), known)]);
        let (mut inspection, start) = (inspection(), Instant::now());
        let mut said = Vec::new();
        for seconds in [0, 20, 65, 70] {
            let now = start + Duration::from_secs(seconds);
            inspection.look(common(now, &known), &known, &stats);
            said.push(stats.unfetched().map(|unfetched| (unfetched.cause, unfetched.time.as_secs())));
        }
        said
    };
    let all = |cause| [0_u64, 20, 65, 70].map(|seconds| Some((cause, seconds)));
    assert_eq!(cause(known(), numbers(), true), all(TopicRefused));
    let leaderless = PartitionStats { is_leaderless: true, ..numbers() };
    assert_eq!(cause(known(), leaderless, false), all(NoLeader));
    assert_eq!(cause(known(), numbers(), false), [None, None, None, Some((Other, 70))]);
    let at_end = PartitionStats { position: Some(20), ..numbers() };
    let at_sink = Known { tail: Some(15), unsettled: 3, worker: AtWorker::NoRoom, ..known() };
    let without_turn = Known { active: false, paused: true, ..known() };
    for (known, numbers) in [(known(), at_end), (at_sink, numbers()), (without_turn, numbers())] {
        assert_eq!(cause(known, numbers, true), [None; 4]);
    }
}

#[test]
fn what_waits_for_the_sink_makes_nobody_stuck() {
    // Its ranges are not settled. The others have no memory because of that, with or without a turn, or restart afterwards.
    let at_sink = Known { tail: Some(15), unsettled: 3, worker: AtWorker::NoRoom, ..known() };
    let without_turn = Known { active: false, paused: true, worker: AtWorker::NoRoom, ..known() };
    let leaving = Known { tail: Some(15), unsettled: 1, worker: AtWorker::Settling, ..known() };
    let (change, stats) = twice(&[(at_sink, numbers()), (without_turn, numbers()), (leaving, numbers())]);
    assert_eq!(change, Change::default());
    let at_sink = [0, 1, 2].map(|partition| (partition, Reason::Sink, false));
    assert_eq!(found(&stats), at_sink);
}

#[test]
fn a_message_that_cannot_be_read_is_named_even_when_it_is_the_last() {
    // librdkafka has handed it out, and counts it as read.
    let last = PartitionStats { position: Some(11), end_offset: Some(11), ..numbers() };
    let stopped =
        Known { worker: AtWorker::Stopped(BatchRemedy::Unknown), paused: true, active: false, ..known() };
    let lettering = Known { worker: AtWorker::Lettering, ..known() };
    let (change, stats) = twice(&[(stopped, last), (lettering, last)]);
    assert_eq!(change, Change::default());
    let by_message = Reason::StoppedByMessage(BatchRemedy::Unknown);
    assert_eq!(found(&stats), [(0, by_message, true), (1, Reason::DeadLetter, true)]);
}

#[test]
fn partitions_that_have_not_begun_and_plans_that_are_not_stored_stand_still() {
    let unplanned = Known { tail: Some(20), unplanned: Some(10), unsettled: 1, ..known() };
    let (change, stats) = twice(&[
        (Known::not_begun(AtWorker::Arriving), PartitionStats::default()),
        (Known::not_begun(AtWorker::Halted), PartitionStats::default()),
        (unplanned, PartitionStats { position: Some(20), ..numbers() }),
        (Known { worker: AtWorker::Renewing, committed: Some(7), ..known() }, numbers()),
    ]);
    assert_eq!(change, Change::default());
    let expected = [
        (0, Reason::BeginningUnknown, true),
        (1, Reason::NewerPlan, true),
        (2, Reason::Plan, true),
        (3, Reason::Commit, true),
    ];
    assert_eq!(found(&stats), expected);
}

#[test]
fn retention_is_told_of_what_is_not_settled() {
    // Two messages were deleted between the inspections, three are before the unsettled ones.
    let stats = ConsumerStats::default();
    let (mut inspection, start) = (inspection(), Instant::now());
    let known = BTreeMap::from([
        (id(0), Known { tail: Some(20), unsettled: 1, ..known() }),
        (id(1), Known::not_begun(AtWorker::Arriving)),
    ]);
    for (minute, log_start) in [(0, 5), (10, 7)] {
        let numbers = PartitionStats { log_start_offset: Some(log_start), position: Some(20), ..numbers() };
        stats.replace([(id(0), numbers)].into());
        inspection.look(common(start + Duration::from_mins(minute), &known), &known, &stats);
    }
    let left = stats.seconds_left();
    assert_eq!(left.keys().collect::<Vec<_>>(), [&id(0)]);
    assert!((left[&id(0)] - 900.0).abs() < 1e-6, "{left:?}");
}

#[test]
fn what_waits_behind_an_open_transaction_is_told_and_retention_comes_closer_to_it() {
    // All readable messages are settled: lag is 0.
    let stats = ConsumerStats::default();
    let (mut inspection, start) = (inspection(), Instant::now());
    let known = BTreeMap::from([(
        id(0),
        Known { committed: Some(20), settled: Some(20), tail: Some(20), ..known() },
    )]);
    for (minute, log_start) in [(0, 5), (10, 10)] {
        let numbers = PartitionStats {
            log_start_offset: Some(log_start),
            position: Some(20),
            high_watermark: Some(32),
            ..numbers()
        };
        stats.replace([(id(0), numbers)].into());
        inspection.look(common(start + Duration::from_mins(minute), &known), &known, &stats);
    }
    let open = stats.open_transactions()[&id(0)];
    assert_eq!((open.first_offset, open.messages, open.age), (20, 12, Duration::from_mins(10)));
    let left = stats.seconds_left();
    assert!(left.get(&id(0)).is_some_and(|left| (left - 1_200.0).abs() < 1e-6), "{left:?}");
    stats.replace([(id(0), PartitionStats { high_watermark: Some(20), ..numbers() })].into());
    inspection.look(common(start + Duration::from_mins(20), &known), &known, &stats);
    assert_eq!(stats.open_transactions(), BTreeMap::new());
    assert_eq!(stats.seconds_left(), BTreeMap::new());
}

#[test]
fn what_retention_has_overtaken_is_told_until_it_is_counted() {
    let at = |log_start| PartitionStats { log_start_offset: Some(log_start), ..numbers() };
    let of = |known: Known, numbers| {
        let stats = ConsumerStats::default();
        stats.replace([(id(0), numbers)].into());
        let known = BTreeMap::from([(id(0), known)]);
        inspection().look(common(Instant::now(), &known), &known, &stats);
        stats.overtaken().remove(&id(0))
    };
    assert_eq!(of(known(), at(10)), None, "it begins where it is read");
    assert_eq!(of(known(), at(13)), Some(3));
    let open = PartitionStats { position: Some(12), ..at(13) };
    assert_eq!(of(known(), open), Some(1), "of an open range, too, messages are here");
    let queued = PartitionStats { fetched_offset: Some(13), ..at(13) };
    assert_eq!(of(known(), queued), None, "what was fetched is here");
    assert_eq!(of(Known { paused: true, ..known() }, queued), Some(3), "until a pause throws it away");
    let waits = Known { committed: Some(5), settled: Some(5), unsettled: 1, ..known() };
    assert_eq!(of(waits, at(10)), None, "what waits for the sink is here");
    // Found at the start; blocks from before cover the offsets before the missing ones.
    assert_eq!(of(Known { lost: 4, ..waits }, at(10)), Some(4));
    assert_eq!(of(Known::not_begun(AtWorker::Arriving), at(13)), None);
}

#[test]
fn what_stops_partitions_is_said_once_until_it_is_over() {
    let still = |partition, reason| Still { id: id(partition), reason, since: STILL_MAX, is_stuck: false };
    let mut inspection = inspection();
    let letters = [still(0, Reason::DeadLetter), still(1, Reason::DeadLetter)];
    // A resumed partition has a log line of its own, and rows that wait for ClickHouse are safe.
    let others = [still(2, Reason::NoFetch), still(3, Reason::Sink)];
    inspection.say_still(&[&letters[..], &others[..]].concat());
    assert_eq!(inspection.halted, [Reason::DeadLetter].into());
    inspection.say_still(&[still(4, Reason::Commit)]);
    assert_eq!(inspection.halted, [Reason::Commit].into());
    inspection.say_still(&[]);
    assert_eq!(inspection.halted, BTreeSet::new());
}
