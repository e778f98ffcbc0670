//! The poll thread's half, step by step, with the worker's half beside it.

use super::*;

mod clusters;
mod cut_off;
mod destinations;
mod in_parts;
mod overtaken;
mod stands;

const RULE: Rule = Rule { version: Version::After, bytes: 10, messages: 3 };
const OTHER_RULE: Rule = Rule { version: Version::Before, bytes: 6, messages: 2 };
const GENERATION: Generation = Generation(7);
const STALE: Generation = Generation(6);

fn at(seconds: u64) -> Now {
    Now { steady: Duration::from_secs(seconds), unix_seconds: 1_000 + seconds }
}

fn settings(rule: Rule) -> Settings {
    Settings { rule, routing_epoch: 0, destination: None, topic_id: Some([9; 16]), cluster: None }
}

fn range(first: i64, next: i64) -> OffsetRange {
    OffsetRange { first, next }
}

fn plan(offset: i64, horizon: i64, cuts: &[i64]) -> Plan {
    let Settings { rule, routing_epoch, topic_id, .. } = settings(RULE);
    Plan {
        offset,
        rule,
        routing_epoch,
        destination: None,
        horizon,
        topic_id,
        cluster: None,
        t0: 900,
        cuts: cuts.to_vec(),
        parted: Vec::new(),
        gaps: Vec::new(),
        doubtful_up_to: 0,
    }
}

fn assign(commit: Option<(i64, &str)>, rule: Rule, log: Log) -> Result<(Ranges, Cutter, Found), Halt> {
    let committed = Committed { commit, begin: log.start, log };
    Ranges::assigned(GENERATION, &committed, settings(rule), at(0))
}

/// A first owner of a log of a thousand messages, whose first commit is stored.
fn begun() -> (Ranges, Cutter) {
    let (mut ranges, cutter, _) = assign(None, RULE, Log { start: 0, end: 1_000 }).unwrap();
    store(&mut ranges, 0);
    (ranges, cutter)
}

/// The plan of the next commit, which is stored.
fn store(ranges: &mut Ranges, seconds: u64) -> Plan {
    let commit = ranges.commit(at(seconds)).expect("there is something to commit");
    assert_eq!(ranges.commit(at(seconds)), None, "one commit is in flight");
    ranges.committed(GENERATION, CommitOutcome::Stored);
    Plan::decode(commit.offset, &commit.metadata).unwrap()
}

/// Takes messages of one byte from the position on, and reports the ranges that end.
fn take(ranges: &mut Ranges, cutter: &mut Cutter, messages: i64) -> Vec<OffsetRange> {
    let from = cutter.position();
    let mut ended = Vec::new();
    for offset in from..from + messages {
        while let Offer::Close(closed) = cutter.offer(offset, 1) {
            ranges.closed(GENERATION, &closed);
            ended.push(closed.range);
        }
        if let Some(closed) = cutter.take(offset, Some(b"x")) {
            ranges.closed(GENERATION, &closed);
            ended.push(closed.range);
        }
    }
    ended
}

fn flush(ranges: &mut Ranges, cutter: &mut Cutter) -> OffsetRange {
    let closed = cutter.flush().expect("there is an open range");
    assert_eq!(closed.cut, Cut::Time);
    ranges.closed(GENERATION, &closed);
    closed.range
}

fn released(ranges: &mut Ranges, seconds: u64) -> Vec<OffsetRange> {
    ranges.release(at(seconds)).into_iter().map(|release| release.range).collect()
}

#[test]
fn nothing_is_sent_before_the_first_commit() {
    let (mut ranges, mut cutter, found) = assign(None, RULE, Log { start: 5, end: 1_000 }).unwrap();
    assert_eq!(
        found,
        Found { fresh: Some(Fresh::NeverCommitted), overtaken: None, cut_off: None, renamed: None }
    );
    assert_eq!(take(&mut ranges, &mut cutter, 3), [range(5, 8)]);
    assert_eq!(released(&mut ranges, 0), []);
    assert_eq!(ranges.waits_for(at(0)), Some(Wait::FirstCommit));
    let plan = store(&mut ranges, 0);
    assert_eq!((plan.offset, plan.rule, plan.cuts), (5, RULE, vec![]));
    assert_eq!(released(&mut ranges, 0), [range(5, 8)]);
}

