//! The chart with all optional objects: all exist, and a sync would change nothing. This holds at first, and after upgrades to other
//! values and back to all namespaces. `helm uninstall` leaves only what its notes name.

use e2e_stack::definitions;

use super::{
    CHART, GATEWAY_IMAGE, GONE, HELM_TIMEOUT, PIPELINE, RELEASE, Release, change, reconciled, with_release,
};
use crate::prelude::*;

/// Values that turn on everything that is off by default.
const EVERYTHING: [&str; 11] = [
    "serviceMonitor.enabled=true",
    "gatewayPodMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "prometheusRule.runbook=https://docs.example.com/RUNBOOK.md",
    "dashboards.enabled=true",
    "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
    "serviceAccount.annotations.cloud=identity",
    "commonLabels.team=tracing",
    "imagePullSecrets[0].name=registry",
    "extraVolumes[0].name=tmp,extraVolumes[0].emptyDir.medium=Memory",
    "extraVolumeMounts[0].name=tmp,extraVolumeMounts[0].mountPath=/extra",
];

/// Values of an upgrade that change each kind which has values of its own. Rights in all namespaces become rights in one.
const OTHER_VALUES: [&str; 7] = [
    "serviceMonitor.interval=10s",
    "serviceMonitor.labels.prometheus=main",
    "gatewayPodMonitor.interval=10s",
    "prometheusRule.labels.prometheus=main",
    "dashboards.labels.folder=sluice",
    "podDisruptionBudget.maxUnavailable=2",
    "clusterRole.tracePipelines=true",
];

/// All namespaces again. `null`, which means the default, keeps the former value with `--reuse-values`.
const EVERYWHERE: &str = "watchNamespaces=[]";

const KINDS: [&str; 14] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "CustomResourceDefinition",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodMonitor",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
];

/// Kubernetes makes this in every namespace, some time after the namespace.
const KUBERNETES_OWN: &str = "ConfigMap kube-root-ca.crt";

#[test]
#[ignore = "group chart"]
fn with_everything_on_a_sync_of_the_chart_changes_nothing_and_an_uninstall_leaves_what_it_names() -> Result<()>
{
    let monitoring = definitions::monitoring()?;
    with_release("everything", async |release| {
        let lived = async {
            let lived = release.everything().await;
            // Now, because its kinds are served: helm does not remove objects that it cannot look up.
            lived.and(release.uninstall(&["--ignore-not-found"]).await)
        };
        with_definitions(release.namespace.cluster(), &monitoring, lived).await
    })
}

impl Release<'_> {
    async fn everything(&self) -> Result<()> {
        let (before, pipeline) = (self.namespace.inventory().await?, self.pipeline(PIPELINE));
        let image = self.image()?;
        let gateway_image = format!("gateway.image={GATEWAY_IMAGE}");
        let values: Vec<&str> = [image.as_str(), &gateway_image].into_iter().chain(EVERYTHING).collect();
        let install = ["install", RELEASE, CHART, "--take-ownership", "--wait", "--timeout", HELM_TIMEOUT];
        let notes = self.helm(&install, &values).await?;
        ensure!(
            notes.contains("looks after all namespaces"),
            "NOTES do not name the managed namespaces: {notes}"
        );
        self.all_in_sync(&values).await.context("as it was installed")?;
        pipeline.apply(&change(3)).await?;
        reconciled(&pipeline, "reconciled").await?;
        let workload = self.workload().await?;

        let watched = format!("watchNamespaces={{{}}}", self.namespace.name());
        let changed: Vec<&str> = OTHER_VALUES.into_iter().chain([watched.as_str()]).collect();
        let upgrade = ["upgrade", RELEASE, CHART, "--reuse-values", "--wait", "--timeout", HELM_TIMEOUT];
        self.helm(&upgrade, &changed).await?;
        let values: Vec<&str> = values.into_iter().chain(OTHER_VALUES).collect();
        let narrowed: Vec<&str> = values.iter().copied().chain([watched.as_str()]).collect();
        self.all_in_sync(&narrowed).await.context("after an upgrade")?;
        let now = self.namespace.inventory().await?;
        let of_all = format!("ClusterRole {RELEASE}");
        let of_one = format!("Role {RELEASE}");
        ensure!(!now.contains(&of_all), "the rights in all namespaces are left");
        ensure!(now.contains(&of_one), "there are no rights in one namespace");
        pipeline.apply(&change(4)).await?;
        reconciled(&pipeline, "reconciled with the rights of one namespace").await?;
        ensure!(self.workload().await? == workload, "an upgrade of the operator changed the gateways");

        self.helm(&upgrade, &[EVERYWHERE]).await?;
        self.all_in_sync(&values).await.context("after an upgrade back to all namespaces")?;
        let now = self.namespace.inventory().await?;
        ensure!(now.contains(&of_all), "the rights in all namespaces are not back");
        ensure!(!now.contains(&of_one), "the rights in one namespace are left");
        pipeline.apply(&change(3)).await?;
        reconciled(&pipeline, "reconciled with the rights of all namespaces again").await?;
        ensure!(self.workload().await? == workload, "an upgrade back changed the gateways");

        self.uninstall(&["--wait"]).await?;
        let is_pipelines = |name: &str| name.starts_with(PIPELINE);
        self.wait_left(&before, &BTreeSet::new(), is_pipelines).await?;
        ensure!(self.workload().await? == workload, "the gateways went with the operator");
        ensure!(
            pipeline.get().await?.metadata.deletion_timestamp.is_none(),
            "the pipeline goes with the chart"
        );
        Ok(())
    }

    /// Each rendered object exists, at least one of each kind, and a sync would change none.
    async fn all_in_sync(&self, values: &[&str]) -> Result<()> {
        let text = self.helm(&["template", RELEASE, CHART, "--skip-tests"], values).await?;
        let manifests = self.assert_rendered_in_sync(&text).await?;
        let kinds: BTreeSet<&str> = manifests.iter().filter_map(|one| one["kind"].as_str()).collect();
        ensure!(kinds == BTreeSet::from(KINDS), "compared were {kinds:?}");
        let boards = manifests.iter().filter(|one: &&Value| one["kind"] == "ConfigMap").count();
        ensure!(boards >= 2, "{boards} dashboards");
        Ok(())
    }

    /// Waits until the objects are those before, without `gone`, plus the Lease and those that are named so that they stay.
    pub(super) async fn wait_left(
        &self,
        before: &BTreeSet<String>,
        gone: &BTreeSet<String>,
        stays: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let lease = format!("Lease {RELEASE}");
        until("end of all that came with the release, and of nothing else", GONE, async || {
            let now = self.namespace.inventory().await?;
            let may_stay = |left: &str| left.split_once(' ').is_some_and(|(_, name)| stays(name));
            let more: Vec<&str> = now.difference(before).map(String::as_str).collect();
            let more: Vec<&str> =
                more.into_iter().filter(|left| *left != KUBERNETES_OWN && !may_stay(left)).collect();
            let less: BTreeSet<String> = before.difference(&now).cloned().collect();
            Ok(Seen::when(more == [lease.as_str()] && less == *gone, || {
                format!("more than before: {more:?}; no more: {less:?}")
            }))
        })
        .await
    }
}
