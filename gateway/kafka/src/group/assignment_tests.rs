use super::*;
use crate::{
    group::{batch_remedy::BatchRemedy, consumer::Shortage, inspection::Known, stats::PartitionStats},
    questions::topic_descriptions::Description,
};
use crossbeam_channel::{TrySendError, bounded};
use rdkafka::error::KafkaResult;
use sluice_gateway_config::InitialOffset;
use sluice_ranges::{
    Closed, ClusterNumber, CommitOutcome, Content, Cut, Fill, Log, OffsetRange, Plan, Rule, Settings,
    TopicId, Version,
};

const RULE: Rule = Rule { version: Version::Before, bytes: 100, messages: 10 };

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: "spans".into(), partition }
}

/// One worker, and the sender of its reports.
fn assignment() -> (Assignment, Sender<Report>, Shortage) {
    let (ownership, wake, shortage) = (bounded(1).0, bounded(1).0, Shortage::default());
    let (reports, reports_in) = bounded(16);
    let settings =
        Settings { rule: RULE, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
    let policy = Policy { settings, initial_offset: InitialOffset::Earliest, active_max: 8 };
    let inbox = Inbox { ownership, wake, shortage: shortage.clone() };
    (Assignment::new(vec![inbox], reports_in, Box::new(|_| Ok(())), policy), reports, shortage)
}

fn beginning(commit: Option<(i64, String)>) -> Beginning {
    let (log, cluster) = (Log { start: 0, end: 5 }, "cluster".into());
    Beginning { commit, log, cluster, topic_id: Some([1; 16]), is_new: false }
}

/// A range without messages that ended by time.
fn closed(range: OffsetRange) -> Closed {
    let (fill, content) = (Fill::default(), Content::default());
    let decided = range.next;
    Closed {
        range,
        cut: Cut::Time,
        decided,
        fill,
        content,
        doubtful: false,
        doubtful_up_to: 0,
        incomplete: false,
        rule: RULE,
    }
}

#[test]
fn what_is_known_of_a_partition_follows_its_course() {
    let (mut assignment, reports, shortage) = assignment();
    let stats = ConsumerStats::default();
    let worker = |assignment: &Assignment| assignment.known(clock::now())[&id(0)].worker;

    assignment.arrivals.arrive(vec![id(0)]);
    assert_eq!(assignment.known(clock::now()), [(id(0), Known::not_begun(AtWorker::Arriving))].into());

    assignment.begin(id(0), &beginning(None), &stats);
    assignment.turns.gained(&[id(0)]);
    let begun = Known { settled: Some(0), tail: Some(0), active: true, ..Known::default() };
    assert_eq!(assignment.known(clock::now()), [(id(0), begun)].into());

    shortage.say(true);
    assert_eq!(worker(&assignment), AtWorker::NoRoom);
    shortage.say(false);
    assignment.was_paused(&[id(0)], true);
    assert!(assignment.known(clock::now())[&id(0)].paused);

    let generation = assignment.owned[&id(0)].generation;
    let remedy = BatchRemedy::SmallerBatches;
    let stopped = |generation| Report::Stopped { id: id(0), generation, remedy };
    reports.try_send(stopped(Generation(generation.0 + 1))).unwrap();
    assignment.tend(&stats);
    assert_eq!(worker(&assignment), AtWorker::Reads, "that was of another generation");
    reports.try_send(stopped(generation)).unwrap();
    assignment.tend(&stats);
    assignment.steps();
    let known = assignment.known(clock::now())[&id(0)];
    assert_eq!((known.worker, known.active), (AtWorker::Stopped(remedy), false));
}

#[test]
fn a_partition_that_waits_for_a_letter_keeps_its_turn_and_is_named() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    assignment.turns.gained(&[id(0)]);
    let generation = assignment.owned[&id(0)].generation;
    for (waits, worker) in [(true, AtWorker::Lettering), (false, AtWorker::Reads)] {
        reports.try_send(Report::Lettering { id: id(0), generation, waits }).unwrap();
        assignment.tend(&stats);
        assignment.steps();
        let known = assignment.known(clock::now())[&id(0)];
        assert_eq!((known.worker, known.active), (worker, true));
    }
}

