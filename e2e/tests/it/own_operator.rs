//! Operators of a test's own, as processes of this machine, and what pipelines have that need nothing but Kafka.

use e2e_fixtures::local_operator::{Orders, POD_CORES};
use e2e_stack::programs;

use crate::environment;
use crate::prelude::*;

/// No such image exists: a gateway with it would not start.
const NO_IMAGE: &str = "sluice.local/none:0";

pub fn program() -> PathBuf {
    environment::program("SLUICE_OPERATOR_PROGRAM", programs::OPERATOR)
}

/// Starts an operator that manages this namespace. Its files are in `folder`, by its identity.
pub async fn start(
    target: &Resolved,
    namespace: &Namespace,
    identity: &str,
    folder: &Path,
) -> Result<LocalOperator> {
    let (kubeconfig, program) = (&target.kubeconfig, &program());
    let orders = Orders { kubeconfig, namespace, program, gateway_image: NO_IMAGE, identity };
    LocalOperator::start(orders, folder).await
}

/// A pipeline of this name with these servers, a database that does not exist, and [`NO_IMAGE`].
pub fn settings(name: &str, broker: &str, topic: &str, clickhouse: &str) -> Settings {
    Settings {
        name: name.to_owned(),
        brokers: vec![broker.to_owned()],
        topic: topic.to_owned(),
        clickhouse: clickhouse.to_owned(),
        database: "none".to_owned(),
        image: NO_IMAGE.to_owned(),
        storage_class: None,
    }
}

/// A spec that needs nothing but Kafka: no table, no volume, no credentials. No node takes its gateways.
pub fn at_rest() -> Value {
    json!({
        "sink": {"clickhouse": {"credentials": null, "schema": {"management": "None"}}},
        "gateway": {"resources": {"cpuRequest": POD_CORES}},
        "queue": {"mode": "Disabled", "size": null},
    })
}
