//! Where the tokens of a table are, as the servers behind one address say.
//!
//! Job: tell an address of one server from one that balances over several. A plain table keeps its tokens on its server, a replicated one
//! below its path in Keeper, which all replicas of a shard share. Place in the flow: asked with [`crate::deduplication`]; the gateway's
//! `guarantee` compares the answers, also with earlier ones. Limits: [`PLACES_ASKED`] questions, each on a connection of its own, because
//! whatever balances (a Service of Kubernetes, a proxy) chooses a server by connection.

use std::collections::BTreeSet;

use crate::probe::{PROBE_TIMEOUT, Probe, TableEngine};
use crate::probe_error::ProbeError;

/// How often a server is asked who it is at each look. Chosen: an address that balances over two servers shows both at three of four looks,
/// and a question takes about a millisecond.
pub const PLACES_ASKED: usize = 3;

impl Probe {
    /// Where the servers behind this address keep the tokens of the table; more than one place when they do not share them. Empty when it is
    /// not known: the engine keeps none, keeps them in a store that all servers share, or a server does not say.
    pub(crate) async fn token_places(&self, table: &str, engine: &TableEngine) -> BTreeSet<String> {
        let mut places = BTreeSet::new();
        if !engine.has_window() || engine.is_shared() {
            return places;
        }
        for _ in 0..PLACES_ASKED {
            match self.token_place(table, engine).await {
                Ok(place) => places.extend(place),
                // One of several is away, and the next connection may lead to another.
                Err(error) if error.is_unanswered() => {}
                // One that may not say it tells nothing against the address.
                Err(_) => break,
            }
        }
        places
    }

    async fn token_place(&self, table: &str, engine: &TableEngine) -> Result<Option<String>, ProbeError> {
        let client = self.client.clone().with_header("Connection", "close");
        let (action, question) = if engine.is_replicated() {
            let of_table = "SELECT zookeeper_path FROM system.replicas WHERE database = ? AND table = ?";
            ("reading the table's path in Keeper", client.query(of_table).bind(&self.database).bind(table))
        } else {
            ("asking which server it is", client.query("SELECT toString(serverUUID())"))
        };
        self.within(PROBE_TIMEOUT, action, question.fetch_optional::<String>()).await
    }
}
