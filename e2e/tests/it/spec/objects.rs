//! The objects of a pipeline: the number of gateways, their restrictions, and that the operator does not change correct objects.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;

use crate::prelude::*;

/// Number of equal checks, a quarter of a second apart, after which the objects are at rest.
const REST_LOOKS: u32 = 20;

/// The metric of completed reconciles; one that waits for a watch has seen nothing and writes nothing.
const RECONCILES_DONE: &str = r#"sluice_operator_reconcile_total{result="done"}"#;

/// Spans a second of a load that runs while gateways change, and spans between two steps.
const SPANS_PER_SECOND: u64 = 1_000;
const SPANS_BETWEEN: u64 = 5_000;

/// The metric of requests that may change something. It has no line before the first of them.
const WRITES: &str = "sluice_operator_writes_total";

#[test]
fn replicas_follow_the_partitions() -> Result<()> {
    scene::run("replicas_follow_the_partitions", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"partitionsPerReplica": 4})).await?;
        wait_replicas(scene, 1).await?;
        // Four partitions: two for each; three and one; as many as wanted; never more than partitions.
        for (change, replicas) in [
            (json!({"partitionsPerReplica": 2}), 2),
            (json!({"partitionsPerReplica": 3}), 2),
            (json!({"replicas": 3}), 3),
            (json!({"replicas": 9}), 4),
            (json!({"replicas": 1}), 1),
        ] {
            scene.pipeline.apply(&change).await.with_context(|| change.to_string())?;
            wait_replicas(scene, replicas).await.with_context(|| change.to_string())?;
        }
        scene.pipeline.apply(&json!({"partitionsPerReplica": 2})).await?;
        wait_replicas(scene, 2).await?;
        scene.topic.grow(6).await?;
        wait_replicas(scene, 3).await.context("after the topic grew to six partitions")
    })
}

async fn wait_replicas(scene: &Scene, replicas: u32) -> Result<()> {
    let what = format!("with {replicas} replicas");
    let wanted = Some(replicas);
    let status = scene.pipeline.wait(&what, READY, |status| {
        status.desired_replicas == wanted && status.replicas == wanted && status.ready_replicas == wanted
    });
    status.await?;
    let pods = scene.pipeline.gateways().list().await?.len();
    ensure!(pods == usize::try_from(replicas)?, "{pods} pods for {replicas} replicas");
    Ok(())
}

#[test]
fn a_gateway_is_confined_with_its_memory_and_volume() -> Result<()> {
    scene::run("a_gateway_is_confined", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"gateway": {"resources": {"memory": "320Mi"}}})).await?;
        let pods = scene.pipeline.gateways();
        let pod = pods.first().await?;
        let spec = pod.spec.clone().context("a pod without a spec")?;
        let mut containers = spec.containers.iter();
        let container =
            containers.find(|one| one.name == "gateway").context("no container is called gateway")?;
        assert_memory(container, "320Mi")?;
        assert_confined(&spec, container)?;
        assert_volume(&scene.namespace, &spec, container).await?;
        // It became ready in a namespace with restricted pod security, with a read-only root file system. At its start it writes a file to
        // its volume, by which it claims the volume.
        let metrics = pods.metrics(&pod.name_any()).await?;
        let volume = metric_sum(&metrics, "sluice_gateway_queue_volume_bytes");
        ensure!(
            volume.is_some_and(|bytes| bytes > 0.0),
            "the gateway says {volume:?} about its queue volume"
        );
        Ok(())
    })
}

/// Request and limit are the same.
pub fn assert_memory(container: &Container, memory: &str) -> Result<()> {
    let resources = container.resources.clone().context("the gateway has no resources")?;
    for (kind, quantities) in [("limit", resources.limits), ("request", resources.requests)] {
        let found = quantities.unwrap_or_default().get("memory").map(|quantity| quantity.0.clone());
        ensure!(found.as_deref() == Some(memory), "the memory {kind} is {found:?}, not {memory}");
    }
    Ok(())
}

fn assert_confined(spec: &PodSpec, container: &Container) -> Result<()> {
    let pod = spec.security_context.clone().context("the pod has no security context")?;
    let own = container.security_context.clone().context("the gateway has no security context")?;
    ensure!(pod.run_as_non_root == Some(true), "the pod may run as root");
    ensure!(pod.run_as_user.is_some_and(|user| user != 0), "the pod runs as {:?}", pod.run_as_user);
    let seccomp = pod.seccomp_profile.map(|profile| profile.type_);
    ensure!(seccomp.as_deref() == Some("RuntimeDefault"), "the seccomp profile is {seccomp:?}");
    ensure!(own.read_only_root_filesystem == Some(true), "the root file system can be written");
    ensure!(own.allow_privilege_escalation == Some(false), "privileges may be gained");
    let dropped = own.capabilities.and_then(|capabilities| capabilities.drop).unwrap_or_default();
    ensure!(dropped == ["ALL"], "dropped capabilities are {dropped:?}");
    ensure!(spec.automount_service_account_token == Some(false), "the gateway has a service-account token");
    Ok(())
}

