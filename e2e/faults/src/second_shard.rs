//! A second ClickHouse beside that of the run, with a front of its own: the second shard of a gateway's sink.
//!
//! Place in the flow: a course starts it and points gateways at it; the scene keeps it until everything is counted. Rows of both
//! shards are counted by a view on the first server, which reads the second one's table. Owner: the scene; killed and removed when
//! dropped.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::servers::{kill_server, listeners, start_server};
use super::sink_front::SinkFront;
use e2e_fixtures::oracle::Server;
use e2e_fixtures::pipeline::TABLE;
use e2e_stack::clickhouse::ClickHouse;
use e2e_stack::paths::{Paths, remove_folder};
use e2e_stack::process::{Port, Signal};
use e2e_stack::say;

/// The view on the first server with the rows of both.
pub const ALL_SHARDS: &str = "all_shards";

pub struct SecondShard {
    folder: PathBuf,
    clickhouse: ClickHouse,
    /// Reserved ports, also while the server is down.
    _ports: [Port; 2],
    native: String,
    pub front: SinkFront,
    /// The server itself, without the front.
    pub server: Server,
}

impl SecondShard {
    /// Starts it below `folder` and waits until it answers.
    pub async fn start(folder: &Path) -> Result<SecondShard> {
        let paths = Paths::from_environment()?;
        let ports = Port::hold_all()?;
        let [http, native] = &ports;
        let shard = SecondShard {
            folder: folder.to_owned(),
            clickhouse: ClickHouse::beside(&paths, folder.to_owned(), listeners(http, native)),
            native: native.address(),
            front: SinkFront::start(&http.address()).await?,
            server: Server::new(&format!("http://{}", http.address()), "default", ""),
            _ports: ports,
        };
        shard.begin().await?;
        Ok(shard)
    }

    pub async fn kill(&self) -> Result<()> {
        kill_server(&self.clickhouse).await
    }

    /// Starts it, and waits until it answers.
    pub async fn begin(&self) -> Result<()> {
        start_server(self.clickhouse.clone()).await
    }

    /// The statement that makes the view, in a database that is on both servers.
    pub fn view(&self, database: &str) -> String {
        let columns = "TraceId, SpanAttributes";
        format!(
            "CREATE VIEW `{database}`.{ALL_SHARDS} AS SELECT {columns} FROM `{database}`.`{TABLE}` UNION ALL \
             SELECT {columns} FROM {}",
            self.table(database)
        )
    }

    /// Its table, as SQL for the first server.
    pub fn table(&self, database: &str) -> String {
        format!("remote('{}', '{database}', '{TABLE}')", self.native)
    }

    pub async fn rows(&self, database: &str) -> Result<u64> {
        self.server.count(&format!("SELECT count() FROM `{database}`.`{TABLE}`")).await
    }
}

impl Drop for SecondShard {
    fn drop(&mut self) {
        let stopped = self.clickhouse.stop(Signal::KILL).and_then(|()| remove_folder(&self.folder));
        if let Err(failure) = stopped {
            say::error(&format!("cannot remove the second shard: {failure:#}"));
        }
    }
}
