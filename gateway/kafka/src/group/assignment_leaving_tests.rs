//! Leaving the group, and canceling that.

use super::*;
use crate::group::committer::Committer;
use rdkafka::error::{KafkaError, KafkaResult};

#[test]
fn a_partition_that_was_taken_back_begins_anew_once_the_group_is_not_left_after_all() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    assert_eq!(assignment.steps().assign.len(), 1);
    let generation = assignment.owned[&id(0)].generation;
    let settle = |assignment: &mut Assignment| {
        let commit = assignment.owned.get_mut(&id(0)).unwrap();
        commit.ranges.commit(clock::now()).unwrap();
        commit.ranges.committed(generation, CommitOutcome::Stored);
    };
    settle(&mut assignment);

    assignment.drain();
    let held = Remaining { partitions: 1, reading: 1, ranges: 0, uncommitted: 0 };
    assert_eq!(assignment.left(), held);
    reports.try_send(Report::Released { id: id(0), generation, renew: None }).unwrap();
    assignment.tend(&stats);
    assert_eq!(assignment.left(), Remaining { reading: 0, ..held });
    assert!(assignment.steps().change.pause.is_empty(), "it is to be given back, not to begin");
    assignment.arrivals.arrive(vec![id(1)]);
    assert_eq!(assignment.arrivals.due(|_| true), None, "none begins");

    assignment.resume();
    assert_eq!(assignment.steps().change.pause, [id(0)]);
    assert_eq!(assignment.arrivals.due(|_| true).map(|due| due.len()), Some(2), "both begin");
}

#[test]
fn what_is_not_committed_is_counted_and_nothing_is_waited_for_beyond_the_end() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(Some((0, String::new()))), &stats);
    let generation = assignment.owned[&id(0)].generation;
    let ranges = &mut assignment.owned.get_mut(&id(0)).unwrap().ranges;
    ranges.commit(clock::now()).unwrap();
    ranges.committed(generation, CommitOutcome::Stored);
    let range = OffsetRange { first: 0, next: 3 };
    let closed = closed(range);
    reports.try_send(Report::Closed { id: id(0), generation, closed, has_rows: true }).unwrap();
    assignment.tend(&stats);
    assert_eq!(assignment.left(), Remaining { partitions: 1, reading: 1, ranges: 1, uncommitted: 3 });
    assert_eq!(stats.uncommitted.load(Ordering::Relaxed), 3);

    assignment.stop.request(Duration::ZERO);
    let hour = Instant::now() + Duration::from_hours(1);
    let before = Instant::now();
    assignment.tend_until(hour, &stats, |assignment| assignment.unfinished() == 0);
    assert!(before.elapsed() < Duration::from_mins(1), "the end has come");
}

#[test]
fn what_is_settled_and_not_committed_is_told_from_what_is_not_settled() {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    let (first, second) = (OffsetRange { first: 0, next: 2 }, OffsetRange { first: 2, next: 5 });
    for range in [first, second] {
        reports
            .try_send(Report::Closed { id: id(0), generation, closed: closed(range), has_rows: true })
            .unwrap();
    }
    let seen = |assignment: &mut Assignment| {
        assignment.tend(&stats);
        (assignment.uncommitted(&[id(0)]), assignment.committable(&[id(0)]))
    };
    let commit = |assignment: &mut Assignment, outcome| {
        let owned = assignment.owned.get_mut(&id(0)).unwrap();
        owned.ranges.commit(clock::now()).unwrap();
        owned.ranges.committed(generation, outcome);
    };
    // Not one commit of this owner was ever stored.
    assert_eq!(seen(&mut assignment), (5, 0));
    commit(&mut assignment, CommitOutcome::Stored);
    assert_eq!(seen(&mut assignment), (5, 0), "the ranges are planned, and sent");
    reports.try_send(Report::Settled { id: id(0), generation, range: first }).unwrap();
    assert_eq!(seen(&mut assignment), (5, 2));
    commit(&mut assignment, CommitOutcome::Unknown);
    assert_eq!(seen(&mut assignment), (5, 2), "nobody has it");
    commit(&mut assignment, CommitOutcome::Stored);
    assert_eq!(stats.uncommitted.load(Ordering::Relaxed), 5, "of the last step");
    assignment.count_uncommitted(&stats);
    assert_eq!(stats.uncommitted.load(Ordering::Relaxed), 3, "of the last commit, without another step");
    assert_eq!(seen(&mut assignment), (3, 0));
}

#[test]
fn only_a_process_that_ends_leaves_blocks_on_its_volume() {
    for ends in [false, true] {
        let (mut assignment, _reports, _) = assignment();
        let (told, orders) = bounded(16);
        assignment.orders = Box::new(move |order| {
            told.try_send(order).unwrap();
            Ok(())
        });
        assignment.arrivals.arrive(vec![id(0)]);
        assignment.begin(id(0), &beginning(None), &ConsumerStats::default());
        assignment.drain();
        if ends {
            assignment.stop.request(Duration::ZERO);
        }
        assignment.lose(&[id(0)]);
        let forgotten = orders.try_iter().find_map(|order| match order {
            Order::Forget { is_leaving, .. } => Some(is_leaving),
            _ => None,
        });
        assert_eq!(forgotten, Some(ends));
    }
}

