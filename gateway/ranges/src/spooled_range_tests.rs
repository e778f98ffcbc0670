//! A pod that returns with blocks on its volume, whatever the group's offset was when it left.

use super::*;

const RULE: Rule = Rule { version: Version::After, bytes: 1_000, messages: 3 };
const SETTINGS: Settings =
    Settings { rule: RULE, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
const LOG: Log = Log { start: 0, end: 1_000 };

fn at(seconds: u64) -> Now {
    Now { steady: Duration::from_secs(seconds), unix_seconds: 1_000 + seconds }
}

/// A first run: ranges by size and by time, all of them planned. The first `settled` of them are settled and committed. Returns the
/// spooled ranges, and the commit.
fn first_run(settled: usize) -> (Vec<SpooledRange>, (i64, String)) {
    let committed = Committed { commit: None, begin: 0, log: LOG };
    let (mut ranges, mut cutter, _) =
        Ranges::assigned(Generation(1), &committed, SETTINGS, at(0)).expect("nothing is halted");
    let mut closed = Vec::new();
    for offset in 0..17 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        closed.extend(cutter.take(offset, Some(b"x")));
        if [7, 10].contains(&offset) {
            closed.extend(cutter.flush());
        }
    }
    let mut stored = None;
    for (place, closed) in closed.iter().enumerate() {
        ranges.closed(Generation(1), closed);
        let is_settled = place < settled;
        if is_settled {
            ranges.settled(Generation(1), closed.range);
        }
        if let Some(commit) = ranges.commit(at(1)) {
            ranges.committed(Generation(1), CommitOutcome::Stored);
            stored = Some((commit.offset, commit.metadata));
        }
        ranges.release(at(1));
    }
    if let Some(commit) = ranges.commit(at(2)) {
        ranges.committed(Generation(1), CommitOutcome::Stored);
        stored = Some((commit.offset, commit.metadata));
    }
    let kept = closed.iter().filter_map(SpooledRange::of).collect();
    (kept, stored.expect("the first commit is made at once"))
}

#[test]
fn a_pod_that_comes_back_goes_on_behind_what_it_kept_wherever_the_commit_stood() {
    let (all, _) = first_run(0);
    let ends: Vec<i64> = all.iter().map(|kept| kept.range.next).collect();
    assert_eq!(ends, [3, 6, 8, 11, 14, 17], "by size and by time");
    for settled in 0..=all.len() {
        let (kept, (offset, metadata)) = first_run(settled);
        let committed = Committed { commit: Some((offset, &metadata)), begin: 0, log: LOG };
        let (mut ranges, cutter, found, taken) =
            Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
        assert_eq!(offset, settled.checked_sub(1).map_or(0, |last| ends[last]));
        assert_eq!(taken, &all[settled..], "{settled} are committed");
        assert_eq!((cutter.position(), found.overtaken), (17, None), "nothing that is kept is read again");
        let released: Vec<OffsetRange> =
            ranges.release(at(3)).into_iter().map(|release| release.range).collect();
        assert_eq!(released, all[settled..].iter().map(|kept| kept.range).collect::<Vec<_>>());
    }
}

#[test]
fn behind_a_gap_messages_are_read_again() {
    let (mut kept, (offset, metadata)) = first_run(2);
    assert_eq!(kept.remove(3).range.first, 8);
    let committed = Committed { commit: Some((offset, &metadata)), begin: 0, log: LOG };
    let (_, cutter, _, taken) =
        Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
    assert_eq!((taken, cutter.position()), (&kept[2..3], 8));
}

#[test]
fn what_is_kept_and_committed_need_not_be_in_kafka() {
    let (kept, (offset, metadata)) = first_run(3);
    let log = Log { start: 11, end: 1_000 };
    let committed = Committed { commit: Some((offset, &metadata)), begin: 11, log };
    let (_, cutter, found, taken) =
        Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
    assert_eq!((taken, cutter.position(), found.overtaken), (&kept[3..], 17, None));
}