#[test]
fn a_block_that_waits_for_someone_to_act_is_known_until_it_is_settled() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    let range = OffsetRange { first: 0, next: 3 };
    let mut is_halted = |report| {
        reports.try_send(report).unwrap();
        assignment.tend(&stats);
        assignment.known(clock::now())[&id(0)].halted
    };
    assert!(!is_halted(Report::Closed { id: id(0), generation, closed: closed(range), has_rows: true }));
    assert!(!is_halted(Report::Halted { id: id(0), generation: Generation(generation.0 + 1), range }));
    for _ in 0..2 {
        assert!(is_halted(Report::Halted { id: id(0), generation, range }));
    }
    assert!(!is_halted(Report::Settled { id: id(0), generation, range }));
}

#[test]
fn a_partition_that_begins_anew_waits_for_the_sink_and_then_for_the_commit() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    let range = OffsetRange { first: 0, next: 3 };
    let closed = closed(range);
    let renew = Some(Renew::Memory);
    reports.try_send(Report::Closed { id: id(0), generation, closed, has_rows: true }).unwrap();
    reports.try_send(Report::Released { id: id(0), generation, renew }).unwrap();
    assignment.tend(&stats);
    let known = assignment.known(clock::now())[&id(0)];
    assert_eq!((known.worker, known.unsettled, known.tail), (AtWorker::Settling, 1, Some(3)));
    assert_eq!(known.unplanned, Some(0), "nothing was committed of this generation");
    reports.try_send(Report::Settled { id: id(0), generation, range }).unwrap();
    assignment.tend(&stats);
    let known = assignment.known(clock::now())[&id(0)];
    assert_eq!((known.worker, known.unsettled), (AtWorker::Renewing, 0));
}

#[test]
fn a_plan_of_a_newer_version_halts_a_partition_until_it_goes() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    let newer = "sluice-plan/4:".to_owned();
    let (given, orders) = bounded(16);
    assignment.orders = Box::new(move |order| given.try_send(order).map_err(TrySendError::into_inner));
    let (told, generations) = bounded(16);
    assignment.arrivals.keeps(Box::new(move |_, generation, _| {
        told.try_send(generation).unwrap();
        Vec::new()
    }));
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(Some((2, newer))), &stats);
    assignment.tend(&stats);
    let generation = generations.try_recv().unwrap();
    let forget = Order::Forget { id: id(0), generation, is_leaving: false };
    assert_eq!(
        orders.try_iter().collect::<Vec<_>>(),
        [forget],
        "it was told of what an earlier run has left"
    );
    assert_eq!(assignment.known(clock::now()), [(id(0), Known::not_begun(AtWorker::Halted))].into());
    assert_eq!(stats.partitions_halted.load(Ordering::Relaxed), 1);
    assert_eq!(assignment.arrivals.cancel_arrival(&[id(0)]), [id(0)]);
    assert!(assignment.known(clock::now()).is_empty());
}

#[test]
fn a_range_without_rows_is_settled_and_never_released() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let owned = assignment.owned.get_mut(&id(0)).unwrap();
    let generation = owned.generation;
    owned.ranges.commit(clock::now()).unwrap();
    owned.ranges.committed(generation, CommitOutcome::Stored);
    let (given, orders) = bounded(16);
    assignment.orders = Box::new(move |order| given.try_send(order).map_err(TrySendError::into_inner));
    for (first, has_rows) in [(0, false), (2, true)] {
        let range = OffsetRange { first, next: first + 2 };
        let closed = Closed { cut: Cut::Size, ..closed(range) };
        reports.try_send(Report::Closed { id: id(0), generation, closed, has_rows }).unwrap();
        // The next report comes later.
        assignment.tend(&stats);
    }
    let owned = assignment.owned.get_mut(&id(0)).unwrap();
    owned.ranges.commit(clock::now()).unwrap();
    owned.ranges.committed(generation, CommitOutcome::Stored);
    assignment.tend(&stats);
    let released = orders.try_iter().filter_map(|order| match order {
        Order::Send { release, .. } => Some(release.range.first),
        _ => None,
    });
    assert_eq!(released.collect::<Vec<_>>(), [2]);
    assert_eq!(assignment.left().ranges, 1);
}