#[test]
fn a_range_by_size_below_the_horizon_needs_no_commit() {
    let (mut ranges, mut cutter) = begun();
    assert_eq!(ranges.horizon, 1_000, "no further than the log");
    take(&mut ranges, &mut cutter, 6);
    assert_eq!(ranges.urgency(at(0)), Urgency::None, "nothing is settled");
    assert_eq!(released(&mut ranges, 0), [range(0, 3), range(3, 6)]);
    assert_eq!(released(&mut ranges, 0), [], "each is named once");
}

#[test]
fn a_range_by_size_above_the_horizon_waits_for_a_commit() {
    let (mut ranges, mut cutter, _) = assign(None, RULE, Log { start: 0, end: 4 }).unwrap();
    store(&mut ranges, 0);
    take(&mut ranges, &mut cutter, 6);
    assert_eq!(released(&mut ranges, 0), [range(0, 3)]);
    assert_eq!(ranges.waits_for(at(0)), Some(Wait::Horizon));
    assert_eq!(ranges.urgency(at(0)), Urgency::Now);
    let plan = store(&mut ranges, 0);
    assert_eq!((plan.horizon, plan.cuts), (6, vec![]));
    assert_eq!(released(&mut ranges, 0), [range(3, 6)]);
}

#[test]
fn a_range_that_the_next_message_ended_is_known_to_who_has_read_that_message() {
    let rule = Rule { version: Version::Before, bytes: 2, messages: 9 };
    let (mut ranges, mut cutter, _) = assign(None, rule, Log { start: 0, end: 1 }).unwrap();
    store(&mut ranges, 0);
    assert_eq!(cutter.take(0, Some(b"x")), None);
    let Offer::Close(closed) = cutter.offer(7, 5) else { panic!("the next message is too large") };
    assert_eq!((closed.range, closed.decided), (range(0, 1), 8));
    ranges.closed(GENERATION, &closed);
    assert_eq!(released(&mut ranges, 0), [], "it ends below the horizon, but was decided above");
    assert_eq!(store(&mut ranges, 0).horizon, 8);
    assert_eq!(released(&mut ranges, 0), [range(0, 1)]);
}

#[test]
fn a_range_by_time_waits_for_its_plan_and_so_do_those_behind() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 1);
    assert_eq!(flush(&mut ranges, &mut cutter), range(0, 1));
    assert_eq!(take(&mut ranges, &mut cutter, 3), [range(1, 4)]);
    assert_eq!(released(&mut ranges, 0), []);
    assert_eq!(ranges.waits_for(at(0)), Some(Wait::PlanCommit));
    let commit = ranges.commit(at(0)).unwrap();
    assert_eq!(Plan::decode(0, &commit.metadata).unwrap().cuts, [1]);
    ranges.committed(GENERATION, CommitOutcome::Unknown);
    assert_eq!(released(&mut ranges, 0), [], "nobody knows whether it was stored");
    assert_eq!(store(&mut ranges, 0).cuts, [1]);
    assert_eq!(released(&mut ranges, 0), [range(0, 1), range(1, 4)]);
}

/// DESIGN 6.2. The offset waits for the lowest range; cuts above stay in the plan.
#[test]
fn commit_never_passes_an_unsettled_range() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 4);
    flush(&mut ranges, &mut cutter);
    take(&mut ranges, &mut cutter, 3);
    assert_eq!(store(&mut ranges, 0).offset, 0);
    assert_eq!(released(&mut ranges, 0), [range(0, 3), range(3, 4), range(4, 7)]);
    ranges.settled(GENERATION, range(4, 7));
    ranges.settled(GENERATION, range(3, 4));
    assert_eq!(ranges.offset(), 0);
    assert!(!ranges.is_drained());
    ranges.settled(GENERATION, range(0, 3));
    assert!(ranges.is_drained());
    let plan = store(&mut ranges, 1);
    assert_eq!((plan.offset, plan.cuts), (7, vec![]));
    assert_eq!(ranges.urgency(at(1)), Urgency::None, "at rest nothing is committed");
}