/// The pod mounts a claim, and the claim is bound.
async fn assert_volume(namespace: &Namespace, spec: &PodSpec, container: &Container) -> Result<()> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let claimed = volumes.iter().find_map(|volume| Some((volume, volume.persistent_volume_claim.as_ref()?)));
    let (volume, claim) = claimed.context("the pod has no volume of a claim")?;
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mount = mounts.iter().find(|mount| mount.name == volume.name).context("the claim is not mounted")?;
    ensure!(mount.read_only != Some(true), "the queue volume is mounted read-only");
    let claim =
        namespace.api::<PersistentVolumeClaim>().get(&claim.claim_name).await.context("get the claim")?;
    // Kubernetes makes it without an owner, and with the label by which Argo CD would assign it to an Application.
    let options = claim.annotations().get("argocd.argoproj.io/sync-options");
    ensure!(
        options.is_some_and(|options| options.contains("Prune=false")),
        "Argo CD may prune it: {options:?}"
    );
    let phase = claim.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Bound"), "the claim is {phase:?}");
    let requested = claim.spec.and_then(|spec| spec.resources?.requests?.get("storage").cloned());
    ensure!(requested.as_ref().is_some_and(|size| size.0 == "1Gi"), "the claim asks for {requested:?}");
    Ok(())
}

#[test]
fn a_changed_config_rolls_and_deletion_removes_all() -> Result<()> {
    scene::run("a_changed_config_rolls", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"replicas": 2})).await?;
        let before = scene.pipeline.status().await?;
        let old = scene.pipeline.gateways().uids().await?;
        scene.pipeline.apply(&json!({"replicas": 2, "gateway": {"logLevel": "debug"}})).await?;
        let changed = |status: &TracePipelineStatus| status.config_hash != before.config_hash;
        scene.pipeline.wait("with another config", READY, changed).await?;
        scene.pipeline.wait_ready(READY).await?;
        let new = scene.pipeline.gateways().uids().await?;
        ensure!(are_others(&new, &old), "the gateways are {new:?}, were {old:?}");
        let had = scene.namespace.objects(&all_kinds(), &pipeline_selector("traces")).await?;
        let kinds =
            ["StatefulSet ", "ConfigMap ", "Service ", "ServiceAccount ", "NetworkPolicy ", "Job ", "Pod "];
        let are_seen = kinds.iter().all(|kind| had.keys().any(|name| name.starts_with(kind)));
        ensure!(are_seen, "nothing is seen of some of {kinds:?}: {:?}", had.keys());
        scene.pipeline.delete(READY).await?;
        scene.wait_without(&all_kinds(), READY).await
    })
}

/// Settings that every cluster supports: a node of Linux has the label, and the tolerated taint is on no node.
fn placed(team: &str) -> Value {
    json!({
        "replicas": 2,
        "gateway": {"podTemplate": {
            "labels": {"example.com/team": team},
            "annotations": {"example.com/cost-centre": "17"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "example.com/dedicated", "value": "ingest", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [
                {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
            "env": [{"name": "TZ", "value": "UTC"}],
            "volumes": [{"name": "extra", "emptyDir": {"sizeLimit": "1024Mi"}}],
            "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["broker.example"]}],
            "containerSecurityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        }},
    })
}

#[test]
#[ignore = "group spec"]
fn pods_are_placed_and_called_as_the_spec_says() -> Result<()> {
    scene::run("pods_are_placed", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&placed("one")).await?;
        assert_placed(scene, "one").await?;
        let old = scene.pipeline.gateways().uids().await?;
        // Defaults of the server and the operator are no difference to the file.
        assert_in_sync(scene.environment.kubeconfig()?, vec![scene.pipeline.manifest(&placed("one"))])
            .await?;
        scene.pipeline.apply(&placed("two")).await?;
        scene.wait_other_gateways(&old, READY).await?;
        scene.pipeline.wait_ready(READY).await?;
        assert_placed(scene, "two").await
    })
}

/// Checks the gateways, and the pod template of the schema Job.
async fn assert_placed(scene: &Scene, team: &str) -> Result<()> {
    let selector = pipeline_selector("traces");
    let of_jobs = scene.namespace.list::<Job>(&selector).await?.into_iter().filter_map(|job| job.spec);
    let of_jobs = of_jobs.map(|spec| (spec.template.metadata.unwrap_or_default(), spec.template.spec));
    let gateways = scene.pipeline.gateways().list().await?.into_iter();
    let pods: Vec<_> = gateways.map(|pod| (pod.metadata, pod.spec)).chain(of_jobs).collect();
    ensure!(pods.len() >= 3, "{} pods and Jobs", pods.len());
    for (metadata, spec) in pods {
        let labels = metadata.labels.unwrap_or_default();
        ensure!(labels.get("example.com/team").is_some_and(|found| found == team), "labels {labels:?}");
        let annotations = metadata.annotations.unwrap_or_default();
        ensure!(annotations.contains_key("example.com/cost-centre"), "annotations {annotations:?}");
        let spec = spec.context("a pod without a spec")?;
        let selector = spec.node_selector.unwrap_or_default();
        ensure!(selector.contains_key("kubernetes.io/os"), "node selector {selector:?}");
        let tolerations = spec.tolerations.unwrap_or_default();
        let is_ours = |key: &str| key == "example.com/dedicated";
        ensure!(tolerations.iter().any(|one| one.key.as_deref().is_some_and(is_ours)), "{tolerations:?}");
        let container = spec.containers.first().context("a pod without a container")?;
        ensure!(container.env.iter().flatten().any(|one| one.name == "TZ"), "{:?}", container.env);
        let mounts = container.volume_mounts.as_deref().unwrap_or_default();
        ensure!(mounts.iter().any(|mount| mount.mount_path == "/extra"), "{mounts:?}");
        ensure!(spec.dns_config.is_some() && spec.host_aliases.is_some(), "names are resolved as by default");
        let spread = spec.topology_spread_constraints.unwrap_or_default();
        let is_gateway = spec.containers.iter().any(|container| container.name == "gateway");
        ensure!(spread.len() == usize::from(is_gateway), "spread {spread:?}");
        ensure!(
            spread.iter().all(|one| one.label_selector.is_some()),
            "a spread that counts no pod: {spread:?}"
        );
    }
    Ok(())
}

/// A user and group such as `OpenShift` assigns: no file of the image, no Secret and no volume belongs to it.
const ASSIGNED: u32 = 20_001;

/// The volumes keep the files of the former user. The next user reads and deletes them.
#[test]
#[ignore = "group spec"]
fn gateways_run_as_a_user_that_the_image_does_not_know() -> Result<()> {
    scene::run("gateways_run_as_any_user", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"replicas": 1})).await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, SPANS_BETWEEN, READY).await?;
        let old = scene.pipeline.gateways().uids().await?;
        let template = json!({"userAndGroup": "Assigned", "securityContext": {"runAsUser": ASSIGNED}});
        scene.pipeline.apply(&json!({"replicas": 1, "gateway": {"podTemplate": template}})).await?;
        scene.wait_other_gateways(&old, READY).await?;
        scene.pipeline.wait_ready(READY).await?;
        let pod = scene.pipeline.gateways().first().await?;
        let security = pod.spec.and_then(|spec| spec.security_context).context("no security context")?;
        ensure!(security.run_as_user == Some(i64::from(ASSIGNED)), "{security:?}");
        ensure!(security.fs_group == Some(i64::from(ASSIGNED)), "{security:?}");
        scene.wait_acked(&load, SPANS_BETWEEN, READY).await?;
        scene.end(load).await
    })
}