/// An owned partition at rest at its first committed offset; its worker has released it.
fn released(assignment: &mut Assignment, number: i32, renew: Renew) -> PartitionId {
    released_told(assignment, number, renew, &ConsumerStats::default())
}

fn released_told(
    assignment: &mut Assignment,
    number: i32,
    renew: Renew,
    stats: &ConsumerStats,
) -> PartitionId {
    let id = id(number);
    assignment.arrivals.arrive(vec![id.clone()]);
    assignment.begin(id.clone(), &beginning(None), stats);
    assignment.turns.gained(std::slice::from_ref(&id));
    assignment.arrivals.take_ready();
    let owned = assignment.owned.get_mut(&id).unwrap();
    owned.ranges.commit(clock::now()).unwrap();
    owned.ranges.committed(owned.generation, CommitOutcome::Stored);
    let generation = owned.generation;
    let report = Report::Released { id: id.clone(), generation, renew: Some(renew) };
    assignment.take_report(&report, stats);
    id
}

#[test]
fn partitions_that_go_over_to_another_rule_are_counted() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    for (number, renew) in (0..).zip([Renew::Rule, Renew::Memory, Renew::Rule, Renew::OutOfRange]) {
        released_told(&mut assignment, number, renew, &stats);
    }
    assert_eq!(stats.rule_changes.load(Ordering::Relaxed), 2);
}

#[test]
fn a_partition_that_begins_anew_is_paused_and_unassigned_only_where_the_next_offset_is_gone() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    let kept = released(&mut assignment, 0, Renew::Memory);
    let goes = released(&mut assignment, 1, Renew::OutOfRange);
    let steps = assignment.steps();
    assert_eq!((steps.change.pause, steps.unassign), (vec![kept.clone()], vec![goes.clone()]));
    assert!(steps.assign.is_empty() && steps.change.resume.is_empty());
    assert!(!assignment.turns.is_active(&kept) && !assignment.owns(&kept));

    for id in [&kept, &goes] {
        assignment.begin(id.clone(), &beginning(None), &stats);
    }
    let ready = assignment.steps().assign;
    assert_eq!(ready.iter().map(|ready| ready.is_kept).collect::<Vec<_>>(), [true, false]);
    assert!(assignment.steps().assign.is_empty(), "it begins once");
}

#[test]
fn what_a_leader_has_said_of_a_partition_stays_while_it_begins_anew() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    let (asks, asked) = bounded(16);
    let ask = move |id: &PartitionId| {
        asks.try_send(id.partition).unwrap();
        Some(Log { start: 1, end: 9 })
    };
    assignment.logs = Some(LogReader::start_with(ask).unwrap());
    let id = released(&mut assignment, 0, Renew::OutOfRange);
    let end = |assignment: &Assignment| assignment.completed(&id, PartitionStats::default()).end_offset;
    let now = Instant::now();
    while end(&assignment).is_none() {
        assignment.ask_logs(now);
        std::thread::yield_now();
    }
    assert_eq!(assignment.steps().unassign, std::slice::from_ref(&id));
    assignment.ask_logs(now);
    assignment.begin(id.clone(), &beginning(None), &stats);
    assert_eq!(end(&assignment), Some(9), "its leader is asked again after an interval");
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [0]);
    assignment.lose(std::slice::from_ref(&id));
    assignment.ask_logs(now);
    assert_eq!(end(&assignment), None, "it is another owner's");
}

#[test]
fn the_group_takes_a_partition_that_begins_anew() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    let kept = released(&mut assignment, 0, Renew::Rule);
    let goes = released(&mut assignment, 1, Renew::OutOfRange);
    assignment.steps();
    let both = [kept.clone(), goes.clone()];
    assert_eq!(assignment.arrivals.cancel_arrival(&both), [goes], "librdkafka has the other one");
    assert!(assignment.arrivals.cancel_arrival(&both).is_empty());
    assert!(assignment.known(clock::now()).is_empty());
    assignment.begin(kept, &beginning(None), &stats);
    assert!(assignment.steps().assign.is_empty(), "what was read of it meanwhile counts for nothing");
}

