//! Letters of several messages that are under way at the same time.

use super::*;

#[test]
fn letters_of_bad_messages_in_a_row_are_under_way_together_and_the_messages_join_in_order() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.take(&mut reading, 0, BAD);
    assert!(!bench.take_ahead(&mut reading, 1, BAD), "there was none before");
    bench.tend_until(&mut reading, is_polling);
    bench.mock.broker_down(1).unwrap();
    bench.take(&mut reading, 1, BAD);
    assert!(bench.take_ahead(&mut reading, 2, BAD) && bench.letters.waiting() == 2);
    assert!(!bench.take_ahead(&mut reading, 3, BAD), "there was one before");
    assert_eq!(reading.cutter.position(), 1);
    bench.mock.broker_up(1).unwrap();
    bench.tend_until(&mut reading, is_polling);
    assert_eq!(reading.cutter.position(), 3);
    bench.take(&mut reading, 3, BAD);
    for offset in 4..7 {
        assert!(bench.take_ahead(&mut reading, offset, BAD), "there were three before {offset}");
    }
    bench.tend_until(&mut reading, is_polling);
    bench.take(&mut reading, 7, GOOD);
    bench.take(&mut reading, 8, BAD);
    assert!(!bench.take_ahead(&mut reading, 9, BAD), "there was a good one before");
    bench.tend_until(&mut reading, is_polling);
    bench.worker.flush(&mut reading).unwrap();
    let values = [BAD, BAD, BAD, BAD, BAD, BAD, BAD, GOOD, BAD];
    assert_eq!(bench.sealed(), [block(&reading, 0, 1, &values)]);
    assert_eq!(bench.metrics.dead_letters.with_label_values(&["malformed"]).get(), 8);
}

#[test]
fn what_comes_behind_letters_under_way_waits_for_them() {
    let mut bench = Bench::new(OnMissing::Stop);
    let (mut good, mut second, mut ends) =
        (bench.reading(0, None), bench.reading(1, None), bench.reading(0, None));
    for reading in [&mut good, &mut second, &mut ends] {
        bench.take(reading, 0, BAD);
        bench.tend_until(reading, is_polling);
    }
    bench.mock.broker_down(1).unwrap();
    for reading in [&mut good, &mut second, &mut ends] {
        bench.take(reading, 1, BAD);
    }
    assert!(bench.take_ahead(&mut good, 2, GOOD) && bench.worker.letters.holds_message);
    assert!(!bench.take_ahead(&mut good, 3, GOOD), "one is enough");
    assert!(!bench.take_ahead(&mut second, 2, GOOD), "one message a worker is kept");
    ends.ends(|| Some(10));
    assert!(!ends.caught_up, "the bad message has not joined its range");
    bench.mock.broker_up(1).unwrap();
    bench.tend_until(&mut good, is_polling);
    assert_eq!((good.cutter.position(), bench.worker.letters.holds_message), (3, false));
    bench.tend_until(&mut second, is_polling);
    assert_eq!(second.cutter.position(), 2);
    bench.tend_until(&mut ends, is_polling);
    assert!(ends.caught_up);
}

#[test]
fn partitions_with_bad_messages_among_good_ones_come_to_their_ends_without_a_restart() {
    let mut bench = Bench::new(OnMissing::Stop);
    let end = 10;
    // Both repeat ranges up to the end: after a restart nothing of what they have read would be left.
    let mut readings = [bench.reading(0, Some(end)), bench.reading(1, Some(end))];
    let (mut polled, deadline) = ([0, 0], Instant::now() + PATIENCE);
    while readings.iter().any(|reading| reading.cutter.position() < end) {
        let mut progressed = false;
        for (reading, offset) in readings.iter_mut().zip(&mut polled) {
            progressed |= bench.worker.tend_reading(reading);
            assert!(!matches!(reading.state, State::Leaving(_)), "restarts at {}", reading.cutter.position());
            let value = if *offset % 3 == 2 { GOOD } else { BAD };
            let is_taken = match reading.state {
                _ if *offset == end => false,
                State::Polling => {
                    bench.take(reading, *offset, value);
                    true
                }
                _ => bench.take_ahead(reading, *offset, value),
            };
            *offset += i64::from(is_taken);
            progressed |= is_taken;
        }
        assert!(Instant::now() < deadline, "{polled:?} of {end} are polled");
        if !progressed {
            bench.worker.wait(Instant::now());
        }
    }
    assert!(!bench.worker.letters.holds_message);
}

#[test]
fn a_worker_that_had_no_room_for_rows_polls_nothing_ahead_that_it_would_have_to_drop() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.take(&mut reading, 0, BAD);
    bench.tend_until(&mut reading, is_polling);
    bench.mock.broker_down(1).unwrap();
    bench.take(&mut reading, 1, BAD);
    bench.worker.let_go_of_kept();
    assert!(!bench.take_ahead(&mut reading, 2, BAD));
    bench.worker.letters.out_of_room_at = Instant::now().checked_sub(ahead::CALM);
    assert!(bench.take_ahead(&mut reading, 2, BAD));
}

#[test]
fn a_refused_letter_holds_up_those_behind_it_though_they_are_delivered() {
    let mut bench = Bench::new(OnMissing::Stop);
    let mut reading = bench.reading(0, None);
    bench.take(&mut reading, 0, BAD);
    bench.tend_until(&mut reading, is_polling);
    bench.deny(1);
    bench.take(&mut reading, 1, BAD);
    assert!(bench.take_ahead(&mut reading, 2, BAD));
    bench.tend_until(&mut reading, is_stopped);
    assert_eq!((reading.cutter.position(), bench.metrics.partitions_stopped.get()), (1, 1));
    assert!(!bench.take_ahead(&mut reading, 3, BAD), "the partition stands");
    bench.tend_until(&mut reading, is_polling);
    assert_eq!((reading.cutter.position(), bench.metrics.partitions_stopped.get()), (3, 0));
    assert_eq!(bench.letters.waiting(), 0);
}
