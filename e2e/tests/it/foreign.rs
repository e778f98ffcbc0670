//! Definitions of other people's kinds, on the cluster for as long as a test needs them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::cluster::{Cluster, Seen, until};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

/// How long a definition may take to be served.
const SERVED: Duration = Duration::from_mins(1);

/// Awaits `body` with these definitions. One that is there already is somebody else's, and is used and left as it is; the others go
/// afterwards, with all objects of them.
pub async fn with_definitions<T>(
    cluster: &Cluster,
    definitions: &[Value],
    body: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut made = Vec::new();
    let played = async {
        for definition in definitions {
            define(cluster, definition, &mut made).await?;
        }
        body.await
    };
    let played = played.await;
    for name in made {
        let deleted = api(cluster).delete(&name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("delete {name}"))?;
    }
    played
}

async fn define(cluster: &Cluster, definition: &Value, made: &mut Vec<String>) -> Result<()> {
    let name = definition["metadata"]["name"].as_str().context("a definition without a name")?;
    if api(cluster).get_opt(name).await.context("look for a definition")?.is_none() {
        cluster.apply(definition).await?;
        made.push(name.to_owned());
    }
    until(&format!("{name} to be served"), SERVED, async || {
        let found = api(cluster).get(name).await.context("get a definition")?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_served = conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
        Ok(if is_served { Seen::Done(()) } else { Seen::NotYet(format!("{conditions:?}")) })
    })
    .await
}

fn api(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client())
}