/// DESIGN 6.3.
#[test]
fn a_stale_generation_never_moves_an_offset() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 3);
    released(&mut ranges, 0);
    assert_eq!(ranges.settled(STALE, range(0, 3)), Verdict::Stale);
    let closed = cutter.split();
    assert_eq!(closed, None);
    take(&mut ranges, &mut cutter, 1);
    let closed = cutter.flush().unwrap();
    assert_eq!(ranges.closed(STALE, &closed), Verdict::Stale);
    assert_eq!(ranges.offset(), 0);
    assert_eq!(ranges.settled(GENERATION, range(0, 3)), Verdict::Recorded);
    assert_eq!(ranges.offset(), 3);

    let commit = ranges.commit(at(0)).unwrap();
    ranges.committed(STALE, CommitOutcome::Stored);
    assert_eq!(ranges.committed, Some(0), "another generation's answer is nobody's here");
    ranges.committed(GENERATION, CommitOutcome::Fenced);
    assert_eq!(commit.offset, 3);
    assert_eq!(ranges.commit(at(1)), None);
    assert_eq!(ranges.closed(GENERATION, &closed), Verdict::Stale);
    assert_eq!(released(&mut ranges, 1), []);
}

/// DESIGN 6.4. Any owner that reads the range again, with any settings, computes the same token.
#[test]
fn a_retry_sends_the_same_rows_under_the_same_token() {
    let (mut ranges, mut cutter) = begun();
    let mut first_time = Vec::new();
    for offset in 0..20 {
        let value = [u8::try_from(offset).unwrap()];
        let closed = cutter.take(offset, Some(&value)).or_else(|| (offset == 10).then(|| cutter.flush())?);
        first_time.extend(closed);
        closed.inspect(|closed| assert_eq!(ranges.closed(GENERATION, closed), Verdict::Recorded));
    }
    let commit = ranges.commit(at(0)).unwrap();
    let log = Log { start: 0, end: 1_000 };
    let (_, mut cutter, _) = assign(Some((commit.offset, &commit.metadata)), OTHER_RULE, log).unwrap();
    let mut again = Vec::new();
    for offset in 0..20 {
        while let Offer::Close(closed) = cutter.offer(offset, 1) {
            again.push(closed);
        }
        again.extend(cutter.take(offset, Some(&[u8::try_from(offset).unwrap()])));
    }
    let tokens = |closed: &[Closed]| -> Vec<Token> {
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        closed.iter().map(|closed| Token::of("c", &id, closed.range, closed.content)).collect()
    };
    assert_eq!(first_time.len(), 7);
    assert_eq!(tokens(&first_time), tokens(&again)[..7]);
}

#[test]
fn nothing_ends_by_time_below_the_horizon_that_was_found() {
    let metadata = plan(10, 14, &[11]).encode();
    let (mut ranges, mut cutter, found) =
        assign(Some((10, &metadata)), RULE, Log { start: 0, end: 1_000 }).unwrap();
    assert_eq!(found, Found { fresh: None, overtaken: None, cut_off: None, renamed: None });
    assert_eq!(take(&mut ranges, &mut cutter, 3), [range(10, 11)]);
    assert_eq!(cutter.flush(), None);
    assert_eq!(released(&mut ranges, 0), [range(10, 11)], "without a commit of one's own");
    assert_eq!(store(&mut ranges, 0).cuts, [11], "cuts that were found stay");
    take(&mut ranges, &mut cutter, 1);
    assert_eq!(released(&mut ranges, 0), [range(11, 14)]);
    take(&mut ranges, &mut cutter, 1);
    assert_eq!(flush(&mut ranges, &mut cutter), range(14, 15));
}

#[test]
fn control_records_in_front_of_the_horizon_are_passed() {
    let metadata = plan(10, 14, &[]).encode();
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 14 }).unwrap();
    take(&mut ranges, &mut cutter, 2);
    assert_eq!(cutter.flush(), None);
    assert_eq!(cutter.caught_up(14), None);
    assert_eq!(flush(&mut ranges, &mut cutter), range(10, 14));
}

