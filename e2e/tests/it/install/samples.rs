//! Each sample is applied for real, without the Secrets that it names. It is not Ready, reports the missing Secret for Kafka and for
//! `ClickHouse`, and does not delay other pipelines. Objects of other operators in the samples are accepted by their definitions, with
//! every field. The policies that keep volumes are tested on the real server.

use e2e_stack::definitions;
use sluice_crds::{Side, TracePipelineSpec};

use crate::environment::{self, Environment};
use crate::install::definition::samples;
use crate::install::policies;
use crate::prelude::*;
use crate::spec::connections::counted;

const BESIDE: &str = "config/samples/side-by-side.yaml";

/// A connection and two pipelines that reference it.
const CONNECTED: &str = "config/samples/traceconnection.yaml";

#[test]
fn every_sample_is_taken_and_says_what_it_lacks() -> Result<()> {
    in_namespace("samples", async |namespace| {
        let applied = apply_all(namespace).await;
        applied.and(policies::keep_volumes(namespace).await)
    })
}

/// Runs `body` in a namespace of the test's own.
fn in_namespace(test: &str, body: impl AsyncFnOnce(&Namespace) -> Result<()>) -> Result<()> {
    block_on(async {
        let _turn = Uses::Servers.turn().await?;
        let environment = Environment::resolve().await?;
        environment::in_namespace(&environment.cluster, test, body).await
    })
}

async fn apply_all(namespace: &Namespace) -> Result<()> {
    let mut names = Vec::new();
    for (file, text) in samples()? {
        let object = serde_saphyr::from_str(&text).with_context(|| format!("understand {file}"))?;
        let made = namespace.apply(&object).await.with_context(|| format!("apply {file}"))?;
        names.push((file, made.metadata.name.context("a sample without a name")?));
    }
    let pipelines: Api<TracePipeline> = namespace.api();
    for (file, name) in names {
        until(&format!("{file} to say what it lacks"), READY, async || {
            let live = pipelines.get(&name).await.context("get a sample")?;
            let status = live.status.unwrap_or_default();
            if status.observed_generation != live.metadata.generation {
                return Ok(Seen::NotYet("not reconciled yet".to_owned()));
            }
            let untold = untold(&live.spec, &status);
            Ok(Seen::when(untold.is_empty(), || untold.join("; ")))
        })
        .await?;
    }
    Ok(())
}

/// Two pipelines share a connection, without its Secrets: both report which one is missing, and the connection counts them.
#[test]
fn pipelines_of_the_sample_share_its_connection() -> Result<()> {
    in_namespace("sample-connection", apply_connected)
}

async fn apply_connected(namespace: &Namespace) -> Result<()> {
    let mut objects = files::yamls(CONNECTED)?;
    // The pipelines first: the order does not matter.
    objects.reverse();
    for object in &objects {
        namespace.apply(object).await.with_context(|| format!("apply {}", object["metadata"]["name"]))?;
    }
    let pipelines: Api<TracePipeline> = namespace.api();
    for name in ["checkout-traces", "search-traces"] {
        until(&format!("{name} to say what it lacks"), READY, async || {
            let status = pipelines.get(name).await.context("get a sample")?.status.unwrap_or_default();
            let says = |kind: &str, secrets: [&str; 2]| {
                condition(&status, kind).is_some_and(|said| {
                    said.reason == reason::SECRET_MISSING
                        && secrets.iter().any(|secret| said.message.contains(secret))
                        && said.message.contains(" of the TraceConnection \"main\")")
                })
            };
            let is_told = says(kind::SOURCE_REACHABLE, ["kafka-ca", "kafka-user"])
                && says(kind::SINK_REACHABLE, ["clickhouse-ca", "clickhouse-writer"]);
            Ok(Seen::when(is_told, || format!("{:?}", status.conditions)))
        })
        .await?;
    }
    // The sample's connection is called like that of the other test.
    counted(namespace, 2).await
}

/// What the status should report for a sample without its Secrets, and does not.
fn untold(spec: &TracePipelineSpec, status: &TracePipelineStatus) -> Vec<String> {
    let secrets_of = |side: Side| {
        let secrets = spec.secrets().into_iter().filter(move |named| named.of.side() == side);
        secrets.map(|named| named.name).collect::<Vec<_>>()
    };
    let (of_source, of_sink) = (secrets_of(Side::Source), secrets_of(Side::Sink));
    let mut untold = Vec::new();
    // If a sample names no Secret for Kafka, the broker or the topic is missing.
    let mut check = |kind: &str, reason: Option<&str>, names: &[&str]| {
        let said = condition(status, kind);
        let is_told = said.is_some_and(|said| {
            said.status == "False"
                && reason.is_none_or(|reason| said.reason == reason)
                && names.iter().any(|name| said.message.contains(name))
        });
        if !is_told {
            untold.push(format!("{kind} does not name any of {names:?}: {said:?}"));
        }
    };
    if !of_source.is_empty() {
        check(kind::SOURCE_REACHABLE, Some(reason::SECRET_MISSING), &of_source);
    }
    if !of_sink.is_empty() {
        check(kind::SINK_REACHABLE, Some(reason::SECRET_MISSING), &of_sink);
    }
    // Without a Secret, the broker, the topic, or the operator's own login is missing.
    let kafka = spec.source.kafka.iter();
    let lacked = kafka.flat_map(|kafka| kafka.topics.iter().chain(&kafka.bootstrap_servers));
    let lacked = lacked.map(String::as_str);
    let lacked: Vec<&str> = lacked.chain(own_login(spec)).collect();
    let lacks_source = condition(status, kind::SOURCE_REACHABLE).is_some_and(|said| said.status == "False");
    let mut first = match (lacks_source, of_source.is_empty()) {
        (true, false) => of_source,
        (true, true) => lacked,
        (false, _) => of_sink,
    };
    // A cluster may have this storage class.
    first.extend(spec.queue.storage_class_name.as_deref());
    check(kind::READY, None, &first);
    untold
}

