//! Gateways that miss the table, by what they report: inserts that fail because ClickHouse knows no such table, or a gateway that waits for the table
//! before it reads. How long that lasts is counted by those who act on it.

use super::{gateway_report::GatewayReport, gateways::looks::Look, not_ready_reason::NotReady};
use sluice_plan::{GatewaySeen, WorkloadSeen, observed::MissingTable};

/// The first gateway that misses it. Gateways of an older revision may have another table, and do not count.
pub fn hear(
    look: Option<&Look>,
    report: &GatewayReport,
    not_ready: &NotReady,
    workload: Option<&WorkloadSeen>,
) -> Option<MissingTable> {
    let workload = workload?;
    let is_newest =
        |gateway: &&GatewaySeen| gateway.revision.is_some() && gateway.revision == workload.update_revision;
    let named = |ordinal: u32| {
        let found = workload.gateways.iter().find(|gateway| gateway.ordinal == ordinal);
        found.filter(is_newest).map(|gateway| gateway.name.clone())
    };
    let waits = |ordinal: u32| {
        let said = look.iter().flat_map(|look| &look.said).find(|said| said.gateway.ordinal == ordinal);
        said.and_then(|said| said.report.as_ref().ok()).is_some_and(|report| report.is_table_missing)
    };
    let inserts = report.insert_error.as_ref().filter(|failed| {
        let error = &failed.error;
        error.is_table_missing()
            || error.is_database_missing()
            || (error.is_of_table() && waits(failed.ordinal))
    });
    let inserts =
        inserts.map(|failed| (failed.ordinal, failed.error.words(), failed.error.is_database_missing()));
    let starts = not_ready.reasons.iter().filter(|(ordinal, _)| waits(**ordinal));
    let starts = starts.map(|(ordinal, words)| (*ordinal, words.clone(), false));
    inserts.into_iter().chain(starts).find_map(|(ordinal, words, is_database_missing)| {
        Some(MissingTable { gateway: named(ordinal)?, words, is_database_missing })
    })
}
