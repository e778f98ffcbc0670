//! The order of the tests. Tests that only use shared servers run at the same time. Then come those with an operator of their own, while
//! the installed one is paused. Last come those that change what all share, or measure a speed, one after another.
//!
//! Every test has a thread from the start and waits here. Of the waiting tests, the longest begins first ([`LONGEST`]), so that no long
//! test is left at the end.
//!
//! Limits: [`BESIDE_MAX`] tests at the same time. After [`FAILURES_VARIABLE`] failures, no further test begins.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::prelude::*;

/// Tests at the same time. Chosen: they wait for pods and servers more than they compute, on two cores that they share with both.
const BESIDE_MAX: usize = 5;

/// Variable with the number of failures after which no further test begins; without it, there is no limit.
const FAILURES_VARIABLE: &str = "SLUICE_FAILURES_MAX";

/// Tests that take more than a minute, the longest first, by the beginning of their names. Measured in two whole runs on 27 November 2026, in
/// which a test of minutes began last and ended 150 s after all others.
const LONGEST: [&str; 21] = [
    "rollout::canary::",
    "deletion::drains::",
    "deletion::life::",
    "storage::reach::",
    "security::secured::pods::",
    "deletion::gone::",
    "gitops::states::left_volumes::",
    "gitops::states::passing::",
    "rollout::leaving::",
    "delivery::outage::",
    "storage::only_copies::",
    "storage::replaced::",
    "delivery::delivers::spans_",
    "storage::volumes::",
    "spec::unharmed::",
    "spec::objects::replicas_follow",
    "delivery::kill::a_killed_gateway",
    "security::secured::a_connection",
    "spec::objects::pods_are_placed",
    "gitops::waves::a_sync_leaves",
    "spec::bad_spec::a_missing_table",
];

static TURNS: Turns = Turns { count: Mutex::new(Count::NONE), changed: Notify::const_new() };

static FAILED: AtomicUsize = AtomicUsize::new(0);

/// How a test uses what all tests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// It uses the servers and the operator without changing them.
    Servers,
    /// It uses the servers, and has an operator of its own: the installed one is paused meanwhile (`environment::while_operator_rests`).
    OwnOperator,
    /// It stops or changes the installed operator, or measures a speed: no other test runs meanwhile. No test stops a server that others
    /// use.
    ServersAlone,
}

impl Uses {
    /// Waits for the right to run.
    ///
    /// # Errors
    /// So many tests have failed that this one must not begin.
    pub async fn turn(self) -> Result<Turn> {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let turn = TURNS.turn(self, rank(&test), test).await;
        let failed = FAILED.load(Ordering::Relaxed);
        let most = std::env::var(FAILURES_VARIABLE).ok().and_then(|text| text.parse().ok());
        let not_begun = || format!("not begun: {failed} tests have failed");
        let goes_on = failed < most.unwrap_or(usize::MAX);
        if !goes_on {
            say::line(&format!("cause {} {}", turn.test, not_begun()));
        }
        ensure!(goes_on, not_begun());
        Ok(turn)
    }
}

/// The position of a test among the longest; other tests come behind them.
fn rank(test: &str) -> usize {
    LONGEST.iter().position(|begin| test.starts_with(begin)).unwrap_or(LONGEST.len())
}

/// The right to run, until dropped.
pub struct Turn {
    uses: Uses,
    test: String,
    began: Instant,
}

impl Turn {
    pub fn failed(&self, cause: &str) {
        FAILED.fetch_add(1, Ordering::Relaxed);
        let first = cause.lines().next().unwrap_or_default();
        say::line(&format!("cause {} {first}", self.test));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        say::line(&format!("took {} {:.1}", self.test, self.began.elapsed().as_secs_f64()));
        TURNS.count().end(self.uses);
        TURNS.changed.notify_waiters();
    }
}

struct Turns {
    count: Mutex<Count>,
    /// Notified when a test has ended.
    changed: Notify,
}

