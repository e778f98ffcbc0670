//! The bisection alone: the windows that it sends, its result, and where it stops.

use super::*;
use proptest::prelude::*;
use sluice_ranges::{Content, OffsetRange, PartitionId, parts::REFUSED_MAX};
use std::collections::BTreeSet;

pub(super) fn token() -> Token {
    let id = PartitionId { topic: "spans".into(), partition: 3 };
    Token::of("cluster", &id, OffsetRange { first: 10, next: 20 }, Content::default())
}

pub(super) fn refusal(fault: Fault) -> Refusal {
    Refusal { fault, code: Some(117), text: "incorrect data".into() }
}

/// A server that refuses some rows, knows tokens, and takes only this many rows at once.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub bad: BTreeSet<u64>,
    pub rows_max: u64,
    tokens: BTreeSet<String>,
    /// How often each row is in the table.
    pub rows: BTreeMap<u64, u32>,
}

impl Server {
    pub fn with_bad(bad: &[u64]) -> Self {
        let bad = bad.iter().copied().collect();
        Self { bad, rows_max: u64::MAX, tokens: BTreeSet::new(), rows: BTreeMap::new() }
    }

    pub fn insert(&mut self, window: &Window) -> Outcome {
        if self.bad.range(window.rows.clone()).next().is_some() {
            return Outcome::Refused(refusal(Fault::Rows));
        }
        if window.rows.end - window.rows.start > self.rows_max {
            return Outcome::Refused(refusal(Fault::Size));
        }
        if self.tokens.insert(window.token.clone()) {
            window.rows.clone().for_each(|row| *self.rows.entry(row).or_default() += 1);
        }
        Outcome::Stored
    }
}

/// Runs until it is done or halts. Returns the sent windows and the noted levels.
fn run(bisection: &mut Bisection, server: &mut Server) -> (Vec<Window>, Vec<RefusedParts>) {
    let (mut windows, mut noted) = (Vec::new(), Vec::new());
    loop {
        match bisection.step() {
            Step::Send(window) => {
                bisection.take(server.insert(&window));
                windows.push(window);
            }
            Step::Note(parts) => {
                bisection.noted();
                noted.push(parts);
            }
            Step::Done(_) | Step::Halt(_) => return (windows, noted),
        }
    }
}

pub(super) fn named(step: Step) -> Vec<u64> {
    let Step::Done(refused) = step else { panic!("{step:?}") };
    refused.into_iter().map(|refused| refused.row).collect()
}

fn block() -> impl Strategy<Value = (u64, Vec<u64>)> {
    let bad = |rows| prop::collection::btree_set(0..rows, 1..10).prop_map(|bad| bad.into_iter().collect());
    (1_u64..3_000).prop_flat_map(move |rows| (Just(rows), bad(rows)))
}

proptest! {
    #[test]
    fn every_good_row_is_stored_once_and_every_bad_one_named(block in block()) {
        let (rows, bad) = block;
        let mut server = Server::with_bad(&bad);
        let mut bisection = Bisection::new(token(), rows, refusal(Fault::Rows));
        let (windows, noted) = run(&mut bisection, &mut server);
        prop_assert_eq!(named(bisection.step()), bad.clone());
        let good: BTreeMap<u64, u32> =
            (0..rows).filter(|row| !bad.contains(row)).map(|row| (row, 1)).collect();
        prop_assert_eq!(server.rows, good);
        let tokens: BTreeSet<&String> = windows.iter().map(|window| &window.token).collect();
        let sent: BTreeSet<(u64, u64)> = windows.iter().map(|window| (window.rows.start, window.rows.end)).collect();
        prop_assert_eq!(tokens.len(), sent.len(), "other rows have another token");
        prop_assert!(windows.iter().all(|window| !window.token.starts_with(&token().to_string())));
        prop_assert_eq!(noted.len(), usize::from(RefusedParts::height_of(rows)) + 1);
    }

    #[test]
    fn a_block_that_is_too_large_is_stored_in_parts(rows in 2..3_000_u64, most in 1..3_000_u64) {
        let mut server = Server { rows_max: most.max(rows.div_ceil(64)), ..Server::with_bad(&[]) };
        let mut bisection = Bisection::new(token(), rows, refusal(Fault::Size));
        run(&mut bisection, &mut server);
        prop_assert_eq!(named(bisection.step()), Vec::<u64>::new());
        prop_assert_eq!(server.rows, (0..rows).map(|row| (row, 1)).collect());
    }

    #[test]
    fn the_next_owner_sends_the_same_windows(block in block(), at in any::<prop::sample::Index>()) {
        let (rows, bad) = block;
        let mut bisection = Bisection::new(token(), rows, refusal(Fault::Rows));
        let (windows, noted) = run(&mut bisection, &mut Server::with_bad(&bad));
        let number = at.index(noted.len());
        let mut next = Bisection::resume(token(), rows, &noted[number]).unwrap();
        let (again, after) = run(&mut next, &mut Server::with_bad(&bad));
        prop_assert!(windows.ends_with(&again));
        prop_assert_eq!(&after[..], &noted[number + 1..]);
        prop_assert_eq!(named(next.step()), bad);
    }
}

