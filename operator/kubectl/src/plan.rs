//! `kubectl sluice plan`: prints what the operator would apply for a TracePipeline in a file, without a cluster and without Kafka. Connections
//! that it references stand in files, too.
//!
//! It uses the functions of a reconcile with assumed facts: the number of partitions is given, every Secret exists, and the schema Job
//! succeeded. Before that it checks the CRD's schema and rules, with the messages of the API server.
//!
//! What the schema refuses cannot be planned. Then other values take the place of the wrong ones, and what the planner says with each of them is
//! told in the same round ([`crate::admission::substitutes()`]).
//!
//! What a rule refuses may keep the planner from other checks, too. Then the last line says that they follow.

mod documents;
mod refusal;
mod trial;

pub use refusal::{Refusal, violations_json};

use crate::{
    args::PlanArgs,
    exit_codes::{EXIT_MISSING, EXIT_USAGE},
};
use documents::Documents;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_crds::{Derived, TracePipeline};
use sluice_plan::{Advice, Plan, Planned, Server, Violations, advice, build, derived, pod_monitor};
use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    path::Path,
    process::ExitCode,
};
use trial::{Trial, add_unsaid, independent};

/// The assumed facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumed {
    /// Partitions of each topic.
    pub partitions: u32,
    /// Size of a ClickHouse server, for advice.
    pub server: Option<Server>,
    /// Image of the gateways if the pipeline has no `spec.gateway.image`.
    pub gateway_image: String,
    /// Namespace of a pipeline without `metadata.namespace`.
    pub namespace: String,
    /// Which pipeline of the text; `None` for the only one.
    pub pipeline: Option<String>,
    /// More texts with `TraceConnection`s.
    pub connections: Vec<String>,
}

/// The printed plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outline {
    /// Number of gateways. The StatefulSet has no `replicas`: another field manager writes that field.
    pub replicas: u32,
    /// Partitions of all topics.
    pub partitions: u32,
    /// What follows from the spec and the partitions.
    pub derived: Derived,
    /// Advised settings of ClickHouse.
    pub advice: Advice,
    /// What the plan leaves out of the spec.
    pub warnings: Vec<String>,
    /// Every object, in the order in which they are applied.
    pub objects: Vec<Value>,
}

/// Prints a plan to standard output. Violations go to standard error as text, or with `--json` to standard output.
/// `namespace` is for a pipeline without `metadata.namespace`.
pub fn run(args: &PlanArgs, namespace: Option<&str>) -> ExitCode {
    let files = std::iter::once(&args.file).chain(&args.connections);
    let mut texts = Vec::new();
    for file in files {
        match text_of(file) {
            Ok(text) => texts.push(text),
            Err(error) => {
                let told = writeln!(std::io::stderr(), "cannot read {}: {error}", file.display());
                return if told.is_ok() { ExitCode::from(EXIT_MISSING) } else { ExitCode::FAILURE };
            }
        }
    }
    let text = texts.remove(0);
    let server = args.clickhouse_memory.zip(args.clickhouse_cores);
    let assumed = Assumed {
        partitions: args.partitions,
        server: server.map(|(gib, cores)| Server { memory_bytes: u64::from(gib) << 30, cores }),
        gateway_image: args.gateway_image.clone(),
        namespace: namespace.unwrap_or("default").to_owned(),
        pipeline: args.pipeline.clone(),
        connections: texts,
    };
    let planned = outline(&text, &assumed);
    let is_valid = planned.is_ok();
    let written = match planned {
        Ok(outline) if args.json => print(serde_json::to_string(&outline)),
        Ok(outline) => print(outline.to_yaml()),
        Err(found) if args.json => writeln!(std::io::stdout(), "{}", violations_json(&found)),
        Err(found) => writeln!(std::io::stderr(), "{found}"),
    };
    match (written, is_valid) {
        (Err(_), _) => ExitCode::FAILURE,
        (Ok(()), true) => ExitCode::SUCCESS,
        (Ok(()), false) => ExitCode::from(EXIT_USAGE),
    }
}

fn text_of(file: &Path) -> std::io::Result<String> {
    if file.as_os_str() != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map(|_| text)
}

