//! A log that begins behind the committed offset: Kafka deleted messages of ranges that an earlier owner may have sent.

use super::*;

#[test]
fn what_kafka_lost_is_counted_and_what_it_makes_doubtful_is_named() {
    let metadata = plan(10, 40, &[15, 30]).encode();
    let found = |start| assign(Some((10, &metadata)), RULE, Log { start, end: 100 }).unwrap().2;
    let overtaken = found(20).overtaken.unwrap();
    assert_eq!((overtaken.lost, overtaken.doubtful), (range(10, 20), range(20, 30)));
    assert_eq!(found(15).overtaken.unwrap().doubtful, range(15, 15), "it begins at a cut");
    assert_eq!(found(35).overtaken.unwrap().doubtful, range(35, 40));
    assert_eq!(found(50).overtaken.unwrap().doubtful, range(50, 50));
}

#[test]
fn a_range_whose_beginning_kafka_deleted_is_doubtful_up_to_the_next_cut() {
    let ends = |cuts: &[i64], start| {
        let metadata = plan(10, 22, cuts).encode();
        let (_, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start, end: 100 }).unwrap();
        let mut ends = Vec::new();
        for offset in start..27 {
            assert_eq!(cutter.offer(offset, 1), Offer::Take);
            ends.extend(cutter.take(offset, Some(b"x")).map(|closed| (closed.range.next, closed.doubtful)));
        }
        ends
    };
    assert_eq!(ends(&[16], 15), [(16, true), (19, false), (22, false), (25, false)]);
    assert_eq!(
        ends(&[15, 16], 15),
        [(16, false), (19, false), (22, false), (25, false)],
        "it begins at a cut"
    );
    // The size rule would end ranges of three at 13, 16, 19 and 22.
    assert_eq!(ends(&[], 14), [(17, true), (20, true), (23, true), (26, false)]);
}

#[test]
fn what_is_doubtful_stays_so_for_the_next_owner_until_it_is_committed() {
    let log = Log { start: 14, end: 100 };
    let found = plan(10, 22, &[]).encode();
    let (mut ranges, mut cutter, _) = assign(Some((10, &found)), RULE, log).unwrap();
    take(&mut ranges, &mut cutter, 10);
    // A range that ends by time must be planned.
    ranges.closed(GENERATION, &cutter.flush().expect("a message is behind the horizon"));
    let kept = store(&mut ranges, 0);
    assert_eq!((kept.offset, kept.doubtful_up_to), (14, 22));
    // That owner leaves. The next one finds nothing deleted.
    let metadata = kept.encode();
    let (mut ranges, mut cutter, found) = assign(Some((14, &metadata)), RULE, log).unwrap();
    assert_eq!(found.overtaken, None);
    let mut ended = Vec::new();
    for offset in 14..27 {
        if let Offer::Close(closed) = cutter.offer(offset, 1) {
            ended.push(closed);
            assert_eq!(cutter.offer(offset, 1), Offer::Take);
        }
        ended.extend(cutter.take(offset, Some(b"x")));
    }
    for closed in &ended {
        assert_eq!(closed.doubtful, closed.range.first < 22, "{closed:?}");
        ranges.closed(GENERATION, closed);
    }
    let next = ended.last().expect("ranges end").range.next;
    assert_eq!(store(&mut ranges, 60).doubtful_up_to, 22);
    for sent in released(&mut ranges, 60) {
        ranges.settled(GENERATION, sent);
    }
    let passed = store(&mut ranges, 120);
    assert_eq!((passed.offset, passed.doubtful_up_to), (next, 0));
}

#[test]
fn ranges_behind_one_that_is_cut_short_are_doubtful_up_to_the_next_cut() {
    let metadata = plan(10, 40, &[18]).encode();
    let (_, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 100 }).unwrap();
    let mut ends = Vec::new();
    for offset in 10..24 {
        assert_eq!(cutter.offer(offset, 1), Offer::Take);
        ends.extend(cutter.take(offset, Some(b"x")).map(|closed| (closed.range.next, closed.doubtful)));
        if offset == 13 {
            let closed = cutter.split().expect("there is a message");
            ends.push((closed.range.next, closed.doubtful));
        }
    }
    assert_eq!(ends, [(13, false), (14, true), (17, true), (18, true), (21, false), (24, false)]);
}
