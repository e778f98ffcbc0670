//! Messages become rows in a real `ClickHouse` and are read back by SELECT, in every layout of the attributes and with tables of every
//! kind. Dead letters go to a real Kafka.
//!
//! Run by `cargo verify` once its `ClickHouse` and its Kafka are up, or by hand:
//!
//! ```text
//! python3 -m pip install --target /tmp/packages clickhouse-connect==1.12.0
//! SLUICE_CLICKHOUSE=http://127.0.0.1:8123 SLUICE_KAFKA=127.0.0.1:29092 SLUICE_CLICKHOUSE_CONNECT=/tmp/packages \
//!   cargo test -p sluice-gateway --test live
//! ```
//!
//! The server must accept the user `default` without a password. Each test has its own database or topic and drops it.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod altered;
mod broker;
mod cut;
mod dead_letters;
mod deduplicated;
mod drain;
mod durability;
mod edge;
mod edge_load;
mod fate;
mod few_rights;
mod front;
mod guarantee;
mod layouts;
mod limits;
mod messages;
mod native;
mod optional;
mod otlp_clients;
mod otlp_source;
mod poison;
mod process;
mod readers;
mod refresh;
mod rules;
mod schema;
mod server;
mod summary;
mod table_parts;
mod ttl;
mod typed;