/// Retention may have moved the start of the log into a range whose block is on the volume, or past it.
#[test]
fn a_kept_range_stays_one_range_wherever_the_log_begins_and_nothing_of_it_is_read() {
    let (kept, (offset, metadata)) = first_run(1);
    for start in 0..=20 {
        let log = Log { start, ..LOG };
        let committed = Committed { commit: Some((offset, &metadata)), begin: start, log };
        assert_eq!(committed.taken_over(&SETTINGS, &kept), Ok(&kept[1..]), "the log begins at {start}");
        let (mut ranges, cutter, found, taken) =
            Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
        assert_eq!((taken, cutter.position()), (&kept[1..], start.max(17)));
        let lost = (start > 17).then_some(OffsetRange { first: 17, next: start });
        assert_eq!(found.overtaken.map(|overtaken| overtaken.lost), lost);
        let released: Vec<OffsetRange> =
            ranges.release(at(3)).into_iter().map(|release| release.range).collect();
        assert_eq!(released, kept[1..].iter().map(|kept| kept.range).collect::<Vec<_>>());
    }
}

/// A block is not there, or cannot be taken over: from there on, today's log counts.
#[test]
fn behind_a_block_that_is_not_there_the_start_of_the_log_counts() {
    let (mut kept, (offset, metadata)) = first_run(1);
    assert_eq!(kept.remove(2).range, OffsetRange { first: 6, next: 8 });
    let log = Log { start: 7, ..LOG };
    let committed = Committed { commit: Some((offset, &metadata)), begin: 7, log };
    let (_, cutter, found, taken) =
        Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
    let lost = found.overtaken.map(|overtaken| overtaken.lost);
    assert_eq!((taken, cutter.position()), (&kept[1..2], 7));
    assert_eq!(lost, Some(OffsetRange { first: 6, next: 7 }));
    let none = Committed { commit: Some((offset, "")), ..committed };
    assert_eq!(none.taken_over(&SETTINGS, &kept), Ok(&[][..]), "nobody knows which ranges were made");
}

#[test]
fn what_was_kept_behind_the_end_of_a_log_that_became_shorter_is_read_again() {
    let (kept, (offset, metadata)) = first_run(1);
    let log = Log { start: 0, end: 12 };
    let committed = Committed { commit: Some((offset, &metadata)), begin: 0, log };
    let (_, cutter, found, taken) =
        Ranges::assigned_with(Generation(2), &committed, SETTINGS, at(3), &kept).unwrap();
    assert_eq!((taken, cutter.position()), (&kept[1..4], 11));
    assert_eq!(found.cut_off.map(|gone| gone.first), Some(12), "offsets 12 to 16 will be other messages");
}

/// The found plan has the second range in parts, and Kafka has lost the beginning of that range. The first one is on the volume.
#[test]
fn a_range_in_parts_that_kafka_cut_into_is_forgotten() {
    let rule = Rule { messages: 10, ..RULE };
    let settings = Settings { rule, ..SETTINGS };
    let parts = RefusedParts { check: 5, rows: 10, height: 1, code: 469, refused: vec![0] };
    let parted = vec![Parted { range: OffsetRange { first: 20, next: 30 }, parts }];
    let plan = Plan {
        offset: 10,
        rule,
        routing_epoch: 0,
        destination: None,
        horizon: 40,
        topic_id: None,
        cluster: None,
        t0: 900,
        cuts: Vec::new(),
        parted,
        gaps: Vec::new(),
        doubtful_up_to: 0,
    };
    let metadata = plan.encode();
    let range = OffsetRange { first: 10, next: 20 };
    let kept = [SpooledRange { range, is_derivable: true, decided: 20, rule, is_renamed: false }];
    let log = Log { start: 25, end: 100 };
    let committed = Committed { commit: Some((10, &metadata)), begin: 25, log };
    let (mut ranges, cutter, found, taken) =
        Ranges::assigned_with(Generation(2), &committed, settings, at(3), &kept).unwrap();
    let lost = found.overtaken.map(|overtaken| overtaken.lost);
    assert_eq!((taken, lost), (&kept[..], Some(OffsetRange { first: 20, next: 25 })));
    assert_eq!((ranges.release(at(3)).len(), cutter.position()), (1, 25));
    ranges.settled(Generation(2), range);
    let commit = ranges.commit(at(4)).expect("a range is settled");
    let stored = Plan::decode(commit.offset, &commit.metadata).unwrap();
    assert_eq!((stored.offset, stored.parted), (25, Vec::new()));
    assert_eq!(stored.gaps, [OffsetRange { first: 20, next: 25 }]);
}
