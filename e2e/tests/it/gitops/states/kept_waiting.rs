//! Pipelines that wait because something is missing, refused or unreachable. All are in one namespace, and none has a gateway.

use futures::future::try_join_all;

use super::{Other, REACHED, nobody};
use crate::prelude::*;

/// A state, the condition that identifies it, and the condition's reason.
type Known = (&'static str, &'static str, &'static str);

/// A Secret with a user and no password.
const HALF: &str = "half";

/// A database that does not exist, with a name that resembles no other.
const NOWHERE: &str = "nowhere";

/// A table that lacks almost all columns.
const NARROW: &str = "narrow";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group gitops"]
async fn what_keeps_pipelines_waiting_is_seen_as_it_is() -> Result<()> {
    scene::run("kept_waiting", Uses::Servers, 1, async |scene: &mut Scene| {
        // No program listens at these addresses of this machine; on another cluster, one may.
        scene.environment.local_clickhouse_only()?;
        scene.apply_credentials().await?;
        scene.namespace.apply_secret(HALF, &[("username", "gateway")]).await?;
        let narrow = format!(
            "CREATE TABLE `{}`.`{NARROW}` (Timestamp String) ENGINE = MergeTree ORDER BY Timestamp",
            scene.database.name()
        );
        scene.environment.server.execute(&narrow).await?;
        let webhook = webhook(&scene.namespace);
        scene.namespace.cluster().apply(&webhook).await?;
        let played = play(scene).await;
        // The webhook is not namespaced, so it is deleted here.
        played.and(scene.namespace.cluster().delete(&webhook).await)
    })
    .await
}

async fn play(scene: &Scene) -> Result<()> {
    refuses(&scene.namespace).await?;
    let all = all(scene).await?;
    try_join_all(all.iter().map(|(other, _)| other.apply())).await?;
    try_join_all(all.iter().map(async |(other, (state, kind, reason))| {
        reached(&other.pipeline, state, REACHED, |status| has(status, kind, reason)).await
    }))
    .await
    .map(drop)
}

async fn all(scene: &Scene) -> Result<Vec<(Other, Known)>> {
    let schema = |management: &str| json!({"sink": {"clickhouse": {"schema": {"management": management}}}});
    let usual = json!({});
    let sink = |change: Value| json!({"sink": {"clickhouse": change}});
    let secure = scene.pipeline.settings().clickhouse.replace("http://", "https://");
    let operators = operators_image(scene).await?;
    let named = json!({"connectionRef": {"name": "nowhere"}});
    let half = sink(json!({"credentials": {"secretRef": {"name": HALF}}}));
    Ok(vec![
        (
            Other::new(scene, "half-a-secret", |_| {}, &half),
            ("secret-incomplete", kind::SINK_REACHABLE, reason::SECRET_INCOMPLETE),
        ),
        (
            Other::new(scene, "no-connection", |_| {}, &json!({"source": {"kafka": named}})),
            ("connection-missing", kind::READY, reason::CONNECTION_MISSING),
        ),
        (
            Other::new(scene, "no-broker", |at| at.brokers = vec![nobody()], &usual),
            ("source-unreachable", kind::SOURCE_REACHABLE, reason::UNREACHABLE),
        ),
        (
            Other::new(scene, "no-server", |at| at.clickhouse = format!("http://{}", nobody()), &usual),
            ("sink-unreachable", kind::SINK_REACHABLE, reason::UNREACHABLE),
        ),
        (
            Other::new(scene, "no-tls", |at| at.clickhouse = secure, &usual),
            ("sink-without-tls", kind::SINK_REACHABLE, reason::TLS_FAILED),
        ),
        (
            Other::new(scene, "no-database", |at| at.database = NOWHERE.into(), &schema("Validate")),
            ("database-missing", kind::SCHEMA_READY, reason::DATABASE_MISSING),
        ),
        (
            Other::new(scene, "narrow-table", |_| {}, &sink(json!({"table": NARROW}))),
            ("table-unfit", kind::SCHEMA_READY, reason::COLUMN_MISMATCH),
        ),
        (
            // This image is no gateway, and does not know the Job's arguments.
            Other::new(scene, "no-gateway", |at| at.image = operators, &usual),
            ("schema-job-failed", kind::SCHEMA_READY, reason::JOB_FAILED),
        ),
        (
            Other::new(scene, "no-webhook", |_| {}, &usual),
            ("apply-failing", kind::READY, reason::APPLY_FAILED),
        ),
    ])
}

async fn operators_image(scene: &Scene) -> Result<String> {
    let deployment = scene.environment.operator.deployment().await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("the operator has no pods")?;
    pod.containers.into_iter().next().and_then(|container| container.image).context("it has no image")
}

/// A webhook for new StatefulSets in this namespace, whose server cannot be reached.
fn webhook(namespace: &Namespace) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace.name()},
        "webhooks": [{
            "name": "away.sluice.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name()}},
            "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["statefulsets"]}],
        }],
    })
}

/// Waits until the API server uses the webhook.
async fn refuses(namespace: &Namespace) -> Result<()> {
    let labels = json!({"app": "none"});
    let none: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "none"},
        "spec": {"serviceName": "none", "replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "none", "image": "none"}]}}},
    }))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until("a webhook that is missed", REACHED, async || {
        match namespace.api::<StatefulSet>().create(&dry, &none).await {
            Err(kube::Error::Api(status)) if status.code == 500 => Ok(Seen::Done(())),
            other => Ok(Seen::NotYet(format!("{other:?}"))),
        }
    })
    .await
}
