//! The chart with a definition that is not kept (`crds.keep: false`): it is deleted with the release, and with it every pipeline without a
//! finalizer. A pipeline with a finalizer is marked as deleted and runs on, and the definition stays for it, until the steps in the notes
//! release it.

use super::{CHART, GONE, HELM_TIMEOUT, RELEASE, Release, change, definition, reconciled, with_release};
use crate::prelude::*;

/// Objects that the API server makes for a definition, and deletes with it.
const SERVED_AS: &str = "APIService v1alpha1.sluice.dev";

#[test]
#[ignore = "group chart"]
fn a_definition_that_is_not_kept_goes_with_the_release_once_nobody_holds_a_pipeline() -> Result<()> {
    with_release("not-kept", async |release| release.not_kept().await)
}

impl Release<'_> {
    async fn not_kept(&self) -> Result<()> {
        // All pipelines of the cluster would be deleted with the definition.
        let all: Api<TracePipeline> = Api::all(self.namespace.cluster().client());
        // After a definition was applied, the API server restarts its storage and answers 429 for a moment.
        let listed = until("the list of all pipelines", READY, async || {
            all.list_metadata(&ListParams::default()).await.map(Seen::Done).context("list all pipelines")
        });
        let all = listed.await?.items;
        let all: Vec<String> = all
            .iter()
            .map(|one| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any()))
            .collect();
        ensure!(all.is_empty(), "there are pipelines that are not this test's: {all:?}");
        let before = self.namespace.inventory().await?;
        let definitions = [TracePipeline::crd_name(), TraceConnection::crd_name()];
        let goes = definitions.map(|name| format!("CustomResourceDefinition {name}")).into_iter();
        let goes: BTreeSet<String> = goes.chain([SERVED_AS.to_owned()]).collect();

        self.install_not_kept().await?;
        self.uninstall(&["--wait"]).await?;
        self.wait_left(&before, &goes, |_| false).await.context("without a pipeline")?;

        self.install_not_kept().await?;
        let names = ["charted", "charted-drained", "charted-free"];
        let [by_hand, drained, free] = names.map(|name| self.pipeline(name));
        for (pipeline, more) in [
            (&by_hand, json!({})),
            // No gateway runs that could report that it is empty.
            (&drained, json!({"scaling": {"drain": {"timeout": "10s"}}})),
            (&free, json!({"deletionPolicy": "Immediate"})),
        ] {
            pipeline.apply(&merged(&alone(pipeline), &more)).await?;
            reconciled(pipeline, "reconciled").await?;
            self.workload_of(pipeline.name()).await?;
        }
        ensure!(free.get().await?.finalizers().is_empty(), "a pipeline that goes at once is held");
        let before_uninstall = (self.held(&by_hand).await?, self.held(&drained).await?);

        self.uninstall(&[]).await?;
        self.wait_gone().await?;
        self.wait_without(&free).await?;
        let after = (self.held(&by_hand).await?, self.held(&drained).await?);
        ensure!(after == before_uninstall, "{before_uninstall:?} became {after:?}");
        for pipeline in [&by_hand, &drained] {
            let deleted = pipeline.get().await?.metadata.deletion_timestamp;
            ensure!(deleted.is_some(), "{} is kept", pipeline.name());
        }
        self.definition_waits().await?;
        self.let_go(&by_hand, &drained).await?;
        self.wait_left(&before, &goes, |_| false).await.context("with pipelines")
    }

    /// The steps in the notes: one pipeline by hand, the other one by an operator.
    async fn let_go(&self, by_hand: &Pipeline, drained: &Pipeline) -> Result<()> {
        let free = json!({"metadata": {"finalizers": null}});
        let pipelines: Api<TracePipeline> = self.namespace.api();
        merge(&pipelines, by_hand.name(), free).await?;
        self.wait_without(by_hand).await?;
        self.definition_waits().await.context("for the other one")?;
        self.deploy(&["install", RELEASE, CHART], &[&self.image()?, "crds.enabled=false"]).await?;
        self.wait_without(drained).await.context("by an operator")?;
        self.uninstall(&["--wait"]).await
    }

    /// UIDs of a held pipeline and of its gateways' StatefulSet, and the generation of the latter.
    async fn held(&self, pipeline: &Pipeline) -> Result<(Option<String>, Option<String>, Option<i64>)> {
        let found = pipeline.get().await?;
        ensure!(!found.finalizers().is_empty(), "{} has no finalizer", pipeline.name());
        let (workload, generation) = self.workload_of(pipeline.name()).await?;
        Ok((found.uid(), workload, generation))
    }

    async fn definition_waits(&self) -> Result<()> {
        let found = definition(self.namespace.cluster()).await?.context("the definition is gone")?;
        ensure!(found.metadata.deletion_timestamp.is_some(), "the definition is kept");
        Ok(())
    }

    async fn install_not_kept(&self) -> Result<()> {
        let install = ["install", RELEASE, CHART, "--take-ownership", "--wait", "--timeout", HELM_TIMEOUT];
        let notes = self.deploy(&install, &[&self.image()?, "crds.keep=false"]).await?;
        for words in [
            "crds.keep is false",
            "Delete the TracePipelines",
            "crds.enabled=false",
            r#"{"metadata":{"finalizers":null}}"#,
        ] {
            ensure!(notes.contains(words), "NOTES do not say {words:?}: {notes}");
        }
        Ok(())
    }

    /// Waits until the pipeline and everything that ran for it are gone.
    async fn wait_without(&self, pipeline: &Pipeline) -> Result<()> {
        let (pipelines, workloads): (Api<TracePipeline>, Api<StatefulSet>) =
            (self.namespace.api(), self.namespace.api());
        let workload = format!("{}-gateway", pipeline.name());
        until(&format!("end of the pipeline {}", pipeline.name()), GONE, async || {
            let found = pipelines.get_opt(pipeline.name()).await.context("get the pipeline")?;
            let runs = workloads.get_opt(&workload).await.context("get the StatefulSet")?;
            Ok(match (found, runs) {
                (None, None) => Seen::Done(()),
                (found, runs) => Seen::NotYet(format!(
                    "there: {}, held by {:?}; StatefulSet: {}",
                    found.is_some(),
                    found.map(|found| found.finalizers().to_vec()),
                    runs.is_some()
                )),
            })
        })
        .await
    }
}

/// A pipeline with its own consumer group.
fn alone(pipeline: &Pipeline) -> Value {
    let group = format!("{}.{}", pipeline.settings().consumer_group(), pipeline.name());
    merged(&change(3), &json!({"source": {"kafka": {"consumerGroup": group}}}))
}
