use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn refusal() -> Refusal {
    Refusal { code: Some(117), text: "incorrect data".into() }
}

/// A server that refuses some rows, knows tokens, and whose answers may be lost.
#[derive(Default)]
struct Server {
    bad: BTreeSet<u64>,
    tokens: BTreeMap<String, Range<u64>>,
    /// How often each row is in the table.
    rows: BTreeMap<u64, u32>,
}

impl Server {
    fn with_bad(bad: &[u64]) -> Self {
        Self { bad: bad.iter().copied().collect(), ..Self::default() }
    }

    fn insert(&mut self, window: &Window) -> Outcome {
        if self.tokens.contains_key(&window.token) {
            return Outcome::Stored;
        }
        if self.bad.range(window.rows.clone()).next().is_some() {
            return Outcome::Refused(refusal());
        }
        self.tokens.insert(window.token.clone(), window.rows.clone());
        window.rows.clone().for_each(|row| *self.rows.entry(row).or_default() += 1);
        Outcome::Stored
    }
}

fn named(step: Step) -> Vec<u64> {
    let Step::Done(refused) = step else { panic!("{step:?}") };
    refused.into_iter().map(|refused| refused.row).collect()
}

fn bad_rows(rows: u64) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::btree_set(0..rows, 1..10).prop_map(|bad| bad.into_iter().collect())
}

fn block() -> impl Strategy<Value = (u64, Vec<u64>)> {
    (1_u64..3_000).prop_flat_map(|rows| (Just(rows), bad_rows(rows)))
}

proptest! {
    #[test]
    fn every_good_row_is_stored_once_and_every_bad_one_named(block in block(), lost in any::<u64>()) {
        let (rows, bad) = block;
        let mut server = Server::with_bad(&bad);
        let mut bisection = Bisection::new("token", rows, refusal());
        let mut lost = lost;
        while let Step::Send(window) = bisection.step() {
            let outcome = server.insert(&window);
            // The answer may be lost after the server acted on it, and before.
            bisection.take(if lost & 1 == 1 { Outcome::Unknown } else { outcome });
            lost >>= 1;
        }
        prop_assert_eq!(named(bisection.step()), bad.clone());
        prop_assert_eq!(bisection.progress(), None);
        let good: BTreeMap<u64, u32> =
            (0..rows).filter(|row| !bad.contains(row)).map(|row| (row, 1)).collect();
        prop_assert_eq!(server.rows, good);
    }

    #[test]
    fn nothing_is_stored_twice_by_others_that_go_on_or_after_the_table_is_mended(
        block in block(), course in prop::collection::vec(0..8_u8, 0..400),
    ) {
        let (rows, bad) = block;
        let mut server = Server::with_bad(&bad);
        let mut bisection = Bisection::new("token", rows, refusal());
        let mut course = course.into_iter();
        while let Step::Send(window) = bisection.step() {
            let taken_down = bisection.progress().unwrap();
            let outcome = server.insert(&window);
            match course.next() {
                // The process ends after the server's answer, or before it comes.
                Some(0) => bisection = Bisection::resume("token", rows, &taken_down, &refusal()).unwrap(),
                Some(1) => {
                    // Someone mends what one of the rows is refused for.
                    server.bad.pop_last();
                    bisection.take(outcome);
                }
                _ => bisection.take(outcome),
            }
        }
        let named: BTreeSet<u64> = named(bisection.step()).into_iter().collect();
        for row in 0..rows {
            let stored = server.rows.get(&row).copied().unwrap_or(0);
            prop_assert_eq!(stored + u32::from(named.contains(&row)), 1, "row {}", row);
        }
        prop_assert!(named.iter().all(|row| bad.contains(row)));
    }

    #[test]
    fn the_same_outcomes_give_the_same_windows(block in block()) {
        let (rows, bad) = block;
        let windows = || {
            let mut server = Server::with_bad(&bad);
            let mut bisection = Bisection::new("token", rows, refusal());
            let mut windows = Vec::new();
            while let Step::Send(window) = bisection.step() {
                bisection.take(server.insert(&window));
                windows.push(window);
            }
            windows
        };
        let first = windows();
        let tokens: BTreeSet<&String> = first.iter().map(|window| &window.token).collect();
        prop_assert_eq!(tokens.len(), first.len(), "every window has a token of its own");
        prop_assert_eq!(&first, &windows());
    }

    #[test]
    fn progress_that_is_not_of_the_block_is_refused(rows in 1_u64..100, start: u64, end: u64) {
        let progress = Progress { next: start..end, refused: vec![] };
        if let Some(bisection) = Bisection::resume("token", rows, &progress, &refusal()) {
            prop_assert_eq!(bisection.progress(), Some(progress));
            prop_assert!(start < end && end <= rows);
        }
    }
}

#[test]
fn one_bad_row_of_a_full_block_takes_two_inserts_a_level() {
    let mut server = Server::with_bad(&[70_000]);
    let mut bisection = Bisection::new("token", 100_000, refusal());
    let mut inserts = 0;
    while let Step::Send(window) = bisection.step() {
        bisection.take(server.insert(&window));
        inserts += 1;
    }
    assert_eq!(named(bisection.step()), [70_000]);
    assert!(inserts <= 2 * 17, "{inserts}");
}

#[test]
fn a_block_of_one_row_needs_no_insert() {
    let bisection = Bisection::new("token", 1, refusal());
    assert_eq!(bisection.step(), Step::Done(vec![RefusedRow { row: 0, refusal: refusal() }]));
}

#[test]
fn a_table_that_takes_nothing_is_no_matter_of_rows() {
    let mut bisection = Bisection::new("token", 100_000, refusal());
    let mut inserts = 0;
    while let Step::Send(_) = bisection.step() {
        bisection.take(Outcome::Refused(refusal()));
        inserts += 1;
    }
    assert_eq!(bisection.step(), Step::Halt(Excess::Rows));
    assert!(inserts < 200, "{inserts}");
    // Someone has mended it: the rest is stored, and what was refused stays named.
    bisection.renew();
    while let Step::Send(_) = bisection.step() {
        bisection.take(Outcome::Stored);
    }
    assert_eq!(named(bisection.step()).len(), REFUSED_ROWS_MAX + 1);
}

#[test]
fn bad_rows_everywhere_end_the_tries() {
    let bad: Vec<u64> = (0..100_000).step_by(1_600).collect();
    let mut server = Server::with_bad(&bad);
    let mut bisection = Bisection::new("token", 100_000, refusal());
    while let Step::Send(window) = bisection.step() {
        bisection.take(server.insert(&window));
    }
    assert_eq!(bisection.step(), Step::Halt(Excess::Tries));
}

#[test]
fn a_row_is_found_in_its_message() {
    let messages = [(10, 2), (11, 0), (12, 3)];
    let found: Vec<_> = (0..6).map(|row| locate(row, messages)).collect();
    assert_eq!(found, [Some((10, 0)), Some((10, 1)), Some((12, 0)), Some((12, 1)), Some((12, 2)), None]);
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