fn print<E: std::error::Error + Send + Sync + 'static>(text: Result<String, E>) -> std::io::Result<()> {
    let text = text.map_err(std::io::Error::other)?;
    writeln!(std::io::stdout(), "{}", text.trim_end())
}

/// Plans the pipeline in a text of YAML or JSON, or returns all its violations.
pub fn outline(text: &str, assumed: &Assumed) -> Result<Outline, Refusal> {
    let documents = Documents::of(text, assumed)?;
    let (given, mut found) = documents.pipeline(assumed)?;
    let is_partial = match documents::typed::<TracePipeline>(given.clone(), &found) {
        Ok(pipeline) => {
            let Trial { of_connections, outcome, warnings } = Trial::of(&documents, &pipeline, assumed);
            found.extend(of_connections);
            match outcome {
                Ok(Planned::Ready(plan)) if found.is_empty() => {
                    return Ok(Outline::of(&plan, warnings, assumed));
                }
                Ok(Planned::Ready(_)) => false,
                Ok(Planned::Waiting(waiting)) => {
                    // What is missing was said with its field.
                    found.add_if(found.is_empty(), "spec", || waiting.message);
                    true
                }
                Err(refused) => {
                    add_unsaid(&refused.violations, &mut found);
                    refused.is_partial
                }
            }
        }
        // The schema has no word about it, and so no field to put another value into.
        Err(unread) if found.is_empty() => return Err(Refusal { violations: unread, is_partial: true }),
        Err(_) => {
            add_unsaid(&independent(&documents, &given, assumed), &mut found);
            true
        }
    };
    found.sort_by_path();
    Err(Refusal { violations: found, is_partial })
}

impl Outline {
    fn of(plan: &Plan, warnings: Vec<String>, assumed: &Assumed) -> Self {
        let monitor = pod_monitor(plan).map(|monitor| json!(monitor));
        Self {
            replicas: plan.replicas(),
            partitions: plan.partitions(),
            derived: derived(plan),
            advice: advice(plan, assumed.server),
            warnings,
            objects: build(plan).parts().documents().into_iter().chain(monitor).collect(),
        }
    }

    /// A YAML comment with the numbers, then one document for each object.
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
        for warning in &self.warnings {
            // Writing to a String cannot fail.
            writeln!(text, "# warning: {warning}").ok();
        }
        for (name, value) in [
            ("gateways", self.replicas.to_string()),
            ("partitions", self.partitions.to_string()),
            ("partitions per gateway", derived.partitions_per_gateway.to_string()),
            ("  read at the same time", derived.partitions_active_per_gateway.to_string()),
            ("workers per gateway", derived.workers.to_string()),
            ("memory per gateway", derived.memory.clone()),
            ("  of it for blocks", derived.memory_for_blocks.clone()),
            ("queue of a gateway, for blocks", derived.queue.clone().unwrap_or_else(|| "none".to_owned())),
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
            writeln!(text, "{}", format!("# {name:<30} {value}").trim_end()).ok();
        }
        for words in derived.advice.iter().flat_map(|advice| advice.split("; ")) {
            writeln!(text, "# {words}").ok();
        }
        text.push_str(
            "# max_insert_threads and min_insert_block_size_bytes are for INSERT ... SELECT on the server; gateways send \
             complete blocks.\n",
        );
        text
    }
}

