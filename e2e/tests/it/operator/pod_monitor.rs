//! The `PodMonitor` of a pipeline's gateways; a cluster may get this kind later.

use e2e_stack::definitions;
use sluice_plan::PodMonitor;

use crate::deletion::life::told;
use crate::prelude::*;

/// The definition of the kind, from the Prometheus operator or from a test.
const DEFINITION: &str = "podmonitors.monitoring.coreos.com";

/// Alone: its objects are deleted with the definition, which the whole cluster shares.
#[test]
#[ignore = "group operator"]
fn a_pod_monitor_is_made_where_the_cluster_knows_the_kind_and_goes_with_its_switch() -> Result<()> {
    let all = definitions::monitoring()?.into_iter();
    let of_pods: Vec<Value> = all.filter(|one| one["spec"]["names"]["kind"] == "PodMonitor").collect();
    ensure!(of_pods.len() == 1, "{} definitions of PodMonitor", of_pods.len());
    scene::run("a_pod_monitor", Uses::ServersAlone, 4, async |scene: &mut Scene| {
        let cluster = scene.environment.cluster.clone();
        let is_known = Api::<CustomResourceDefinition>::all(cluster.client()).get_opt(DEFINITION).await;
        let is_known = is_known.context("look for the definition")?.is_some();
        scene.start(&monitored("main")).await.context("with or without the kind")?;
        let told = told(scene).await?;
        let is_told = told.iter().any(|(reason, _)| reason == "NoPodMonitors");
        ensure!(is_told != is_known, "the cluster knows the kind: {is_known}; the events are {told:?}");
        with_definitions(&cluster, &of_pods, with_kind(scene)).await
    })
}

async fn with_kind(scene: &Scene) -> Result<()> {
    let monitors: Api<PodMonitor> = scene.namespace.api();
    scene.pipeline.apply(&monitored("other")).await?;
    let found =
        wait(&monitors, |found| found.labels().get("release").is_some_and(|one| one == "other")).await?;
    let selected = found.spec["selector"]["matchLabels"].as_object().context("it selects nothing")?;
    let selector =
        selected.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let selector = selector.collect::<Vec<_>>().join(",");
    let pods: Vec<Pod> = scene.namespace.list(&selector).await?;
    ensure!(pods.len() == 1, "{selector} selects {} pods", pods.len());
    // Another reconcile does not change it.
    let version = found.resource_version();
    scene
        .pipeline
        .apply(&json!({"replicas": 2, "observability": monitored("other")["observability"]}))
        .await?;
    scene.pipeline.wait_gateways(2, READY).await?;
    let again = monitors.get(&found.name_any()).await.context("get the PodMonitor")?;
    ensure!(again.resource_version() == version, "it was written again: {:?}", again.managed_fields());
    scene.pipeline.apply(&json!({"observability": {"podMonitor": {"enabled": false}}})).await?;
    wait_gone(&monitors, &found.name_any(), READY).await
}

async fn wait(monitors: &Api<PodMonitor>, is_so: impl Fn(&PodMonitor) -> bool) -> Result<PodMonitor> {
    until("the PodMonitor as the spec has it", READY, async || {
        let found = monitors.list(&ListParams::default()).await.context("list PodMonitors")?;
        let seen = format!("{:?}", found.items);
        Ok(found.items.into_iter().find(|found| is_so(found)).map_or(Seen::NotYet(seen), Seen::Done))
    })
    .await
}

fn monitored(release: &str) -> Value {
    json!({"observability": {"podMonitor": {"enabled": true, "labels": {"release": release}}}})
}
