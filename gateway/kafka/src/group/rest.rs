//! At shutdown, moves unsettled blocks to the queue volume, for the next run.
//!
//! Owner: the poll thread. It requests this while there is time, and waits for it before it releases its partitions. How the blocks are
//! stored is up to the gateway.
//!
//! ```text
//!  leave ---- settle what can be ----> keep ---- settle on ----> drained ---- wait for what is kept ----> let go, last commit
//!             (most of the time)        `------ KEEP_WAIT -------'             (half of what is left)
//! ```

use crate::group::{
    assignment::{Assignment, Waits},
    stats::ConsumerStats,
};
use std::time::{Duration, Instant};

/// How long before the end of the wait the rest is moved to the volume; at most a quarter of the time to leave. Chosen: a disk of 100
/// MB/s writes the whole pool of chunks in less.
const KEEP_WAIT: Duration = Duration::from_secs(3);

/// Stores unsettled blocks.
pub struct Rest {
    /// Requests it. May be called again and again: the last call counts.
    pub keep: Box<dyn Fn() + Send>,
    /// Whether everything that existed at the last request is stored or settled.
    pub is_kept: Box<dyn Fn() -> bool + Send>,
}

impl Rest {
    /// Waits until everything is settled. With less than [`KEEP_WAIT`] left until `waits.drained_by`, requests that the rest is stored.
    /// Returns whether all of that is stored.
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
                // The worker's last block may not have been there at the previous request.
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
    use crate::group::{
        arrivals::Policy,
        committer::Beginning,
        consumer::{Inbox, Shortage},
        partition::Report,
    };
    use crossbeam_channel::bounded;
    use sluice_gateway_config::InitialOffset;
    use sluice_ranges::{Cutter, Generation, Log, PartitionId, Rule, Settings, Version};
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    /// A partition with an unsettled range. Its worker releases it if `lets_go`.
    fn assignment(lets_go: bool) -> Assignment {
        let (ownership, wake) = (bounded(8).0, bounded(1).0);
        let (reports, reports_in) = bounded(16);
        let rule = Rule { version: Version::Before, bytes: 100, messages: 10 };
        let settings = Settings { rule, routing_epoch: 0, destination: None, topic_id: None, cluster: None };
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

    fn range(cutter: &mut Cutter) -> sluice_ranges::Closed {
        assert_eq!(cutter.take(0, None), None);
        cutter.flush().expect("a range with a message ends when it is asked to")
    }

    /// Whether the rest is stored after this many requests, and how often it was requested.
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