#[test]
fn a_leader_that_does_not_answer_holds_up_nobody_else() {
    let (mut assignment, _reports, _) = assignment();
    assignment.arrivals.arrive(vec![id(0), id(1), id(2)]);
    assert_eq!(assignment.arrivals.due(|_| true), Some(vec![id(0), id(1), id(2)]));
    assignment.arrivals.postpone(&id(0));
    assignment.arrivals.postpone(&id(3));
    assert_eq!(assignment.arrivals.arriving().cloned().collect::<Vec<_>>(), [id(1), id(2), id(0)]);
    assignment.arrivals.arrive(vec![]);
    assert_eq!(assignment.arrivals.due(|_| true), None, "it was asked just now");
}

#[test]
fn what_kafka_no_longer_had_is_counted_by_the_owner_whose_commit_passes_it() {
    let stats = ConsumerStats::default();
    let log = Log { start: 40, end: 50 };
    let gap = Beginning { log, ..beginning(Some((10, String::new()))) };
    let lost = || stats.messages_lost.load(Ordering::Relaxed);
    let committed = |assignment: &mut Assignment, outcome| {
        let owned = assignment.owned.get_mut(&id(0)).unwrap();
        owned.ranges.commit(clock::now()).unwrap();
        let generation = owned.generation;
        assignment.take_committed(&[(id(0), generation, outcome)], None, &stats);
    };
    // The first one goes before its commit is stored.
    for (outcomes, counted) in [
        (&[CommitOutcome::Unknown][..], 0),
        (&[CommitOutcome::Unknown, CommitOutcome::Stored, CommitOutcome::Stored], 30),
    ] {
        let (mut assignment, _reports, _) = assignment();
        assignment.arrivals.arrive(vec![id(0)]);
        assignment.begin(id(0), &gap, &stats);
        for (number, outcome) in outcomes.iter().enumerate() {
            if number == 2 {
                let range = OffsetRange { first: 40, next: 43 };
                let owned = assignment.owned.get_mut(&id(0)).unwrap();
                let generation = owned.generation;
                owned.ranges.closed(generation, &closed(range));
            }
            let known = assignment.known(clock::now())[&id(0)].lost;
            assert_eq!(known + lost(), 30, "it is known from the beginning, and not twice");
            committed(&mut assignment, *outcome);
        }
        assert_eq!(lost(), counted);
    }
}

#[test]
fn nothing_begins_in_a_process_that_leaves() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.arrivals.end();
    assert_eq!(assignment.arrivals.due(|_| true), None);
    assignment.begin(id(0), &beginning(None), &stats);
    assert!(!assignment.owns(&id(0)) && assignment.steps().assign.is_empty());
}

/// An earlier owner may have sent ranges below the offset 4.
fn plan(cluster: Option<ClusterNumber>) -> Plan {
    Plan {
        offset: 0,
        rule: RULE,
        routing_epoch: 0,
        destination: None,
        horizon: 4,
        topic_id: None,
        cluster,
        t0: 1,
        cuts: vec![],
        parted: vec![],
        gaps: vec![],
        doubtful_up_to: 0,
    }
}

#[test]
fn a_partition_replays_until_a_range_ends_at_the_horizon() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(Some((0, plan(None).encode()))), &stats);
    assert!(assignment.owned[&id(0)].ranges.is_replaying());
    let generation = assignment.owned[&id(0)].generation;
    let closed = closed(OffsetRange { first: 0, next: 4 });
    reports.try_send(Report::Closed { id: id(0), generation, closed, has_rows: true }).unwrap();
    assignment.tend(&stats);
    assert!(!assignment.owned[&id(0)].ranges.is_replaying());
}

