//! Which durability a server gives a table.
//!
//! Limits: each question within [`PROBE_TIMEOUT`]; a user who may not read the server's settings of tables is told nothing, unless the table
//! names its own.

use std::collections::BTreeMap;

use crate::durability::{Durability, QUORUM_SETTING, SYNC_SETTINGS, is_quorum};
use crate::probe::{EngineRow, PROBE_TIMEOUT, Probe, is_replicated};
use crate::probe_error::ProbeError;

impl Probe {
    /// What rows survive that this server has acknowledged; `settings` are those of every INSERT, beside the pinned ones. `None`: the server
    /// does not say, or the table's engine leaves it to others.
    ///
    /// # Errors
    /// [`ProbeError`] when nobody answers or the table is not there.
    pub async fn durability(
        &self,
        table: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<Option<Durability>, ProbeError> {
        let row = self.engine_row(table).await?;
        if !keeps_parts(&row.engine) {
            return Ok(None);
        }
        let found = match self.waits_for_replicas(&row.engine, settings).await {
            Ok(true) => Ok(Durability::Quorum),
            Ok(false) => self.syncs(&row).await.map(synced),
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_unanswered() => Err(error),
            // The user may not read it, or may not have such an INSERT: `check` says the latter.
            Err(_) => Ok(None),
        }
    }

    /// Whether an INSERT is acknowledged only once other replicas have its parts.
    async fn waits_for_replicas(
        &self,
        engine: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<bool, ProbeError> {
        // Another engine takes the setting and does not wait.
        if !is_replicated(engine) {
            return Ok(false);
        }
        let mut question =
            self.client.query("SELECT value FROM system.settings WHERE name = ?").bind(QUORUM_SETTING);
        for (name, value) in settings.iter().filter(|(name, _)| name.starts_with(QUORUM_SETTING)) {
            question = question.with_setting(name, value);
        }
        let answer = question.fetch_one::<String>();
        Ok(is_quorum(&self.within(PROBE_TIMEOUT, "reading back insert_quorum", answer).await?))
    }

    /// Whether nothing is left to do so that this table's parts are synced before an INSERT is acknowledged. A table without parts has
    /// nothing to sync. Where the server's settings may not be read, the table must have its own.
    pub(crate) async fn is_synced(&self, table: &str) -> Result<bool, ProbeError> {
        let row = self.engine_row(table).await?;
        if !keeps_parts(&row.engine) {
            return Ok(true);
        }
        match self.syncs(&row).await {
            Err(error) if !error.is_unanswered() => Ok(false),
            answer => answer,
        }
    }

    /// Whether a part is synced before an INSERT is acknowledged: by the table's own settings, or else by the server's for all tables.
    async fn syncs(&self, row: &EngineRow) -> Result<bool, ProbeError> {
        for setting in SYNC_SETTINGS {
            if self.setting_of(row, setting).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn synced(is_synced: bool) -> Durability {
    if is_synced { Durability::Fsync } else { Durability::Process }
}

/// Whether a table of this engine keeps its rows in parts on a disk of its server. `SharedMergeTree` keeps them in a store of objects.
fn keeps_parts(engine: &str) -> bool {
    engine.ends_with("MergeTree") && !engine.starts_with("Shared")
}
