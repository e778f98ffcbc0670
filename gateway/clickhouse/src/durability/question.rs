//! The durability that a server gives a table.
//!
//! Limits: each query takes at most [`PROBE_TIMEOUT`]. If the user may not read the server's table settings, the result is unknown unless
//! the table sets its own.

use std::collections::BTreeMap;

use crate::durability::{Durability, QUORUM_SETTING, SYNC_SETTINGS, is_quorum};
use crate::probe::{EngineRow, PROBE_TIMEOUT, Probe, is_replicated};
use crate::probe_error::ProbeError;

impl Probe {
    /// The durability of rows that this server has acknowledged; `settings` are those of every INSERT, besides the pinned ones. `None`:
    /// it is unknown, or depends on other servers for the table's engine.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers or the table does not exist.
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
            // The user may not read it, or may not use such an INSERT; `check` reports the latter.
            Err(_) => Ok(None),
        }
    }

    /// Whether an INSERT is acknowledged only once other replicas have its parts.
    async fn waits_for_replicas(
        &self,
        engine: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<bool, ProbeError> {
        // Other engines accept the setting, but do not wait.
        if !is_replicated(engine) {
            return Ok(false);
        }
        let mut question =
            self.client().query("SELECT value FROM system.settings WHERE name = ?").bind(QUORUM_SETTING);
        for (name, value) in settings.iter().filter(|(name, _)| name.starts_with(QUORUM_SETTING)) {
            question = question.with_setting(name, value);
        }
        let answer = question.fetch_one::<String>();
        Ok(is_quorum(&self.within(PROBE_TIMEOUT, "reading back insert_quorum", answer).await?))
    }

    /// Whether this table's parts are synced before an INSERT is acknowledged, as far as settings can achieve it. A table without parts
    /// has nothing to sync. If the server's settings may not be read, the table must have its own.
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

    /// Whether a part is synced before an INSERT is acknowledged: by the table's own settings, or by the server's for all tables.
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

/// Whether a table of this engine stores its rows in parts on a disk of its server. `SharedMergeTree` uses object storage.
fn keeps_parts(engine: &str) -> bool {
    engine.ends_with("MergeTree") && !engine.starts_with("Shared")
}
