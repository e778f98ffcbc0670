//! End-to-end tests on a real Kubernetes, a real Kafka and a real `ClickHouse`: one file for each thing that must hold.
//!
//! Run by `cargo verify`, which starts the servers, builds the images and installs the operator. Each test has its own namespace, topic and
//! database and removes them. A failed test leaves its evidence in `target/e2e-logs/<test>/`. Tests that stop the installed operator, or
//! measure a speed, run alone; the others run at the same time (`turns`).

mod account;
mod environment;
mod otlp_clients;
mod own_broker;
mod own_operator;
mod prelude;
mod scene;
mod turns;

mod install {
    pub mod chart;
    pub mod definition;
    pub mod policies;
    pub mod samples;
    pub mod upgraded;
}

mod spec {
    pub mod bad_spec;
    pub mod connections;
    pub mod foreign_status;
    pub mod mutants;
    pub mod objects;
    pub mod quotas;
    pub mod schema;
    pub mod unharmed;
}

mod scaling {
    pub mod autoscaled;
    pub mod idle;
    pub mod resize;
}

mod storage {
    pub mod only_copies;
    pub mod orphaned;
    pub mod reach;
    pub mod replaced;
    pub mod volumes;
}

mod rollout {
    pub mod canary;
    pub mod leaving;
}

mod deletion {
    pub mod drains;
    pub mod gone;
    pub mod life;
}

mod delivery {
    pub mod added;
    pub mod audit;
    pub mod compression;
    pub mod delivers;
    pub mod edge;
    pub mod kill;
    pub mod malformed;
    pub mod memory;
    pub mod odd_values;
    pub mod otlp;
    pub mod outage;
    pub mod process;
    pub mod throughput;
    pub mod transactions;
    pub mod two_tables;
    pub mod zone;
}

mod security {
    pub mod secured;
}

mod gitops {
    pub mod health;
    pub mod states;
    pub mod waves;
}

mod operator {
    pub mod divided;
    pub mod foreign_kinds;
    pub mod killed_operator;
    pub mod lease;
    pub mod many;
    pub mod plugin;
    pub mod pod_monitor;
    pub mod told;
}
