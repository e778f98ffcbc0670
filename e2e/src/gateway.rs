//! The gateway as a process of this machine: its config, its command, and the table that it would make.
//!
//! Job: what `throughput`, `memory` and the tests that need no cluster have in common when they start one. Place in the flow:
//! before the process; each starts and ends it in its own way.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_gateway_config::CONTRACT_VERSION;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::pipeline::TABLE;
use crate::process::output;

/// Workers of every gateway: the cores of the machine that the figures are from.
const WORKERS: u32 = 2;

/// What every gateway is told.
#[derive(Clone, Copy, Debug)]
pub struct Orders<'a> {
    /// `host:port` of the broker.
    pub broker: &'a str,
    /// Topic to read, from the earliest offset.
    pub topic: &'a str,
    /// Consumer group.
    pub group: &'a str,
    /// URL of the sink.
    pub sink: &'a str,
    /// Database of its table.
    pub database: &'a str,
    /// Where it listens for metrics.
    pub admin: &'a str,
}

impl Orders<'_> {
    /// A config with 192 MiB and two workers; merge what differs over it.
    pub fn config(&self) -> Value {
        json!({
            "contractVersion": CONTRACT_VERSION,
            "pipeline": {"namespace": "e2e", "name": "gateway"},
            "source": {"kafka": {
                "bootstrapServers": [self.broker],
                "topics": [self.topic],
                "consumerGroup": self.group,
                "initialOffset": "Earliest",
            }},
            "sink": {"clickhouse": {
                "endpoints": [self.sink],
                "database": self.database,
                "table": TABLE,
                "schema": {"management": "CreateIfMissing"},
            }},
            "queue": {"mode": "Disabled"},
            "workers": WORKERS,
            "memory": {"limit": "192MiB"},
            "admin": {"listen": self.admin},
            "log": {"level": "info", "format": "Text"},
        })
    }
}

/// Writes a config to a file. JSON is YAML too.
///
/// # Errors
/// When it cannot be written.
pub fn write_config(config: &Value, file: &Path) -> Result<()> {
    fs::write(file, config.to_string()).with_context(|| format!("write {}", file.display()))
}

/// An address of this machine with a port that nobody listens on. Whoever takes it before the gateway does makes the run fail,
/// and plainly.
///
/// # Errors
/// When there is no port.
pub fn free_address() -> Result<String> {
    let free = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(free.local_addr().context("ask for the free port")?.to_string())
}

/// The command that runs it. A pod's name would make the consumer a static member, which does not leave its group when it ends.
pub fn command(program: &Path, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["run", "--config"]).arg(config).env_remove("POD_NAME");
    command
}

/// The statements with which it would make its database and its table, in this order.
///
/// # Errors
/// When the program cannot be run.
pub fn table_statements(program: &Path, config: &Path) -> Result<Vec<String>> {
    let printed = output(Command::new(program).args(["ddl", "print", "--config"]).arg(config))?;
    Ok(printed.split(";\n").filter(|text| !text.trim().is_empty()).map(str::to_owned).collect())
}

/// What it tells of itself, from where it listens for that; `None` while it does not answer.
pub async fn metrics_text(admin: &str) -> Option<String> {
    let mut stream = TcpStream::connect(admin).await.ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The value of a metric without labels, or with exactly these.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# HELP a_total x\na_total 12\nb{c=\"d\"} 1.5\n";
        assert_eq!(metric(text, "a_total"), Some(12.0));
        assert_eq!(metric(text, "b{c=\"d\"}"), Some(1.5));
        assert_eq!(metric(text, "a"), None);
    }
}
