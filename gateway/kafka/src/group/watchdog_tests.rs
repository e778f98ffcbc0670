use super::*;
use proptest::prelude::*;

/// Seconds between two checks, as librdkafka's statistics come.
const STEP: u64 = 5;

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: "spans".into(), partition }
}

/// Everything that was read is settled and committed, and there is more to read.
fn behind() -> Seen {
    Seen {
        committed: Some(10),
        settled: Some(10),
        position: Some(10),
        end: Some(20),
        active: true,
        ..Seen::default()
    }
}

/// Checks one unchanging partition every [`STEP`] seconds. Returns the first times at which its reason was named, it was resumed, and it
/// was stuck.
fn course(seen: Seen, round: Duration, blocks_in_flight: u64) -> [Option<(u64, Reason)>; 3] {
    let (mut watchdog, start) = (Watchdog::default(), Instant::now());
    let mut firsts = [None; 3];
    for seconds in (0..=600).step_by(usize::try_from(STEP).unwrap()) {
        let common = Common { now: start + Duration::from_secs(seconds), round, blocks_in_flight };
        let check = watchdog.check(common, &BTreeMap::from([(id(0), seen)]));
        let Some(still) = check.still.first() else { continue };
        let found = [true, !check.resume.is_empty(), still.is_stuck];
        for (first, found) in firsts.iter_mut().zip(found) {
            if found && first.is_none() {
                *first = Some((seconds, still.reason));
            }
        }
    }
    firsts
}

#[test]
fn every_halt_is_named_recovered_where_that_may_help_and_then_stuck() {
    use Reason::*;
    let resumed = [
        (Seen { paused: true, ..behind() }, PausedThoughActive),
        (behind(), NoFetch),
        (Seen { position: None, settled: None, committed: None, ..behind() }, NeverRead),
        (Seen { end: None, ..behind() }, EndUnknown),
    ];
    for (seen, reason) in resumed {
        let named = Some((65, reason));
        assert_eq!(course(seen, Duration::ZERO, 0), [named, named, Some((125, reason))], "{reason:?}");
    }
    let not_resumed = [
        (Seen { active: false, ..behind() }, NoTurn),
        (
            Seen { worker: AtWorker::Stopped(BatchRemedy::SmallerBatches), paused: true, ..behind() },
            StoppedByMessage(BatchRemedy::SmallerBatches),
        ),
        (Seen { worker: AtWorker::Lettering, ..behind() }, DeadLetter),
        (Seen { worker: AtWorker::NoRoom, ..behind() }, Buffers),
        (Seen { committed: Some(3), end: Some(10), ..behind() }, Commit),
        (Seen { committed: None, end: Some(10), ..behind() }, Commit),
        (Seen { unplanned: Some(10), position: Some(15), end: Some(15), ..behind() }, Plan),
        (Seen { worker: AtWorker::Renewing, ..behind() }, Commit),
        (Seen { worker: AtWorker::Arriving, ..Seen::default() }, BeginningUnknown),
        (Seen { worker: AtWorker::Halted, ..Seen::default() }, NewerPlan),
    ];
    for (seen, reason) in not_resumed {
        let expected = [Some((65, reason)), None, Some((125, reason))];
        assert_eq!(course(seen, Duration::ZERO, 0), expected, "{reason:?}");
    }
}

#[test]
fn refused_rows_are_a_halt_though_the_sink_is_what_they_wait_for() {
    let refused = Seen { position: Some(15), end: Some(15), halted: true, ..behind() };
    let named = |at| Some((at, Reason::RefusedRows));
    assert_eq!(course(refused, Duration::ZERO, 1), [named(65), None, named(125)]);
    let waits = Seen { halted: false, ..refused };
    assert_eq!(course(waits, Duration::ZERO, 1), [Some((65, Reason::Sink)), None, None]);
}

