//! Log lines and metrics about blocks that wait until someone acts.
//!
//! Owner: [`Halts`] is shared by the shipments to a shard. It is used once per failed try of a waiting block, some seconds apart. Limits:
//! [`CAUSES_MAX`] causes are distinguished; each is logged once in [`SAY_INTERVAL`], even if other blocks succeed in between.

use super::Shipment;
use crate::delivery::tries::Replica;
use sluice_clickhouse::outcome::Actor;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often the same cause is logged. Chosen: often enough to be found in the part of a log that is kept, and only a few lines an hour.
const SAY_INTERVAL: Duration = Duration::from_mins(10);

/// Logged causes of a shard. Chosen: more than a server has at a time; it limits the lines whatever the server answers.
const CAUSES_MAX: usize = 16;

/// Why a block waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cause {
    actor: Actor,
    /// ClickHouse's exception code, if there was one.
    code: Option<u32>,
}

/// The recently logged causes, and when each was logged.
#[derive(Debug, Default)]
struct Said(Vec<(Cause, Duration)>);

/// The causes for which blocks of a shard wait.
#[derive(Debug, Default)]
pub struct Halts(Mutex<Said>);

impl Said {
    /// Whether a cause is to be logged now; if so, records it as logged.
    fn is_due(&mut self, cause: Cause, now: Duration) -> bool {
        self.0.retain(|(_, at)| now.saturating_sub(*at) < SAY_INTERVAL);
        let is_due = self.0.len() < CAUSES_MAX && self.0.iter().all(|(said, _)| *said != cause);
        if is_due {
            self.0.push((cause, now));
        }
        is_due
    }
}

impl Halts {
    fn said(&self) -> MutexGuard<'_, Said> {
        // Poisoning is harmless: the list holds plain values.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shipment {
    /// Logs who must act and what to do, unless that was logged recently.
    pub(super) fn say_actor(&self, actor: Actor) {
        let (code, reason) = self.refusal.as_ref().map_or((None, ""), |(code, text)| (*code, text.as_str()));
        let now = self.shard.clock.now();
        if self.shard.halts.said().is_due(Cause { actor, code }, now) {
            let (partition, who, advice) = (&self.block.id, actor.label(), actor.advice());
            tracing::error!(
                %partition,
                actor = who,
                code,
                advice,
                reason,
                "a block cannot be inserted until the cause is fixed (see advice), and others may wait too; it is tried again automatically"
            );
        }
    }

    /// Waits for someone to act, and counts as waiting meanwhile. The next try goes to another server if there is one, which may not have
    /// the same fault.
    pub(super) async fn wait_for_actor(&mut self, actor: Actor, wait: Duration) {
        let waiting = self.shard.delivery.metrics.refused.blocks_waiting_for(actor);
        waiting.inc();
        self.pause(wait, Replica::Same).await;
        waiting.dec();
        self.last = self.last.map(|(endpoint, _)| (endpoint, Replica::Another));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cause(actor: Actor, code: u32) -> Cause {
        Cause { actor, code: Some(code) }
    }

    #[test]
    fn a_cause_is_said_when_it_is_new_and_now_and_then() {
        let mut said = Said::default();
        let (table, other) = (cause(Actor::Table, 60), cause(Actor::Table, 16));
        let access = cause(Actor::Access, 497);
        let course = [
            (0, table, true),
            (5, table, false),
            (6, other, true),
            (7, access, true),
            // Blocks with different causes alternate.
            (8, table, false),
            (9, other, false),
            (600, table, true),
            (601, other, false),
        ];
        for (seconds, cause, is_due) in course {
            assert_eq!(said.is_due(cause, seconds * SECOND), is_due, "{cause:?} at {seconds} s");
        }
    }

    #[test]
    fn what_is_said_is_bounded() {
        let mut said = Said::default();
        let mut lines = |from: u32, at| {
            let causes = (from..from + 100).map(|code| cause(Actor::Table, code));
            causes.filter(|cause| said.is_due(*cause, at)).count()
        };
        assert_eq!([lines(0, SECOND), lines(0, SECOND), lines(1_000, SECOND)], [CAUSES_MAX, 0, 0]);
        assert_eq!(lines(1_000, SECOND + SAY_INTERVAL), CAUSES_MAX);
    }
}
