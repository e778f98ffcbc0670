//! That a gateway does not begin to read, because it cannot use the table. The schema Job could, at another time or from another node.

use sluice_crds::status::reason;

/// The reasons of gateways that ClickHouse does not answer, or whose user it refuses.
pub(crate) const OF_SINK: [&str; 4] =
    [reason::AUTH_FAILED, reason::TLS_FAILED, reason::UNREACHABLE, reason::TIMEOUT];

/// The reasons of gateways whose table is not as rows need it.
const OF_TABLE: [&str; 3] = [reason::DATABASE_MISSING, reason::TABLE_MISSING, reason::COLUMN_MISMATCH];

/// How the words about it begin, which tells them from those of a schema Job.
pub(crate) const GATEWAYS_WAIT: &str = "gateways do not begin to read: ";

/// What a gateway says of it. Of a missing table, [`super::MissingTable`] says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableTable {
    /// The name of the gateway.
    pub gateway: String,
    /// The reason in a condition, as of [`table_error`].
    pub reason: &'static str,
    /// What it says, with the server.
    pub words: String,
}

impl UnusableTable {
    /// Whether ClickHouse does not answer, or refuses the user: then nothing is known of the table.
    pub(crate) fn is_of_sink(&self) -> bool {
        OF_SINK.contains(&self.reason)
    }

    /// For people.
    pub(crate) fn message(&self) -> String {
        format!("{GATEWAYS_WAIT}{}: {}", self.gateway, self.words)
    }
}

/// The reason that a gateway names; `None` for one that this operator does not know.
pub fn table_error(word: &str) -> Option<&'static str> {
    OF_SINK.into_iter().chain(OF_TABLE).find(|known| *known == word)
}
