//! A pipeline that the API server accepted under another definition than the operator's. The operator cannot read it.

use e2e_fixtures::local_operator::give_back_definition;

use crate::prelude::*;

const LEVELS: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/gateway/properties/logLevel/enum";

#[test]
#[ignore = "group chart"]
fn a_pipeline_of_another_definition_is_seen_as_it_is() -> Result<()> {
    // All tests share the definition.
    scene::run("older_definition", Uses::ServersAlone, 1, async |scene: &mut Scene| {
        let cluster = scene.namespace.cluster().clone();
        let played = play(scene, &cluster).await;
        let given_back = give_back_definition(&cluster).await;
        played.and(given_back)
    })
}

async fn play(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let lenient: Value = json!([{"op": "remove", "path": LEVELS}]);
    let lenient = Patch::Json::<()>(serde_json::from_value(lenient)?);
    let name = TracePipeline::crd_name();
    definitions.patch(name, &PatchParams::default(), &lenient).await.context("change the definition")?;
    until("a pipeline with a log level that is none", READY, async || {
        let applied = scene.pipeline.apply(&json!({"gateway": {"logLevel": "loud"}})).await;
        Ok(applied.map_or_else(|error| Seen::NotYet(format!("{error:#}")), Seen::Done))
    })
    .await?;
    reached(&scene.pipeline, "malformed", READY, |status| has(status, kind::READY, reason::MALFORMED))
        .await?;
    removed(&scene.pipeline).await
}

/// Removes it while the definition allows writes: under the other definition, no client can write to it.
async fn removed(pipeline: &Pipeline) -> Result<()> {
    let pipelines: Api<TracePipeline> = pipeline.namespace().api();
    pipelines.delete(pipeline.name(), &DeleteParams::default()).await.context("delete the pipeline")?;
    wait_gone(&pipelines, pipeline.name(), READY).await
}
