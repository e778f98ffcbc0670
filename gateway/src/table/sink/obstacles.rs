//! What prevents INSERTs, or the statement that creates the table, and can be known beforehand.

use super::{
    Error, Sink,
    error::{QUOTA_EXCEEDED, refused_setting},
};
use sluice_clickhouse::{column::TableColumns, outcome::Class, probe::Probe};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// How much memory a server needs to insert a block, as a multiple of the block's messages. Measured with 26.7: 5 MB of spans with ten
/// attributes each were refused with 8 MB and taken with 16 MB.
const BLOCK_MEMORY_MIN: u64 = 2;

/// The memory without which a server refuses every INSERT into a table that Sluice creates in the JSON layout, in bytes. Measured with 26.7: an
/// INSERT of one row was refused with 9,000,000 bytes and taken with 9,500,000. Its compressors took most of them. Each partition of the table
/// that a block has rows for takes that much. Tables of maps take less.
const ROW_MEMORY_MIN: u64 = 9_500_000;

/// The partitions (days) that the memory is to suffice for. Chosen: today, the day before around midnight, and two of late spans.
const PARTITIONS: u64 = 4;

/// A limit on the user's memory that is too low for blocks of the configured size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NarrowMemory {
    /// The setting, the user, what follows and what helps.
    pub text: String,
    /// Whether no INSERT can be expected to succeed. Otherwise the gateway inserts blocks in parts, which costs many INSERTs.
    pub refuses_all: bool,
}

/// A query id for an INSERT without rows. A server refuses a query with the id of one that runs, so gateways that start together have different
/// ones.
fn no_rows_id() -> String {
    format!("sluice-check-no-rows-{:016x}", RandomState::new().build_hasher().finish())
}

impl Sink {
    /// The causes for which every INSERT of these columns would fail, from each server: settings that the user may not set, answers without
    /// the header that every INSERT needs, and a missing grant. An INSERT without rows finds other causes, such as a quota that is used up.
    /// Stores nothing.
    pub async fn obstacles(&self, columns: &TableColumns) -> Vec<Error> {
        let mut obstacles = Vec::new();
        for (endpoint, probe) in self.probes.iter().enumerate() {
            let known = obstacles.len();
            if let Err(error) = probe.allows_settings(self.insert_timeout, &self.insert_settings).await {
                obstacles.push(refused_setting(error));
            }
            match probe.has_summary().await {
                Ok(true) => {}
                Ok(false) => obstacles.push(Error::NoSummary { endpoint: probe.endpoint().to_string() }),
                Err(error) => obstacles.push(Error::Probe(error)),
            }
            match probe.may_insert(&self.table, columns).await {
                Ok(true) => {}
                Ok(false) => obstacles.push(self.may_not_insert(probe).await),
                Err(error) => obstacles.push(Error::Probe(error)),
            }
            match probe.refused_views(&self.table).await {
                Ok(refused) => obstacles.extend(refused.into_iter().map(Error::Probe)),
                Err(error) => obstacles.push(Error::Probe(error)),
            }
            // It would fail for the same causes.
            if obstacles.len() == known {
                obstacles.extend(self.insert_no_rows(endpoint, columns).await.err());
            }
        }
        obstacles
    }

    /// The causes for which the missing table cannot be created, or for which no INSERT into it would succeed, from each server.
    pub async fn obstacles_to_create(&self) -> Vec<Error> {
        let mut obstacles = Vec::new();
        for probe in &self.probes {
            if let Err(error) = probe.allows_settings(self.insert_timeout, &self.insert_settings).await {
                obstacles.push(refused_setting(error));
                continue;
            }
            match probe.lacks_to_create(&self.table).await {
                Ok(lacks) if lacks.is_empty() => {}
                Ok(lacks) => obstacles.push(self.may_not_create(probe, &lacks).await),
                Err(error) => obstacles.push(Error::Probe(error)),
            }
        }
        obstacles
    }

    /// The user's memory limits with which the server refuses a block of this size, for a table with `JSON` columns or without. Servers that do not
    /// answer are left out.
    pub async fn narrow_memory(&self, block_bytes_max: u64, has_json: bool) -> Vec<NarrowMemory> {
        let mut found = Vec::new();
        let enough = block_bytes_max * BLOCK_MEMORY_MIN + PARTITIONS * ROW_MEMORY_MIN;
        for probe in &self.probes {
            let limits = match probe.memory_limits(&self.insert_settings).await {
                Ok(limits) => limits,
                // Whether the server refuses such a question depends on what else its thread has done.
                Err(error) if error.is_above_own_memory() => {
                    let text = format!("{error} to at least {enough} bytes");
                    found.push(NarrowMemory { text, refuses_all: true });
                    continue;
                }
                Err(_) => continue,
            };
            for (setting, bytes) in limits.into_iter().filter(|(_, bytes)| *bytes < enough) {
                let refuses_all = has_json && bytes < ROW_MEMORY_MIN;
                let (user, endpoint) = (&self.credentials.user, probe.endpoint());
                let text = if refuses_all {
                    format!(
                        "{setting} of the user {user} at {endpoint} is {bytes} bytes, and an INSERT of one row into a table with JSON columns needs \
                         {ROW_MEMORY_MIN}: the server refuses every INSERT; raise it to at least {enough} bytes"
                    )
                } else {
                    format!(
                        "{setting} of the user {user} at {endpoint} is {bytes} bytes: the server refuses larger blocks, and the gateway inserts \
                         them in parts; raise it to at least {enough} bytes, or lower sink.clickhouse.insert.maxBytes"
                    )
                };
                found.push(NarrowMemory { text, refuses_all });
            }
        }
        found
    }

    /// Whether an INSERT arrives as it was sent. What passes by itself is no obstacle.
    async fn insert_no_rows(&self, endpoint: usize, columns: &TableColumns) -> Result<(), Error> {
        let targets = self.targets(columns)?;
        match targets.client().insert_no_rows(targets.at(endpoint), &no_rows_id()).await {
            // It passes by itself, but maybe only at the end of the month.
            Err(error) if error.code == Some(QUOTA_EXCEEDED) => Err(Error::Quota(error)),
            Err(error) if !matches!(error.class, Class::BackPressure | Class::InDoubt) => {
                Err(Error::Insert(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Why the server says that the user may not insert: with a profile that only reads it says so of a user that has the grant.
    async fn may_not_insert(&self, probe: &Probe) -> Error {
        let (table, user) = (self.table_name(), self.credentials.user.clone());
        let endpoint = probe.endpoint().to_string();
        match probe.readonly().await {
            Ok(readonly) if readonly != "0" => Error::ReadOnly { endpoint, table, user, readonly },
            Ok(_) | Err(_) => Error::Grant { endpoint, table, user },
        }
    }

    /// As [`Sink::may_not_insert`], for the statements that create the table.
    async fn may_not_create(&self, probe: &Probe, lacks: &[String]) -> Error {
        match self.may_not_insert(probe).await {
            Error::Grant { endpoint, table, user } => {
                let grants: Vec<_> = lacks.iter().map(|grants| format!("GRANT {grants} TO {user}")).collect();
                Error::Create { endpoint, table, user, grants: grants.join("; ") }
            }
            readonly => readonly,
        }
    }
}
