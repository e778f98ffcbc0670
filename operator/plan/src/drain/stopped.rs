//! Gateways with `source.otlp` that do not run: no other gateway reads their volumes.
//!
//! A pod that is replaced is away for seconds, and a process that ends again and again runs for seconds between. So a gateway counts as stopped
//! from the first look at which it does not run until it has run for [`SILENT_SECONDS`]. Its owner is the operator's memory of the pipeline: an
//! operator that starts counts anew. Limit: an entry for each gateway that does not run. Pure: no clock.

use super::SILENT_SECONDS;
use crate::ground::moment::Moment;
use std::collections::BTreeMap;

/// A gateway that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The claim of its volume.
    pub claim: String,
    /// For how long it has not run, as far as this operator has seen.
    pub seconds: u32,
}

/// Since when gateways do not run, by their numbers.
#[derive(Debug, Default)]
pub struct StoppedSince(BTreeMap<u32, Seen>);

#[derive(Debug)]
struct Seen {
    claim: String,
    since: Moment,
    /// The last look at which it did not run.
    last: Moment,
}

impl StoppedSince {
    /// After a look: the claims of the gateways that do not run, and the numbers of those that do. One that is in neither does not run, and
    /// has no claim that may hold something.
    pub fn see(
        &mut self,
        now: Moment,
        claims: BTreeMap<u32, String>,
        running: &[u32],
    ) -> BTreeMap<u32, Stopped> {
        let is_short = |seen: &Seen| now.seconds_since(seen.last) < f64::from(SILENT_SECONDS);
        self.0.retain(|ordinal, seen| {
            claims.contains_key(ordinal) || (running.contains(ordinal) && is_short(seen))
        });
        for (ordinal, claim) in claims {
            let since = self.0.get(&ordinal).map_or(now, |seen| seen.since);
            self.0.insert(ordinal, Seen { claim, since, last: now });
        }
        self.0.iter().map(|(ordinal, seen)| (*ordinal, seen.stopped())).collect()
    }
}

impl Seen {
    fn stopped(&self) -> Stopped {
        let seconds = self.last.0.saturating_sub(self.since.0) / 1_000;
        Stopped { claim: self.claim.clone(), seconds: u32::try_from(seconds).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_counts_as_stopped_until_it_has_run_for_a_while_or_its_claim_is_gone() {
        let mut since = StoppedSince::default();
        let mut see = |second: u64, stopped: &[u32], running: &[u32]| {
            let claims = stopped.iter().map(|ordinal| (*ordinal, format!("queue-{ordinal}"))).collect();
            let found = since.see(Moment(second * 1_000), claims, running);
            found.into_iter().map(|(ordinal, stopped)| (ordinal, stopped.seconds)).collect::<Vec<_>>()
        };
        assert_eq!(see(0, &[1], &[0]), [(1, 0)]);
        assert_eq!(see(40, &[1], &[0]), [(1, 40)]);
        assert_eq!(see(50, &[], &[0, 1]), [(1, 40)], "it has just started");
        assert_eq!(see(60, &[1], &[0]), [(1, 60)], "and ended again");
        assert_eq!(see(89, &[], &[0, 1]), [(1, 60)]);
        assert_eq!(see(90, &[], &[0, 1]), []);
        assert_eq!(see(100, &[1], &[0]), [(1, 0)]);
        assert_eq!(see(110, &[], &[0]), [], "its claim was deleted");
    }
}
