//! An owner that cannot read the next message.

use super::*;

/// Takes the message at an offset, ends its range by time, and stores the plan.
fn insert(ranges: &mut Ranges, cutter: &mut Cutter, offset: i64) {
    assert_eq!(cutter.offer(offset, 1), Offer::Take);
    assert_eq!(cutter.take(offset, Some(b"v")), None);
    let closed = cutter.flush().expect("nothing ends by time here");
    ranges.closed(GENERATION, &closed);
    store(ranges, 1);
    assert_eq!(ranges.release(at(1)).len(), 1);
    ranges.settled(GENERATION, closed.range);
}

#[test]
fn what_the_next_owner_can_read_in_front_of_what_it_cannot_is_inserted() {
    let (mut ranges, mut cutter) = begun();
    insert(&mut ranges, &mut cutter, 0);
    assert_eq!(ranges.horizon, 1_000, "all of it was promised");
    ranges.stands(STALE, true);
    assert_eq!(store(&mut ranges, 2).horizon, 1_000);
    ranges.stands(GENERATION, true);
    assert_eq!(ranges.urgency(at(2)), Urgency::Regular);
    let plan = store(&mut ranges, 2);
    assert_eq!((plan.offset, plan.horizon, ranges.urgency(at(2))), (1, 1, Urgency::None));

    let log = Log { start: 0, end: 1_000 };
    let (mut ranges, mut cutter, _) = assign(Some((1, &plan.encode())), RULE, log).unwrap();
    insert(&mut ranges, &mut cutter, 1);
}

#[test]
fn a_range_that_was_promised_and_ends_later_waits_for_another_promise() {
    let (mut ranges, mut cutter) = begun();
    ranges.stands(GENERATION, true);
    store(&mut ranges, 1);
    let mut closed = None;
    for offset in 0..3 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        closed = cutter.take(offset, Some(b"v"));
    }
    ranges.closed(GENERATION, &closed.expect("three messages are a range"));
    assert!(ranges.release(at(1)).is_empty(), "the next owner may end one by time there");
    ranges.stands(GENERATION, false);
    assert_eq!(store(&mut ranges, 1).horizon, 1_000);
    assert_eq!(ranges.release(at(1)).len(), 1);
}

#[test]
fn what_an_owner_before_has_promised_stays_promised() {
    let log = Log { start: 0, end: 1_000 };
    let (mut ranges, ..) = assign(Some((5, &plan(5, 500, &[]).encode())), RULE, log).unwrap();
    ranges.stands(GENERATION, true);
    assert_eq!((ranges.horizon_least(), ranges.urgency(at(0))), (500, Urgency::None));
}

/// Why an earlier owner's promise cannot be withdrawn, even if an owner has stopped: one of these two owners has sent what the other
/// could not read, and both leave the same plan. (The token of a range is a hash over all of its messages. So the server cannot be asked
/// for a range with unreadable messages.)
#[test]
fn a_plan_does_not_say_how_far_its_owner_has_read() {
    let log = Log { start: 0, end: 1_000 };
    let first_owner = || {
        let (mut ranges, cutter, _) = assign(None, RULE, log).unwrap();
        let plan = store(&mut ranges, 0);
        (ranges, cutter, plan)
    };
    let (mut ranges, mut cutter, of_one_that_reads_on) = first_owner();
    take(&mut ranges, &mut cutter, 3);
    assert_eq!(released(&mut ranges, 1), [range(0, 3)], "it may arrive at any time");
    let (mut ranges, mut cutter, of_one_that_stands) = first_owner();
    assert_eq!(take(&mut ranges, &mut cutter, 2), []);
    assert_eq!(ranges.urgency(at(1)), Urgency::None, "an older version does not say that it stands");
    assert_eq!(of_one_that_reads_on, of_one_that_stands);

    let metadata = of_one_that_stands.encode();
    let (mut ranges, mut cutter, _) = assign(Some((0, &metadata)), RULE, log).unwrap();
    assert_eq!(cutter.held(), None, "nothing was read");
    assert_eq!(take(&mut ranges, &mut cutter, 2), []);
    ranges.stands(GENERATION, true);
    assert_eq!((cutter.flush(), cutter.held()), (None, Some((range(0, 2), 1_000))));

    // A tool that sets the offset to its current value removes the plan.
    let (mut ranges, mut cutter, found) = assign(Some((0, "")), RULE, log).unwrap();
    assert_eq!(found.fresh, Some(Fresh::Foreign));
    assert_eq!(take(&mut ranges, &mut cutter, 2), []);
    assert_eq!((cutter.held(), flush(&mut ranges, &mut cutter)), (None, range(0, 2)));
}
