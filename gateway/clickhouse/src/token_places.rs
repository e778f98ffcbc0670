//! Where a table's tokens are stored, according to the servers behind one address.
//!
//! Job: distinguishes an address of one server from one that balances over several. A plain table stores its tokens on its server; a
//! replicated one below its path in Keeper, which all replicas of a shard share. Place in the flow: asked with [`crate::deduplication`];
//! the gateway's `guarantee` compares the answers, including earlier ones. Limits: [`PLACES_ASKED`] queries, each on a connection of its
//! own, because a load balancer (a Kubernetes Service, a proxy) chooses a server per connection.

use std::collections::BTreeSet;

use crate::probe::{PROBE_TIMEOUT, Probe, TableEngine};
use crate::probe_error::ProbeError;

/// How often a server is asked for its identity each time. Chosen: three of four times this shows both servers behind a balancing
/// address, and a query takes about a millisecond.
pub const PLACES_ASKED: usize = 3;

/// What a server without an identity says: `serverUUID()` is the nil UUID if the server could not store one, and of `clickhouse-local`. Servers
/// that say the same are not one server for that.
const NO_IDENTITY: &str = "00000000-0000-0000-0000-000000000000";

/// The place that a server named; `None` if it named none, which is unknown.
fn named(place: Option<String>) -> Option<String> {
    place.filter(|place| !place.is_empty() && place != NO_IDENTITY)
}

impl Probe {
    /// Where the servers behind this address store the table's tokens; more than one place if they do not share them. Empty if it is
    /// unknown: the engine has no tokens, stores them where all servers share them, or a server does not answer.
    pub(crate) async fn token_places(&self, table: &str, engine: &TableEngine) -> BTreeSet<String> {
        let mut places = BTreeSet::new();
        if !engine.has_window() || engine.is_shared() {
            return places;
        }
        for _ in 0..PLACES_ASKED {
            match self.token_place(table, engine).await {
                Ok(place) => places.extend(place),
                // One of several servers is away; the next connection may reach another.
                Err(error) if error.is_unanswered() => {}
                // A user without the right to read it proves nothing about the address.
                Err(_) => break,
            }
        }
        places
    }

    async fn token_place(&self, table: &str, engine: &TableEngine) -> Result<Option<String>, ProbeError> {
        let client = self.client().with_header("Connection", "close");
        let (action, question) = if engine.is_replicated() {
            let of_table = "SELECT zookeeper_path FROM system.replicas WHERE database = ? AND table = ?";
            ("reading the table's path in Keeper", client.query(of_table).bind(&self.database).bind(table))
        } else {
            ("asking which server it is", client.query("SELECT toString(serverUUID())"))
        };
        self.within(PROBE_TIMEOUT, action, question.fetch_optional::<String>()).await.map(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_an_identity_names_no_place() {
        for (place, expected) in [
            (None, None),
            (Some(""), None),
            (Some(NO_IDENTITY), None),
            (Some("61f0c404-5cb3-11e7-907b-a6006ad3dba0"), Some("61f0c404-5cb3-11e7-907b-a6006ad3dba0")),
            (Some("/clickhouse/tables/01/otel_traces"), Some("/clickhouse/tables/01/otel_traces")),
        ] {
            assert_eq!(named(place.map(str::to_owned)).as_deref(), expected);
        }
    }
}
