//! Quarantined partitions, which are not read further.

use super::*;
use crossbeam_channel::Receiver;

/// One worker, its inbox, and the sender of its reports. Its partition is at rest, and assigned to it.
fn reading() -> (Assignment, Receiver<Ownership>, Sender<Report>) {
    let (mut assignment, reports, _) = assignment();
    let (ownership, told) = bounded(16);
    assignment.inboxes[0].ownership = ownership;
    for number in [0, 1] {
        assignment.arrivals.arrive(vec![id(number)]);
        assignment.begin(id(number), &beginning(None), &ConsumerStats::default());
        assignment.turns.gained(&[id(number)]);
    }
    assignment.arrivals.take_ready();
    commit(&mut assignment);
    (assignment, told, reports)
}

fn commit(assignment: &mut Assignment) {
    for owned in assignment.owned.values_mut() {
        if owned.ranges.commit(clock::now()).is_some() {
            owned.ranges.committed(owned.generation, CommitOutcome::Stored);
        }
    }
}

fn let_go(told: &Receiver<Ownership>) -> Vec<(i32, bool)> {
    let lost = |ownership| match ownership {
        Ownership::Lost { id, seal, .. } => Some((id.partition, seal)),
        Ownership::Gained(_) => None,
    };
    told.try_iter().filter_map(lost).collect()
}

#[test]
fn a_partition_with_a_halted_block_gives_its_turn_up_alone_and_begins_anew_once_it_goes_on() {
    let (mut assignment, told, reports) = reading();
    let stats = ConsumerStats::default();
    let generation = assignment.owned[&id(0)].generation;
    let range = OffsetRange { first: 0, next: 3 };
    reports
        .try_send(Report::Closed { id: id(0), generation, closed: closed(range), has_rows: true })
        .unwrap();
    reports.try_send(Report::Halted { id: id(0), generation, range }).unwrap();
    assignment.tend(&stats);
    assert!(let_go(&told).is_empty(), "nobody has it yet");
    commit(&mut assignment);
    assignment.owned.get_mut(&id(0)).unwrap().quarantine = Quarantine::No;
    for _ in 0..2 {
        assignment.tend(&stats);
    }
    assert_eq!(let_go(&told), [(0, false)], "once");
    assert_eq!(assignment.steps().change.pause, [id(0)]);
    assert!(!assignment.turns.is_active(&id(0)) && assignment.turns.is_active(&id(1)));

    reports.try_send(Report::Released { id: id(0), generation, renew: None }).unwrap();
    assignment.tend(&stats);
    assert!(assignment.steps().change.pause.is_empty());
    let known = assignment.known(clock::now())[&id(0)];
    assert_eq!((known.worker, known.halted), (AtWorker::Settling, true), "rows are refused, it says");

    reports.try_send(Report::Settled { id: id(0), generation, range }).unwrap();
    assignment.tend(&stats);
    assert!(assignment.owns(&id(0)), "the group does not know it yet");
    commit(&mut assignment);
    assert_eq!(assignment.steps().change.pause, [id(0)]);
    let arriving: Vec<_> = assignment.arrivals.arriving().cloned().collect();
    assert_eq!((arriving, assignment.owned()), (vec![id(0)], vec![id(1)]));
}
