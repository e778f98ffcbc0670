//! The definition of an existing table, its views and their tables.
//!
//! Job: the queries for [`crate::ddl::difference`]. Place in the flow: `sluice-gateway ddl diff` and `ddl apply`.

use clickhouse::Row;
use serde::Deserialize;

use crate::ddl::TableSpec;
use crate::ddl::difference::{Found, FoundTable, names_of_views};
use crate::durability::Durability;
use crate::probe::{PROBE_TIMEOUT, Probe};
use crate::probe_error::ProbeError;
use crate::sql::literal;

#[derive(Debug, Row, Deserialize)]
struct DefinitionRow {
    engine: String,
    engine_full: String,
    sorting_key: String,
}

impl Probe {
    /// The objects of a spec that exist on the server.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or a right is missing. A missing table is not an error.
    pub async fn found(&self, spec: &TableSpec) -> Result<Found, ProbeError> {
        let table = match self.definition(&spec.table).await? {
            None => None,
            Some(DefinitionRow { engine, engine_full, sorting_key }) => {
                let columns = self.describe(&spec.table).await?;
                // A TTL is only compared if the spec asks for one.
                let acting_at_once = match spec.ttl {
                    Some(_) => self.acting_at_once_in(&spec.table, &engine_full).await,
                    None => Vec::new(),
                };
                Some(FoundTable { engine, engine_full, sorting_key, columns, acting_at_once })
            }
        };
        let others = self.those_of(&names_of_views(spec)).await?;
        let unsynced = self.unsynced(spec, table.is_some(), &others).await?;
        Ok(Found { table, others, unsynced })
    }

    /// The existing tables of a spec that asks for synced parts, whose parts are not synced.
    async fn unsynced(
        &self,
        spec: &TableSpec,
        is_there: bool,
        others: &[String],
    ) -> Result<Vec<String>, ProbeError> {
        let mut unsynced = Vec::new();
        if spec.durability != Durability::Fsync {
            return Ok(unsynced);
        }
        let of_views =
            spec.views.iter().map(|view| view.table(&spec.table)).filter(|table| others.contains(table));
        for table in is_there.then(|| spec.table.clone()).into_iter().chain(of_views) {
            if !self.is_synced(&table).await? {
                unsynced.push(table);
            }
        }
        Ok(unsynced)
    }

    async fn definition(&self, table: &str) -> Result<Option<DefinitionRow>, ProbeError> {
        let action = format!("reading the definition of {table}");
        let question =
            "SELECT engine, engine_full, sorting_key FROM system.tables WHERE database = ? AND name = ?";
        let answer = self.client().query(question).bind(&self.database).bind(table);
        self.within(PROBE_TIMEOUT, &action, answer.fetch_optional::<DefinitionRow>()).await
    }

    /// Those of the names that belong to a table or view of the database.
    async fn those_of(&self, names: &[String]) -> Result<Vec<String>, ProbeError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = names.iter().map(|name| literal(name)).collect();
        let question = format!(
            "SELECT name FROM system.tables WHERE database = {} AND name IN ({})",
            literal(&self.database),
            names.join(", ")
        );
        let answer = self.client().query_raw(&question).fetch_all::<String>();
        self.within(PROBE_TIMEOUT, "looking for views", answer).await
    }
}
