//! Pipelines that wait because something is missing, refused or unreachable. All are in one namespace, and none has a gateway.

use futures::future::try_join_all;

use super::{Other, nobody};
use crate::install::chart::operator_image;
use crate::prelude::*;

/// A pipeline, the condition that identifies its state, and the condition's reason.
type Waiting = (Other, &'static str, &'static str);

/// A Secret with a user and no password.
const HALF: &str = "half";

/// A database that does not exist, with a name that resembles no other.
const NOWHERE: &str = "nowhere";

/// A table that lacks almost all columns.
const NARROW: &str = "narrow";

#[test]
#[ignore = "group gitops"]
fn what_keeps_pipelines_waiting_is_seen_as_it_is() -> Result<()> {
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
        with_objects(scene.namespace.cluster(), &[webhook(&scene.namespace)], Box::pin(play(scene))).await
    })
}

async fn play(scene: &Scene) -> Result<()> {
    refuses(&scene.namespace).await?;
    let all = all(scene).await?;
    try_join_all(all.iter().map(|(other, ..)| other.apply())).await?;
    try_join_all(
        all.iter().map(async |(other, kind, reason)| other.reached(|status| has(status, kind, reason)).await),
    )
    .await
    .map(drop)
}

async fn all(scene: &Scene) -> Result<Vec<Waiting>> {
    let (usual, none) = (scene.pipeline.settings(), json!({}));
    let new = |state: &str, field: &str, value: &str| Other::new(scene, state, &at(field, value));
    let with = |state: &str, settings: Settings| Other::with(scene, state, settings, &none);
    let no_broker = Settings { brokers: vec![nobody()], ..usual.clone() };
    let no_server = Settings { clickhouse: format!("http://{}", nobody()), ..usual.clone() };
    let tls = Settings { clickhouse: usual.clickhouse.replace("http://", "https://"), ..usual.clone() };
    // This image is no gateway, and does not know the Job's arguments.
    let no_gateway = Settings { image: operator_image(&scene.environment.cluster).await?, ..usual.clone() };
    let nowhere = Settings { database: NOWHERE.to_owned(), ..usual.clone() };
    let unmade = at("sink.clickhouse.schema.management", "Validate");
    let half = new("secret-incomplete", "sink.clickhouse.credentials.secretRef.name", HALF);
    let unconnected = new("connection-missing", "source.kafka.connectionRef.name", "nowhere");
    let narrow = new("table-unfit", "sink.clickhouse.table", NARROW);
    let no_database = Other::with(scene, "database-missing", nowhere, &unmade);
    Ok(vec![
        (half, kind::SINK_REACHABLE, reason::SECRET_INCOMPLETE),
        (unconnected, kind::READY, reason::CONNECTION_MISSING),
        (with("source-unreachable", no_broker), kind::SOURCE_REACHABLE, reason::UNREACHABLE),
        (with("sink-unreachable", no_server), kind::SINK_REACHABLE, reason::UNREACHABLE),
        (with("sink-without-tls", tls), kind::SINK_REACHABLE, reason::TLS_FAILED),
        (no_database, kind::SCHEMA_READY, reason::DATABASE_MISSING),
        (narrow, kind::SCHEMA_READY, reason::COLUMN_MISMATCH),
        (with("schema-job-failed", no_gateway), kind::SCHEMA_READY, reason::JOB_FAILED),
        (Other::new(scene, "apply-failing", &none), kind::READY, reason::APPLY_FAILED),
    ])
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
    until("a webhook that is missed", READY, async || {
        match namespace.api::<StatefulSet>().create(&dry, &none).await {
            Err(kube::Error::Api(status)) if status.code == 500 => Ok(Seen::Done(())),
            other => Ok(Seen::NotYet(format!("{other:?}"))),
        }
    })
    .await
}
