//! A log that ends before its plan's horizon: an unclean election removed its end, with messages that an earlier owner had read.

use super::*;

#[test]
fn a_log_that_is_shorter_than_its_plan_is_read_to_its_end_and_named() {
    let metadata = plan(10, 30, &[18, 25]).encode();
    let found = |end: i64| assign(Some((10, &metadata)), RULE, Log { start: 0, end }).unwrap();
    let (mut ranges, mut cutter, longer) = found(30);
    assert_eq!(longer.cut_off, None);
    take(&mut ranges, &mut cutter, 10);
    assert!(cutter.is_replaying());

    let (mut ranges, mut cutter, shorter) = found(20);
    assert_eq!(shorter.cut_off, Some(range(20, 30)));
    assert_eq!(take(&mut ranges, &mut cutter, 10), [range(10, 13), range(13, 16), range(16, 18)]);
    assert!(!cutter.is_replaying(), "it does not wait for messages that are gone");
    let closed = cutter.flush().expect("what is left ends by time");
    assert_eq!((closed.range, closed.doubtful), (range(18, 20), true), "it may have been sent up to 25");
    ranges.closed(GENERATION, &closed);
    let stored = store(&mut ranges, 0);
    assert_eq!((stored.horizon, stored.cuts.last(), stored.doubtful_up_to), (20, Some(&20), 19));
    // Messages that arrive then are new.
    for offset in 20..23 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        let closed = cutter.take(offset, Some(b"y"));
        assert_eq!(
            closed.map(|closed| (closed.range, closed.doubtful)),
            (offset == 22).then_some((range(20, 23), false))
        );
    }
}

#[test]
fn a_range_across_the_end_that_a_log_lost_is_doubtful_and_one_that_ends_there_by_plan_is_not() {
    let metadata = plan(10, 30, &[20]).encode();
    let (_, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 20 }).unwrap();
    let mut ends = Vec::new();
    for offset in 10..26 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        ends.extend(cutter.take(offset, Some(b"x")).map(|closed| (closed.range.next, closed.doubtful)));
    }
    assert_eq!(ends, [13, 16, 19, 20, 23, 26].map(|next| (next, false)));
    let (_, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 17 }).unwrap();
    let mut ends = Vec::new();
    for offset in 10..22 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        ends.extend(cutter.take(offset, Some(b"x")).map(|closed| (closed.range.next, closed.doubtful)));
    }
    assert_eq!(ends, [(13, false), (16, false), (19, true), (22, false)]);
}

#[test]
fn a_log_that_ends_below_the_committed_offset_goes_on_at_its_end_if_it_is_the_same_topic() {
    let log = Log { start: 0, end: 5 };
    let of_topic = |topic_id| Plan { topic_id, ..plan(10, 40, &[]) }.encode();
    let same = of_topic(settings(RULE).topic_id);
    let (mut ranges, mut cutter, found) = assign(Some((10, &same)), RULE, log).unwrap();
    assert_eq!((found.fresh, found.cut_off), (Some(Fresh::LogShorter), Some(range(5, 40))));
    assert_eq!(found.overtaken, None);
    assert_eq!((cutter.position(), cutter.is_replaying()), (5, false), "what is below is stored");
    assert_eq!(store(&mut ranges, 0).offset, 5);
    assert_eq!(take(&mut ranges, &mut cutter, 3), [range(5, 8)]);
    for other in [None, Some([1; 16])] {
        let (_, cutter, found) = assign(Some((10, &of_topic(other))), RULE, log).unwrap();
        assert_eq!(
            (found.fresh, cutter.position()),
            (Some(Fresh::TopicRecreated), 0),
            "it may be another topic"
        );
    }
}
