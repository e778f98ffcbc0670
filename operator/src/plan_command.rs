//! `sluice-operator plan`: what the operator would do with a TracePipeline in a file, without a cluster and without Kafka.
//!
//! The same functions decide as in a reconcile; the facts are assumed: so many partitions, every Secret there, the schema as it
//! must be. What the API server checks by itself (types, ranges and rules of the CRD) is not repeated here.

use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_crds::{Derived, TracePipeline};
use sluice_plan::{
    Advice, Defaults, Observed, Plan, Planned, SchemaSeen, SecretSeen, Server, TopicSeen, Violations, advice,
    build, derived, plan,
};
use std::fmt::Write as _;

/// What is assumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumed {
    /// Partitions of each topic.
    pub partitions: u32,
    /// Size of a ClickHouse server, for advice.
    pub server: Option<Server>,
    /// Image of the gateways where the pipeline names none.
    pub gateway_image: String,
}

/// A plan for a person or a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outline {
    /// Number of gateways; the StatefulSet leaves it out, since a field manager of its own writes it.
    pub replicas: u32,
    /// Partitions of all topics.
    pub partitions: u32,
    /// What follows from the spec and the partitions.
    pub derived: Derived,
    /// Settings for ClickHouse.
    pub advice: Advice,
    /// Every object, in the order in which they are applied.
    pub objects: Vec<Value>,
}

/// Plans the pipeline in a text of YAML or JSON, or says everything that is wrong with it.
pub fn outline(text: &str, assumed: &Assumed) -> Result<Outline, Violations> {
    let pipeline = read(text)?;
    let defaults = Defaults {
        gateway_image: assumed.gateway_image.clone(),
        operator_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    match plan(&pipeline, &observed(&pipeline, assumed.partitions), &defaults)? {
        Planned::Ready(plan) => Ok(Outline::of(&plan, assumed)),
        Planned::Waiting(waiting) => Err(one("spec", waiting.message)),
    }
}

impl Outline {
    fn of(plan: &Plan, assumed: &Assumed) -> Self {
        Self {
            replicas: plan.replicas(),
            partitions: plan.partitions(),
            derived: derived(plan),
            advice: advice(plan, assumed.server),
            objects: build(plan).parts().documents(),
        }
    }

    /// A comment with the numbers, and the objects as one stream of YAML documents.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        let mut text = self.comment();
        for object in &self.objects {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(object)?);
        }
        Ok(text)
    }

    fn comment(&self) -> String {
        let derived = &self.derived;
        let unknown = || "about half of the server's cores (see --clickhouse-cores)".to_owned();
        let unsized_bytes = || "memory / (3 x max_insert_threads) (see --clickhouse-memory)".to_owned();
        let mut text = String::new();
        for (name, value) in [
            ("gateways", self.replicas.to_string()),
            ("partitions", self.partitions.to_string()),
            ("partitions per gateway", derived.partitions_per_gateway.to_string()),
            ("  read at the same time", derived.partitions_active_per_gateway.to_string()),
            ("workers per gateway", derived.workers.to_string()),
            ("memory per gateway", derived.memory.clone()),
            ("  of it for blocks", derived.memory_for_blocks.clone()),
            ("inserts at the same time", derived.insert_concurrency.to_string()),
            ("advice for ClickHouse", String::new()),
            (
                "  deduplication window",
                format!("{} blocks, a setting of the table", self.advice.deduplication_window),
            ),
            ("  max_insert_threads", self.advice.max_insert_threads.map_or_else(unknown, |n| n.to_string())),
            (
                "  min_insert_block_size_bytes",
                self.advice.min_insert_block_size_bytes.map_or_else(unsized_bytes, |n| n.to_string()),
            ),
        ] {
            // Writing to a String cannot fail.
            writeln!(text, "{}", format!("# {name:<30} {value}").trim_end()).ok();
        }
        text.push_str("# The last two are for INSERT ... SELECT on the server; gateways send blocks that are whole already.\n");
        text
    }
}

/// Every violation with its path, for a program.
pub fn violations_json(found: &Violations) -> Value {
    let each = found.iter().map(|one| json!({"path": one.path, "message": one.message}));
    json!({"violations": each.collect::<Vec<_>>()})
}

fn one(path: impl Into<String>, message: impl Into<String>) -> Violations {
    let mut found = Violations::default();
    found.add(path, message);
    found
}

fn read(text: &str) -> Result<TracePipeline, Violations> {
    let mut given: Value = serde_saphyr::from_str(text)
        .map_err(|error| one("file", format!("is neither YAML nor JSON: {error}")))?;
    if given["kind"] != "TracePipeline" {
        return Err(one("kind", format!("is {}, not TracePipeline", given["kind"])));
    }
    let written = given.clone();
    // What an API server would add.
    if let Some(metadata) = given["metadata"].as_object_mut() {
        metadata.entry("namespace").or_insert_with(|| "default".into());
        metadata.entry("uid").or_insert_with(|| "00000000-0000-0000-0000-000000000000".into());
    }
    let pipeline: TracePipeline = serde_path_to_error::deserialize(given)
        .map_err(|error| one(error.path().to_string(), error.inner().to_string()))?;
    let known = serde_json::to_value(&pipeline.spec).unwrap_or_default();
    let mut found = Violations::default();
    unknown(&written["spec"], &known, "spec", &mut found);
    found.or(pipeline)
}

