//! The chart on a real cluster: installed for one namespace as it was first, upgraded to what it is, rolled back and forth, removed;
//! what it looks after goes on through all of it, and a sync of what is installed would change nothing. Then with all that it can make
//! (`everything`), with a definition that is not kept (`not_kept`), and as the README says (`first_row`).

mod everything;
mod first_row;
mod not_kept;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e_fixtures::cluster::{Cluster, Namespace, Operator, Pods, Seen, until};
use e2e_fixtures::local_operator::{POD_CORES, ensure_definition, give_back_definition};
use e2e_fixtures::pipeline::{Pipeline, Settings};
use e2e_fixtures::produce::Topic;
use e2e_stack::process::{command, output};
use e2e_stack::target::Resolved;
use e2e_stack::{helm, paths};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{CustomResourceExt as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::TracePipeline;

use crate::environment::{READY, without_operator};
use crate::gitops::health::assert_in_sync;
use crate::turns::Uses;

/// Variable with the operator's image, as a pod names it.
const OPERATOR_IMAGE: &str = "SLUICE_OPERATOR_IMAGE";

const CHART: &str = "charts/sluice";

/// The first one that there was (of commit 765949b), with the definition of then.
const FIRST_CHART: &str = "e2e/tests/it/install/first_chart";

/// What a user set under the first chart, and not again since.
const SET_ONCE: &str = "podAnnotations.set=once";

/// The gateways' image by the operator, and by the operator as it is upgraded. There is neither.
const GATEWAY_IMAGE: &str = "sluice.local/none:0";
const OTHER_GATEWAY_IMAGE: &str = "sluice.local/none:1";

const RELEASE: &str = "sluice-e2e";

/// Longest wait of helm for pods; they start within seconds on an idle machine.
const HELM_TIMEOUT: &str = "4m";

const PIPELINE: &str = "charted";

/// How long pods of an operator take to go: their grace period is 40 s.
const GONE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group chart"]
async fn the_chart_is_installed_upgraded_and_removed_around_a_pipeline() -> Result<()> {
    with_release("chart", async |release| release.live().await).await
}

/// Plays `body` with a release in a namespace of its own, while the installed operator rests, and removes both, whatever became of it. The
/// definition is that of this checkout's chart before, and after it again.
async fn with_release(word: &str, body: impl AsyncFnOnce(&Release<'_>) -> Result<()>) -> Result<()> {
    // Alone: the definition is everybody's, and what is left is compared with what was there.
    without_operator(Uses::ServersAlone, async |cluster, target| {
        let image = operator_image(cluster).await?;
        ensure_definition(cluster).await?;
        // The namespace enforces restricted pod security, for the operator as for gateways.
        let name = format!("e2e-{word}-{:x}", std::process::id());
        let namespace = Namespace::create(cluster, &name).await?;
        let topic = Topic::create(&target.kafka.host, &name, 2).await?;
        let release = Release { target, namespace: namespace.clone(), image: &image };
        let lived = Box::pin(body(&release)).await;
        // Not waited for: a definition that is not kept goes with the last pipeline, and pipelines go with the namespace.
        let removed = release.uninstall(&["--ignore-not-found"]).await;
        let removed = removed.and(namespace.delete().await).and(topic.delete().await);
        let given_back = async {
            not_going(cluster).await?;
            give_back_definition(cluster).await
        };
        lived.and(removed.and(given_back.await))
    })
    .await
}

/// Waits until the definition is not on its way out: what is applied to one that is goes with it.
async fn not_going(cluster: &Cluster) -> Result<()> {
    until("end of a definition that is deleted", GONE, async || {
        let found = definition(cluster).await?.map(|found| found.metadata);
        Ok(match found {
            Some(found) if found.deletion_timestamp.is_some() => {
                Seen::NotYet(format!("finalizers {:?}", found.finalizers))
            }
            _ => Seen::Done(()),
        })
    })
    .await
}

async fn definition(cluster: &Cluster) -> Result<Option<CustomResourceDefinition>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.get_opt(TracePipeline::crd_name()).await.context("get the definition")
}

/// The image that is asked for, else that of the operator that is installed.
pub async fn operator_image(cluster: &Cluster) -> Result<String> {
    if let Ok(image) = std::env::var(OPERATOR_IMAGE) {
        return Ok(image);
    }
    let spec =
        Operator::find(cluster).await?.deployment().await?.spec.context("a Deployment without spec")?;
    let pod = spec.template.spec.context("a Deployment without pods")?;
    let container = pod.containers.into_iter().next().context("a Deployment without containers")?;
    container.image.context("a container without image")
}

/// To the chart of this checkout. The first chart had fewer definitions: one that is there already belongs to the installed operator's release.
const UPGRADE: [&str; 8] = [
    "upgrade",
    RELEASE,
    CHART,
    "--reset-then-reuse-values",
    "--take-ownership",
    "--wait",
    "--timeout",
    HELM_TIMEOUT,
];

struct Release<'a> {
    target: &'a Resolved,
    namespace: Namespace,
    image: &'a str,
}

