//! The pipeline and the connections in files: one document or several, or a `List` as `kubectl get -o yaml` prints one. Other kinds are
//! ignored beside a pipeline.

use super::{Assumed, one};
use crate::admission;
use kube::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_crds::{TraceConnection, TracePipeline};
use sluice_plan::{ConnectionSeen, Unresolved, Violations, references, resolved};

const PIPELINE: &str = "TracePipeline";
const CONNECTION: &str = "TraceConnection";

/// What the files have.
pub struct Documents {
    all: Vec<Value>,
    pipelines: Vec<Value>,
    connections: Vec<Connection>,
}

/// A connection, and what is wrong with it.
struct Connection {
    namespace: String,
    name: String,
    /// `None` if it cannot be read.
    read: Option<TraceConnection>,
    wrong: Violations,
}

impl Documents {
    /// The documents of the text with the pipeline, and the connections of the others.
    pub fn of(text: &str, assumed: &Assumed) -> Result<Self, Violations> {
        let all = documents(text).map_err(|error| one("file", error))?;
        let mut connections = of_kind(&all, CONNECTION);
        for text in &assumed.connections {
            let found = documents(text).map_err(|error| one("--connections", error))?;
            connections.extend(of_kind(&found, CONNECTION));
        }
        let connections =
            connections.into_iter().map(|one| Connection::of(one, &assumed.namespace)).collect();
        Ok(Self { pipelines: of_kind(&all, PIPELINE), connections, all })
    }

    /// The pipeline as the API server would store it, and the violations that it would report. An error if the text is no pipeline at all.
    pub fn pipeline(&self, assumed: &Assumed) -> Result<(Value, Violations), Violations> {
        let mut given = self.chosen(assumed.pipeline.as_deref())?;
        let api_version = TracePipeline::api_version(&());
        if given["apiVersion"] != *api_version {
            return Err(one("apiVersion", format!("is {}, not {api_version}", given["apiVersion"])));
        }
        let found = admission::pipeline(&given);
        as_stored(&mut given, &assumed.namespace);
        Ok((given, found))
    }

    /// The pipeline with what its connections say. What is wrong with one of them, or that it is in no file, is added to the violations.
    pub fn resolved(&self, pipeline: &TracePipeline, found: &mut Violations) -> (TracePipeline, Unresolved) {
        let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let mut names: Vec<&str> = references(&pipeline.spec).collect();
        names.dedup();
        let before = found.iter().count();
        for name in names {
            match self.connection(namespace, name) {
                Some(connection) => connection.wrong.iter().for_each(|wrong| {
                    found.add(of_connection(name, &wrong.path), wrong.message.clone());
                }),
                None => found.add(
                    format!("{CONNECTION} {name}"),
                    format!(
                        "is in no file, for the namespace {namespace:?}: add it to the file, or pass it with --connections FILE, for \
                         example from kubectl get tconn {name} -n {namespace} -o yaml"
                    ),
                ),
            }
        }
        let is_told = found.iter().count() > before;
        let (pipeline, unresolved) = resolved(pipeline, |name| {
            match self.connection(namespace, name).and_then(|connection| connection.read.as_ref()) {
                Some(connection) => ConnectionSeen::Known(Box::new(connection.spec.clone())),
                None => ConnectionSeen::Missing,
            }
        });
        if let (Some(words), false) = (unresolved.words(), is_told) {
            found.add("spec", words);
        }
        (pipeline.into_owned(), unresolved)
    }

    fn connection(&self, namespace: &str, name: &str) -> Option<&Connection> {
        self.connections.iter().find(|one| one.namespace == namespace && one.name == name)
    }

    fn chosen(&self, name: Option<&str>) -> Result<Value, Violations> {
        let name_of = |pipeline: &Value| pipeline["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let wanted: Vec<&Value> = self
            .pipelines
            .iter()
            .filter(|pipeline| name.is_none_or(|name| name_of(pipeline) == name))
            .collect();
        match (&wanted[..], &self.all[..]) {
            ([pipeline], _) => Ok((*pipeline).clone()),
            ([], [other]) if self.pipelines.is_empty() => {
                Err(one("kind", format!("is {}, not {PIPELINE}", other["kind"])))
            }
            ([], _) => {
                let of_name = name.map_or_else(String::new, |name| format!(" {name:?}"));
                Err(one("file", format!("has no {PIPELINE}{of_name}")))
            }
            (several, _) => {
                let found: Vec<String> = several.iter().map(|pipeline| name_of(pipeline)).collect();
                Err(one(
                    "file",
                    format!(
                        "has {} pipelines: choose one with --pipeline: {}",
                        found.len(),
                        found.join(", ")
                    ),
                ))
            }
        }
    }
}

impl Connection {
    fn of(mut given: Value, namespace: &str) -> Self {
        let found = admission::connection(&given);
        as_stored(&mut given, namespace);
        let text = |field: &str| given["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let (read, wrong) = match typed(given, &found) {
            Ok(connection) => (Some(connection), found),
            Err(wrong) => (None, wrong),
        };
        Self { namespace, name, read, wrong }
    }
}

/// The path of a field of a connection.
pub(super) fn of_connection(name: &str, field: &str) -> String {
    format!("{CONNECTION} {name}: {field}")
}

/// The object of a kind. If it cannot be read, the violations say why, or else its first error.
pub(super) fn typed<T: DeserializeOwned>(given: Value, found: &Violations) -> Result<T, Violations> {
    serde_path_to_error::deserialize(given).map_err(|error| {
        if found.is_empty() {
            one(error.path().to_string(), error.inner().to_string())
        } else {
            found.clone()
        }
    })
}

/// The API server sets these fields.
fn as_stored(given: &mut Value, namespace: &str) {
    if let Some(metadata) = given["metadata"].as_object_mut() {
        metadata.entry("namespace").or_insert_with(|| namespace.into());
        metadata.entry("uid").or_insert_with(|| "00000000-0000-0000-0000-000000000000".into());
    }
}

/// The objects of a text.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("is neither YAML nor JSON: {error}"))?;
    let all = all.into_iter().filter(|document| !document.is_null());
    Ok(all.flat_map(|document| items_of(&document).unwrap_or_else(|| vec![document])).collect())
}

