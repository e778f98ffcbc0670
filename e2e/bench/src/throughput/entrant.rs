//! A measured program: the gateway or a peer, as a command that reads a topic and writes to a sink.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use sluice_gateway_config::Layout;

use super::TableLayout;
use super::witness::ENDED_BY_SIGTERM;
use crate::command::value_name;
use e2e_fixtures::gateway::{self, Orders};
use e2e_fixtures::pipeline::{TABLE, merged};
use e2e_fixtures::spans::Encoding;
use e2e_stack::kafka::HOST_ADDRESS;

/// How long a gateway with a queue volume may take to exit. 3 s before the end, the blocks that are not inserted go to the volume.
const LEAVE_DEADLINE: &str = "8s";

/// The script that builds a peer, beside its program.
const BUILD_SCRIPT: &str = "build.sh";

/// How the gateway sends its blocks; it is serialized as in the gateway's config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum InsertFormat {
    /// As rows
    RowBinary,
    /// As columns
    Native,
}

impl InsertFormat {
    /// The memory limit of a gateway that reads messages in this encoding, in every figure.
    pub fn memory_limit(self, encoding: Encoding) -> &'static str {
        match (self, encoding) {
            (InsertFormat::RowBinary, Encoding::OtlpProto) => "192MiB",
            (InsertFormat::RowBinary, Encoding::OtlpJson) | (InsertFormat::Native, Encoding::OtlpProto) => {
                "256MiB"
            }
            (InsertFormat::Native, Encoding::OtlpJson) => "320MiB",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    /// The command for `sh -c`.
    pub command: String,
}

impl Peer {
    /// The script `build.sh` beside the command's program, if there is one. It runs before the measurement, because everything that the
    /// command does counts as the peer's cost.
    pub fn build_script(&self) -> Option<PathBuf> {
        let program =
            self.command.split_ascii_whitespace().find(|word| word.contains('/') && !word.contains('='))?;
        let script = Path::new(program).parent()?.join(BUILD_SCRIPT);
        script.is_file().then_some(script)
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        match text.split_once('=') {
            Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
                Ok(Peer { name: name.to_owned(), command: command.to_owned() })
            }
            _ => Err("is not of the form NAME=COMMAND".to_owned()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrant {
    /// The gateway, by its program, with blocks in this format and a table of this layout.
    Gateway(PathBuf, InsertFormat, TableLayout),
    /// Another program; a table of this layout is ready for it.
    Peer(Peer, TableLayout),
}

/// What an entrant reads, and where it writes.
#[derive(Clone, Debug)]
pub struct Route {
    pub topic: String,
    /// Its partitions; all are read at the same time.
    pub partitions: i32,
    /// A consumer group that has read nothing yet.
    pub group: String,
    pub encoding: Encoding,
    /// URL of the sink.
    pub sink: String,
    /// Database of the table [`TABLE`].
    pub database: String,
    pub layout: Layout,
    /// The engine that a peer should use if it makes the table itself.
    pub engine: &'static str,
    /// The gateway's queue volume, a folder; `None` without one.
    pub volume: Option<PathBuf>,
}

impl Entrant {
    pub fn name(&self) -> &str {
        match self {
            Entrant::Gateway(..) => "gateway",
            Entrant::Peer(peer, _) => &peer.name,
        }
    }

    /// How the table that is made for it stores attributes.
    pub fn layout(&self) -> Layout {
        match self {
            Entrant::Gateway(_, _, layout) | Entrant::Peer(_, layout) => layout.layout(),
        }
    }

    /// The layout for the report; `None` for a peer, which may make its own table.
    pub fn told_layout(&self) -> Option<String> {
        match self {
            Entrant::Gateway(_, _, layout) => Some(value_name(layout)),
            Entrant::Peer(..) => None,
        }
    }

    /// Whether an exit code is the expected one after SIGTERM. The gateway exits normally. A shell around a peer may be ended by the
    /// signal, although the peer has ended well.
    pub fn ends_well(&self, exit_code: i32) -> bool {
        exit_code == 0 || matches!(self, Entrant::Peer(..)) && exit_code == ENDED_BY_SIGTERM
    }

    /// The command for a run; its files are written to `folder`.
    pub fn command(&self, route: &Route, folder: &Path) -> Result<Command> {
        match self {
            Entrant::Gateway(program, format, _) => {
                Ok(gateway::command(program, &write_config(route, *format, folder)?))
            }
            Entrant::Peer(Peer { command: text, .. }, _) => {
                let mut command = Command::new("sh");
                command.args(["-c", text]);
                command.env("BROKERS", HOST_ADDRESS).env("TOPIC", &route.topic).env("GROUP", &route.group);
                command.env("SINK", &route.sink).env("DATABASE", &route.database).env("TABLE", TABLE);
                command.env("ENGINE", route.engine);
                Ok(command)
            }
        }
    }
}

/// The statements with which the gateway would make the table of a route.
pub fn table_statements(program: &Path, route: &Route, folder: &Path) -> Result<Vec<String>> {
    gateway::table_statements(program, &write_config(route, InsertFormat::RowBinary, folder)?)
}

fn write_config(route: &Route, insert_format: InsertFormat, folder: &Path) -> Result<PathBuf> {
    let record_batch_max = match route.encoding {
        Encoding::OtlpProto => "1MiB",
        // Its messages are up to three times as large, and one of `loadgen` is 2.8 MB.
        Encoding::OtlpJson => "4MiB",
    };
    let orders = Orders {
        broker: HOST_ADDRESS,
        topic: &route.topic,
        group: &route.group,
        sink: &route.sink,
        database: &route.database,
    };
    let mut change = json!({
        "source": {"kafka": {
            "partitionsActiveMax": route.partitions,
            "format": route.encoding,
            "recordBatchBytesMax": record_batch_max,
        }},
        "sink": {"clickhouse": {
            "insert": {"format": insert_format},
            "schema": {"layout": route.layout},
        }},
        "memory": {"limit": insert_format.memory_limit(route.encoding)},
    });
    if let Some(volume) = &route.volume {
        let spools = json!({
            "queue": {"mode": "Spill", "path": volume},
            "shutdown": {"deadline": LEAVE_DEADLINE},
        });
        change = merged(&change, &spools);
    }
    let file = folder.join("gateway.yaml");
    gateway::write_config(&merged(&orders.config(), &change), &file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command_that_may_hold_equal_signs() {
        let peer: Peer = "rotel=A=1 exec rotel".parse().unwrap();
        assert_eq!((peer.name.as_str(), peer.command.as_str()), ("rotel", "A=1 exec rotel"));
        assert!("rotel".parse::<Peer>().is_err());
        assert!("=x".parse::<Peer>().is_err());
        assert!("x= ".parse::<Peer>().is_err());
    }

    #[test]
    fn a_peer_is_built_by_the_script_beside_its_program() {
        let peers = e2e_stack::paths::workspace().join("e2e/bench/peers/otel-collector");
        let peer = |program: &str| Peer { name: "x".to_owned(), command: format!("A=1 exec {program} -v") };
        let script = peer(peers.join("run.sh").to_str().unwrap()).build_script();
        assert_eq!(script, Some(peers.join("build.sh")));
        assert_eq!(peer("/bin/true").build_script(), None);
        assert_eq!(peer("rotel").build_script(), None);
    }

    #[test]
    fn only_a_peer_may_be_ended_by_the_signal() {
        let peer = Entrant::Peer("x=y".parse().unwrap(), TableLayout::Map);
        let gateway = Entrant::Gateway(PathBuf::from("gateway"), InsertFormat::Native, TableLayout::Json);
        assert!(peer.ends_well(143) && peer.ends_well(0) && !peer.ends_well(1));
        assert!(gateway.ends_well(0) && !gateway.ends_well(143));
    }
}