impl Turns {
    /// Must not be dropped while it waits: a test behind it would wait forever.
    async fn turn(&self, uses: Uses, rank: usize, test: String) -> Turn {
        self.count().arrive(uses, rank);
        loop {
            // Before the check, so that an end right after it is not missed.
            let changed = self.changed.notified();
            if self.count().begin(uses, rank) {
                return Turn { uses, test, began: Instant::now() };
            }
            changed.await;
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Count {
    waiting: Vec<(Uses, usize)>,
    running: Vec<Uses>,
}

impl Count {
    const NONE: Count = Count { waiting: Vec::new(), running: Vec::new() };

    fn arrive(&mut self, uses: Uses, rank: usize) {
        self.waiting.push((uses, rank));
    }

    /// Lets the test begin if it may; returns whether it did.
    fn begin(&mut self, uses: Uses, rank: usize) -> bool {
        let may = self.may_begin(uses, rank);
        if may {
            let place = self.waiting.iter().position(|waits| *waits == (uses, rank));
            place.map(|place| self.waiting.swap_remove(place));
            self.running.push(uses);
        }
        may
    }

    fn may_begin(&self, uses: Uses, rank: usize) -> bool {
        let is_first = self.waiting.iter().all(|(other, theirs)| *other != uses || rank <= *theirs);
        let waits = |uses: Uses| self.waiting.iter().any(|(other, _)| *other == uses);
        let is_earlier_over = match uses {
            Uses::Servers => true,
            Uses::OwnOperator => !waits(Uses::Servers),
            Uses::ServersAlone => !waits(Uses::Servers) && !waits(Uses::OwnOperator),
        };
        let has_room = match uses {
            Uses::ServersAlone => self.running.is_empty(),
            _ => self.running.len() < BESIDE_MAX && self.running.iter().all(|other| *other == uses),
        };
        is_first && is_earlier_over && has_room
    }

    fn end(&mut self, uses: Uses) {
        let place = self.running.iter().position(|running| *running == uses);
        place.map(|place| self.running.swap_remove(place));
    }
}

#[test]
fn tests_run_beside_their_like_and_alone_after_all_others() {
    let mut count = Count::NONE;
    (0..=BESIDE_MAX).for_each(|_| count.arrive(Uses::Servers, 0));
    count.arrive(Uses::ServersAlone, 0);
    count.arrive(Uses::OwnOperator, 0);
    assert!((0..BESIDE_MAX).all(|_| count.begin(Uses::Servers, 0)));
    assert!([Uses::Servers, Uses::OwnOperator, Uses::ServersAlone].iter().all(|uses| !count.begin(*uses, 0)));
    count.end(Uses::Servers);
    assert!(!count.begin(Uses::OwnOperator, 0), "one waits to run with the installed operator");
    assert!(count.begin(Uses::Servers, 0));
    (0..BESIDE_MAX).for_each(|_| count.end(Uses::Servers));
    assert!(!count.begin(Uses::ServersAlone, 0) && count.begin(Uses::OwnOperator, 0));
    count.arrive(Uses::Servers, 0);
    assert!(!count.begin(Uses::Servers, 0), "the installed operator rests");
    count.end(Uses::OwnOperator);
    assert!(count.begin(Uses::Servers, 0));
    count.end(Uses::Servers);
    assert!(count.begin(Uses::ServersAlone, 0) && !count.begin(Uses::ServersAlone, 0));
}

#[test]
fn the_longest_begins_first() {
    let mut count = Count::NONE;
    count.arrive(Uses::Servers, 1);
    count.arrive(Uses::Servers, 0);
    assert!(!count.begin(Uses::Servers, 1) && count.begin(Uses::Servers, 0) && count.begin(Uses::Servers, 1));
}

#[test]
fn the_longest_are_tests_that_there_are() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for begin in LONGEST {
        let (module, function) = begin.rsplit_once("::").unwrap();
        let file = tests.join(module.replace("::", "/")).with_extension("rs");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("fn {function}")), "{begin}");
    }
}
