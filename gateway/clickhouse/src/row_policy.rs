//! Whether a row policy hides rows of a table from the user.
//!
//! `system.row_policies` needs a grant of its own. A plan does not: `EXPLAIN actions = 1` names the filter of the policies that concern
//! the user as `Row level filter` (tried on ClickHouse 26.7).

use crate::probe::{PROBE_TIMEOUT, Probe};
use crate::probe_error::ProbeError;
use crate::sql::table_name;

/// What a plan calls the filter of row policies.
const ROW_LEVEL_FILTER: &str = "Row level filter";

impl Probe {
    /// Whether policies filter what the user reads of the table. Of an empty table, and of a `Distributed` one whose rows are at other
    /// servers, the plan does not tell: `false`.
    ///
    /// # Errors
    /// [`ProbeError`] when nobody answers, the table is not there, or may not be read.
    pub async fn hides_rows(&self, table: &str) -> Result<bool, ProbeError> {
        let name = table_name(&self.database, table);
        let question = format!("EXPLAIN actions = 1 SELECT Timestamp FROM {name}");
        let plan = self.client.query_raw(&question).fetch_all::<String>();
        let plan = self.within(PROBE_TIMEOUT, &format!("checking row policies of {name}"), plan).await?;
        Ok(plan.iter().any(|line| line.contains(ROW_LEVEL_FILTER)))
    }
}
