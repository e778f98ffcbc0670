//! The OpenTelemetry Collector that is measured beside the gateway: how it is built and run, and its exporter for `ClickHouse`.
//!
//! Job: what `bill` and `otlp` share. Place in the flow: before the process. The settings are those of
//! `e2e/bench/peers/otel-collector/collector.yaml`; `e2e/bench/peers/README.md` has the reasons.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use e2e_fixtures::pipeline::TABLE;
use e2e_stack::process::{command as script_command, output};
use e2e_stack::{paths, say};

/// Go's garbage collector works less often than by default, which helps the Collector (`e2e/bench/peers/README.md`).
const GOGC: &str = "400";

/// The Collector's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// A table in the gateway's layout `Json` is there.
    OfGateway,
    /// It makes its own table and view, with attributes in `JSON` columns.
    OwnJson,
    /// It makes its own table and view, with attributes in maps.
    OwnMap,
}

/// Compiles the Collector with an exporter for `ClickHouse`, if it is missing from the cache.
pub fn build() -> Result<PathBuf> {
    say::progress("collector", "compile, unless it is compiled already");
    let script = paths::workspace().join("e2e/bench/peers/otel-collector/build.sh");
    let said = output(&mut script_command(script))?;
    Ok(PathBuf::from(said.lines().next_back().context("the script names no program")?))
}

pub fn command(program: &Path, config: &Path) -> Command {
    let mut collector = Command::new(program);
    collector.arg("--config").arg(format!("file:{}", config.display())).env("GOGC", GOGC);
    collector
}

/// The config of a Collector with one receiver and one exporter, each with its name.
pub fn config((receiver, source): (&str, &Value), (exporter, target): (&str, &Value)) -> Value {
    json!({
        "receivers": {receiver: source},
        "exporters": {exporter: target},
        "service": {
            "pipelines": {"traces": {"receivers": [receiver], "exporters": [exporter]}},
            "telemetry": {"logs": {"level": "warn"}, "metrics": {"level": "none"}},
        },
    })
}

pub fn exporter(endpoint: &str, database: &str, schema: Schema) -> Value {
    json!({
        "endpoint": endpoint,
        "database": database,
        "traces_table_name": TABLE,
        "create_schema": schema != Schema::OfGateway,
        "json": schema != Schema::OwnMap,
        "async_insert": false,
        "compress": "lz4",
        "timeout": "60s",
        "sending_queue": {
            "sizer": "items",
            "queue_size": 200_000,
            "num_consumers": 2,
            "block_on_overflow": true,
            "batch": {"min_size": 10_000, "max_size": 20_000, "flush_timeout": "1s"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_makes_its_own_table_unless_the_gateway_did() {
        let made = |schema| {
            let exporter = exporter("http://127.0.0.1:1", "d", schema);
            (exporter["create_schema"].as_bool().unwrap(), exporter["json"].as_bool().unwrap())
        };
        assert_eq!(made(Schema::OfGateway), (false, true));
        assert_eq!(made(Schema::OwnJson), (true, true));
        assert_eq!(made(Schema::OwnMap), (true, false));
    }
}
