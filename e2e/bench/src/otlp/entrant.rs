//! A measured program: the gateway in a role, or a Collector that does the same, as a command with a config.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_gateway_config::{CONTRACT_VERSION, Layout};

use super::Role;
use crate::collector::{self, Schema};
use e2e_fixtures::gateway::{self, Orders};
use e2e_fixtures::pipeline::merged;
use e2e_stack::clickhouse::HOST_URL;
use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::{clients, say};

/// Largest number of spans in the Collector's queue. Chosen: all spans of a default run, so that answers do not wait for inserts.
const COLLECTOR_QUEUE_SPANS: u64 = 2_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrant {
    Gateway(PathBuf),
    Collector(PathBuf),
}

/// Where a process listens, and where spans go.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its address for OTLP/gRPC.
    pub grpc: SocketAddr,
    /// Name of the topic, or of the database.
    pub name: String,
    /// The folder of the volume of a source.
    pub volume: PathBuf,
}

impl Route {
    /// A route with a free port: a Collector does not report a port of its own choice.
    pub fn free(name: &str, folder: &Path) -> Result<Route> {
        let listener = TcpListener::bind(gateway::ANY_PORT).context("find a free port")?;
        let grpc = listener.local_addr().context("ask for the free port")?;
        Ok(Route { grpc, name: name.to_owned(), volume: folder.join("queue") })
    }
}

impl Entrant {
    pub fn name(&self) -> &'static str {
        match self {
            Entrant::Gateway(_) => "gateway",
            Entrant::Collector(_) => "collector",
        }
    }

    /// The command for a run; its config is written to `folder`.
    pub fn command(&self, role: Role, route: &Route, folder: &Path) -> Result<Command> {
        let file = folder.join(format!("{}.yaml", self.name()));
        let config = match (self, role) {
            (Entrant::Gateway(_), Role::Edge) => edge(route),
            (Entrant::Gateway(_), Role::Source) => source(route),
            (Entrant::Collector(_), Role::Edge) => to_kafka(route),
            (Entrant::Collector(_), Role::Source) => to_clickhouse(route),
        };
        gateway::write_config(&config, &file)?;
        Ok(match (self, role) {
            (Entrant::Gateway(program), Role::Source) => gateway::command(program, &file),
            (Entrant::Gateway(program), Role::Edge) => {
                let mut edge = Command::new(program);
                edge.args(["edge", "--config"]).arg(&file).env_remove("POD_NAME");
                edge
            }
            (Entrant::Collector(program), _) => collector::command(program, &file),
        })
    }
}

/// The statements with which a source would make its table.
pub fn table_statements(program: &Path, route: &Route, folder: &Path) -> Result<Vec<String>> {
    let file = folder.join("table.yaml");
    gateway::write_config(&source(route), &file)?;
    gateway::table_statements(program, &file)
}

fn limit(role: Role) -> Value {
    json!({"limit": format!("{}MiB", role.limit_mib())})
}

fn edge(route: &Route) -> Value {
    json!({
        "contractVersion": CONTRACT_VERSION,
        "pipeline": {"namespace": "e2e", "name": "edge"},
        "listen": {"grpc": route.grpc},
        "kafka": {"bootstrapServers": [HOST_ADDRESS], "topic": route.name},
        "workers": 2,
        "memory": limit(Role::Edge),
        "admin": {"listen": gateway::ANY_PORT},
        "log": {"format": "Text"},
    })
}

fn source(route: &Route) -> Value {
    let orders = Orders { broker: "", topic: "", group: "", sink: HOST_URL, database: &route.name };
    let change = json!({
        "source": {"kafka": null, "otlp": {"listen": {"grpc": route.grpc}}},
        "sink": {"clickhouse": {"schema": {"layout": Layout::Json}}},
        "queue": {"mode": null, "path": route.volume},
        "memory": limit(Role::Source),
    });
    merged(&orders.config(), &change)
}

fn collector_with(route: &Route, exporter: (&str, &Value)) -> Value {
    collector::config(("otlp", &json!({"protocols": {"grpc": {"endpoint": route.grpc}}})), exporter)
}

/// A Collector that answers once all replicas in sync have the spans, with the keys and partitions of the edge.
fn to_kafka(route: &Route) -> Value {
    let exporter = json!({
        "brokers": [HOST_ADDRESS],
        "traces": {"topic": route.name, "encoding": "otlp_proto"},
        "partition_traces_by_id": true,
        "record_partitioner": {"sticky_key": {"hasher": "murmur2"}},
        "producer": {"compression": "zstd", "required_acks": -1},
        "sending_queue": {"enabled": false},
    });
    collector_with(route, ("kafka", &exporter))
}

/// A Collector that answers once a request is synced to its queue on the disk.
fn to_clickhouse(route: &Route) -> Value {
    let queue = json!({"sending_queue": {"storage": "file_storage", "queue_size": COLLECTOR_QUEUE_SPANS}});
    let exporter = merged(&collector::exporter(HOST_URL, &route.name, Schema::OfGateway), &queue);
    let storage = json!({
        "extensions": {"file_storage": {"directory": route.volume, "create_directory": true, "fsync": true}},
        "service": {"extensions": ["file_storage"]},
    });
    merged(&collector_with(route, ("clickhouse", &exporter)), &storage)
}

/// Compiles the Collector for a role, if it is missing from the cache. With Kafka it is that of the tests with real clients, with
/// `ClickHouse` that of `cargo throughput`: the two exporters have no version with the same core.
pub fn build_collector(role: Role) -> Result<PathBuf> {
    match role {
        Role::Edge => {
            say::progress("collector", "compile, unless it is compiled already");
            clients::collector()
        }
        Role::Source => collector::build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gateway_config::parse;

    fn route() -> Route {
        Route::free("name", Path::new("/tmp")).unwrap()
    }

    #[test]
    fn a_source_has_one_source_and_a_volume() {
        let config = parse::from_yaml(&source(&route()).to_string()).unwrap();
        assert!(config.source.kafka.is_none());
        assert_eq!(config.queue.path, "/tmp/queue");
        assert!(config.check().is_ok());
    }

    #[test]
    fn a_collector_syncs_what_it_answers() {
        let config = to_clickhouse(&route());
        let queue = &config["exporters"]["clickhouse"]["sending_queue"];
        assert_eq!(
            (queue["storage"].as_str(), queue["sizer"].as_str()),
            (Some("file_storage"), Some("items"))
        );
        assert_eq!(config["extensions"]["file_storage"]["fsync"], true);
        assert_eq!(config["service"]["pipelines"]["traces"]["receivers"][0], "otlp");
        assert_eq!(config["service"]["pipelines"]["traces"]["exporters"][0], "clickhouse");
        let config = to_kafka(&route());
        assert_eq!(config["exporters"]["kafka"]["producer"]["required_acks"], -1);
    }
}
