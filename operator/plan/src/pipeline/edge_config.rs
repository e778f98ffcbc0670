//! From the user's contract to the edge's: each field of its config, and from which field of the spec it comes.

use super::{
    gateway_config, logins,
    otlp_config::{self, listen},
    resources::Sized,
};
use crate::ground::words::plural;
use crate::names::Names;
use sluice_crds::{Edge, SecretUse, TracePipelineSpec};
use sluice_gateway_config as contract;
use sluice_gateway_config::{
    CONTRACT_VERSION, CheckedEdgeConfig, EdgeConfig, EdgeKafka, EdgeLimits, Shutdown, Violations,
    edge::ENDPOINTS_WAIT,
    edge_budget::{EdgeBudget, EdgeSizing},
};
use std::str::FromStr;

/// The most worker threads that the contract allows.
const WORKERS_MAX: u32 = 64;

/// The config of a pipeline's edge, or what is wrong with the spec.
pub(crate) fn build(
    names: &Names,
    spec: &TracePipelineSpec,
    edge: &Edge,
    sized: &Sized,
) -> Result<CheckedEdgeConfig, Violations> {
    let mut found = Violations::default();
    let limits = limits(edge, &mut found);
    let of_edge = edge.tenants.as_ref();
    let tenants = of_edge.map(|of| otlp_config::tenants(of, "spec.edge.tenants", &mut found));
    let Some(kafka) = kafka(spec, edge, &mut found) else { return Err(found) };
    let config = EdgeConfig {
        contract_version: CONTRACT_VERSION,
        pipeline: contract::Pipeline { namespace: names.namespace().into(), name: names.pipeline().into() },
        listen: listen(edge.listeners(), SecretUse::OF_EDGE),
        limits: limits.unwrap_or_default(),
        tenants,
        kafka,
        workers: sized.cores.min(WORKERS_MAX),
        memory: contract::Memory { limit: sized.memory },
        admin: contract::Admin::default(),
        shutdown: Shutdown::default(),
        log: contract::Log { level: gateway_config::log_level(spec).into(), ..contract::Log::default() },
    };
    found.or(())?;
    let config = config.check().map_err(|found| gateway_config::with_paths(&found, spec_path))?;
    fits(&config)?;
    Ok(config)
}

/// Whether the memory limit has room for the edge, divided as the edge itself divides it.
fn fits(config: &CheckedEdgeConfig) -> Result<(), Violations> {
    let mut found = Violations::default();
    let sizing = EdgeSizing::of(config.config());
    if let Err(shortfall) = EdgeBudget::divide(&sizing) {
        let EdgeSizing { workers, request_bytes_max, decompressed_bytes_max, record_batch_bytes_max, .. } =
            sizing;
        found.add(
            "spec.edge.resources.limits.memory",
            format!(
                "{shortfall} for {}, requests of {request_bytes_max} (decompressed {decompressed_bytes_max}) and batches of \
                 {record_batch_bytes_max}: increase it, or lower requestBytesMax and decompressedBytesMax",
                plural(workers, "worker")
            ),
        );
    }
    found.or(())
}

/// The termination grace period in seconds: for the cluster to learn that the pod ends, for the requests under way, and for the process to end.
pub(crate) fn grace_seconds(config: &CheckedEdgeConfig) -> u64 {
    let Shutdown { deadline } = config.config().shutdown;
    (ENDPOINTS_WAIT.as_millis() + deadline.as_millis()) / 1_000 + gateway_config::LEAVE_SECONDS
}

/// The topic that spans are written to: the one that the spec names, else the first, which is the only one by a rule of the API server.
pub(crate) fn topic<'a>(spec: &'a TracePipelineSpec, edge: &'a Edge) -> &'a str {
    let first = spec.source.kafka.as_ref().and_then(|kafka| kafka.topics.first());
    edge.topic.as_ref().or(first).map_or("", String::as_str)
}

fn read<T: FromStr>(text: &str, at: &str, found: &mut Violations) -> Option<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| found.add(at, error.to_string())).ok()
}

