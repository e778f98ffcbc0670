//! That gateways miss a table which the schema Job has found or made: it, or its database, was dropped or renamed since.

use sluice_crds::status::reason;

/// What a gateway says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTable {
    /// The name of the gateway.
    pub gateway: String,
    /// What it says.
    pub words: String,
    /// Whether the database is missing, too.
    pub is_database_missing: bool,
}

/// How the words about it begin, which tells them from those of a schema Job.
pub(crate) const GATEWAYS_MISS: &str = "gateways miss ";

impl MissingTable {
    /// The reason in a condition.
    pub(crate) fn reason(&self) -> &'static str {
        if self.is_database_missing { reason::DATABASE_MISSING } else { reason::TABLE_MISSING }
    }

    /// For people.
    pub fn message(&self) -> String {
        let Self { gateway, words, is_database_missing } = self;
        if *is_database_missing {
            return format!(
                "{GATEWAYS_MISS}the database: {gateway}: {words}; check that sink.clickhouse.endpoints lead to the right servers. The operator makes \
                 no database on its own then: operator/ROLLOUTS.md has the commands that run the schema Job again"
            );
        }
        format!(
            "{GATEWAYS_MISS}a table: {gateway}: {words}; the operator runs the schema Job again, at longer intervals each time. If the Job succeeds \
             and gateways still miss a table, check the target tables of materialized views"
        )
    }
}
