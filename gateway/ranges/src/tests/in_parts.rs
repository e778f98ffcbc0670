//! A range in parts, from the refusal to the next owner.

use super::*;

fn parts(height: u8, refused: &[u64]) -> RefusedParts {
    RefusedParts { check: 5, rows: 1_000, height, code: 469, refused: refused.to_vec() }
}

#[test]
fn parts_are_acted_on_once_they_are_planned() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 6);
    assert_eq!(released(&mut ranges, 0), [range(0, 3), range(3, 6)]);
    assert_eq!(ranges.part(STALE, range(3, 6), parts(5, &[0])), Verdict::Stale);
    assert_eq!(
        ranges.part(GENERATION, range(3, 5), parts(5, &[0])),
        Verdict::Stale,
        "there is no such range"
    );
    assert_eq!(ranges.part(GENERATION, range(3, 6), parts(5, &[0])), Verdict::Recorded);
    assert_eq!(ranges.urgency(at(0)), Urgency::Now);
    let commit = ranges.commit(at(0)).unwrap();
    assert_eq!(ranges.parted(), [], "the commit is in flight");
    ranges.committed(GENERATION, CommitOutcome::Unknown);
    assert_eq!(ranges.parted(), [], "it may not be stored");
    assert_eq!(Plan::decode(commit.offset, &commit.metadata).unwrap(), store(&mut ranges, 0));
    assert_eq!(ranges.parted(), [range(3, 6)]);
    assert_eq!(ranges.parted(), [], "it is told once");
    // Its parts advance while a commit is in flight: that commit does not contain the new state.
    ranges.part(GENERATION, range(3, 6), parts(4, &[1, 3]));
    let commit = ranges.commit(at(0)).unwrap();
    assert_eq!(Plan::decode(0, &commit.metadata).unwrap().parted[0].parts, parts(4, &[1, 3]));
    ranges.part(GENERATION, range(3, 6), parts(3, &[7]));
    ranges.committed(GENERATION, CommitOutcome::Stored);
    assert_eq!(ranges.parted(), []);
    // Settled behind an unsettled range, the next owner still sends it in parts.
    ranges.settled(GENERATION, range(3, 6));
    assert_eq!(store(&mut ranges, 0).parted, [Parted { range: range(3, 6), parts: parts(3, &[7]) }]);
    assert_eq!(ranges.parted(), [range(3, 6)]);
    ranges.settled(GENERATION, range(0, 3));
    assert_eq!(store(&mut ranges, 1).parted, []);
}

#[test]
fn the_next_owner_sends_no_range_whole_that_went_in_parts() {
    let with = |parted| Plan { parted, ..plan(10, 16, &[]) }.encode();
    let metadata = with(vec![Parted { range: range(13, 16), parts: parts(5, &[0]) }]);
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 99 }).unwrap();
    take(&mut ranges, &mut cutter, 9);
    let found: Vec<_> =
        ranges.release(at(0)).into_iter().map(|release| (release.range, release.parts)).collect();
    assert_eq!(found, [(range(10, 13), None), (range(13, 16), Some(parts(5, &[0])))]);
    assert_eq!(ranges.parted(), [], "nobody asked");
    assert_eq!(store(&mut ranges, 0).parted.len(), 1, "and the one after that neither");
    // A range that lost its beginning is another one.
    let log = Log { start: 14, end: 99 };
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, log).unwrap();
    take(&mut ranges, &mut cutter, 2);
    flush(&mut ranges, &mut cutter);
    assert_eq!(store(&mut ranges, 0).parted, []);
}

#[test]
fn ranges_that_shift_because_their_beginning_is_gone_are_not_those_of_the_plan() {
    let parted = |first| Parted { range: range(first, first + 3), parts: parts(5, &[0]) };
    let metadata = Plan { parted: vec![parted(13), parted(16), parted(19)], ..plan(10, 22, &[]) }.encode();
    // From 11 on they are 11 to 14, 14 to 17, and so on: none of the plan's, until one of those begins behind another.
    for (start, messages) in [(11, 4), (11, 11), (12, 4), (12, 10), (14, 4), (14, 8), (15, 8)] {
        let log = Log { start, end: 99 };
        let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, log).unwrap();
        let made = take(&mut ranges, &mut cutter, messages);
        released(&mut ranges, 0);
        ranges.part(GENERATION, made[0], parts(0, &[2]));
        let listed: Vec<_> = store(&mut ranges, 0).parted.into_iter().map(|parted| parted.range).collect();
        assert_eq!(listed[0], made[0]);
        assert!(listed.windows(2).all(|two| two[0].next <= two[1].first), "{start}: {listed:?}");
        let unread = listed.iter().filter(|range| range.first >= made[made.len() - 1].next).count();
        assert_eq!(listed.len(), 1 + unread, "{start}: {listed:?}");
    }
    let log = Log { start: 13, end: 99 };
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, log).unwrap();
    take(&mut ranges, &mut cutter, 9);
    released(&mut ranges, 0);
    ranges.part(GENERATION, range(13, 16), parts(4, &[1]));
    assert_eq!(store(&mut ranges, 0).parted.len(), 3, "these are the same");
}

#[test]
fn the_range_that_holds_up_all_others_finds_room_for_its_parts() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 12);
    assert_eq!(released(&mut ranges, 0).len(), 4);
    for first in [3, 6, 9] {
        ranges.part(GENERATION, range(first, first + 3), parts(5, &[0]));
    }
    assert_eq!(store(&mut ranges, 0).parted.len(), parts::PARTED_MAX - 1);
    assert_eq!(ranges.parted(), [range(3, 6), range(6, 9)]);
    assert_eq!(ranges.urgency(at(0)), Urgency::None, "the third waits for the first range");
    ranges.part(GENERATION, range(0, 3), parts(5, &[0]));
    assert_eq!(store(&mut ranges, 0).parted.len(), parts::PARTED_MAX);
    assert_eq!(ranges.parted(), [range(0, 3)]);
    ranges.settled(GENERATION, range(0, 3));
    ranges.settled(GENERATION, range(3, 6));
    assert_eq!(store(&mut ranges, 1).parted.last().map(|parted| parted.range), Some(range(9, 12)));
    assert_eq!(ranges.parted(), [range(9, 12)]);
}