#[test]
fn control_records_behind_the_last_message_are_committed_with_it_or_by_a_range_without_messages() {
    let (mut ranges, mut cutter, _) = assign(None, RULE, Log { start: 0, end: 3 }).unwrap();
    store(&mut ranges, 0);
    take(&mut ranges, &mut cutter, 2);
    assert_eq!(cutter.caught_up(3), None, "what is open ends by time");
    assert_eq!(flush(&mut ranges, &mut cutter), range(0, 3));
    assert_eq!(cutter.caught_up(3), None);
    let closed = cutter.caught_up(5).unwrap();
    assert_eq!((closed.range, closed.fill.messages), (range(3, 5), 0));
    assert_eq!(cutter.caught_up(5), None);
    ranges.closed(GENERATION, &closed);
    ranges.settled(GENERATION, closed.range);
    assert_eq!(ranges.offset(), 0, "the messages in front of them are not in");
    store(&mut ranges, 0);
    assert_eq!(released(&mut ranges, 0), [range(0, 3)]);
    ranges.settled(GENERATION, range(0, 3));
    assert_eq!(store(&mut ranges, 1).offset, 5);
    assert_eq!((cutter.offer(4, 1), cutter.offer(5, 1)), (Offer::Seen, Offer::Take));
}

#[test]
fn another_rule_begins_at_the_horizon_once_everything_before_is_settled() {
    let metadata = plan(10, 14, &[]).encode();
    let log = Log { start: 0, end: 1_000 };
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), OTHER_RULE, log).unwrap();
    assert_eq!(take(&mut ranges, &mut cutter, 4), [range(10, 13), range(13, 14)]);
    assert_eq!(cutter.offer(14, 1), Offer::Hold);
    assert_eq!(released(&mut ranges, 0), [range(10, 13)]);
    let planned = store(&mut ranges, 0);
    assert_eq!((planned.rule, planned.horizon, planned.cuts), (RULE, 14, vec![14]));
    assert_eq!(released(&mut ranges, 0), [range(13, 14)]);
    assert_eq!(ranges.waits_for(at(0)), Some(Wait::Switch));
    ranges.settled(GENERATION, range(10, 13));
    ranges.settled(GENERATION, range(13, 14));
    let commit = ranges.commit(at(1)).unwrap();
    let switched = Plan::decode(14, &commit.metadata).unwrap();
    assert_eq!((switched.rule, switched.cuts), (OTHER_RULE, vec![]));
    ranges.committed(GENERATION, CommitOutcome::Stored);
    let (mut ranges, mut cutter, _) = assign(Some((14, &commit.metadata)), OTHER_RULE, log).unwrap();
    assert_eq!(take(&mut ranges, &mut cutter, 2), [range(14, 16)]);
    assert_eq!(released(&mut ranges, 1), [range(14, 16)]);
}

#[test]
fn another_rule_replaces_a_plan_of_which_nothing_is_in_flight_with_the_first_commit() {
    let metadata = plan(10, 10, &[]).encode();
    let log = Log { start: 0, end: 1_000 };
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), OTHER_RULE, log).unwrap();
    assert_eq!(take(&mut ranges, &mut cutter, 2), [range(10, 12)]);
    assert_eq!(released(&mut ranges, 0), []);
    assert_eq!(store(&mut ranges, 0).rule, OTHER_RULE);
    assert_eq!(released(&mut ranges, 0), [range(10, 12)]);
}