fn limits(edge: &Edge, found: &mut Violations) -> Option<EdgeLimits> {
    let received = read(&edge.request_bytes_max, "spec.edge.requestBytesMax", found);
    let decompressed = read(&edge.decompressed_bytes_max, "spec.edge.decompressedBytesMax", found);
    let age = read(&edge.connection_age_max, "spec.edge.connectionAgeMax", found);
    Some(EdgeLimits {
        request_bytes_max: received?,
        decompressed_bytes_max: decompressed?,
        connection_age_max: age?,
    })
}

/// `None` if there is no topic to write to, which is added to what is wrong.
fn kafka(spec: &TracePipelineSpec, edge: &Edge, found: &mut Violations) -> Option<EdgeKafka> {
    let Some(kafka) = &spec.source.kafka else {
        found.add("spec.edge", "writes to a topic of source.kafka, which is not set: remove edge");
        return None;
    };
    let topic = topic(spec, edge);
    found.add_if(!kafka.topics.iter().any(|one| one == topic), "spec.edge.topic", || {
        format!("{topic:?} is not one of source.kafka.topics: no gateway would read it")
    });
    found.add_if(gateway_config::format(spec) != contract::Format::OtlpProto, "spec.edge", || {
        "writes OTLP in protobuf: set source.kafka.format to OtlpProto, or remove edge".into()
    });
    let target = read(&edge.message_bytes_target, "spec.edge.messageBytesTarget", found);
    // What is wrong with it is said of gateways.
    let batch = gateway_config::record_batch_bytes_max(kafka, &mut Violations::default());
    Some(EdgeKafka {
        bootstrap_servers: kafka.bootstrap_servers.clone(),
        tls: gateway_config::tls(
            kafka.tls.as_ref(),
            SecretUse::KafkaAuthorities,
            SecretUse::KafkaCertificate,
        ),
        sasl: kafka.sasl.as_ref().map(logins::sasl),
        topic: topic.to_owned(),
        message_bytes_target: target.unwrap_or(contract::ByteSize::bytes(0)),
        record_batch_bytes_max: batch.unwrap_or(contract::ByteSize::bytes(0)),
        properties: kafka.properties.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect(),
    })
}

/// The field of the spec that a field of the config comes from.
fn spec_path(path: &str) -> String {
    match path {
        "memory.limit" => "spec.edge.resources.limits.memory".into(),
        "workers" => "spec.edge.resources.requests.cpu".into(),
        "log.level" => "spec.gateway.logLevel".into(),
        "pipeline.name" | "pipeline.namespace" => path.replace("pipeline", "metadata"),
        "kafka.topic" | "kafka.messageBytesTarget" => path.replace("kafka", "spec.edge"),
        _ => {
            let of_kafka = path.strip_prefix("kafka.");
            let of_kafka = of_kafka.map(|field| logins::field(format!("spec.source.kafka.{field}")));
            let of_listen = path.strip_prefix("listen").map(|rest| format!("spec.edge{rest}"));
            let of_limits = path.strip_prefix("limits.").map(|field| format!("spec.edge.{field}"));
            of_kafka.or(of_limits).or(of_listen).unwrap_or_else(|| format!("spec.edge.{path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_names_the_field_of_the_spec() {
        for (path, expected) in [
            ("memory.limit", "spec.edge.resources.limits.memory"),
            ("kafka.messageBytesTarget", "spec.edge.messageBytesTarget"),
            ("kafka.bootstrapServers", "spec.source.kafka.bootstrapServers"),
            ("kafka.sasl.passwordFile", "spec.source.kafka.sasl.secretRef"),
            ("listen", "spec.edge"),
            ("listen.authentication", "spec.edge.authentication"),
            ("limits.requestBytesMax", "spec.edge.requestBytesMax"),
            ("tenants.header", "spec.edge.tenants.header"),
            ("pipeline.name", "metadata.name"),
        ] {
            assert_eq!(spec_path(path), expected);
        }
    }
}