fn one(path: impl Into<String>, message: impl Into<String>) -> Violations {
    let mut found = Violations::default();
    found.add(path, message);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [&str; 2] = [
        include_str!("../../../config/samples/tracepipeline.yaml"),
        include_str!("../../../config/samples/tracepipeline-full.yaml"),
    ];

    fn assumed(partitions: u32) -> Assumed {
        let server = Some(Server { memory_bytes: 48 << 30, cores: 16 });
        Assumed {
            partitions,
            server,
            gateway_image: "sluice-gateway:0.1.0".into(),
            namespace: "default".into(),
            pipeline: None,
            connections: Vec::new(),
        }
    }

    /// The files of `config/samples` that hold a pipeline, by name.
    fn samples() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let read = |file: std::path::PathBuf| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            name.starts_with("tracepipeline").then(|| (name, std::fs::read_to_string(file).unwrap()))
        };
        let samples: Vec<_> = files.filter_map(read).collect();
        assert!(samples.len() >= 7, "{samples:?}");
        samples
    }

    #[test]
    fn the_samples_are_planned_without_a_cluster() {
        for (name, sample) in samples() {
            let outline = outline(&sample, &assumed(12)).unwrap_or_else(|found| panic!("{name}: {found}"));
            let is_full = name.contains("full");
            let monitor = is_full.then_some("PodMonitor");
            let edge = [
                "ServiceAccount",
                "ConfigMap",
                "Service",
                "NetworkPolicy",
                "PodDisruptionBudget",
                "Deployment",
            ];
            let has_edge = is_full || name.contains("edge");
            let kinds: Vec<_> =
                outline.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
            assert_eq!(
                kinds,
                ["ServiceAccount", "ConfigMap", "Service"]
                    .into_iter()
                    .chain(name.contains("otlp").then_some("Service"))
                    .chain(["NetworkPolicy", "PodDisruptionBudget", "ConfigMap", "Job", "StatefulSet"])
                    .chain(edge.into_iter().filter(|_| has_edge))
                    .chain(is_full.then_some("HorizontalPodAutoscaler"))
                    .chain(monitor)
                    .collect::<Vec<_>>()
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
    fn what_stands_beside_a_pipeline_has_the_names_that_it_says() {
        let beside = include_str!("../../../config/samples/side-by-side.yaml");
        let beside: Vec<Value> = serde_saphyr::from_multiple(beside).unwrap();
        let find = |kind: &str, name: &str| {
            let found =
                beside.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
            found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
        };
        let text = include_str!("../../../config/samples/tracepipeline-side-by-side.yaml");
        let pipeline: TracePipeline = serde_saphyr::from_str(text).unwrap();
        let (kafka, clickhouse) =
            (pipeline.spec.source.kafka.as_ref().unwrap(), &pipeline.spec.sink.clickhouse);
        let [topic] = &kafka.topics[..] else { panic!("{:?}", kafka.topics) };
        let cluster = &find("KafkaTopic", topic)["metadata"]["labels"]["strimzi.io/cluster"];
        let cluster = cluster.as_str().unwrap();
        find("KafkaTopic", &format!("{topic}.dead-letter"));
        assert!(kafka.bootstrap_servers[0].starts_with(&format!("{cluster}-kafka-bootstrap.")));
        assert_eq!(
            kafka.tls.as_ref().unwrap().ca_secret_ref.as_ref().unwrap().name,
            format!("{cluster}-cluster-ca-cert")
        );
        let user = find("Secret", &kafka.sasl.as_ref().unwrap().secret_ref.as_ref().unwrap().name);
        let user = find("KafkaUser", user["stringData"]["username"].as_str().unwrap());
        let acls = user["spec"]["authorization"]["acls"].to_string();
        assert!(
            acls.contains(&format!("\"name\":\"{}\"", kafka.consumer_group.as_deref().unwrap())),
            "{acls}"
        );
        let writer =
            find("Secret", &clickhouse.credentials.as_ref().unwrap().secret_ref.as_ref().unwrap().name);
        let servers = find("ClickHouseInstallation", "traces");
        let name = writer["stringData"]["username"].as_str().unwrap();
        assert!(
            servers["spec"]["configuration"]["users"]
                .to_string()
                .contains(&format!("{name}/k8s_secret_password"))
        );
        let first = &servers["spec"]["configuration"]["clusters"][0];
        assert_eq!(clickhouse.schema.cluster.as_deref(), first["name"].as_str());
        assert_eq!(Some(clickhouse.endpoints.len() as u64), first["layout"]["replicasCount"].as_u64());
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
        // All of 1Gi but a twentieth.
        assert_eq!(outline.derived.queue.as_deref(), Some("972Mi"));
        // Half of 16 cores; 48 GiB / (3 x 8).
        assert_eq!(outline.advice.max_insert_threads, Some(8));
        assert_eq!(outline.advice.min_insert_block_size_bytes, Some(2 << 30));
        let comment = outline.comment();
        assert!(comment.lines().all(|line| line.starts_with("# ")), "{comment}");
        for line in [
            "memory per gateway             256Mi",
            "queue of a gateway, for blocks 972Mi",
            "# the table should remember 20000 blocks",
            "# the servers should accept ",
        ] {
            assert!(comment.contains(line), "{comment}");
        }
    }

    #[test]
    fn an_endpoint_in_two_spellings_is_a_warning_with_both_and_with_the_one_that_is_used() {
        assert_eq!(outline(SAMPLES[0], &assumed(12)).unwrap().warnings, Vec::<String>::new());
        let from = "endpoints: [\"http://clickhouse.sluice-stack.svc.cluster.local:8123\"]";
        assert!(SAMPLES[0].contains(from));
        for (to, field) in [
            ("endpoints: [http://a:8123, http://b:8123, http://A:8123/]", "endpoints"),
            (
                "shards: [{endpoints: [http://b:8123]}, {endpoints: [http://a:8123, http://A:8123/]}]",
                "shards[1].endpoints",
            ),
        ] {
            let outline = outline(&SAMPLES[0].replace(from, to), &assumed(12)).unwrap();
            let warning = format!(
                "spec.sink.clickhouse.{field}: \"http://a:8123\" and \"http://A:8123/\" are one address: gateways use \"http://a:8123\" and \
                 leave out \"http://A:8123/\"; list each server once"
            );
            assert_eq!(outline.warnings, std::slice::from_ref(&warning));
            assert_eq!(outline.comment().lines().next(), Some(format!("# warning: {warning}").as_str()));
            let config = outline.objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
            assert!(!config.to_string().contains("A:8123"), "{config}");
        }
    }

    #[test]
    fn a_server_in_two_shards_is_refused_and_a_warning_once_a_pipeline_has_run_with_it() {
        let from = "endpoints: [\"http://clickhouse.sluice-stack.svc.cluster.local:8123\"]";
        let shards = "shards: [{endpoints: [http://a:8123]}, {endpoints: [http://A:8123/]}]";
        let text = SAMPLES[0].replace(from, shards);
        let found = outline(&text, &assumed(12)).unwrap_err().to_string();
        let words = "spec.sink.clickhouse.shards[1].endpoints: \"http://A:8123/\" and \"http://a:8123\" of shards[0] are one address";
        assert!(found.starts_with(words), "{found}");
        let outline = outline(&format!("{text}status: {{image: i}}\n"), &assumed(12)).unwrap();
        assert!(matches!(&outline.warnings[..], [one] if one.starts_with(words)), "{:?}", outline.warnings);
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
                "gateway: {resources: {limits: {memory: 256Mi}}}",
                "gateway: {workers: 8, resources: {limits: {memory: 128Mi}}}",
                "spec.gateway.resources.limits.memory",
                "set at least",
            ),
            ("memory: 256Mi", "memory: 64Mi", "spec.gateway.resources.limits.memory", "at least 128Mi"),
            (
                "gateway: {",
                "gateway: {podTemplate: {labels: {}, tolerations: [], nodeSelectr: {a: b}}, ",
                "spec.gateway.podTemplate.nodeSelectr",
                "no such field",
            ),
            ("queue: {size: 1Gi}", "queu: {size: 1Gi}", "spec.queu", "no such field"),
            ("topics: [otlp_spans]", "topics: otlp_spans", "spec.source.kafka.topics", "is not of type"),
            ("topics: [otlp_spans]", "topics: ['a b']", "spec.source.kafka.topics", "is the name of a topic"),
            (
                "topics: [otlp_spans]",
                "topics: ['']",
                "spec.source.kafka.topics[0]",
                "shorter than 1 character",
            ),
            ("kind: TracePipeline", "kind: Deployment", "kind", "not TracePipeline"),
            ("kind: TracePipeline", "kind: [", "file", "neither YAML nor JSON"),
        ] {
            assert!(SAMPLES[0].contains(from), "{from}");
            let found = outline(&SAMPLES[0].replace(from, to), &assumed(12)).unwrap_err();
            let json = violations_json(&found);
            let is_said =
                |one: &Value| one["path"] == path && one["message"].as_str().unwrap().contains(message);
            assert!(json["violations"].as_array().unwrap().iter().any(is_said), "{path}: {found}");
        }
    }
}