/// Fields that an API server would drop without a word to a program: they are misspelt, or in the wrong place.
fn unknown(written: &Value, known: &Value, path: &str, found: &mut Violations) {
    if let Some(fields) = written.as_object() {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let at = format!("{path}.{name}");
            match known.get(name) {
                Some(known) => unknown(value, known, &at, found),
                None => found.add(at, "there is no such field"),
            }
        }
    }
}

/// Facts with which everything outside of the spec is well.
fn observed(pipeline: &TracePipeline, partitions: u32) -> Observed {
    let topics = pipeline.spec.source.kafka.topics.iter();
    let present = |usage: sluice_crds::SecretUse| {
        let keys = usage.keys().iter().map(|key| ((*key).to_owned(), k8s_openapi::ByteString::default()));
        SecretSeen::of(usage, Some(&Secret { data: Some(keys.collect()), ..Secret::default() }))
    };
    Observed {
        partitions: topics.map(|topic| (topic.clone(), TopicSeen::Known(partitions))).collect(),
        secrets: pipeline.spec.secrets().into_iter().map(|(usage, _)| (usage, present(usage))).collect(),
        schema: SchemaSeen::Succeeded,
        ..Observed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [&str; 2] = [
        include_str!("../../config/samples/tracepipeline.yaml"),
        include_str!("../../config/samples/tracepipeline-full.yaml"),
    ];

    fn assumed(partitions: u32) -> Assumed {
        let server = Some(Server { memory_bytes: 48 << 30, cores: 16 });
        Assumed { partitions, server, gateway_image: "sluice-gateway:0.1.0".into() }
    }

    #[test]
    fn the_samples_are_planned_without_a_cluster() {
        for sample in SAMPLES {
            let outline = outline(sample, &assumed(12)).unwrap();
            let kinds: Vec<_> =
                outline.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
            assert_eq!(
                kinds,
                [
                    "ServiceAccount",
                    "ConfigMap",
                    "Service",
                    "NetworkPolicy",
                    "PodDisruptionBudget",
                    "ConfigMap",
                    "Job",
                    "StatefulSet",
                ]
            );
            let yaml = outline.to_yaml().unwrap();
            assert_eq!(yaml.matches("\n---\n").count(), kinds.len());
            for document in yaml.split("---\n").skip(1) {
                let read: Value = serde_saphyr::from_str(document).unwrap();
                assert!(outline.objects.contains(&read), "{document}");
            }
        }
    }

    #[test]
    fn the_numbers_follow_from_spec_partitions_and_server() {
        let outline = outline(SAMPLES[0], &assumed(12)).unwrap();
        assert_eq!(
            (outline.replicas, outline.partitions, outline.derived.partitions_per_gateway),
            (3, 12, 4)
        );
        assert_eq!(outline.derived.memory, "256Mi");
        // Twice a block of each partition per second for ten minutes, in powers of two of ten thousand.
        assert_eq!(
            (outline.derived.deduplication_window, outline.advice.deduplication_window),
            (20_000, 20_000)
        );
        // Half of 16 cores; 48 GiB / (3 x 8).
        assert_eq!(outline.advice.max_insert_threads, Some(8));
        assert_eq!(outline.advice.min_insert_block_size_bytes, Some(2 << 30));
        let comment = outline.comment();
        assert!(comment.lines().all(|line| line.starts_with("# ")), "{comment}");
        assert!(comment.contains("memory per gateway             256Mi"), "{comment}");
    }

    #[test]
    fn without_the_servers_size_the_rule_is_said() {
        let outline = outline(SAMPLES[0], &Assumed { server: None, ..assumed(12) }).unwrap();
        assert!(outline.comment().contains("about half of the server's cores"));
    }

    #[test]
    fn every_violation_has_its_path() {
        for (from, to, path, message) in [
            (
                "memory: 256Mi",
                "memory: 64Mi",
                "spec.gateway.resources.memory",
                "smallest limit that would do",
            ),
            ("queue: {size: 1Gi}", "queu: {size: 1Gi}", "spec.queu", "no such field"),
            ("topics: [otlp_spans]", "topics: otlp_spans", "spec.source.kafka.topics", "invalid type"),
            ("topics: [otlp_spans]", "topics: ['a b']", "spec.source.kafka.topics", "is not a topic"),
            ("kind: TracePipeline", "kind: Deployment", "kind", "not TracePipeline"),
            ("kind: TracePipeline", "kind: [", "file", "neither YAML nor JSON"),
        ] {
            assert!(SAMPLES[0].contains(from), "{from}");
            let found = outline(&SAMPLES[0].replace(from, to), &assumed(12)).unwrap_err();
            let json = violations_json(&found);
            let first = &json["violations"][0];
            assert_eq!(first["path"], path, "{found}");
            assert!(first["message"].as_str().unwrap().contains(message), "{found}");
        }
        let two = SAMPLES[0].replace("256Mi", "64Mi").replace("[otlp_spans]", "['a b']");
        assert_eq!(outline(&two, &assumed(12)).unwrap_err().iter().count(), 2);
    }
}
