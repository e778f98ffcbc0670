//! The chart with all that it can make, for all namespaces, and with a definition that is not kept: a sync would change nothing of it, and
//! `helm uninstall` leaves nothing of it on the cluster, nor of the pipeline that was there.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::{Seen, until};
use e2e::pipeline::{Pipeline, merged};
use e2e::stack::definitions;
use kube::api::{Api, ListParams};
use kube::{CustomResourceExt as _, ResourceExt as _};
use serde_json::json;
use sluice_crds::TracePipeline;

use super::{CHART, GATEWAY_IMAGE, GONE, HELM_TIMEOUT, RELEASE, Release, change};
use crate::environment::READY;
use crate::foreign::with_definitions;

/// All that is off by itself, and what goes with the release because it is not kept.
const EVERYTHING: [&str; 5] = [
    "serviceMonitor.enabled=true",
    "gatewayPodMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "dashboards.enabled=true",
    "crds.keep=false",
];

/// In every namespace, some time after it was made.
const KUBERNETES_OWN: &str = "ConfigMap kube-root-ca.crt";

impl Release<'_> {
    /// `before` is what there was on the cluster before any chart, but for the definition.
    pub(super) async fn everything_and_then_nothing(
        &self,
        pipeline: &Pipeline,
        before: &BTreeSet<String>,
    ) -> Result<()> {
        // All pipelines of the cluster go with the definition.
        let all: Api<TracePipeline> = Api::all(self.namespace.cluster().client());
        let all = all.list(&ListParams::default()).await.context("list pipelines")?;
        ensure!(all.items.len() == 1, "there are pipelines that are not this test's");
        let monitoring = tokio::task::spawn_blocking(definitions::monitoring).await;
        let monitoring = monitoring.context("the thread that asks Go ended")??;
        let lived = Box::pin(self.everything(pipeline));
        with_definitions(self.namespace.cluster(), &monitoring, lived).await?;
        self.wait_nothing(before).await
    }

    async fn everything(&self, pipeline: &Pipeline) -> Result<()> {
        let image = self.image()?;
        let gateway_image = format!("gateway.image={GATEWAY_IMAGE}");
        let values = image.iter().map(String::as_str).chain([gateway_image.as_str()]).chain(EVERYTHING);
        let values: Vec<&str> = values.collect();
        let install = ["install", RELEASE, CHART, "--take-ownership", "--wait", "--timeout", HELM_TIMEOUT];
        let notes = self.helm(&install, &values).await?;
        ensure!(notes.contains("deletes every TracePipeline"), "NOTES do not say what goes: {notes}");
        let text = self.helm(&["template", RELEASE, CHART], &values).await?;
        let kinds = self.assert_rendered_in_sync(&text).await.context("all that the chart makes")?;
        for kind in ["ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap", "PodDisruptionBudget"] {
            ensure!(kinds.iter().any(|found| found == kind), "no {kind} was compared: {kinds:?}");
        }
        // An operator that drains needs gateways that run, which are none here.
        pipeline.apply(&merged(&change(3), &json!({"deletionPolicy": "Immediate"}))).await?;
        until("a pipeline that nothing holds", READY, async || {
            let finalizers = pipeline.get().await?.finalizers().join(", ");
            Ok(if finalizers.is_empty() { Seen::Done(()) } else { Seen::NotYet(finalizers) })
        })
        .await?;
        self.helm(&["uninstall", RELEASE, "--wait"], &[]).await.map(drop)
    }

    /// Nothing is there that was not before any chart but the Lease, which the operators made, and the definition is gone.
    async fn wait_nothing(&self, before: &BTreeSet<String>) -> Result<()> {
        let definition = format!("CustomResourceDefinition {}", TracePipeline::crd_name());
        let stays = [format!("Lease {RELEASE}"), KUBERNETES_OWN.to_owned()];
        until("end of all that came with the chart", GONE, async || {
            // Kinds are on their way out, and may go between the look for kinds and that for objects.
            let now = match self.namespace.inventory().await {
                Ok(now) => now,
                Err(error) => return Ok(Seen::NotYet(format!("{error:#}"))),
            };
            let mut left: Vec<&String> =
                now.difference(before).filter(|left| !stays.contains(left)).collect();
            left.extend(now.get(&definition));
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
        })
        .await
    }
}