/// An owner of one partition. Two offsets of it are settled and not committed. The commits get these answers.
fn settled(answers: Vec<KafkaResult<()>>) -> Assignment {
    let (mut assignment, _) = sent(&[FIRST]);
    assignment.committer = Some(Committer::of_answers(answers.into_iter()));
    assignment
}

const FIRST: OffsetRange = OffsetRange { first: 0, next: 2 };
const SECOND: OffsetRange = OffsetRange { first: 2, next: 4 };

/// An owner of one partition whose ranges these are, all of them planned. The first is settled and not committed.
fn sent(ranges: &[OffsetRange]) -> (Assignment, Sender<Report>) {
    let (mut assignment, reports, _) = assignment();
    let stats = ConsumerStats::default();
    assignment.arrivals.arrive(vec![id(0)]);
    assignment.begin(id(0), &beginning(None), &stats);
    let generation = assignment.owned[&id(0)].generation;
    for range in ranges {
        reports
            .try_send(Report::Closed { id: id(0), generation, closed: closed(*range), has_rows: true })
            .unwrap();
    }
    assignment.tend(&stats);
    let planned = &mut assignment.owned.get_mut(&id(0)).unwrap().ranges;
    planned.commit(clock::now()).unwrap();
    planned.committed(generation, CommitOutcome::Stored);
    reports.try_send(Report::Settled { id: id(0), generation, range: FIRST }).unwrap();
    assignment.tend(&stats);
    assert_eq!(assignment.committable(&[id(0)]), 2);
    (assignment, reports)
}

fn refused(code: RDKafkaErrorCode) -> KafkaResult<()> {
    Err(KafkaError::ConsumerCommit(code))
}

#[test]
fn a_process_that_ends_commits_again_what_a_rebalance_refused() {
    use RDKafkaErrorCode::{IllegalGeneration, RebalanceInProgress, StaleMemberEpoch, UnknownMemberId};
    let stats = ConsumerStats::default();
    let rebalances =
        || vec![refused(IllegalGeneration), refused(RebalanceInProgress), refused(StaleMemberEpoch)];
    let last = |answers: Vec<KafkaResult<()>>, ends: bool| {
        let mut assignment = settled(answers);
        let until = Instant::now() + Duration::from_mins(1);
        if ends {
            assignment.stop.request(Duration::from_mins(1));
        }
        assignment.commit_last(&[id(0)], until, &stats);
        assert!(Instant::now() < until, "nothing is waited for that does not come");
        assignment.committable(&[id(0)])
    };
    let then_stored = |mut answers: Vec<KafkaResult<()>>| {
        answers.push(Ok(()));
        answers
    };
    assert_eq!(last(then_stored(rebalances()), true), 0, "the group has it");
    assert_eq!(last(then_stored(rebalances()), false), 2, "the group waits for who gives partitions up");
    assert_eq!(last(then_stored(vec![refused(UnknownMemberId)]), true), 2, "they are another's");
}

#[test]
fn a_process_that_ends_commits_what_settles_during_its_last_commit() {
    let (mut assignment, reports) = sent(&[FIRST, SECOND]);
    let generation = assignment.owned[&id(0)].generation;
    let mut late = Some(Report::Settled { id: id(0), generation, range: SECOND });
    assignment.committer = Some(Committer::of_answers(std::iter::from_fn(move || {
        if let Some(report) = late.take() {
            reports.try_send(report).unwrap();
        }
        Some(Ok(()))
    })));
    assignment.stop.request(Duration::from_mins(1));
    let until = Instant::now() + Duration::from_mins(1);
    assignment.commit_last(&[id(0)], until, &ConsumerStats::default());
    assert!(Instant::now() < until, "nothing more settles");
    assert_eq!(assignment.committable(&[id(0)]), 0);
}

#[test]
fn a_rebalance_that_does_not_end_is_waited_for_no_longer_than_the_last_commit_may_take() {
    let refusals = (0..1_000).map(|_| refused(RDKafkaErrorCode::RebalanceInProgress)).collect();
    let mut assignment = settled(refusals);
    assignment.stop.request(Duration::from_hours(1));
    let (begun, patience) = (Instant::now(), Duration::from_millis(300));
    assignment.commit_last(&[id(0)], begun + patience, &ConsumerStats::default());
    assert!(begun.elapsed() >= patience && begun.elapsed() < Duration::from_mins(1));
    assert_eq!(assignment.committable(&[id(0)]), 2);
}

#[test]
fn reports_are_taken_while_a_commit_is_waited_for() {
    let (mut assignment, reports, _) = assignment();
    let (answers, may_answer) = bounded(1);
    let mut committer = Committer::answering_after(may_answer);
    committer.identify(Vec::new());
    assignment.committer = Some(committer);
    let reporting = std::thread::spawn(move || {
        let more_than_fit = 0..10 * i32::try_from(reports.capacity().unwrap()).unwrap();
        let taken = more_than_fit
            .map(|partition| Report::Stopped {
                id: id(partition),
                generation: Generation(1),
                remedy: BatchRemedy::Unknown,
            })
            .all(|report| reports.send_timeout(report, Duration::from_secs(20)).is_ok());
        answers.try_send(()).unwrap();
        taken
    });
    assert!(assignment.resolve(Instant::now() + Duration::from_mins(1), &ConsumerStats::default()));
    assert!(reporting.join().unwrap(), "who reports is held up for as long as the coordinator is away");
}
