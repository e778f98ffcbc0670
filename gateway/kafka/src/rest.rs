//! What is not settled when this process leaves, and is kept for its next run on the queue volume.
//!
//! Owner: the poll thread, which asks for it while there is time and waits until it is there, before it lets its partitions go. Who
//! keeps it is the gateway's affair.
//!
//! ```text
//!  leave ---- settle what can be ----> keep ---- settle on ----> drained ---- wait for what is kept ----> let go, last commit
//!             (most of the time)        `------ KEEP_WAIT -------'             (half of what is left)
//! ```

use crate::{assignment::Assignment, rebalancing::Waits, stats::ConsumerStats};
use std::time::{Duration, Instant};

/// How long before it is given up what is not settled begins to be kept, a quarter of the time to leave at the most. Chosen: a disk of
/// 100 MB/s takes the whole pool of chunks in less.
const KEEP_WAIT: Duration = Duration::from_secs(3);

/// Keeps what is not settled.
pub struct Rest {
    /// Asks for it, again and again: the last time counts.
    pub keep: Box<dyn Fn() + Send>,
    /// Whether all that had come when it was asked for last is kept, or settled.
    pub is_kept: Box<dyn Fn() -> bool + Send>,
}

impl Rest {
    /// Waits until everything is settled; with less than [`KEEP_WAIT`] left until `waits.drained_by`, has the rest kept. Says whether
    /// all of that is.
    pub(crate) fn wait(&self, assignment: &mut Assignment, waits: Waits, stats: &ConsumerStats) -> bool {
        let Waits { drained_by, committed_by } = waits;
        let left = committed_by.saturating_duration_since(Instant::now());
        let keep_at = drained_by.checked_sub(KEEP_WAIT.min(left / 4)).unwrap_or(drained_by);
        assignment.tend_until(keep_at, stats, |assignment| assignment.unfinished() == 0);
        if assignment.unfinished() == 0 {
            return false;
        }
        (self.keep)();
        let mut was_all_asked = false;
        let mut is_kept = |assignment: &Assignment| {
            if assignment.left().reading > 0 {
                return false;
            }
            if !std::mem::replace(&mut was_all_asked, true) {
                // What a worker sealed last had perhaps not come when it was asked for.
                (self.keep)();
            }
            (self.is_kept)()
        };
        let arrived_by = drained_by + committed_by.saturating_duration_since(drained_by) / 2;
        assignment.tend_until(arrived_by, stats, |assignment| {
            assignment.unfinished() == 0 || (Instant::now() >= drained_by && is_kept(assignment))
        });
        assignment.unfinished() > 0 && is_kept(assignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arrivals::Policy,
        committer::Beginning,
        consumer::{Inbox, Shortage},
        partition::{Generation, PartitionId, Report},
        ranges::{Cutter, Log, Rule, Settings, Version},
    };
    use crossbeam_channel::bounded;
    use sluice_gateway_config::InitialOffset;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    /// A partition of which a range is not settled. Its worker lets it go if `lets_go`.
    fn assignment(lets_go: bool) -> Assignment {
        let (ownership, wake) = (bounded(8).0, bounded(1).0);
        let (reports, reports_in) = bounded(16);
        let rule = Rule { version: Version::Before, bytes: 100, messages: 10 };
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, instance: 1 };
        let policy = Policy { settings, initial_offset: InitialOffset::Earliest, active_max: 8 };
        let inbox = Inbox { ownership, wake, shortage: Shortage::default() };
        let mut assignment = Assignment::new(vec![inbox], reports_in, Box::new(|_| Ok(())), policy);
        let id = PartitionId { topic: "spans".into(), partition: 0 };
        let log = Log { start: 0, end: 5 };
        let beginning =
            Beginning { commit: None, log, cluster: "cluster".into(), topic_id: None, is_new: false };
        assignment.arrivals.arrive(vec![id.clone()]);
        assignment.begin(id.clone(), &beginning, &ConsumerStats::default());
        let [ready] = &mut assignment.arrivals.take_ready()[..] else { panic!("it begins") };
        let generation = ready.begun.generation;
        assert_eq!(generation, Generation(1));
        let closed = range(&mut ready.begun.cutter);
        reports.try_send(Report::Closed { id: id.clone(), generation, closed, has_rows: true }).unwrap();
        if lets_go {
            reports.try_send(Report::Released { id, generation, renew: None }).unwrap();
        }
        assignment
    }

    fn range(cutter: &mut Cutter) -> crate::ranges::Closed {
        assert_eq!(cutter.take(0, None), None);
        cutter.flush().expect("a range with a message ends when it is asked to")
    }

    /// Whether the rest is kept that needs to be asked for so often, and how often it was.
    fn kept(lets_go: bool, times: u32) -> (bool, u32) {
        let asked = Arc::new(AtomicU32::new(0));
        let (keeps, looks) = (asked.clone(), asked.clone());
        let rest = Rest {
            keep: Box::new(move || {
                keeps.fetch_add(1, Ordering::Relaxed);
            }),
            is_kept: Box::new(move || looks.load(Ordering::Relaxed) >= times),
        };
        let now = Instant::now();
        let (drained_by, committed_by) = (now + Duration::from_millis(60), now + Duration::from_millis(100));
        let mut assignment = assignment(lets_go);
        let is_kept =
            rest.wait(&mut assignment, Waits { drained_by, committed_by }, &ConsumerStats::default());
        assert!(now.elapsed() >= Duration::from_millis(60), "it may be settled up to then");
        (is_kept, asked.load(Ordering::Relaxed))
    }

    #[test]
    fn what_is_not_settled_is_kept_in_time_and_again_once_no_worker_has_more() {
        assert_eq!(kept(true, 2), (true, 2));
        assert_eq!(kept(true, 3), (false, 2), "it does not arrive");
        assert_eq!(kept(false, 1), (false, 1), "a worker still has messages");
    }
}