#[test]
fn what_waits_for_the_sink_is_named_and_never_stuck() {
    let full = Seen { worker: AtWorker::NoRoom, position: Some(15), ..behind() };
    let read = Seen { position: Some(20), ..behind() };
    // It is not stuck for lack of a turn either: there is no memory for any partition.
    let without_turn = Seen { active: false, ..full };
    let leaving = Seen { worker: AtWorker::Settling, ..behind() };
    for seen in [full, read, without_turn, leaving] {
        assert_eq!(course(seen, Duration::ZERO, 3), [Some((65, Reason::Sink)), None, None], "{seen:?}");
    }
}

#[test]
fn a_range_without_a_plan_is_a_halt_though_the_pool_is_full_of_it() {
    let full = Seen { worker: AtWorker::NoRoom, position: Some(15), unplanned: Some(10), ..behind() };
    let expected = [Some((65, Reason::Plan)), None, Some((125, Reason::Plan))];
    assert_eq!(course(full, Duration::ZERO, 3), expected);
}

#[test]
fn a_sink_that_comes_back_leaves_nobody_stuck() {
    let (mut watchdog, start) = (Watchdog::default(), Instant::now());
    let mut look = |seconds, worker, active| {
        let common =
            Common { now: start + Duration::from_secs(seconds), round: Duration::ZERO, blocks_in_flight: 3 };
        let seen = Seen { worker, active, position: Some(15), ..behind() };
        let check = watchdog.check(common, &BTreeMap::from([(id(0), seen)]));
        check.still.first().map(|still| (still.reason, still.is_stuck))
    };
    assert_eq!(look(0, AtWorker::NoRoom, true), None);
    for seconds in [600, 1_200] {
        assert_eq!(look(seconds, AtWorker::NoRoom, false), Some((Reason::Sink, false)));
    }
    // There is room again; nothing of this partition was read yet, and its rows are not settled yet.
    for (seconds, active) in [(1_205, false), (1_210, true)] {
        assert_eq!(look(seconds, AtWorker::Reads, active), Some((Reason::Sink, false)));
    }
    assert_eq!(look(1_320, AtWorker::Reads, true), Some((Reason::NoFetch, false)));
    assert_eq!(look(1_325, AtWorker::Reads, true), Some((Reason::NoFetch, true)), "two minutes of its own");
}

#[test]
fn a_partition_with_nothing_to_do_is_never_named() {
    let done = Seen { position: Some(20), settled: Some(20), committed: Some(20), ..behind() };
    // The end of a transaction stands behind the last message: it is read over, and never settled.
    let behind_a_marker = Seen { settled: Some(19), committed: Some(19), ..done };
    let empty = Seen { end: Some(0), position: Some(0), settled: None, committed: None, ..done };
    let paused = Seen { paused: true, active: false, ..done };
    for seen in [done, behind_a_marker, empty, paused] {
        assert_eq!(course(seen, Duration::ZERO, 0), [None; 3], "{seen:?}");
    }
}

#[test]
fn a_turn_may_take_as_long_as_a_round() {
    let waits = Seen { active: false, ..behind() };
    let expected = [Some((365, Reason::NoTurn)), None, Some((425, Reason::NoTurn))];
    assert_eq!(course(waits, Duration::from_mins(5), 0), expected);
}

#[test]
fn recovering_is_tried_again_and_forgotten_once_it_helps() {
    let (mut watchdog, start) = (Watchdog::default(), Instant::now());
    let mut look = |seconds: u64, position| {
        let now = start + Duration::from_secs(seconds);
        let common = Common { now, round: Duration::ZERO, blocks_in_flight: 0 };
        let seen =
            Seen { position: Some(position), settled: Some(position), committed: Some(position), ..behind() };
        let check = watchdog.check(common, &BTreeMap::from([(id(0), seen)]));
        (check.resume.len(), check.still.iter().filter(|still| still.is_stuck).count())
    };
    assert_eq!(look(0, 10), (0, 0));
    assert_eq!(look(61, 10), (1, 0));
    assert_eq!(look(66, 10), (0, 0), "it was resumed just now");
    assert_eq!(look(121, 10), (1, 1));
    assert_eq!(look(126, 11), (0, 0), "it moves again");
    assert_eq!(look(187, 11), (1, 0));
}

