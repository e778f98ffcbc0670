//! When the schema Job runs again because gateways miss the table.
//!
//! Once gateways have missed it for a minute, which leaves time to rename it and make it anew. If the table goes again, or the Job does not help,
//! there is a wait between two runs, and a longer one after each: a table that something drops every minute is made a few times, and then every
//! hour.

use crate::{
    ground::moment::Moment,
    observed::{MissingTable, SchemaFailed, SchemaFailure, SchemaSeen},
    schema::{SCHEMA_RETRY_AFTER, SCHEMA_RETRY_AFTER_MAX},
};
use k8s_openapi::jiff::Timestamp;

/// The wait after the first run, in seconds; twice as long after each. Chosen: that of a schema Job that fails for long.
const WAIT_SECONDS: u64 = SCHEMA_RETRY_AFTER_MAX.as_secs();

/// Gateways must miss the table for so many seconds before the first run: a table that is renamed and made anew in between gets no rival. Chosen.
const MISSED_SECONDS: u64 = 60;

/// What gateways said holds for so many seconds while they do not answer: at least as long as two looks at a pipeline lie apart.
const HEARD_SECONDS: u64 = 120;

/// The longest wait, in seconds: a pod an hour is no load.
const WAIT_SECONDS_MAX: u64 = 3_600;

/// After this many seconds without such a run, the next one counts as the first.
const FORGOTTEN_SECONDS: u64 = 86_400;

/// Runs of the schema Job for this cause. A restart of the operator forgets them, which allows one run more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsAgain {
    runs: u32,
    last: Option<Moment>,
    missed: Option<Missed>,
}

/// How long gateways have missed the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missed {
    since: Moment,
    /// When they said so last.
    heard: Moment,
}

impl RunsAgain {
    /// Records whether gateways miss the table now. While that is unknown, what they said last holds for a while.
    pub fn hear(&mut self, is_missed: bool, is_unknown: bool, now: Moment) {
        let is_recent = |missed: &Missed| seconds_between(missed.heard, now) <= HEARD_SECONDS;
        let before = self.missed.filter(is_recent);
        self.missed = if is_missed {
            Some(Missed { since: before.map_or(now, |missed| missed.since), heard: now })
        } else {
            before.filter(|_| is_unknown)
        };
    }

    /// Whether a run may begin now; if so, it is counted.
    pub fn begin(&mut self, now: Moment) -> bool {
        let is_missed_for_long =
            self.missed.is_some_and(|missed| seconds_between(missed.since, now) >= MISSED_SECONDS);
        let since = self.last.map(|last| seconds_between(last, now));
        let runs = if since.is_some_and(|since| since < FORGOTTEN_SECONDS) { self.runs } else { 0 };
        let doubled = 2_u64.saturating_pow(runs.saturating_sub(1));
        let wait = WAIT_SECONDS.saturating_mul(doubled).min(WAIT_SECONDS_MAX);
        let is_due = is_missed_for_long && (runs == 0 || since.is_none_or(|since| since >= wait));
        if is_due {
            *self = Self { runs: runs.saturating_add(1), last: Some(now), ..*self };
        }
        is_due
    }
}

fn seconds_between(from: Moment, to: Moment) -> u64 {
    to.0.saturating_sub(from.0) / 1_000
}

/// A schema Job that succeeded, and whose table gateways miss since: it is due to run again.
pub fn outdated(missing: &MissingTable, at: Timestamp) -> SchemaSeen {
    let failure = SchemaFailure { reason: missing.reason(), message: missing.message() };
    SchemaSeen::Failed(SchemaFailed {
        failure,
        times: 1,
        at,
        ago: SCHEMA_RETRY_AFTER,
        ..SchemaFailed::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaStep;
    use sluice_crds::status::reason;

    #[test]
    fn a_table_that_is_dropped_again_and_again_is_made_less_and_less_often() {
        let mut runs = RunsAgain::default();
        // Gateways have missed it for a minute by then.
        let mut begins = |minute: u64| {
            for at in [minute.saturating_sub(1), minute] {
                runs.hear(true, false, Moment(at * 60_000));
            }
            runs.begin(Moment(minute * 60_000))
        };
        let begun: Vec<u64> = (0..24 * 60).filter(|minute| begins(*minute)).take(7).collect();
        assert_eq!(begun, [1, 6, 16, 36, 76, 136, 196], "minutes");
        assert!(!begins(255) && begins(256));
        assert!(begins(256 + 24 * 60) && begins(261 + 24 * 60));
    }

    /// A table that is renamed and made anew within a minute.
    #[test]
    fn no_job_runs_before_gateways_have_missed_the_table_for_a_minute() {
        let after = |heard: &[(u64, bool, bool)]| {
            let mut runs = RunsAgain::default();
            for (second, is_missed, is_unknown) in heard {
                runs.hear(*is_missed, *is_unknown, Moment(second * 1_000));
            }
            runs.begin(Moment(heard.last().unwrap().0 * 1_000))
        };
        let (missed, there, unknown) = ((true, false), (false, false), (false, true));
        let at = |second, (is_missed, is_unknown)| (second, is_missed, is_unknown);
        for (heard, expected) in [
            (&[at(0, missed)][..], false),
            (&[at(0, missed), at(15, missed)], false),
            (&[at(0, missed), at(30, missed), at(59, missed)], false),
            (&[at(0, missed), at(30, missed), at(60, missed)], true),
            (&[at(0, missed), at(30, there), at(60, missed)], false),
            (&[at(0, missed), at(30, unknown), at(60, missed)], true),
            (&[at(0, missed), at(300, unknown), at(301, missed)], false),
            (&[at(0, missed), at(300, missed)], false),
        ] {
            assert_eq!(after(heard), expected, "{heard:?}");
        }
    }

    #[test]
    fn the_job_is_due_and_the_table_is_not_as_it_must_be() {
        let missing =
            MissingTable { gateway: "a-gateway-0".into(), words: "no table".into(), database: None };
        let seen = outdated(&missing, Timestamp::UNIX_EPOCH);
        assert_eq!(SchemaStep::of(&seen, Some("job"), Some("job")), SchemaStep::RunAgain);
        assert_eq!(
            seen.usable(Some("job"), Some("job"), true),
            None,
            "it is not remembered as one that succeeded"
        );
        let said = seen.status(Some("job"), None).unwrap();
        assert_eq!((said.reason.as_str(), said.failures), (reason::TABLE_MISSING, 1));
        assert!(said.message.starts_with("gateways miss a table: a-gateway-0: no table"), "{}", said.message);
    }
}
