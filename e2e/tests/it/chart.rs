//! The chart on a real cluster: installed for one namespace, upgraded, removed; what it looks after goes on through all of it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::{Cluster, Namespace, Operator, Pods, Seen, until};
use e2e::local_operator::{POD_CORES, ensure_definition};
use e2e::pipeline::{Pipeline, Settings};
use e2e::process::{command, output};
use e2e::produce::Topic;
use e2e::stack::target::Resolved;
use e2e::stack::{helm, paths};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::environment::{READY, without_operator};

/// Variable with the operator's image, as a pod names it.
const OPERATOR_IMAGE: &str = "SLUICE_OPERATOR_IMAGE";

/// Name of the release.
const RELEASE: &str = "sluice-e2e";

/// Longest wait of helm for pods; they start within seconds on an idle machine.
const HELM_TIMEOUT: &str = "4m";

/// How long pods of an operator take to go: their grace period is 40 s.
const GONE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_upgraded_and_removed_around_a_pipeline() -> Result<()> {
    without_operator(async |cluster, target| {
        let image = operator_image(cluster).await?;
        run(cluster, target, &image).await
    })
    .await
}

/// The image that is asked for, else that of the operator that is installed.
async fn operator_image(cluster: &Cluster) -> Result<String> {
    if let Ok(image) = std::env::var(OPERATOR_IMAGE) {
        return Ok(image);
    }
    let spec =
        Operator::find(cluster).await?.deployment().await?.spec.context("a Deployment without spec")?;
    let pod = spec.template.spec.context("a Deployment without pods")?;
    let container = pod.containers.into_iter().next().context("a Deployment without containers")?;
    container.image.context("a container without image")
}

async fn run(cluster: &Cluster, target: &Resolved, image: &str) -> Result<()> {
    ensure_definition(cluster).await?;
    // The namespace enforces restricted pod security, for the operator as for gateways.
    let namespace = Namespace::create(cluster, &format!("e2e-chart-{:x}", std::process::id())).await?;
    let topic = Topic::create(&target.kafka.host, namespace.name(), 2).await?;
    let release = Release { target, namespace: namespace.clone(), image };
    let lived = release.live().await;
    // Nothing installed is no error.
    let removed = release.helm(&["uninstall", RELEASE, "--ignore-not-found", "--wait"], &[]).await;
    let removed = removed.map(drop).and(namespace.delete().await).and(topic.delete().await);
    lived.and(removed)
}

struct Release<'a> {
    target: &'a Resolved,
    namespace: Namespace,
    image: &'a str,
}

impl Release<'_> {
    async fn live(&self) -> Result<()> {
        let pipeline = self.pipeline();
        let notes = self.deploy("install", &[]).await?;
        ensure!(notes.contains(self.namespace.name()), "NOTES do not name the namespace: {notes}");
        pipeline.apply(&change(4)).await?;
        let looked_after = |status: &sluice_crds::TracePipelineStatus| status.desired_replicas.is_some();
        pipeline.wait("looked after", READY, looked_after).await?;
        let before = self.workload().await?;

        let upgraded = ["logLevel=debug", "resources.limits.memory=192Mi", "podAnnotations.a=b"];
        self.deploy("upgrade", &upgraded).await?;
        let deployment =
            self.namespace.api::<Deployment>().get(RELEASE).await.context("get the Deployment")?;
        let args = serde_json::to_string(&deployment.spec).context("write the Deployment")?;
        ensure!(args.contains("--log-level=debug"), "the upgrade did not reach the operator: {args}");
        pipeline.apply(&change(3)).await?;
        pipeline.wait("looked after by the upgraded operator", READY, looked_after).await?;
        ensure!(before == self.workload().await?, "an upgrade of the operator changed the gateways");

        self.helm(&["uninstall", RELEASE, "--wait"], &[]).await?;
        self.wait_gone().await?;
        ensure!(before == self.workload().await?, "the gateways went with the operator");
        ensure!(
            pipeline.get().await?.metadata.deletion_timestamp.is_none(),
            "the pipeline goes with the chart"
        );
        Ok(())
    }

    /// `helm install` or `helm upgrade`; gives what it said.
    async fn deploy(&self, how: &str, values: &[&str]) -> Result<String> {
        let (repository, tag) = self.image.rsplit_once(':').context("the image has no tag")?;
        let own = [
            format!("image.repository={repository}"),
            format!("image.tag={tag}"),
            format!("watchNamespaces={{{}}}", self.namespace.name()),
            "gateway.image=sluice.local/none:0".to_owned(),
            // It is there, and belongs to another release.
            "crds.enabled=false".to_owned(),
        ];
        let values: Vec<&str> = own.iter().map(String::as_str).chain(values.iter().copied()).collect();
        self.helm(&[how, RELEASE, "charts/sluice", "--wait", "--timeout", HELM_TIMEOUT], &values).await
    }

    async fn helm(&self, words: &[&str], values: &[&str]) -> Result<String> {
        let mut helm = command(tokio::task::spawn_blocking(helm::path).await.context("find helm")??);
        helm.current_dir(paths::workspace()).env("KUBECONFIG", &self.target.kubeconfig);
        helm.args(words).args(["--namespace", self.namespace.name()]);
        helm.args(values.iter().flat_map(|value| ["--set", value]));
        let ran = tokio::task::spawn_blocking(move || output(&mut helm)).await;
        ran.context("the thread that runs helm ended")?
    }

    /// Identity and generation of the gateways' `StatefulSet`.
    async fn workload(&self) -> Result<(Option<String>, Option<i64>)> {
        let found = until("the gateways' StatefulSet", READY, async || {
            let found = self.namespace.api::<StatefulSet>().get_opt("charted-gateway").await;
            Ok(found.context("get the StatefulSet")?.map_or(Seen::NotYet("none".to_owned()), Seen::Done))
        });
        let found = found.await?;
        Ok((found.uid(), found.metadata.generation))
    }

    /// Nothing of the release is left.
    async fn wait_gone(&self) -> Result<()> {
        let selector = format!("app.kubernetes.io/instance={RELEASE}");
        let pods = Pods::new(self.namespace.cluster(), self.namespace.name(), &selector);
        until("end of the operator", GONE, async || {
            let left = pods.list().await?.len() + self.namespace.list::<Role>(&selector).await?.len();
            Ok(if left == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{left} objects")) })
        })
        .await
    }

    fn pipeline(&self) -> Pipeline {
        let settings = Settings {
            name: "charted".to_owned(),
            brokers: vec![self.target.kafka.pods.clone()],
            topic: self.namespace.name().to_owned(),
            clickhouse: self.target.clickhouse.pods.clone(),
            database: "none".to_owned(),
            image: "sluice.local/none:0".to_owned(),
            storage_class: None,
        };
        Pipeline::new(&self.namespace, settings)
    }
}

/// One gateway in either case, on a node that there is not.
fn change(minutes: u32) -> Value {
    json!({
        "sink": {"clickhouse": {"credentials": null, "schema": {"management": "None"}}},
        "gateway": {"resources": {"cpuRequest": POD_CORES}},
        "queue": {"mode": "Disabled", "size": null},
        "replicas": 1,
        "scaling": {"targetLag": format!("{minutes}m")},
    })
}
