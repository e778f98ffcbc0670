//! Whose turn it is: tests that use what all share run beside each other, those that stop some of it run alone, after all others that
//! have come by then.
//!
//! Every test has a thread from the start and waits here. So it costs nothing that a test runs alone but the time in which it does: in
//! the order of their names, each of them would first wait until all that have begun are through, on a machine that falls idle meanwhile.
//!
//! Limits: [`BESIDE_MAX`] tests beside each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Tests beside each other. Chosen: they wait for pods and servers more than they compute, on two cores that they share with both.
const BESIDE_MAX: usize = 5;

static TURNS: Turns = Turns::new();

/// What a test does to what all tests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// Uses the servers and the operator as they are.
    Servers,
    /// Stops one of them, or measures how fast something is: no other test runs meanwhile.
    ServersAlone,
}

impl Uses {
    /// Waits for the right to run.
    pub async fn turn(self) -> Turn {
        TURNS.turn(self).await
    }
}

/// The right to run, until dropped.
pub struct Turn {
    uses: Uses,
    turns: &'static Turns,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.count().end(self.uses);
        self.turns.changed.notify_waiters();
    }
}

struct Turns {
    count: Mutex<Count>,
    /// Somebody has ended.
    changed: Notify,
}

impl Turns {
    const fn new() -> Turns {
        Turns { count: Mutex::new(Count::NONE), changed: Notify::const_new() }
    }

    /// Not to be given up while it waits: who runs alone would wait for it for ever.
    async fn turn(&'static self, uses: Uses) -> Turn {
        self.count().arrive(uses);
        loop {
            // Before the look, so that an end right after it is heard of.
            let changed = self.changed.notified();
            if self.count().begin(uses) {
                return Turn { uses, turns: self };
            }
            changed.await;
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many there are of whom.
#[derive(Debug)]
struct Count {
    /// Wait to run beside others.
    waiting: usize,
    beside: usize,
    alone: bool,
}

impl Count {
    const NONE: Count = Count { waiting: 0, beside: 0, alone: false };

    fn arrive(&mut self, uses: Uses) {
        self.waiting += usize::from(uses == Uses::Servers);
    }

    /// Whether it may begin, and has.
    fn begin(&mut self, uses: Uses) -> bool {
        let may = match uses {
            Uses::Servers => !self.alone && self.beside < BESIDE_MAX,
            Uses::ServersAlone => !self.alone && self.beside + self.waiting == 0,
        };
        match uses {
            Uses::Servers if may => {
                self.waiting -= 1;
                self.beside += 1;
            }
            Uses::ServersAlone if may => self.alone = true,
            _ => {}
        }
        may
    }

    fn end(&mut self, uses: Uses) {
        match uses {
            Uses::Servers => self.beside -= 1,
            Uses::ServersAlone => self.alone = false,
        }
    }
}

#[test]
fn whoever_runs_alone_does_so_after_those_that_run_beside_each_other() {
    let mut count = Count::NONE;
    (0..=BESIDE_MAX).for_each(|_| count.arrive(Uses::Servers));
    count.arrive(Uses::ServersAlone);
    assert!((0..BESIDE_MAX).all(|_| count.begin(Uses::Servers)));
    assert!(!count.begin(Uses::Servers) && !count.begin(Uses::ServersAlone));
    count.end(Uses::Servers);
    assert!(!count.begin(Uses::ServersAlone), "one waits to run beside the others");
    assert!(count.begin(Uses::Servers));
    (0..BESIDE_MAX).for_each(|_| count.end(Uses::Servers));
    assert!(count.begin(Uses::ServersAlone) && !count.begin(Uses::ServersAlone));
    count.arrive(Uses::Servers);
    assert!(!count.begin(Uses::Servers), "one runs alone");
    count.end(Uses::ServersAlone);
    assert!(count.begin(Uses::Servers));
}
