//! That gateways miss a table which the schema Job has found or made: it, or its database, was dropped or renamed since.

use sluice_crds::status::reason;

/// What a gateway says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTable {
    /// The name of the gateway.
    pub gateway: String,
    /// What it says.
    pub words: String,
    /// The name of the database, if it is missing, too.
    pub database: Option<String>,
}

/// How the words about it begin, which tells them from those of a schema Job.
pub(crate) const GATEWAYS_MISS: &str = "gateways miss ";

impl MissingTable {
    /// The reason in a condition.
    pub(crate) fn reason(&self) -> &'static str {
        if self.database.is_some() { reason::DATABASE_MISSING } else { reason::TABLE_MISSING }
    }

    /// For people.
    pub fn message(&self) -> String {
        let Self { gateway, words, database } = self;
        if let Some(database) = database {
            return format!(
                "{GATEWAYS_MISS}the database {database:?}: {gateway}: {words}; check that sink.clickhouse.endpoints lead to the right servers. If they \
                 do, create the database, or let the schema Job do it (schema.management: CreateIfMissing). The operator does not run that Job on its \
                 own then: operator/ROLLOUTS.md has the commands"
            );
        }
        format!(
            "{GATEWAYS_MISS}a table: {gateway}: {words}; the operator runs the schema Job again, at longer intervals each time. If the Job succeeds \
             and gateways still miss a table, check the target tables of materialized views"
        )
    }
}
