//! Each sample of a pipeline is applied for real: it says by name what it lacks on this cluster, and no sample keeps another one from
//! being looked after.

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::{Namespace, Seen, until};
use e2e::pipeline::condition;
use kube::api::Api;
use sluice_crds::status::condition as kind;
use sluice_crds::{TracePipeline, TracePipelineSpec};

use crate::definition::samples;
use crate::environment::{Environment, READY};
use crate::turns::Uses;

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_taken_and_says_what_it_lacks() -> Result<()> {
    let _turn = Uses::Servers.turn().await;
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