#[test]
fn one_bad_row_of_a_full_block_takes_four_inserts_a_level() {
    let mut server = Server::with_bad(&[70_000]);
    let mut bisection = Bisection::new(token(), 100_000, refusal(Fault::Rows));
    let (windows, noted) = run(&mut bisection, &mut server);
    assert_eq!(named(bisection.step()), [70_000]);
    assert!(windows.len() <= 4 * 9, "{}", windows.len());
    assert_eq!(noted.len(), 10, "with the block, and the row");
}

#[test]
fn a_block_of_one_row_needs_no_insert() {
    let mut bisection = Bisection::new(token(), 1, refusal(Fault::Rows));
    let Step::Note(parts) = bisection.step() else { panic!("{bisection:?}") };
    assert_eq!((parts.height, parts.refused.clone(), parts.code), (0, vec![0], 117));
    bisection.noted();
    assert_eq!(named(bisection.step()), [0]);
    let after = Bisection::resume(token(), 1, &parts).unwrap();
    assert_eq!(named(after.step()), [0], "what is noted is not sent again");
}

#[test]
fn what_is_of_another_block_is_not_gone_on_with() {
    let parts = RefusedParts { check: token().check(), rows: 100, height: 2, code: 0, refused: vec![0, 6] };
    assert!(Bisection::resume(token(), 100, &parts).is_some());
    assert!(Bisection::resume(token(), 101, &parts).is_none());
    assert!(Bisection::resume(token(), 100, &RefusedParts { check: !parts.check, ..parts }).is_none());
}

#[test]
fn a_table_that_takes_nothing_is_no_matter_of_rows_until_it_is_mended() {
    let all: Vec<u64> = (0..100_000).collect();
    let mut server = Server::with_bad(&all);
    let mut bisection = Bisection::new(token(), 100_000, refusal(Fault::Rows));
    let (windows, _) = run(&mut bisection, &mut server);
    assert_eq!(bisection.step(), Step::Halt(Excess::Rows));
    assert!(windows.len() < 200, "{}", windows.len());
    // Each renewal tries one more window, another one each time.
    let mut tried = BTreeSet::new();
    for _ in 0..10 {
        bisection.renew();
        let (again, _) = run(&mut bisection, &mut server);
        assert_eq!(bisection.step(), Step::Halt(Excess::Rows));
        assert_eq!(again.len(), 1);
        tried.insert(again[0].token.clone());
    }
    assert_eq!(tried.len(), 10);
    // The table was fixed for all but a few rows: all others are stored without another wait.
    server.bad = BTreeSet::from([50_000, 99_999]);
    bisection.renew();
    run(&mut bisection, &mut server);
    while let Step::Halt(_) = bisection.step() {
        bisection.renew();
        run(&mut bisection, &mut server);
    }
    assert_eq!(named(bisection.step()), [50_000, 99_999]);
    assert_eq!(
        server.rows,
        (0..100_000).filter(|row| !server.bad.contains(row)).map(|row| (row, 1)).collect()
    );
}

#[test]
fn too_many_inserts_are_a_halt_that_goes_on() {
    let bad: Vec<u64> = (0..100_000).step_by(1_600).collect();
    let mut server = Server::with_bad(&bad);
    let mut bisection = Bisection::new(token(), 100_000, refusal(Fault::Rows));
    let (windows, _) = run(&mut bisection, &mut server);
    assert_eq!((bisection.step(), windows.len()), (Step::Halt(Excess::Tries), TRIES_MAX as usize));
    bisection.renew();
    run(&mut bisection, &mut server);
    assert_eq!(named(bisection.step()), bad);
}

#[test]
fn places_that_no_plan_holds_are_a_halt() {
    let mut bisection = Bisection::new(token(), 1_000_000, refusal(Fault::Size));
    let mut windows = 0;
    let excess = loop {
        match bisection.step() {
            Step::Note(parts) => {
                assert!(parts.refused.len() <= REFUSED_MAX);
                bisection.noted();
            }
            Step::Send(_) => {
                windows += 1;
                bisection.take(Outcome::Refused(refusal(Fault::Size)));
            }
            Step::Halt(Excess::Tries) => bisection.renew(),
            Step::Halt(excess) => break excess,
            step @ Step::Done(_) => panic!("{step:?}"),
        }
    };
    assert_eq!(excess, Excess::Places);
    assert!(windows < 8_000, "{windows}");
}

#[test]
fn a_quota_fades_within_a_minute() {
    let mut quota = Quota::default();
    let second = Duration::from_secs;
    assert!(quota.admits(second(100), 600));
    assert!(!quota.admits(second(100), 1));
    assert!(!quota.admits(second(99), 1), "time that goes back fades nothing");
    assert!(quota.admits(second(101), 10));
    assert!(!quota.admits(second(101), 1));
    assert!(quota.admits(second(161), 600));
    assert!(!quota.admits(second(300), 601));
}