impl Release<'_> {
    async fn live(&self) -> Result<()> {
        let pipeline = self.pipeline();
        // Under the definition of then, and with an operator that has no image any more.
        let alone = ["image.repository=sluice.local/none", "image.tag=none", SET_ONCE];
        self.deploy(&["install", RELEASE, FIRST_CHART, "--take-ownership"], &alone).await?;
        ensure!(!self.knows("rollout").await?, "the definition is not the first one");
        pipeline.apply(&first()).await?;
        let uid = pipeline.get().await?.uid();

        let before = self.upgraded(&pipeline).await?;
        ensure!(pipeline.get().await?.uid() == uid, "the pipeline was made again");
        let newest = pipeline.manifest(&change(3));
        self.rolled_back_and_forth(&pipeline, &newest).await?;

        self.uninstall(&["--wait"]).await?;
        self.wait_gone().await?;
        ensure!(before == self.workload().await?, "the gateways went with the operator");
        let left = pipeline.get().await?;
        ensure!(
            left.uid() == uid && left.metadata.deletion_timestamp.is_none(),
            "the pipeline goes with the chart"
        );
        ensure!(self.knows("rollout").await?, "the definition goes with the chart, or back");
        Ok(())
    }

    /// From the first chart to this one, and to other values of it; gives the gateways that stay as they are.
    async fn upgraded(&self, pipeline: &Pipeline) -> Result<(Option<String>, Option<i64>)> {
        let image = self.image()?;
        let image: Vec<&str> = image.iter().map(String::as_str).collect();
        let notes = self.deploy(&UPGRADE, &image).await?;
        ensure!(notes.contains(self.namespace.name()), "NOTES do not name the namespace: {notes}");
        ensure!(self.knows("rollout").await?, "the upgrade left the definition as it was");
        let looked_after = |status: &sluice_crds::TracePipelineStatus| status.desired_replicas.is_some();
        pipeline.wait("looked after", READY, looked_after).await?;
        // What was taken under the first definition is taken now, and says the same.
        let manifests = vec![pipeline.manifest(&first())];
        assert_in_sync(self.target.kubeconfig.clone(), manifests).await.context("the pipeline")?;
        self.in_sync(&image).await?;
        self.tested().await?;
        pipeline.apply(&change(4)).await?;
        pipeline.wait("looked after in its newest form", READY, looked_after).await?;
        self.say_ready().await?;
        let keeps = |status: &sluice_crds::TracePipelineStatus| {
            status.default_image.as_deref() == Some(GATEWAY_IMAGE)
        };
        pipeline.wait("keeps the image of a gateway that was ready", READY, keeps).await?;
        let before = self.workload().await?;

        let other_image = format!("gateway.image={OTHER_GATEWAY_IMAGE}");
        let debug = ["logLevel=debug", "resources.limits.memory=192Mi", "podAnnotations.a=b", &other_image];
        let notes = self.deploy(&UPGRADE, &debug).await?;
        ensure!(notes.contains(OTHER_GATEWAY_IMAGE), "NOTES do not name the gateway image: {notes}");
        let deployment =
            self.namespace.api::<Deployment>().get(RELEASE).await.context("get the Deployment")?;
        let spec = serde_json::to_string(&deployment.spec).context("write the Deployment")?;
        ensure!(spec.contains("--log-level=debug"), "the upgrade did not reach the operator: {spec}");
        ensure!(spec.contains(r#""set":"once""#), "what was set before is lost: {spec}");
        pipeline.apply(&change(3)).await?;
        let told = |status: &sluice_crds::TracePipelineStatus| {
            status.operator_image.as_deref() == Some(OTHER_GATEWAY_IMAGE) && keeps(status)
        };
        pipeline.wait("looked after by the upgraded operator", READY, told).await?;
        ensure!(before == self.workload().await?, "an upgrade of the operator changed the gateways");
        Ok(before)
    }

    /// Back to the first chart and to this one again: fields that the first definition does not know come back.
    async fn rolled_back_and_forth(&self, pipeline: &Pipeline, newest: &Value) -> Result<()> {
        let (gateways, uid) = (self.workload().await?, pipeline.get().await?.uid());
        self.helm(&["rollback", RELEASE, "1"], &[]).await?;
        ensure!(!self.knows("rollout").await?, "the definition was not rolled back");
        ensure!(gateways == self.workload().await?, "a downgrade of the chart changed the gateways");
        // A rollback of helm cannot take up a definition that was kept: an upgrade can.
        let image = self.image()?;
        let image: Vec<&str> = image.iter().map(String::as_str).collect();
        self.deploy(&UPGRADE, &image).await?;
        ensure!(pipeline.get().await?.uid() == uid, "the pipeline was made again");
        pipeline.wait("looked after again", READY, |status| status.desired_replicas.is_some()).await?;
        ensure!(gateways == self.workload().await?, "an upgrade after a downgrade changed the gateways");
        assert_in_sync(self.target.kubeconfig.clone(), vec![newest.clone()]).await.context("the pipeline")
    }

    /// `helm test` finds the operator ready, and leaves no pod. The gateways' image is none, so its test is left out.
    async fn tested(&self) -> Result<()> {
        let name = format!("{RELEASE}-test-operator");
        let filter = format!("name={name}");
        let said = self.helm(&["test", RELEASE, "--filter", &filter, "--timeout", HELM_TIMEOUT], &[]).await?;
        ensure!(said.contains(&name) && said.contains("Succeeded"), "helm test says: {said}");
        let left = self.namespace.api::<Pod>().get_opt(&name).await.context("get the pod of the test")?;
        ensure!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()), "{name} is left");
        Ok(())
    }

    /// A sync of what the chart renders would change nothing of what it installed.
    async fn in_sync(&self, values: &[&str]) -> Result<()> {
        let values: Vec<&str> = values.iter().copied().chain([SET_ONCE]).collect();
        let text = self.deploy(&["template", RELEASE, CHART, "--skip-tests"], &values).await?;
        self.assert_rendered_in_sync(&text).await.map(drop)
    }

    /// The same of what helm has rendered; gives the objects, all of which are there.
    async fn assert_rendered_in_sync(&self, text: &str) -> Result<Vec<Value>> {
        let mut manifests: Vec<Value> = serde_saphyr::from_multiple(text).context("understand helm")?;
        manifests.retain(Value::is_object);
        ensure!(manifests.len() >= 10, "helm renders {} objects", manifests.len());
        assert_in_sync(self.target.kubeconfig.clone(), manifests.clone()).await.context("the chart")?;
        Ok(manifests)
    }

    /// Whether the definition has this field of the spec.
    async fn knows(&self, field: &str) -> Result<bool> {
        let found = definition(self.namespace.cluster()).await?.context("there is no definition")?;
        let found = serde_json::to_value(&found.spec.versions).context("write the definition")?;
        let of_spec = "/0/schema/openAPIV3Schema/properties/spec/properties";
        let fields = found.pointer(of_spec).with_context(|| format!("{of_spec} is missing"))?;
        Ok(!fields[field].is_null())
    }

    /// The operator's image as values.
    fn image(&self) -> Result<[String; 2]> {
        let (repository, tag) = self.image.rsplit_once(':').context("the image has no tag")?;
        Ok([format!("image.repository={repository}"), format!("image.tag={tag}")])
    }

    /// `helm install`, `upgrade` or `template` for the namespace; gives what it said.
    async fn deploy(&self, words: &[&str], values: &[&str]) -> Result<String> {
        let watched = format!("watchNamespaces={{{}}}", self.namespace.name());
        let own = [watched, format!("gateway.image={GATEWAY_IMAGE}")];
        let own = own.iter().map(String::as_str);
        let values: Vec<&str> = own.chain(values.iter().copied()).collect();
        self.helm(words, &values).await
    }

    /// `helm uninstall`.
    async fn uninstall(&self, words: &[&str]) -> Result<()> {
        let words: Vec<&str> = ["uninstall", RELEASE].iter().chain(words).copied().collect();
        self.helm(&words, &[]).await.map(drop)
    }

    async fn helm(&self, words: &[&str], values: &[&str]) -> Result<String> {
        let mut helm = command(tokio::task::spawn_blocking(helm::path).await.context("find helm")??);
        helm.current_dir(paths::workspace()).env("KUBECONFIG", &self.target.kubeconfig);
        helm.args(words).args(["--namespace", self.namespace.name()]);
        let how = |value: &str| match value {
            // A tag of digits alone would be taken for a number.
            value if value.starts_with("image.") => "--set-string",
            // Else the empty list has an empty text in it.
            value if value.ends_with("=[]") => "--set-json",
            _ => "--set",
        };
        helm.args(values.iter().flat_map(|value| [how(value), value]));
        let ran = tokio::task::spawn_blocking(move || output(&mut helm)).await;
        ran.context("the thread that runs helm ended")?
    }

    /// Identity and generation of the gateways' `StatefulSet`.
    async fn workload(&self) -> Result<(Option<String>, Option<i64>)> {
        self.workload_of(PIPELINE).await
    }

    async fn workload_of(&self, pipeline: &str) -> Result<(Option<String>, Option<i64>)> {
        let name = format!("{pipeline}-gateway");
        let found = until("the gateways' StatefulSet", READY, async || {
            let found = self.namespace.api::<StatefulSet>().get_opt(&name).await;
            Ok(found.context("get the StatefulSet")?.map_or(Seen::NotYet("none".to_owned()), Seen::Done))
        });
        let found = found.await?;
        Ok((found.uid(), found.metadata.generation))
    }

    /// No node takes the gateway: the test says in its place, as a kubelet would, that it is ready.
    async fn say_ready(&self) -> Result<()> {
        let pods: Api<Pod> = self.namespace.api();
        let name = "charted-gateway-0";
        until("the gateway's pod", READY, async || {
            let found = pods.get_opt(name).await.context("get the gateway's pod")?;
            Ok(found.map_or(Seen::NotYet("none".to_owned()), |_| Seen::Done(())))
        })
        .await?;
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [ready]}}));
        pods.patch_status(name, &PatchParams::default(), &status).await.context("say that it is ready")?;
        Ok(())
    }

    /// Of the release and its operator nothing is left but what its notes name.
    async fn wait_gone(&self) -> Result<()> {
        until("end of the release", GONE, async || {
            let left = self.left().await?;
            Ok(Seen::when(left.is_empty(), || left.join(", ")))
        })
        .await?;
        let leases: Vec<String> =
            self.namespace.list::<Lease>("").await?.iter().map(Lease::name_any).collect();
        ensure!(leases == [RELEASE], "left are the Leases {leases:?}");
        Ok(())
    }

    async fn left(&self) -> Result<Vec<String>> {
        let selector = format!("app.kubernetes.io/instance={RELEASE}");
        let pods = Pods::new(self.namespace.cluster(), self.namespace.name(), &selector).list().await?;
        let mut left: Vec<String> = pods.iter().map(|pod| format!("Pod {}", pod.name_any())).collect();
        left.extend(self.names::<Deployment>(&selector).await?);
        left.extend(self.names::<ServiceAccount>(&selector).await?);
        left.extend(self.names::<Service>(&selector).await?);
        left.extend(self.names::<PodDisruptionBudget>(&selector).await?);
        left.extend(self.names::<NetworkPolicy>(&selector).await?);
        left.extend(self.names::<Role>(&selector).await?);
        left.extend(self.names::<RoleBinding>(&selector).await?);
        left.extend(self.names::<Secret>(&format!("owner=helm,name={RELEASE}")).await?);
        let (client, params) = (self.namespace.cluster().client(), ListParams::default().labels(&selector));
        let roles =
            Api::<ClusterRole>::all(client.clone()).list(&params).await.context("list ClusterRoles")?;
        let bindings =
            Api::<ClusterRoleBinding>::all(client).list(&params).await.context("list ClusterRoleBindings")?;
        left.extend(roles.iter().map(|role| format!("ClusterRole {}", role.name_any())));
        left.extend(bindings.iter().map(|binding| format!("ClusterRoleBinding {}", binding.name_any())));
        Ok(left)
    }

    async fn names<K>(&self, selector: &str) -> Result<Vec<String>>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: DeserializeOwned + Clone + std::fmt::Debug,
    {
        let listed = self.namespace.list::<K>(selector).await?;
        Ok(listed.iter().map(|object| format!("{} {}", K::kind(&()), object.name_any())).collect())
    }

    fn pipeline(&self) -> Pipeline {
        self.pipeline_named(PIPELINE)
    }

    fn pipeline_named(&self, name: &str) -> Pipeline {
        let settings = Settings {
            name: name.to_owned(),
            brokers: vec![self.target.kafka.pods.clone()],
            topic: self.namespace.name().to_owned(),
            clickhouse: self.target.clickhouse.pods.clone(),
            database: "none".to_owned(),
            image: String::new(),
            storage_class: None,
        };
        Pipeline::new(&self.namespace, settings)
    }
}

/// What the first definition knows of the usual pipeline.
fn first() -> Value {
    json!({
        "sink": {"clickhouse": {"credentials": null, "schema": {"management": "None"}}},
        "gateway": {"resources": {"cpuRequest": POD_CORES}},
        "queue": {"mode": "Disabled", "size": null},
        "rollout": null,
        "replicas": 1,
    })
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
