//! The chart on a real cluster. The first chart is installed for one namespace, upgraded to this one, rolled back and forth, and removed.
//! Pipelines work during all of it, and a sync of the installed objects would change nothing. Then with all optional objects
//! (`everything`), with a definition that is not kept (`not_kept`), and with the commands of the README (`first_row`).

mod everything;
mod first_row;
mod not_kept;

use e2e_fixtures::cluster::Operator;
use e2e_fixtures::local_operator::give_back_definition;
use e2e_stack::{helm, paths};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

use crate::own_operator::{at_rest, settings};
use crate::prelude::*;

/// Variable with the operator's image, as a pod refers to it.
const OPERATOR_IMAGE: &str = "SLUICE_OPERATOR_IMAGE";

const CHART: &str = "charts/sluice";

/// The first published chart (of commit 765949b), with its definition.
const FIRST_CHART: &str = "e2e/tests/it/install/first_chart";

/// A value that a user set under the first chart, and not again.
const SET_ONCE: &str = "podAnnotations.set=once";

/// The default gateway image of the operator, and of the upgraded operator. Neither image exists.
const GATEWAY_IMAGE: &str = "sluice.local/none:0";
const OTHER_GATEWAY_IMAGE: &str = "sluice.local/none:1";

const RELEASE: &str = "sluice-e2e";

/// Longest wait of helm for pods; on an idle machine they start within seconds.
const HELM_TIMEOUT: &str = "4m";

const PIPELINE: &str = "charted";

/// How long an operator's pods take to end: their grace period is 40 s.
const GONE: Duration = Duration::from_mins(2);

#[test]
#[ignore = "group chart"]
fn the_chart_is_installed_upgraded_and_removed_around_a_pipeline() -> Result<()> {
    with_release("chart", async |release| release.live().await)
}

/// Runs `body` with a release in its own namespace while the installed operator is paused. Then removes both, also after a failure. Before
/// and after it, the definition is that of this checkout's chart.
fn with_release(word: &str, body: impl AsyncFnOnce(&Release<'_>) -> Result<()>) -> Result<()> {
    // Alone: all tests share the definition, and the remaining objects are compared with those before.
    without_operator(Uses::ServersAlone, async |cluster, target| {
        let image = operator_image(cluster).await?;
        ensure_definition(cluster).await?;
        // The namespace enforces restricted pod security for the operator and for gateways.
        let lived = in_namespace(cluster, word, async |namespace| {
            let topic = Topic::create(&target.kafka.host, namespace.name(), 2).await?;
            let release = Release { target, namespace, image: &image };
            let lived = Box::pin(body(&release)).await;
            // Without a wait: a definition that is not kept goes with the last pipeline, and pipelines go with the namespace.
            lived.and(release.uninstall(&["--ignore-not-found"]).await).and(topic.delete().await)
        })
        .await;
        let given_back = async {
            not_going(cluster).await?;
            give_back_definition(cluster).await
        };
        lived.and(given_back.await)
    })
}

/// Waits until the definition is not being deleted: otherwise applied objects would be deleted with it.
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

/// The image that the variable names, or that of the installed operator.
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

/// Arguments for an upgrade to this checkout's chart. The first chart had fewer definitions; the installed operator's release may own the
/// others.
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
    namespace: &'a Namespace,
    image: &'a str,
}

