//! End-to-end tests on a real Kubernetes, a real Kafka and a real `ClickHouse`: one file for each thing that must hold.
//!
//! Run by `cargo verify`, which brings the servers up, builds the images and installs the operator. Each test has its own
//! namespace, topic and database and removes them; one that fails leaves what explains it in `target/e2e-logs/<test>/`.
//! Tests that stop a server or the operator, or measure a speed, run alone, the others beside each other (`turns`).

mod added;
mod audit;
mod autoscaled;
mod bad_spec;
mod chart;
mod compression;
mod definition;
mod delivers;
mod drains;
mod environment;
mod foreign;
mod gitops;
mod gone;
mod kill;
mod killed_operator;
mod lease;
mod leaving;
mod life;
mod malformed;
mod many;
mod memory;
mod mutants;
mod objects;
mod odd_values;
mod only_copies;
mod orphaned;
mod outage;
mod plugin;
mod pod_monitor;
mod process;
mod quotas;
mod reach;
mod replaced;
mod resize;
mod rollout;
mod samples;
mod scene;
mod schema;
mod secured;
mod states;
mod throughput;
mod told;
mod transactions;
mod turns;
mod unharmed;
mod upgraded;
mod volumes;
mod waves;
mod zone;