/// What the status must report if the operator's own login is missing: the audience, the token endpoint or the flag.
fn own_login(spec: &TracePipelineSpec) -> Option<&str> {
    let oauth = spec.source.kafka.as_ref()?.sasl.as_ref()?.oauth.as_ref()?;
    let token = oauth.service_account_token.as_ref().map(|token| token.audience.as_str());
    let client = oauth.client_credentials.as_ref().filter(|client| client.client_assertion.is_some());
    let aws = oauth.aws_msk_iam.as_ref().filter(|msk| msk.secret_ref.is_none());
    token.or(client.map(|client| client.token_endpoint.as_str())).or(aws.map(|_| "--kafka-aws"))
}

#[test]
fn a_sample_must_name_what_it_lacks_and_be_false() {
    let spec: TracePipelineSpec = serde_json::from_value(json!({
        "source": {"kafka": {
            "bootstrapServers": ["kafka:9092"], "topics": ["spans"],
            "sasl": {"mechanism": "Plain", "secretRef": {"name": "kafka-user"}},
        }},
        "sink": {"clickhouse": {
            "endpoints": ["http://clickhouse:8123"], "credentials": {"secretRef": {"name": "writer"}},
        }},
    }))
    .unwrap();
    let told = |ready: &str, of_ready: &str, of_source: &str, of_sink: &str| {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = json!({"conditions": [
            condition(kind::READY, ready, reason::SOURCE_UNAVAILABLE, of_ready),
            condition(kind::SOURCE_REACHABLE, "False", reason::SECRET_MISSING, of_source),
            condition(kind::SINK_REACHABLE, "False", reason::SECRET_MISSING, of_sink),
        ]});
        untold(&spec, &serde_json::from_value(status).unwrap()).len()
    };
    assert_eq!(told("False", "no kafka-user", "no kafka-user", "no writer"), 0);
    assert_eq!(told("True", "no kafka-user", "no kafka-user", "no writer"), 1);
    assert_eq!(told("False", "no spans", "no kafka-user", "no writer"), 1, "the topic is not what it lacks");
    assert_eq!(told("False", "", "", ""), 3);
}

#[test]
fn what_stands_beside_a_pipeline_is_taken_by_the_definitions_of_those_who_make_it() -> Result<()> {
    in_namespace("beside", async |namespace| {
        let mut definitions = blocking(definitions::strimzi).await?;
        definitions.push(clickhouse_installation());
        with_definitions(namespace.cluster(), &definitions, apply_beside(namespace)).await
    })
}

async fn apply_beside(namespace: &Namespace) -> Result<()> {
    let objects = files::yamls(BESIDE)?;
    ensure!(objects.len() >= 6, "{} objects in {BESIDE}", objects.len());
    for mut object in objects {
        object["metadata"]["namespace"] = json!(namespace.name());
        let taken = namespace.cluster().apply_strictly(&object).await?;
        let taken = serde_json::to_value(taken).context("write what was taken")?;
        if let Some(fields) = object.as_object_mut() {
            // The server stores it in another form.
            fields.remove("stringData");
        }
        ensure!(merged(&taken, &object) == taken, "{object} was taken as {taken}");
    }
    // A definition that accepts everything would prove nothing.
    let mut wrong = json!({"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "metadata": {"name": "wrong"},
        "spec": {"partitionz": 12}});
    wrong["metadata"]["namespace"] = json!(namespace.name());
    let refused = namespace.cluster().apply_strictly(&wrong).await;
    ensure!(
        refused.is_err_and(|said| format!("{said:#}").contains("partitionz")),
        "a misspelt field is taken"
    );
    Ok(())
}

/// The `ClickHouse` operator's definition is in no package registry. This one has the documented fields that the sample uses. A field
/// elsewhere, or of another type, is rejected. Whether a field exists, only the documentation shows.
fn clickhouse_installation() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let list = |items: Value| json!({"type": "array", "items": items});
    let (number, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let layout = object(json!({"shardsCount": number, "replicasCount": number}));
    let clusters = list(object(json!({"name": text, "layout": layout})));
    let nodes = list(object(json!({"host": text, "port": number})));
    let zookeeper = object(json!({"nodes": nodes}));
    let configuration = object(json!({"clusters": clusters, "users": anything, "zookeeper": zookeeper}));
    let schema = object(json!({"spec": object(json!({"configuration": configuration}))}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clickhouseinstallations.clickhouse.altinity.com"},
        "spec": {
            "group": "clickhouse.altinity.com", "scope": "Namespaced",
            "names": {"kind": "ClickHouseInstallation", "plural": "clickhouseinstallations"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
