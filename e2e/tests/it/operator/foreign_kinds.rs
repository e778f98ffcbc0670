//! Definitions of kinds of other projects, which are on the cluster while a test needs them.

use kube::discovery::{ApiGroup, Discovery};

use crate::prelude::*;

/// Awaits `body` with these definitions. An existing one belongs to another program: it is used, and stays unchanged. The others are
/// deleted afterwards, with all objects of their kinds.
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
    until(&format!("{name} to be served"), READY, async || {
        let found = api(cluster).get(name).await.context("get a definition")?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_served = conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
        Ok(Seen::when(is_served, || format!("{conditions:?}")))
    })
    .await?;
    told_of(cluster, definition).await
}

/// Waits until objects of the kind can be listed, and the kind is in the list of all kinds and in the schema of all kinds. All three happen
/// a while after the definition is served. Before that, the API server answers that its storage is not ready. helm reads the list and Argo
/// CD reads the schema, and neither retries.
async fn told_of(cluster: &Cluster, definition: &Value) -> Result<()> {
    let spec = &definition["spec"];
    let (group, kind) = (text(&spec["group"])?, text(&spec["names"]["kind"])?);
    let reversed: Vec<&str> = group.split('.').rev().collect();
    let schema = format!("\"{}.{}.{kind}\"", reversed.join("."), text(&spec["versions"][0]["name"])?);
    until(&format!("{kind} to be told of"), READY, async || {
        let kinds = Discovery::new(cluster.client()).filter(&[group]).run_aggregated().await;
        let kinds = kinds.context("ask for the kinds that there are")?;
        let found = kinds.get(group).map(ApiGroup::recommended_resources).unwrap_or_default();
        let Some((resource, _)) = found.into_iter().find(|(found, _)| found.kind == kind) else {
            return Ok(Seen::NotYet("not among the kinds".to_owned()));
        };
        let objects: Api<DynamicObject> = Api::all_with(cluster.client(), &resource);
        objects.list_metadata(&ListParams::default().limit(1)).await.context("list them")?;
        let request = hyper::Request::get("/openapi/v2").body(Vec::new()).context("make a request")?;
        let schemas = cluster.client().request_text(request).await.context("ask for the schema")?;
        Ok(Seen::when(schemas.contains(&schema), || format!("no {schema}")))
    })
    .await
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a definition without a name in it")
}

fn api(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client())
}
