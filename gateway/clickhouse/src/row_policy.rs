//! Whether a row policy hides rows of a table from the user.
//!
//! `system.row_policies` needs a grant of its own. A query plan does not: `EXPLAIN actions = 1` shows the filter of policies that concern
//! the user as `Row level filter` (tested with ClickHouse 26.7).

use crate::probe::{PROBE_TIMEOUT, Probe};
use crate::probe_error::ProbeError;
use crate::sql::table_name;

/// The name of the row policies' filter in a plan.
const ROW_LEVEL_FILTER: &str = "Row level filter";

impl Probe {
    /// Whether policies filter the rows that the user reads from the table. `false` for an empty table, and for a `Distributed` one whose
    /// rows are on other servers: the plan does not show filters then.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the table does not exist or may not be read.
    pub async fn hides_rows(&self, table: &str) -> Result<bool, ProbeError> {
        let name = table_name(&self.database, table);
        let question = format!("EXPLAIN actions = 1 SELECT Timestamp FROM {name}");
        let plan = self.client().query_raw(&question).fetch_all::<String>();
        let plan = self.within(PROBE_TIMEOUT, &format!("checking row policies of {name}"), plan).await?;
        Ok(plan.iter().any(|line| line.contains(ROW_LEVEL_FILTER)))
    }
}
