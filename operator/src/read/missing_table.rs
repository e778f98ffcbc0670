//! Gateways that cannot use the table, by what they report: inserts that fail because ClickHouse knows no such table, or a gateway that waits for the
//! table before it reads. How long that lasts is counted by those who act on it.

use super::{gateway_report::GatewayReport, not_ready_reason::NotReady};
use sluice_crds::status::reason;
use sluice_plan::{
    WorkloadSeen,
    observed::{MissingTable, UnusableTable},
};

/// What gateways say of the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TableHeard {
    /// That one misses it.
    pub missing: Option<MissingTable>,
    /// That one cannot use it for another reason.
    pub unusable: Option<UnusableTable>,
}

/// What the first gateways say of it that have something to say. One that misses the database comes before others: the server that it asks may be a
/// foreign one, where no table may be made for the others. Gateways of an older revision may have another table, and do not count.
pub fn hear(
    report: &GatewayReport,
    not_ready: &NotReady,
    (workload, database): (Option<&WorkloadSeen>, &str),
) -> TableHeard {
    let Some(workload) = workload else { return TableHeard::default() };
    let named = |ordinal: u32| {
        let found = workload.gateways.iter().find(|gateway| gateway.ordinal == ordinal);
        let newest = found
            .filter(|gateway| gateway.revision.is_some() && gateway.revision == workload.update_revision);
        newest.map(|gateway| gateway.name.clone())
    };
    let inserts = report.insert_error.iter().filter_map(|failed| {
        let error = &failed.error;
        let reason = if error.is_database_missing() {
            reason::DATABASE_MISSING
        } else if error.is_table_missing() {
            reason::TABLE_MISSING
        } else {
            return None;
        };
        Some(UnusableTable { gateway: named(failed.ordinal)?, reason, words: error.words() })
    });
    let starts = not_ready.table_errors.iter().filter_map(|(ordinal, error)| {
        let words = not_ready.reasons.get(ordinal)?.clone();
        Some(UnusableTable { gateway: named(*ordinal)?, reason: error, words })
    });
    let found: Vec<UnusableTable> = inserts.chain(starts).collect();
    let first = |wanted: &str| found.iter().find(|one| one.reason == wanted);
    let missing = first(reason::DATABASE_MISSING).or_else(|| first(reason::TABLE_MISSING));
    let missing = missing.map(|one| MissingTable {
        gateway: one.gateway.clone(),
        words: one.words.clone(),
        database: (one.reason == reason::DATABASE_MISSING).then(|| database.to_owned()),
    });
    let is_missing = |reason: &str| [reason::DATABASE_MISSING, reason::TABLE_MISSING].contains(&reason);
    let unusable = found.iter().find(|one| !is_missing(one.reason)).cloned();
    TableHeard { missing, unusable }
}