impl Release<'_> {
    async fn live(&self) -> Result<()> {
        let pipeline = self.pipeline(PIPELINE);
        // With the former definition, and with an operator whose image no longer exists.
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

    /// Upgrades from the first chart to this one, and to other values of it; returns the gateways, which must not change.
    async fn upgraded(&self, pipeline: &Pipeline) -> Result<(Option<String>, Option<i64>)> {
        let image = self.image()?;
        let notes = self.deploy(&UPGRADE, &[&image]).await?;
        ensure!(notes.contains(self.namespace.name()), "NOTES do not name the namespace: {notes}");
        ensure!(self.knows("rollout").await?, "the upgrade left the definition as it was");
        reconciled(pipeline, "reconciled").await?;
        // Objects that the first definition accepted are accepted now, with the same meaning.
        let manifests = vec![pipeline.manifest(&first())];
        assert_in_sync(self.target.kubeconfig.clone(), manifests).await.context("the pipeline")?;
        self.in_sync(&image).await?;
        self.tested().await?;
        pipeline.apply(&change(4)).await?;
        reconciled(pipeline, "reconciled in its newest generation").await?;
        self.say_ready().await?;
        let keeps = |status: &TracePipelineStatus| status.default_image.as_deref() == Some(GATEWAY_IMAGE);
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
        let told = |status: &TracePipelineStatus| {
            status.operator_image.as_deref() == Some(OTHER_GATEWAY_IMAGE) && keeps(status)
        };
        pipeline.wait("reconciled by the upgraded operator", READY, told).await?;
        ensure!(before == self.workload().await?, "an upgrade of the operator changed the gateways");
        Ok(before)
    }

    /// Rolls back to the first chart and to this one again: fields that the first definition does not have come back.
    async fn rolled_back_and_forth(&self, pipeline: &Pipeline, newest: &Value) -> Result<()> {
        let (gateways, uid) = (self.workload().await?, pipeline.get().await?.uid());
        self.helm(&["rollback", RELEASE, "1"], &[]).await?;
        ensure!(!self.knows("rollout").await?, "the definition was not rolled back");
        ensure!(gateways == self.workload().await?, "a downgrade of the chart changed the gateways");
        // A helm rollback cannot adopt a definition that was kept; an upgrade can.
        self.deploy(&UPGRADE, &[&self.image()?]).await?;
        ensure!(pipeline.get().await?.uid() == uid, "the pipeline was made again");
        reconciled(pipeline, "reconciled again").await?;
        ensure!(gateways == self.workload().await?, "an upgrade after a downgrade changed the gateways");
        assert_in_sync(self.target.kubeconfig.clone(), vec![newest.clone()]).await.context("the pipeline")
    }

    /// `helm test` finds the operator ready, and leaves no pod. The gateways' image does not exist, so its test is left out.
    async fn tested(&self) -> Result<()> {
        let name = format!("{RELEASE}-test-operator");
        let filter = format!("name={name}");
        let said = self.helm(&["test", RELEASE, "--filter", &filter, "--timeout", HELM_TIMEOUT], &[]).await?;
        ensure!(said.contains(&name) && said.contains("Succeeded"), "helm test says: {said}");
        let left = self.namespace.api::<Pod>().get_opt(&name).await.context("get the pod of the test")?;
        ensure!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()), "{name} is left");
        Ok(())
    }

    /// A sync of the rendered chart would change none of the installed objects.
    async fn in_sync(&self, image: &str) -> Result<()> {
        let text = self.deploy(&["template", RELEASE, CHART, "--skip-tests"], &[image, SET_ONCE]).await?;
        self.assert_rendered_in_sync(&text).await.map(drop)
    }

    /// As [`Self::in_sync`], for rendered text; returns the objects, which must all exist.
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

    /// The operator's image as a value.
    fn image(&self) -> Result<String> {
        let (repository, tag) = self.image.rsplit_once(':').context("the image has no tag")?;
        Ok(format!("image.repository={repository},image.tag={tag}"))
    }

    /// Runs `helm install`, `upgrade` or `template` for the namespace; returns the output.
    async fn deploy(&self, words: &[&str], values: &[&str]) -> Result<String> {
        let watched = format!("watchNamespaces={{{}}}", self.namespace.name());
        let own = [watched, format!("gateway.image={GATEWAY_IMAGE}")];
        let own = own.iter().map(String::as_str);
        let values: Vec<&str> = own.chain(values.iter().copied()).collect();
        self.helm(words, &values).await
    }

    async fn uninstall(&self, words: &[&str]) -> Result<()> {
        let words: Vec<&str> = ["uninstall", RELEASE].iter().chain(words).copied().collect();
        self.helm(&words, &[]).await.map(drop)
    }

    async fn helm(&self, words: &[&str], values: &[&str]) -> Result<String> {
        let mut helm = command(blocking(helm::path).await?);
        helm.current_dir(paths::workspace()).env("KUBECONFIG", &self.target.kubeconfig);
        helm.args(words).args(["--namespace", self.namespace.name()]);
        let how = |value: &str| match value {
            // YAML would read a tag of digits as a number.
            value if value.starts_with("image.") => "--set-string",
            // Otherwise the empty list would contain an empty text.
            value if value.ends_with("=[]") => "--set-json",
            _ => "--set",
        };
        helm.args(values.iter().flat_map(|value| [how(value), value]));
        blocking(move || output(&mut helm)).await
    }

    /// UID and generation of the gateways' `StatefulSet`.
    async fn workload(&self) -> Result<(Option<String>, Option<i64>)> {
        self.workload_of(PIPELINE).await
    }

    async fn workload_of(&self, pipeline: &str) -> Result<(Option<String>, Option<i64>)> {
        let name = format!("{pipeline}-gateway");
        let found = until("the gateways' StatefulSet", READY, async || {
            let found = self.namespace.api::<StatefulSet>().get(&name).await;
            found.map(Seen::Done).context("get the StatefulSet")
        });
        let found = found.await?;
        Ok((found.uid(), found.metadata.generation))
    }

    /// No node takes the gateway. In place of a kubelet, the test reports it ready.
    async fn say_ready(&self) -> Result<()> {
        let pods: Api<Pod> = self.namespace.api();
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [ready]}}));
        until("the gateway's pod", READY, async || {
            let said = pods.patch_status("charted-gateway-0", &PatchParams::default(), &status).await;
            said.map(|_| Seen::Done(())).context("say that it is ready")
        })
        .await
    }

    /// Waits until only the objects that the release's notes name are left of the release and its operator.
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
        let of_release = [
            kind_of::<Pod>(),
            kind_of::<Deployment>(),
            kind_of::<ServiceAccount>(),
            kind_of::<Service>(),
            kind_of::<PodDisruptionBudget>(),
            kind_of::<NetworkPolicy>(),
            kind_of::<Role>(),
            kind_of::<RoleBinding>(),
        ];
        let of_cluster = [kind_of::<ClusterRole>(), kind_of::<ClusterRoleBinding>()];
        let of_helm = format!("owner=helm,name={RELEASE}");
        let mut left = self.namespace.objects(&of_release, &selector).await?;
        left.extend(self.namespace.objects(&[kind_of::<Secret>()], &of_helm).await?);
        left.extend(self.namespace.cluster().objects(&of_cluster, &selector).await?);
        Ok(left.into_keys().collect())
    }

    fn pipeline(&self, name: &str) -> Pipeline {
        let (topic, target) = (self.namespace.name(), self.target);
        let settings = settings(name, &target.kafka.pods, topic, &target.clickhouse.pods);
        let settings = Settings { image: String::new(), ..settings };
        Pipeline::new(self.namespace, settings)
    }
}

/// Waits until an operator has decided on the pipeline's newest generation.
async fn reconciled(pipeline: &Pipeline, what: &str) -> Result<()> {
    pipeline.wait(what, READY, |status| status.desired_replicas.is_some()).await.map(drop)
}

/// The fields of the usual pipeline that the first definition has.
fn first() -> Value {
    let mut first = merged(&at_rest(), &json!({"replicas": 1}));
    first["rollout"] = Value::Null;
    first
}

/// One gateway in either case, on a node that does not exist.
fn change(minutes: u32) -> Value {
    merged(&at_rest(), &json!({"replicas": 1, "scaling": {"targetLag": format!("{minutes}m")}}))
}