/// The kinds of all objects of a pipeline, its pods too.
fn all_kinds() -> Vec<ApiResource> {
    pipeline_kinds().into_iter().chain([kind_of::<Pod>()]).collect()
}

#[test]
#[ignore = "group operator"]
fn a_restarted_operator_writes_nothing() -> Result<()> {
    scene::run("a_restarted_operator_writes_nothing", Uses::ServersAlone, 4, async |scene: &mut Scene| {
        scene.start_default().await?;
        let before = at_rest(&scene.namespace).await?;
        let operator = &scene.environment.operator;
        let pods = operator.pods();
        ensure!(pods.metric_sum(WRITES).await? > 0.0, "the operator that made all says of no write");
        operator.kill_and_wait(READY).await?;
        until("a reconcile by the new operator", READY, async || {
            let done = pods.metric_sum(RECONCILES_DONE).await?;
            Ok(Seen::when(done >= 1.0, || format!("{done} reconciles")))
        })
        .await?;
        let after = at_rest(&scene.namespace).await?;
        let changed: Vec<_> =
            before.iter().filter(|(name, version)| after.get(*name) != Some(version)).collect();
        ensure!(changed.is_empty(), "changed by a restart: {changed:?}");
        ensure!(after.len() == before.len(), "made by a restart: {:?}", after.keys().collect::<Vec<_>>());
        let writes = pods.metric_sum(WRITES).await?;
        ensure!(writes == 0.0, "the new operator wrote {writes} times");
        Ok(())
    })
}

/// All objects with their versions, once they have been the same for a while: Kubernetes' own controllers write statuses after the pipeline
/// is Ready.
async fn at_rest(namespace: &Namespace) -> Result<BTreeMap<String, String>> {
    let (mut last, mut same) = (BTreeMap::new(), 0);
    until("objects at rest", READY, async || {
        let now = all_versions(namespace).await?;
        same = if now == last { same + 1 } else { 0 };
        last.clone_from(&now);
        Ok(if same >= REST_LOOKS {
            Seen::Done(now)
        } else {
            Seen::NotYet(format!("the same for {same} looks"))
        })
    })
    .await
}

/// Resource version and generation of the pipeline and of each of its objects, by kind and name.
async fn all_versions(namespace: &Namespace) -> Result<BTreeMap<String, String>> {
    let mut all = namespace.objects(&all_kinds(), &pipeline_selector("traces")).await?;
    all.extend(namespace.objects(&[kind_of::<TracePipeline>()], "").await?);
    let version = |object: ObjectMeta| format!("{:?} {:?}", object.resource_version, object.generation);
    Ok(all.into_iter().map(|(name, object)| (name, version(object))).collect())
}