#[test]
fn a_partition_that_comes_back_begins_anew() {
    let (mut watchdog, start) = (Watchdog::default(), Instant::now());
    let at = |seconds| Common {
        now: start + Duration::from_secs(seconds),
        round: Duration::ZERO,
        blocks_in_flight: 0,
    };
    let owned = BTreeMap::from([(id(0), behind())]);
    assert_eq!(watchdog.check(at(0), &owned), Check::default());
    assert_eq!(watchdog.check(at(50), &BTreeMap::new()), Check::default());
    assert_eq!(watchdog.check(at(100), &owned), Check::default());
}

/// One random check: seconds since the last one, how far each offset moves, the flags, and blocks in flight.
type LookAfter = (u64, [i64; 4], ([bool; 2], AtWorker), u64);

fn looks() -> impl Strategy<Value = Vec<LookAfter>> {
    let step = prop_oneof![3 => Just(0i64), 1 => 1i64..3];
    let look = (
        1u64..40,
        [step.clone(), step.clone(), step.clone(), step],
        (
            any::<[bool; 2]>(),
            prop_oneof![
                Just(AtWorker::Reads),
                Just(AtWorker::NoRoom),
                Just(AtWorker::Stopped(BatchRemedy::Unknown))
            ],
        ),
        0u64..2,
    );
    prop::collection::vec(look, 1..80)
}

proptest! {
    /// Against a naive model of each stage: the last time at which its lower offset moved or it had nothing to do. A partition is named
    /// exactly while it has made no progress for too long, and is never stuck only because of the sink.
    #[test]
    fn a_partition_is_named_exactly_while_a_stage_stands_still(looks in looks()) {
        let (mut watchdog, start, mut seconds) = (Watchdog::default(), Instant::now(), 0);
        let mut offsets = [0i64; 4];
        let mut moved: [Option<u64>; 3] = [None; 3];
        let (mut before, mut waited) = (offsets, None);
        for (step, by, flags, blocks_in_flight) in looks {
            seconds += step;
            // committed, settled, position, end: each at most the next.
            for stage in (0..4).rev() {
                let limit = if stage == 3 { i64::MAX } else { offsets[stage + 1] };
                offsets[stage] = (offsets[stage] + by[stage]).min(limit);
            }
            let [committed, settled, position, end] = offsets;
            let ([active, paused], worker) = flags;
            let seen = Seen {
                committed: Some(committed), settled: Some(settled), position: Some(position), end: Some(end),
                active, paused, worker, unplanned: None, halted: false,
            };
            let common = Common {
                now: start + Duration::from_secs(seconds), round: Duration::ZERO, blocks_in_flight,
            };
            let check = watchdog.check(common, &BTreeMap::from([(id(0), seen)]));
            let work = [committed < settled, settled < position && blocks_in_flight > 0, position < end];
            let at_sink = worker == AtWorker::NoRoom && blocks_in_flight > 0;
            waited = if at_sink { Some(seconds) } else { waited };
            let mut halts = [None; 3];
            for stage in 0..3 {
                let goes_on = work[stage] && offsets[stage] == before[stage] && moved[stage].is_some();
                moved[stage] = if goes_on { moved[stage] } else { work[stage].then_some(seconds) };
                let since = if stage == 2 && !at_sink { moved[stage].max(moved[stage].and(waited)) } else { moved[stage] };
                halts[stage] = since.map(|since| seconds - since).filter(|still| *still > 60);
            }
            before = offsets;
            let [commit, sink, reading] = halts;
            let expected = reading.filter(|_| !at_sink).or(commit).or(reading).or(sink);
            let named = check.still.first().map(|still| still.since.as_secs());
            prop_assert_eq!(named, expected);
            for still in &check.still {
                prop_assert_eq!(still.is_stuck, still.reason != Reason::Sink && still.since.as_secs() > 120);
            }
            prop_assert!(check.resume.is_empty() || (worker == AtWorker::Reads && active));
        }
    }
}
