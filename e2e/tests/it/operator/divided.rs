//! Two operators divide the pipelines of a cluster by labels. If a pipeline's label changes, the other operator takes it over: its gateways
//! run on, and the first operator writes nothing more.
//!
//! Owner: the test; the processes are its own, while the installed operator is paused.

use e2e_fixtures::local_operator::Orders;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sluice_plan::names::SIGNATURE;

use crate::own_operator::program;
use crate::prelude::*;

#[test]
#[ignore = "group operator"]
fn a_pipeline_moves_to_another_operator_while_its_gateways_run_on() -> Result<()> {
    scene::run("divided", Uses::OwnOperator, 4, async |scene: &mut Scene| {
        scene.environment.local_clickhouse_only()?;
        // Pods reach the first address by name, and the operators' processes the second on loopback.
        let brokers = vec![scene.environment.kafka.pods.clone(), scene.environment.kafka.host.clone()];
        let settings = Settings { brokers, ..scene.pipeline.settings().clone() };
        scene.pipeline = Pipeline::new(&scene.namespace, settings);
        let cluster = scene.environment.cluster.clone();
        while_operator_rests(&cluster, Box::pin(play(scene))).await
    })
}

async fn play(scene: &Scene) -> Result<()> {
    scene.apply_credentials().await?;
    let folder = files::temporary(scene.namespace.name())?;
    let (kubeconfig, program) = (scene.environment.kubeconfig()?, program());
    let start = async |release: &str, selector: &str, folder: &Path| {
        let orders = Orders {
            kubeconfig: &kubeconfig,
            namespace: &scene.namespace,
            program: &program,
            gateway_image: &scene.environment.gateway_image,
            identity: release,
        };
        LocalOperator::start_beside(release, selector, orders, folder).await
    };
    let first = start("sluice-a", "team=a", &folder).await?;
    let second = start("sluice-b", "team=b", &folder).await?;
    moves(scene, (&first, &second)).await?;
    scene.pipeline.delete(FLOW).await?;
    first.program.stop().await?;
    second.program.stop().await?;
    fs::remove_dir_all(&folder).context("remove the test's files")
}

async fn moves(scene: &Scene, (first, second): (&LocalOperator, &LocalOperator)) -> Result<()> {
    scene.pipeline.apply(&json!({"replicas": 2})).await?;
    label(scene, "a").await?;
    wait_signed(scene, "sluice-a").await?;
    scene.pipeline.wait_ready(READY).await?;
    ensure!(works(second) == 0, "the operator of another team wrote {:?}", second.front.writes());
    let load = scene.flowing_load(FEW_PER_SECOND, SPANS_BETWEEN, FLOW).await?;
    let gateways = scene.pipeline.gateways().uids().await?;
    label(scene, "b").await?;
    wait_signed(scene, "sluice-b").await?;
    let written = works(first);
    // A change that the operator of the pipeline must carry out.
    scene.pipeline.apply(&json!({"replicas": 2, "podDisruptionBudget": {"maxUnavailable": 2}})).await?;
    wait_budget(scene, 2).await?;
    scene.wait_acked(&load, SPANS_BETWEEN, FLOW).await?;
    let after = works(first);
    ensure!(after == written, "the operator that it left wrote on: {:?}", first.front.writes());
    scene.assert_same_gateways(&gateways).await?;
    scene.end(load).await
}

async fn label(scene: &Scene, team: &str) -> Result<()> {
    let label = json!({"metadata": {"labels": {"team": team}}});
    merge(&scene.namespace.api::<TracePipeline>(), scene.pipeline.name(), label).await
}

/// Waits until the operator of this release manages the pipeline.
async fn wait_signed(scene: &Scene, release: &str) -> Result<()> {
    let expected = format!("{}/{release}", scene.namespace.name());
    until(&format!("the signature of {release}"), READY, async || {
        let annotations = scene.pipeline.get().await?.metadata.annotations.unwrap_or_default();
        let signer = annotations.get(SIGNATURE).cloned().unwrap_or_default();
        Ok(Seen::when(signer == expected, || format!("signed by {signer:?}")))
    })
    .await
}

async fn wait_budget(scene: &Scene, most: i32) -> Result<()> {
    let budgets = scene.namespace.api::<PodDisruptionBudget>();
    until("the other budget", READY, async || {
        let budget = budgets.get(&scene.pipeline.workload_name()).await.context("get the budget")?;
        let found = budget.spec.and_then(|spec| spec.max_unavailable);
        Ok(Seen::when(found == Some(IntOrString::Int(most)), || format!("{found:?}")))
    })
    .await
}

/// Number of writes about pipelines and their objects.
fn works(operator: &LocalOperator) -> usize {
    operator.front.writes().iter().filter(|write| write.call.works()).count()
}