/// A block of unread offsets may be on the volume of a gateway that is away: it finds the gap however late it asks.
#[test]
fn what_kafka_no_longer_had_is_in_every_plan_from_then_on() {
    let metadata = plan(10, 40, &[15, 30]).encode();
    let log = |start| Log { start, end: 1_000 };
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, log(20)).unwrap();
    let ended = take(&mut ranges, &mut cutter, 20);
    assert_eq!(store(&mut ranges, 0).gaps, [range(10, 20)]);
    let overtaken = cutter.overtaken(60).unwrap();
    ranges.overtaken(GENERATION, &overtaken);
    for range in ended {
        ranges.settled(GENERATION, range);
    }
    let gaps = [range(10, 20), overtaken.lost];
    let stored = store(&mut ranges, 1);
    assert_eq!(stored.gaps, gaps);
    // The next owner finds no gap, and the one after that none either.
    let mut stored = Plan { offset: 60, cuts: vec![], horizon: 60, ..stored };
    for rule in [RULE, OTHER_RULE] {
        let committed = (stored.offset, stored.encode());
        let (mut ranges, mut cutter, found) =
            assign(Some((committed.0, &committed.1)), rule, log(60)).unwrap();
        assert_eq!(found.overtaken, None);
        for closed in take(&mut ranges, &mut cutter, 9) {
            ranges.settled(GENERATION, closed);
        }
        stored = store(&mut ranges, 60);
        assert_eq!(stored.gaps, gaps);
    }
    let recreated = Plan { topic_id: Some([1; 16]), ..stored.clone() };
    let (mut ranges, ..) = assign(Some((stored.offset, &recreated.encode())), RULE, log(60)).unwrap();
    assert_eq!(store(&mut ranges, 0).gaps, [], "other messages had those offsets");
}

#[test]
fn what_is_not_ours_is_a_fresh_start_and_what_is_newer_halts() {
    let log = Log { start: 3, end: 1_000 };
    let fresh = |offset, metadata: &str| assign(Some((offset, metadata)), RULE, log).unwrap().2;
    assert_eq!(fresh(10, "").fresh, Some(Fresh::Foreign));
    assert_eq!(fresh(10, &plan(11, 14, &[]).encode()).fresh, Some(Fresh::Damaged));
    assert!(Fresh::Damaged.to_string().ends_with("or belong to another offset"));
    let foreign = fresh(1, "x");
    assert_eq!(foreign.overtaken.unwrap().lost, range(1, 3));
    let other_topic = Plan { topic_id: Some([1; 16]), ..plan(10, 14, &[]) }.encode();
    assert_eq!(fresh(10, &other_topic).fresh, Some(Fresh::TopicRecreated));
    let halt = assign(Some((10, "sluice-plan/4:")), RULE, log).unwrap_err();
    assert_eq!(halt, Halt::NewerFormat);
}

#[test]
fn a_range_is_sent_first_by_a_member_that_proved_it_is_one() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 3);
    let late = PROOF_AGE_MAX.as_secs() + 1;
    assert_eq!(released(&mut ranges, late), []);
    assert_eq!(ranges.waits_for(at(late)), Some(Wait::Proof));
    assert_eq!(ranges.urgency(at(late)), Urgency::Now);
    store(&mut ranges, late);
    assert_eq!(released(&mut ranges, late), [range(0, 3)]);
}

#[test]
fn the_age_of_a_token_is_counted_from_the_first_owner() {
    let metadata = plan(10, 14, &[]).encode();
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 99 }).unwrap();
    take(&mut ranges, &mut cutter, 9);
    store(&mut ranges, 5);
    let ages: Vec<u64> = ranges.release(at(5)).iter().map(|release| release.first_sent).collect();
    assert_eq!(ages, [900, 900, 1_005]);
    ranges.settled(GENERATION, range(10, 13));
    assert_eq!(store(&mut ranges, 6).t0, 900);
    ranges.settled(GENERATION, range(13, 16));
    assert_eq!(store(&mut ranges, 7).t0, 1_005);
}

/// If a range hangs for a day, ranges behind it must not accumulate for a day.
#[test]
fn ranges_behind_one_that_hangs_are_forgotten_unless_their_ends_are_listed() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 9);
    take(&mut ranges, &mut cutter, 1);
    flush(&mut ranges, &mut cutter);
    store(&mut ranges, 0);
    assert_eq!(released(&mut ranges, 0), [range(0, 3), range(3, 6), range(6, 9), range(9, 10)]);
    for settled in [range(3, 6), range(6, 9), range(9, 10)] {
        assert_eq!(ranges.settled(GENERATION, settled), Verdict::Recorded);
    }
    let left: Vec<OffsetRange> = ranges.flight.iter().map(|range| range.range).collect();
    assert_eq!(left, [range(0, 3), range(9, 10)]);
    assert_eq!((ranges.offset(), ranges.unsettled()), (0, 1));
    assert_eq!(ranges.settled(GENERATION, range(3, 6)), Verdict::Stale, "it was, before");
    assert_eq!(store(&mut ranges, 20).cuts, [10]);
    ranges.settled(GENERATION, range(0, 3));
    assert_eq!(ranges.offset(), 10);
}

