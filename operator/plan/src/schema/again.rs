//! When the schema Job runs again because gateways miss the table.
//!
//! At once for the first time. If the table goes again, or the Job does not help, there is a wait between two runs, and a longer one after each: a
//! table that something drops every minute is made a few times, and then every hour.

use crate::{
    ground::moment::Moment,
    observed::{MissingTable, SchemaFailed, SchemaFailure, SchemaSeen},
    schema::{SCHEMA_RETRY_AFTER, SCHEMA_RETRY_AFTER_MAX},
};
use k8s_openapi::jiff::Timestamp;

/// The wait after the first run, in seconds; twice as long after each. Chosen: that of a schema Job that fails for long.
const WAIT_SECONDS: u64 = SCHEMA_RETRY_AFTER_MAX.as_secs();

/// The longest wait, in seconds: a pod an hour is no load.
const WAIT_SECONDS_MAX: u64 = 3_600;

/// After this many seconds without such a run, the next one counts as the first.
const FORGOTTEN_SECONDS: u64 = 86_400;

/// Runs of the schema Job for this cause. A restart of the operator forgets them, which allows one run more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsAgain {
    runs: u32,
    last: Option<Moment>,
}

impl RunsAgain {
    /// Whether a run may begin now; if so, it is counted.
    pub fn begin(&mut self, now: Moment) -> bool {
        let since = self.last.map(|last| now.0.saturating_sub(last.0) / 1_000);
        let runs = if since.is_some_and(|since| since < FORGOTTEN_SECONDS) { self.runs } else { 0 };
        let doubled = 2_u64.saturating_pow(runs.saturating_sub(1));
        let wait = WAIT_SECONDS.saturating_mul(doubled).min(WAIT_SECONDS_MAX);
        let is_due = runs == 0 || since.is_none_or(|since| since >= wait);
        if is_due {
            *self = Self { runs: runs.saturating_add(1), last: Some(now) };
        }
        is_due
    }
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
        let begun: Vec<u64> =
            (0..24 * 60).filter(|minute| runs.begin(Moment(minute * 60_000))).take(7).collect();
        assert_eq!(begun, [0, 5, 15, 35, 75, 135, 195], "minutes");
        assert!(!runs.begin(Moment(254 * 60_000)) && runs.begin(Moment(255 * 60_000)));
        assert!(runs.begin(Moment((255 + 24 * 60) * 60_000)) && runs.begin(Moment((260 + 24 * 60) * 60_000)));
    }

    #[test]
    fn the_job_is_due_and_the_table_is_not_as_it_must_be() {
        let missing = MissingTable {
            gateway: "a-gateway-0".into(),
            words: "no table".into(),
            is_database_missing: false,
        };
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
