//! `kubectl sluice plan`: prints what the operator would apply for a TracePipeline in a file, without Kafka. Connections that it references stand
//! in files, too. If a cluster answers, it also prints which pods would restart (`plan/comparison.rs`). The plan itself needs no cluster.
//!
//! It uses the functions of a reconcile with assumed facts: the number of partitions is given, every Secret exists, and the schema Job
//! succeeded. Before that it checks the CRD's schema and rules, with the messages of the API server.
//!
//! What the schema refuses cannot be planned. Then other values take the place of the wrong ones, and what the planner says with each of them is
//! told in the same round ([`crate::admission::substitutes()`]).
//!
//! What a rule refuses may keep the planner from other checks, too. Then the last line says that they follow.

mod change;
mod comparison;
mod documents;
mod live;
mod refusal;
mod restarts;
#[cfg(test)]
mod tests;
mod trial;

pub use refusal::{Refusal, violations_json};
pub use restarts::{Order, Outcome, PodChange, Restarts, VolumeChange};

use crate::{
    args::PlanArgs,
    cluster::Cluster,
    exit_codes::{EXIT_MISSING, EXIT_USAGE},
};
use documents::Documents;
use live::Live;
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
    /// Which pods restart; nothing is known of them before the comparison with a cluster.
    pub restarts: Restarts,
    /// Every object, in the order in which they are applied.
    pub objects: Vec<Value>,
    /// The pipeline with what its connections say.
    #[serde(skip)]
    pipeline: Box<TracePipeline>,
}

/// Prints a plan to standard output. Violations go to standard error as text, or with `--json` to standard output.
/// `context` and `namespace` are the options of the command line; a pipeline without `metadata.namespace` is in this namespace.
pub async fn run(args: &PlanArgs, context: Option<&str>, namespace: Option<&str>) -> ExitCode {
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
    let cluster = cluster(args, context, namespace).await;
    let server = args.clickhouse_memory.zip(args.clickhouse_cores);
    let of_context = || cluster.as_ref().map_or("default", Cluster::namespace);
    let assumed = Assumed {
        partitions: args.partitions,
        server: server.map(|(gib, cores)| Server { memory_bytes: u64::from(gib) << 30, cores }),
        gateway_image: args.gateway_image.clone(),
        namespace: namespace.unwrap_or_else(of_context).to_owned(),
        pipeline: args.pipeline.clone(),
        connections: texts,
    };
    let planned = match outline(&text, &assumed) {
        Ok(outline) => Ok(Box::pin(outline.compared(cluster.as_ref(), &assumed)).await),
        Err(found) => Err(found),
    };
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

/// The cluster to compare with, or why there is none.
async fn cluster(args: &PlanArgs, context: Option<&str>, namespace: Option<&str>) -> Result<Cluster, String> {
    if args.offline {
        return Err("--offline asks no cluster".to_owned());
    }
    Cluster::connect(context, namespace).await.map_err(|error| error.to_string())
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
            let Trial { of_connections, outcome, warnings, pipeline } =
                Trial::of(&documents, &pipeline, assumed);
            found.extend(of_connections);
            match outcome {
                Ok(Planned::Ready(plan)) if found.is_empty() => {
                    return Ok(Outline::of(&plan, warnings, pipeline, assumed));
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
    fn of(plan: &Plan, warnings: Vec<String>, pipeline: TracePipeline, assumed: &Assumed) -> Self {
        let monitor = pod_monitor(plan).map(|monitor| json!(monitor));
        Self {
            replicas: plan.replicas(),
            partitions: plan.partitions(),
            derived: derived(plan),
            advice: advice(plan, assumed.server),
            warnings,
            restarts: Restarts::not_known("no cluster was asked"),
            objects: build(plan).parts().documents().into_iter().chain(monitor).collect(),
            pipeline: Box::new(pipeline),
        }
    }

    /// The same with which pods restart. `cluster` is the cluster, or why there is none to ask.
    pub async fn compared(self, cluster: Result<&Cluster, &String>, assumed: &Assumed) -> Self {
        let restarts = match cluster {
            Ok(cluster) => self.restarts_in(cluster, assumed).await,
            Err(why) => Restarts::not_known(why),
        };
        Self { restarts, ..self }
    }

    async fn restarts_in(&self, cluster: &Cluster, assumed: &Assumed) -> Restarts {
        let names = &self.pipeline.metadata;
        let [namespace, name] =
            [&names.namespace, &names.name].map(|name| name.as_deref().unwrap_or_default());
        let cluster = cluster.within(namespace);
        match Box::pin(Live::read(&cluster, &self.pipeline)).await {
            Ok(live) => {
                let compared_with = Some(format!("{namespace}/{name} at {}", cluster.server()));
                Restarts { compared_with, ..comparison::restarts(&live, &self.pipeline, assumed) }
            }
            Err(error) => Restarts::not_known(&error.to_string()),
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
        text.push_str(&self.restarts.comment());
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
