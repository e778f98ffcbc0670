//! If a quota of the namespace rejects an object, the status quotes the quota's message. The object is made once the quota allows it.

use k8s_openapi::api::core::v1::ResourceQuota;

use crate::prelude::*;

#[test]
#[ignore = "group spec"]
fn what_a_quota_refuses_is_told_and_made_once_it_is_gone() -> Result<()> {
    scene::run("quotas", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        limit(&scene.namespace, "no-workload", &json!({"count/statefulsets.apps": "0"})).await?;
        scene.pipeline.apply(&json!({"replicas": 2})).await?;
        let refused = ("False", reason::APPLY_FAILED);
        scene.pipeline.wait_told(kind::READY, refused, READY, "exceeded quota: no-workload").await?;
        assert_state(&scene.pipeline, "apply-refused").await?;
        limit(&scene.namespace, "one-pod", &json!({"pods": "1"})).await?;
        lift(&scene.namespace, "no-workload").await?;
        // After a rejection, the operator retries after minutes; an edit makes it retry at once.
        scene.pipeline.apply(&json!({"replicas": 2, "gateway": {"logLevel": "debug"}})).await?;
        let missing = ("False", reason::PODS_REFUSED);
        scene.pipeline.wait_told(kind::READY, missing, READY, "exceeded quota: one-pod").await?;
        assert_state(&scene.pipeline, "pods-refused").await?;
        lift(&scene.namespace, "one-pod").await?;
        scene.pipeline.wait_ready(READY).await.map(drop)
    })
}

/// Makes a quota, and waits until Kubernetes has counted it: before that, it rejects everything.
pub async fn limit(namespace: &Namespace, name: &str, hard: &Value) -> Result<()> {
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let quota = serde_json::from_value::<ResourceQuota>(quota)?;
    let quotas = namespace.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &quota).await.context("make a quota")?;
    until("the quota counted", READY, async || {
        let status = quotas.get(name).await?.status.unwrap_or_default();
        Ok(Seen::when(status.used.is_some_and(|used| !used.is_empty()), || "no figures".to_owned()))
    })
    .await
}

pub async fn lift(namespace: &Namespace, name: &str) -> Result<()> {
    let quotas = namespace.api::<ResourceQuota>();
    quotas.delete(name, &DeleteParams::default()).await.map(drop).context("delete a quota")
}