#[test]
fn a_topic_with_another_id_is_made_anew_and_one_of_which_nothing_is_said_is_not() {
    let (mut assignment, _reports, _) = assignment();
    assert_eq!(assignment.topics_due(), None, "nothing is owned");
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &ConsumerStats::default());
    let described = |id: KafkaResult<TopicId>| id.map(|id| Description { id, partitions: 1 });
    let identified = |id| Ok([("spans".into(), described(id))].into());
    let not_there = RDKafkaErrorCode::UnknownTopicOrPartition;
    for said in [Ok(Some([1; 16])), Ok(None), Err(rdkafka::error::KafkaError::AdminOp(not_there))] {
        assignment.take_identified(identified(said.clone()));
        assert_eq!(assignment.take_made_anew(), None, "{said:?}");
    }
    assignment.take_identified(identified(Ok(Some([2; 16]))));
    let made_anew = assignment.take_made_anew().expect("the id is another one");
    assert!(made_anew.to_string().starts_with("topic spans was deleted and created again"));
    assert_eq!(assignment.take_made_anew(), None, "it is said once");
}

/// A worker that hangs at a block takes messages out of the partition's queue before it learns that the partition is
/// lost. The next generation uses the same queue.
#[test]
fn a_partition_does_not_begin_before_the_worker_that_had_it_has_let_it_go() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    assignment.owned.get_mut(&id(0)).unwrap().quarantine = Quarantine::No;
    assignment.lose(&[id(0)]);
    assignment.arrivals.arrive(vec![id(0), id(1)]);
    let due = |assignment: &mut Assignment| {
        assignment.arrivals.go_on();
        let Assignment { arrivals, unreleased, .. } = assignment;
        arrivals.due(|id| !unreleased.contains_key(id))
    };
    assert_eq!(due(&mut assignment), Some(vec![id(1)]));
    let known = assignment.known(clock::now());
    assert_eq!([known[&id(0)].worker, known[&id(1)].worker], [AtWorker::NoRoom, AtWorker::Arriving]);
    reports.try_send(Report::Released { id: id(0), generation, renew: None }).unwrap();
    assignment.tend(&stats);
    assert_eq!(due(&mut assignment), Some(vec![id(0), id(1)]));
}

#[test]
fn what_no_worker_was_given_is_waited_for_from_none() {
    let (mut assignment, _reports, _) = assignment();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &ConsumerStats::default());
    assignment.lose(&[id(0)]);
    assert!(assignment.unreleased.is_empty());
}

/// The coordinator deletes the committed offsets of a topic that is deleted. A start that finds none begins where
/// `initialOffset` says.
#[test]
fn what_rests_of_a_topic_that_was_made_anew_is_committed_once_more() {
    let (mut assignment, _reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let committed = |assignment: &mut Assignment| {
        let owned = assignment.owned.get_mut(&id(0)).unwrap();
        let commit = owned.ranges.commit(clock::now())?;
        let generation = owned.generation;
        assignment.take_committed(&[(id(0), generation, CommitOutcome::Stored)], None, &stats);
        Some(commit)
    };
    let first = committed(&mut assignment).expect("the beginning is committed");
    assert_eq!(committed(&mut assignment), None, "it rests");
    let description = Description { id: Some([2; 16]), partitions: 1 };
    assignment.take_identified(Ok([("spans".into(), Ok(description))].into()));
    assert_eq!(committed(&mut assignment).map(|commit| commit.offset), Some(first.offset));
    assert_eq!(committed(&mut assignment), None, "once is enough");
}

#[test]
fn a_block_of_a_lost_partition_counts_while_its_insert_hangs() {
    let (mut assignment, reports, shortage) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    let closed = closed(OffsetRange { first: 0, next: 3 });
    reports.try_send(Report::Closed { id: id(0), generation, closed, has_rows: true }).unwrap();
    assignment.tend(&stats);
    assert_eq!(assignment.blocks_in_flight(), 1);
    shortage.say_blocks(1);
    assignment.lose(&[id(0)]);
    assert_eq!(assignment.blocks_in_flight(), 1, "the sink has the memory, not the buffers");
    shortage.say_blocks(0);
    assert_eq!(assignment.blocks_in_flight(), 0);
}

#[path = "assignment_leaving_tests.rs"]
mod leaving;

#[path = "assignment_quarantine_tests.rs"]
mod quarantine;

#[path = "assignment_cluster_tests.rs"]
mod clusters;
