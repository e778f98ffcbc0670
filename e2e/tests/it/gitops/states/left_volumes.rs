//! The volume of a removed gateway. It is not drained while no pod can be made, and not deleted while a policy forbids it.

use crate::prelude::*;
use crate::spec::quotas::{lift, limit};

/// A quota that the remaining gateway uses up.
const QUOTA: &str = "one-pod";

/// The volume of the removed gateway.
const LEFT: &str = "queue-traces-gateway-1";

/// The volume of the remaining gateway.
const USED: &str = "queue-traces-gateway-0";

const JOB: &str = "traces-drain-1";

#[test]
#[ignore = "group gitops"]
fn a_volume_that_is_left_and_cannot_go_is_seen_as_it_is() -> Result<()> {
    scene::run("left_volumes", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&spec(2)).await?;
        not_drained(scene).await?;
        let refusal = refusal(&scene.namespace);
        with_objects(scene.namespace.cluster(), &refusal, Box::pin(not_deleted(scene))).await?;
        may_be_deleted(&scene.namespace, true).await?;
        claim_deleted(scene).await
    })
}

/// Time until a Job that gets no pod fails: it has two minutes, whatever the drain's time limit.
const FAILED: Duration = Duration::from_mins(6);

fn spec(replicas: u32) -> Value {
    json!({"replicas": replicas, "scaling": {"drain": {"onTimeout": "Job", "timeout": "15s"}}})
}

async fn not_drained(scene: &Scene) -> Result<()> {
    limit(&scene.namespace, QUOTA, &json!({"pods": "1"})).await?;
    scene.pipeline.apply(&spec(1)).await?;
    reached(&scene.pipeline, "volumes-not-drained", FAILED, |status| {
        has(status, kind::VOLUMES_DRAINED, reason::DRAIN_FAILED) && has(status, kind::READY, reason::RUNNING)
    })
    .await?;
    lift(&scene.namespace, QUOTA).await
}

async fn not_deleted(scene: &Scene) -> Result<()> {
    may_be_deleted(&scene.namespace, false).await?;
    // Otherwise the operator would retry a minute later.
    let jobs = scene.namespace.api::<Job>();
    jobs.delete(JOB, &DeleteParams::background()).await.context("delete the Job that failed")?;
    reached(&scene.pipeline, "volumes-not-deleted", READY, |status| {
        has(status, kind::VOLUMES_DRAINED, reason::NOT_DELETED) && has(status, kind::READY, reason::RUNNING)
    })
    .await
}

/// Kubernetes keeps a deleted claim until its pod has ended.
async fn claim_deleted(scene: &Scene) -> Result<()> {
    let claims = scene.namespace.api::<PersistentVolumeClaim>();
    // The operator would retry some minutes later; the condition says how to delete it by hand.
    let left = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
        "name": LEFT, "namespace": scene.namespace.name(),
    }});
    scene.namespace.cluster().delete(&left).await?;
    claims.delete(USED, &DeleteParams::background()).await.context("delete the claim of a gateway")?;
    reached(&scene.pipeline, "claim-deleted", READY, |status| {
        // The status no longer mentions the left volume.
        let orphaned = status.volumes.as_ref().map(|volumes| (volumes.orphaned, volumes.drained));
        has(status, kind::VOLUMES_DRAINED, reason::CLAIM_DELETED) && orphaned == Some((0, 0))
    })
    .await
}

/// A policy and its binding for this namespace: no claim may be deleted.
fn refusal(namespace: &Namespace) -> [Value; 2] {
    let (version, name) = ("admissionregistration.k8s.io/v1", namespace.name());
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let claims = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["persistentvolumeclaims"],
    });
    [
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"namespaceSelector": here, "resourceRules": [claims]},
                "validations": [{"expression": "false", "message": "volumes are kept here", "reason": "Forbidden"}],
            },
        }),
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// Waits until the API server would allow to delete the claim, or would not.
async fn may_be_deleted(namespace: &Namespace, may: bool) -> Result<()> {
    let claims = namespace.api::<PersistentVolumeClaim>();
    until(&format!("that a claim may be deleted: {may}"), READY, async || {
        let asked = claims.delete(LEFT, &DeleteParams::default().dry_run()).await;
        let is_refused = matches!(&asked, Err(kube::Error::Api(status)) if status.code == 403);
        // If it is already gone, the deletion was allowed.
        Ok(Seen::when(is_refused != may, || format!("{asked:?}")))
    })
    .await
}