#[test]
fn a_plan_takes_no_more_cuts_than_it_has_room_for() {
    let (mut ranges, mut cutter) = begun();
    let cuts = i64::try_from(CUTS_MAX).unwrap();
    for _ in 0..cuts + 2 {
        take(&mut ranges, &mut cutter, 1);
        flush(&mut ranges, &mut cutter);
    }
    assert_eq!(store(&mut ranges, 0).cuts, (1..=cuts).collect::<Vec<_>>());
    assert_eq!(released(&mut ranges, 0).len(), CUTS_MAX);
    assert_eq!(ranges.waits_for(at(0)), Some(Wait::CutsFull));
    assert_eq!(ranges.urgency(at(0)), Urgency::None);
    ranges.settled(GENERATION, range(0, 1));
    assert_eq!(store(&mut ranges, 0).cuts, (2..=cuts + 1).collect::<Vec<_>>());
    assert_eq!(released(&mut ranges, 0), [range(cuts, cuts + 1)]);
}

#[test]
fn a_range_without_messages_is_settled_without_being_sent() {
    let metadata = plan(10, 14, &[12]).encode();
    let (mut ranges, mut cutter, _) = assign(Some((10, &metadata)), RULE, Log { start: 0, end: 99 }).unwrap();
    let Offer::Close(closed) = cutter.offer(13, 1) else { panic!("the cut at 12 is reached") };
    assert_eq!((closed.range, closed.fill), (range(10, 12), Fill::default()));
    ranges.closed(GENERATION, &closed);
    ranges.settled(GENERATION, closed.range);
    assert_eq!(released(&mut ranges, 0), []);
    assert_eq!(ranges.offset(), 12);
}

#[test]
fn a_message_that_comes_again_is_passed_over() {
    let (_, mut cutter) = begun();
    assert_eq!(cutter.offer(0, 1), Offer::Take);
    cutter.take(0, Some(b"x"));
    assert_eq!(cutter.offer(0, 1), Offer::Seen);
    assert_eq!(cutter.offer(2, 1), Offer::Take, "a gap is no end");
}

#[test]
fn a_partition_that_goes_releases_nothing_and_commits_its_plan() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 3);
    released(&mut ranges, 0);
    take(&mut ranges, &mut cutter, 3);
    ranges.leave();
    assert_eq!(released(&mut ranges, 0), []);
    assert!(!ranges.is_drained());
    ranges.settled(GENERATION, range(0, 3));
    assert!(ranges.is_drained());
    assert_eq!(store(&mut ranges, 0).offset, 3);
    ranges.lost();
    assert_eq!(ranges.commit(at(1)), None);
}

/// An owner that was left behind and lost messages must not send the messages behind them: the next owner may have read the lost ones,
/// and cut the ranges elsewhere.
#[test]
fn behind_lost_messages_a_range_waits_for_its_plan() {
    let (mut ranges, mut cutter) = begun();
    take(&mut ranges, &mut cutter, 2);
    let overtaken = cutter.overtaken(5).unwrap();
    ranges.overtaken(GENERATION, &overtaken);
    assert_eq!((overtaken.lost, overtaken.doubtful), (range(2, 5), range(5, 5)));
    assert_eq!(take(&mut ranges, &mut cutter, 4), [range(0, 6), range(6, 9)]);
    assert_eq!(released(&mut ranges, 0), []);
    assert_eq!(store(&mut ranges, 0).cuts, [6]);
    assert_eq!(released(&mut ranges, 0), [range(0, 6), range(6, 9)]);
}
