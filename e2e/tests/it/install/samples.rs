//! Each sample is applied for real. One of a pipeline says by name what it lacks on this cluster, and none keeps another one from being
//! looked after. What other operators make beside a pipeline is taken by their definitions, with every field of it.

use anyhow::{Context as _, Result, bail, ensure};
use e2e_fixtures::cluster::{Namespace, Seen, until};
use e2e_fixtures::pipeline::{condition, merged};
use e2e_stack::{definitions, paths};
use kube::api::Api;
use serde_json::{Value, json};
use sluice_crds::status::condition as kind;
use sluice_crds::{TracePipeline, TracePipelineSpec};

use crate::environment::{Environment, READY};
use crate::install::definition::samples;
use crate::operator::foreign_kinds::with_definitions;
use crate::turns::Uses;

/// What stands beside a pipeline.
const BESIDE: &str = "config/samples/side-by-side.yaml";

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_taken_and_says_what_it_lacks() -> Result<()> {
    let _turn = Uses::Servers.turn().await?;
    let environment = Environment::resolve().await?;
    let name = format!("e2e-samples-{:x}", std::process::id());
    let namespace = Namespace::create(&environment.cluster, &name).await?;
    let applied = apply_all(&namespace).await;
    namespace.delete().await.and(applied)
}

async fn apply_all(namespace: &Namespace) -> Result<()> {
    let mut names = Vec::new();
    for (file, text) in samples()? {
        let object = serde_saphyr::from_str(&text).with_context(|| format!("understand {file}"))?;
        let made = namespace.apply(&object).await.with_context(|| format!("apply {file}"))?;
        names.push((file, made.metadata.name.context("a sample without a name")?));
    }
    let pipelines: Api<TracePipeline> = namespace.api();
    for (file, name) in names {
        let what = format!("{file} to be looked after");
        let words = until(&what, READY, async || {
            let live = pipelines.get(&name).await.context("get a sample")?;
            let status = live.status.unwrap_or_default();
            let is_current = status.observed_generation == live.metadata.generation;
            let ready = condition(&status, kind::READY).filter(|_| is_current);
            Ok(ready.map_or(Seen::NotYet("no condition Ready".to_owned()), |ready| {
                Seen::Done((ready.status.clone(), ready.reason.clone(), ready.message.clone()))
            }))
        });
        let (status, reason, message) = words.await?;
        let spec = pipelines.get(&name).await.context("get a sample")?.spec;
        match status.as_str() {
            // What it names is there: the local stack has the servers of the smallest one.
            "True" => {}
            "False" => ensure!(
                lacked(&spec).iter().any(|lacked| message.contains(lacked)),
                "{file} is not Ready ({reason}) and names nothing that it lacks: {message}"
            ),
            other => bail!("{file}: Ready is {other} ({reason}): {message}"),
        }
    }
    Ok(())
}

/// Names of all that a sample may lack: Secrets, topics, servers and the storage class.
fn lacked(spec: &TracePipelineSpec) -> Vec<&str> {
    let (kafka, clickhouse) = (&spec.source.kafka, &spec.sink.clickhouse);
    let secrets = spec.secrets().into_iter().map(|(_, name)| name);
    let servers = kafka.bootstrap_servers.iter().chain(&clickhouse.endpoints).chain(&kafka.topics);
    let class = spec.queue.storage_class_name.as_deref();
    secrets.chain(servers.map(String::as_str)).chain(class).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_beside_a_pipeline_is_taken_by_the_definitions_of_those_who_make_it() -> Result<()> {
    let _turn = Uses::Servers.turn().await?;
    let environment = Environment::resolve().await?;
    let strimzi = tokio::task::spawn_blocking(definitions::strimzi).await;
    let mut definitions = strimzi.context("the thread that asks Strimzi's classes ended")??;
    definitions.push(clickhouse_installation());
    let name = format!("e2e-beside-{:x}", std::process::id());
    let namespace = Namespace::create(&environment.cluster, &name).await?;
    let applied = with_definitions(&environment.cluster, &definitions, apply_beside(&namespace)).await;
    namespace.delete().await.and(applied)
}

async fn apply_beside(namespace: &Namespace) -> Result<()> {
    let text = std::fs::read_to_string(paths::workspace().join(BESIDE)).context("read what stands beside")?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).context("understand what stands beside")?;
    ensure!(objects.len() >= 6, "{} objects in {BESIDE}", objects.len());
    for mut object in objects {
        object["metadata"]["namespace"] = json!(namespace.name());
        let taken = namespace.cluster().apply_strictly(&object).await?;
        let taken = serde_json::to_value(taken).context("write what was taken")?;
        if let Some(fields) = object.as_object_mut() {
            // The server keeps it in another form.
            fields.remove("stringData");
        }
        ensure!(merged(&taken, &object) == taken, "{object} was taken as {taken}");
    }
    // A definition that takes everything would prove nothing.
    let mut wrong = json!({"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "metadata": {"name": "wrong"},
        "spec": {"partitionz": 12}});
    wrong["metadata"]["namespace"] = json!(namespace.name());
    let refused = namespace.cluster().apply_strictly(&wrong).await;
    ensure!(
        refused.is_err_and(|said| format!("{said:#}").contains("partitionz")),
        "a misspelt field is taken"
    );
    Ok(())
}

/// The `ClickHouse` operator's definition is in no package registry. This one has what its documentation names of the fields that the
/// sample uses: a field elsewhere, or of another type, is refused; whether there is such a field only the documentation says.
fn clickhouse_installation() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let list = |items: Value| json!({"type": "array", "items": items});
    let (number, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let layout = object(json!({"shardsCount": number, "replicasCount": number}));
    let clusters = list(object(json!({"name": text, "layout": layout})));
    let nodes = list(object(json!({"host": text, "port": number})));
    let zookeeper = object(json!({"nodes": nodes}));
    let configuration = object(json!({"clusters": clusters, "users": anything, "zookeeper": zookeeper}));
    let schema = object(json!({"spec": object(json!({"configuration": configuration}))}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clickhouseinstallations.clickhouse.altinity.com"},
        "spec": {
            "group": "clickhouse.altinity.com", "scope": "Namespaced",
            "names": {"kind": "ClickHouseInstallation", "plural": "clickhouseinstallations"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