/// The items of a `List`.
fn items_of(document: &Value) -> Option<Vec<Value>> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    document["items"].as_array().filter(|_| is_list).cloned()
}

fn of_kind(all: &[Value], kind: &str) -> Vec<Value> {
    all.iter().filter(|object| object["kind"] == kind).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Assumed, Outline, Refusal, outline};

    const SAMPLE: &str = include_str!("../../../../config/samples/traceconnection.yaml");

    fn planned(text: &str, pipeline: Option<&str>, connections: &[&str]) -> Result<Outline, Refusal> {
        let assumed = Assumed {
            partitions: 12,
            server: None,
            gateway_image: "sluice-gateway:0.1.0".into(),
            namespace: "tracing".into(),
            pipeline: pipeline.map(str::to_owned),
            connections: connections.iter().map(|text| (*text).to_owned()).collect(),
        };
        outline(text, &assumed)
    }

    fn told(text: &str, pipeline: Option<&str>, connections: &[&str]) -> String {
        planned(text, pipeline, connections).unwrap_err().to_string()
    }

    fn parts() -> [&'static str; 3] {
        let [connection, one, two] = SAMPLE.split("---\n").collect::<Vec<_>>()[..] else { panic!() };
        [connection, one, two]
    }

    #[test]
    fn a_pipeline_is_planned_with_the_connection_beside_it_or_of_another_file() {
        let [connection, one, two] = parts();
        for (text, name) in [(one, "checkout-traces"), (two, "search-traces")] {
            let beside = planned(SAMPLE, Some(name), &[]).unwrap();
            assert_eq!(planned(text, None, &[connection]).unwrap(), beside);
            let list = serde_json::json!({
                "apiVersion": "v1", "kind": "List", "items": [serde_saphyr::from_str::<serde_json::Value>(connection).unwrap()],
            });
            assert_eq!(planned(text, Some(name), &[&list.to_string()]).unwrap(), beside);
            let config = beside.objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
            assert!(config["data"]["gateway.yaml"].as_str().unwrap().contains("kafka-1.kafka:9093"));
        }
    }

    #[test]
    fn what_is_missing_or_ambiguous_is_said_with_what_helps() {
        let [connection, one, _] = parts();
        let missing = told(one, None, &[]);
        assert!(
            missing.starts_with("TraceConnection main: is in no file, for the namespace \"tracing\""),
            "{missing}"
        );
        let helps = "kubectl get tconn main -n tracing -o yaml\nchecks that depend on these fields follow once they are corrected";
        assert!(missing.ends_with(helps), "{missing}");
        let elsewhere = connection.replace("namespace: tracing", "namespace: other");
        assert_eq!(told(one, None, &[&elsewhere]), missing);
        let several = told(SAMPLE, None, &[]);
        assert!(several.ends_with("choose one with --pipeline: checkout-traces, search-traces"), "{several}");
        assert_eq!(told(SAMPLE, Some("another"), &[]), "file: has no TracePipeline \"another\"");
        assert!(told(one, None, &["kind: ["]).starts_with("--connections: is neither YAML nor JSON"));
        let half = connection.split("  clickhouse:").next().unwrap();
        assert!(told(one, None, &[half]).contains("has no spec.clickhouse"), "{}", told(one, None, &[half]));
    }

    #[test]
    fn what_is_wrong_with_a_connection_is_said_as_the_api_server_would() {
        let [connection, one, _] = parts();
        for (from, to, expected) in [
            (
                "kafka-0.kafka:9093",
                "kafka-0.kafka",
                "spec.kafka.bootstrapServers: each of bootstrapServers is host:port",
            ),
            ("https://clickhouse-0", "http://clickhouse-0", "endpoints are all http or all https"),
            (
                "mechanism: ScramSha512",
                "mechanism: Wrong",
                "TraceConnection main: spec.kafka.sasl.mechanism: ",
            ),
            ("    sasl:", "    salt:", "spec.kafka.salt: there is no such field"),
        ] {
            let found = told(one, None, &[&connection.replace(from, to)]);
            assert!(found.contains(expected), "{found}");
        }
    }

    /// One that can be read has a rule broken; the planner goes on with it, and names no field a second time.
    #[test]
    fn what_is_wrong_with_a_connection_hides_nothing_of_the_pipeline() {
        let [connection, one, _] = parts();
        let connection = connection.replace("kafka-0.kafka:9093", "kafka-0.kafka");
        let one =
            one.replace("spec:\n", "spec:\n  gateway: {workers: 8, resources: {limits: {memory: 128Mi}}}\n");
        let found = told(&one, None, &[&connection]);
        assert_eq!(found.lines().count(), 2, "{found}");
        assert!(found.contains("TraceConnection main: spec.kafka.bootstrapServers: "), "{found}");
        assert!(found.contains("spec.gateway.resources.limits.memory: 128Mi is too small"), "{found}");
    }
}
