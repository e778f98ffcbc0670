//! Which fields of a spec replace gateways when they are changed: `operator/RESTARTS.md` has every field, and says of each what is so.

use crate::{
    connections::{by_reference, spec_of},
    observed, planned, sample, with,
};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::objects;
use std::collections::{BTreeMap, BTreeSet};

/// Partitions of the topics: more than 24 gateways with four each.
const PARTITIONS: u32 = 96;

/// The document, which users read.
const DOCUMENT: &str = include_str!("../../../RESTARTS.md");

/// Changes of the full sample that a person may make, one by one: field, and value as JSON.
#[rustfmt::skip]
const CHANGES: [(&str, &str); 214] = [
    ("source.kafka.connectionRef.name", r#""another""#),
    ("source.kafka.bootstrapServers", r#"["kafka-9.kafka:9093"]"#),
    ("source.kafka.tls.caSecretRef.name", r#""another""#),
    ("source.kafka.tls.caSecretRef.key", r#""another""#),
    ("source.kafka.tls.clientCertificateSecretRef.name", r#""another""#),
    ("source.kafka.tls.clientCertificateSecretRef.certificateKey", r#""another""#),
    ("source.kafka.tls.clientCertificateSecretRef.privateKeyKey", r#""another""#),
    ("source.kafka.sasl.mechanism", r#""Plain""#),
    ("source.kafka.sasl.username", r#""another""#),
    ("source.kafka.sasl.secretRef.name", r#""another""#),
    ("source.kafka.sasl.secretRef.usernameKey", r#""another""#),
    ("source.kafka.sasl.secretRef.passwordKey", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.tokenEndpoint", r#""https://another/token""#),
    ("source.kafka.sasl.oauth.clientCredentials.clientId", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.secretRef.name", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.secretRef.clientIdKey", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.secretRef.clientSecretKey", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.clientAssertion.audience", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.clientAssertion.expirationSeconds", "7200"),
    ("source.kafka.sasl.oauth.clientCredentials.authentication", r#""Post""#),
    ("source.kafka.sasl.oauth.clientCredentials.scope", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.parameters", "{}"),
    ("source.kafka.sasl.oauth.clientCredentials.caSecretRef.name", r#""another""#),
    ("source.kafka.sasl.oauth.clientCredentials.caSecretRef.key", r#""another""#),
    ("source.kafka.sasl.oauth.serviceAccountToken.audience", r#""another""#),
    ("source.kafka.sasl.oauth.serviceAccountToken.expirationSeconds", "7200"),
    ("source.kafka.sasl.oauth.awsMskIam.region", r#""us-east-1""#),
    ("source.kafka.sasl.oauth.awsMskIam.secretRef.name", r#""another""#),
    ("source.kafka.sasl.oauth.awsMskIam.secretRef.accessKeyIdKey", r#""another""#),
    ("source.kafka.sasl.oauth.awsMskIam.secretRef.secretAccessKeyKey", r#""another""#),
    ("source.kafka.sasl.oauth.awsMskIam.secretRef.sessionTokenKey", r#""another""#),
    ("source.kafka.sasl.oauth.extensions", "{}"),
    ("source.kafka.topics", r#"["otlp_spans"]"#),
    ("source.kafka.consumerGroup", r#""another""#),
    ("source.kafka.groupProtocol", r#""Consumer""#),
    ("source.kafka.initialOffset", r#""Earliest""#),
    ("source.kafka.format", r#""OtlpJson""#),
    ("source.kafka.recordBatchBytesMax", r#""2Mi""#),
    ("source.kafka.properties", r#"{"socket.receive.buffer.bytes": "2097152"}"#),
    ("source.otlp.grpc.enabled", "false"),
    ("source.otlp.grpc.port", "14317"),
    ("source.otlp.http.enabled", "false"),
    ("source.otlp.http.port", "14318"),
    ("source.otlp.tls.certificateSecretRef.name", r#""another""#),
    ("source.otlp.tls.certificateSecretRef.certificateKey", r#""another""#),
    ("source.otlp.tls.certificateSecretRef.privateKeyKey", r#""another""#),
    ("source.otlp.tls.clientCaSecretRef.name", r#""another""#),
    ("source.otlp.tls.clientCaSecretRef.key", r#""another""#),
    ("source.otlp.authentication.bearerTokensSecretRef.name", r#""another""#),
    ("source.otlp.authentication.bearerTokensSecretRef.key", r#""another""#),
    ("source.otlp.authentication.basicUsersSecretRef.name", r#""another""#),
    ("source.otlp.authentication.basicUsersSecretRef.key", r#""another""#),
    ("source.otlp.requestBytesMax", r#""2Mi""#),
    ("source.otlp.decompressedBytesMax", r#""16Mi""#),
    ("source.otlp.connectionAgeMax", r#""5m""#),
    ("source.otlp.tenants.header", r#""another""#),
    ("source.otlp.tenants.spansPerSecond", "1"),
    ("source.otlp.tenants.bytesPerSecond", r#""1Mi""#),
    ("source.otlp.logs", "3"),
    ("source.otlp.deadLetterBytesMax", r#""32Mi""#),
    ("source.otlp.service.type", r#""ClusterIP""#),
    ("source.otlp.service.annotations", "{}"),
    ("source.otlp.service.labels", "{}"),
    ("source.otlp.service.loadBalancerClass", r#""another""#),
    ("sink.clickhouse.connectionRef.name", r#""another""#),
    ("sink.clickhouse.endpoints", r#"["https://clickhouse-0.clickhouse:8443"]"#),
    ("sink.clickhouse.shards", r#"[{"endpoints": ["https://clickhouse-0.clickhouse:8443"]}]"#),
    ("sink.clickhouse.tls.caSecretRef.name", r#""another""#),
    ("sink.clickhouse.tls.caSecretRef.key", r#""another""#),
    ("sink.clickhouse.tls.clientCertificateSecretRef.name", r#""another""#),
    ("sink.clickhouse.tls.clientCertificateSecretRef.certificateKey", r#""another""#),
    ("sink.clickhouse.tls.clientCertificateSecretRef.privateKeyKey", r#""another""#),
    ("sink.clickhouse.database", r#""another""#),
    ("sink.clickhouse.table", r#""another""#),
    ("sink.clickhouse.credentials.username", r#""another""#),
    ("sink.clickhouse.credentials.secretRef.name", r#""another""#),
    ("sink.clickhouse.credentials.secretRef.usernameKey", r#""another""#),
    ("sink.clickhouse.credentials.secretRef.passwordKey", r#""another""#),
    ("sink.clickhouse.credentials.tokenSecretRef.name", r#""another""#),
    ("sink.clickhouse.credentials.tokenSecretRef.key", r#""another""#),
    ("sink.clickhouse.credentials.serviceAccountToken.audience", r#""another""#),
    ("sink.clickhouse.credentials.serviceAccountToken.expirationSeconds", "7200"),
    ("sink.clickhouse.schema.management", r#""Validate""#),
    ("sink.clickhouse.schema.preset", r#""ClickStack""#),
    ("sink.clickhouse.schema.layout", r#""Map""#),
    ("sink.clickhouse.schema.engine", r#""MergeTree""#),
    ("sink.clickhouse.schema.cluster", r#""another""#),
    ("sink.clickhouse.schema.ttl", r#""7d""#),
    ("sink.clickhouse.schema.orderBy", r#"["ServiceName", "Timestamp"]"#),
    ("sink.clickhouse.schema.maxDynamicPaths", "128"),
    ("sink.clickhouse.schema.typedPaths.resource", r#"{"host.name": "Nullable(String)"}"#),
    ("sink.clickhouse.schema.typedPaths.span", r#"{"http.route": "Nullable(String)"}"#),
    ("sink.clickhouse.schema.optionalColumns", r#"["AttributeKeys"]"#),
    ("sink.clickhouse.schema.columns", "[]"),
    ("sink.clickhouse.schema.views", r#"["Operations"]"#),
    ("sink.clickhouse.schema.durability", r#""Quorum""#),
    ("sink.clickhouse.insert.format", r#""RowBinary""#),
    ("sink.clickhouse.insert.settings", r#"{"insert_quorum": "3"}"#),
    ("replicas", "3"),
    ("partitionsPerReplica", "8"),
    ("scaling.mode", r#""Auto""#),
    ("scaling.minReplicas", "1"),
    ("scaling.maxReplicas", "24"),
    ("scaling.targetLag", r#""5m""#),
    ("scaling.scaleDownAfter", r#""20m""#),
    ("scaling.fallbackReplicas", "4"),
    ("scaling.idle.after", r#""1h""#),
    ("scaling.idle.refreshEvery", r#""48h""#),
    ("scaling.schedules", "[]"),
    ("scaling.drain.timeout", r#""20m""#),
    ("scaling.drain.onTimeout", r#""Force""#),
    ("gateway.image", r#""registry.example.com/sluice-gateway:1.2.4""#),
    ("gateway.upgradeStrategy", r#""Automatic""#),
    ("gateway.imagePullPolicy", r#""Always""#),
    ("gateway.imagePullSecrets", r#"[{"name": "another"}]"#),
    ("gateway.resources.memory", r#""1Gi""#),
    ("gateway.resources.cpuRequest", r#""1""#),
    ("gateway.resources.cpuLimit", r#""3""#),
    ("gateway.resources.requests.cpu", "1"),
    ("gateway.resources.requests.memory", "null"),
    ("gateway.resources.limits.cpu", r#""3""#),
    ("gateway.resources.limits.memory", r#""1Gi""#),
    ("gateway.resources.resize", r#""None""#),
    ("gateway.workers", "3"),
    ("gateway.logLevel", r#""debug""#),
    ("gateway.terminationGracePeriod", r#""2m""#),
    ("gateway.podTemplate.labels", r#"{"example.com/team": "another"}"#),
    ("gateway.podTemplate.annotations", r#"{"sidecar.istio.io/inject": "true"}"#),
    ("gateway.podTemplate.serviceAccountAnnotations", r#"{"eks.amazonaws.com/role-arn": "another"}"#),
    ("gateway.podTemplate.nodeSelector", r#"{"kubernetes.io/arch": "arm64"}"#),
    ("gateway.podTemplate.tolerations", "[]"),
    ("gateway.podTemplate.affinity", "{}"),
    ("gateway.podTemplate.topologySpreadConstraints", "[]"),
    ("gateway.podTemplate.priorityClassName", r#""another""#),
    ("gateway.podTemplate.runtimeClassName", r#""another""#),
    ("gateway.podTemplate.env", "[]"),
    ("gateway.podTemplate.volumes", r#"[{"name": "authorities", "configMap": {"name": "another"}}]"#),
    ("gateway.podTemplate.volumeMounts", r#"[{"name": "authorities", "mountPath": "/etc/another"}]"#),
    ("gateway.podTemplate.dnsPolicy", r#""Default""#),
    ("gateway.podTemplate.dnsConfig", "{}"),
    ("gateway.podTemplate.hostAliases", "[]"),
    ("gateway.podTemplate.userAndGroup", r#""Assigned""#),
    ("gateway.podTemplate.securityContext", "{}"),
    ("gateway.podTemplate.containerSecurityContext", "{}"),
    ("rollout.strategy", r#""RollingUpdate""#),
    ("rollout.canary.duration", r#""2m""#),
    ("rollout.maxUnavailable", "3"),
    ("rollout.autoRollback", "false"),
    ("rollout.progressDeadline", r#""20m""#),
    ("queue.mode", r#""Disabled""#),
    ("queue.size", r#""40Gi""#),
    ("queue.maxBytes", r#""10Gi""#),
    ("queue.storageClassName", r#""another""#),
    ("queue.retentionPolicy.whenScaled", r#""Retain""#),
    ("queue.retentionPolicy.whenDeleted", r#""Retain""#),
    ("queue.onZoneLoss", r#""Recreate""#),
    ("edge.topic", r#""otlp_spans_batch""#),
    ("edge.grpc.enabled", "false"),
    ("edge.grpc.port", "14317"),
    ("edge.http.enabled", "false"),
    ("edge.http.port", "14318"),
    ("edge.tls.certificateSecretRef.name", r#""another""#),
    ("edge.tls.certificateSecretRef.certificateKey", r#""another""#),
    ("edge.tls.certificateSecretRef.privateKeyKey", r#""another""#),
    ("edge.tls.clientCaSecretRef.name", r#""another""#),
    ("edge.tls.clientCaSecretRef.key", r#""another""#),
    ("edge.authentication.bearerTokensSecretRef.name", r#""another""#),
    ("edge.authentication.bearerTokensSecretRef.key", r#""another""#),
    ("edge.authentication.basicUsersSecretRef.name", r#""another""#),
    ("edge.authentication.basicUsersSecretRef.key", r#""another""#),
    ("edge.requestBytesMax", r#""8Mi""#),
    ("edge.decompressedBytesMax", r#""24Mi""#),
    ("edge.messageBytesTarget", r#""512Ki""#),
    ("edge.connectionAgeMax", r#""5m""#),
    ("edge.tenants.header", r#""another""#),
    ("edge.tenants.spansPerSecond", "1"),
    ("edge.tenants.bytesPerSecond", r#""1Mi""#),
    ("edge.replicas", "3"),
    ("edge.autoscaling.minReplicas", "3"),
    ("edge.autoscaling.maxReplicas", "3"),
    ("edge.autoscaling.targetCPUUtilizationPercentage", "50"),
    ("edge.resources.requests.cpu", "2"),
    ("edge.resources.requests.memory", "null"),
    ("edge.resources.limits.cpu", "3"),
    ("edge.resources.limits.memory", r#""512Mi""#),
    ("edge.podTemplate.labels", "{}"),
    ("edge.podTemplate.annotations", "{}"),
    ("edge.podTemplate.serviceAccountAnnotations", "{}"),
    ("edge.podTemplate.nodeSelector", "{}"),
    ("edge.podTemplate.tolerations", "[]"),
    ("edge.podTemplate.topologySpreadConstraints", "[]"),
    ("edge.podTemplate.priorityClassName", r#""another""#),
    ("edge.service.type", r#""ClusterIP""#),
    ("edge.service.annotations", "{}"),
    ("edge.service.labels", "{}"),
    ("edge.service.loadBalancerClass", r#""another""#),
    ("attributes.valueBytesMax", r#""8Ki""#),
    ("attributes.rules", r#"[{"action": "Drop", "keys": ["another"]}]"#),
    ("attributes.unreadableLetters", r#""Original""#),
    ("delivery.commit", r#""AfterEnqueue""#),
    ("delivery.deadLetter.topic", r#""another""#),
    ("delivery.deadLetter.onMissing", r#""Skip""#),
    ("podDisruptionBudget.enabled", "false"),
    ("podDisruptionBudget.maxUnavailable", "2"),
    ("networkPolicy.enabled", "false"),
    ("networkPolicy.metricsFrom", "[]"),
    ("networkPolicy.otlpFrom", "[]"),
    ("networkPolicy.egressTo", "[]"),
    ("observability.podMonitor.enabled", "false"),
    ("observability.podMonitor.interval", r#""10s""#),
    ("observability.podMonitor.labels", "{}"),
    ("suspend", "true"),
    ("managementState", r#""Unmanaged""#),
    ("deletionPolicy", r#""Immediate""#),
];

/// Objects whose fields are Kubernetes' own.
const OF_KUBERNETES: [&str; 4] = [
    "gateway.podTemplate.affinity",
    "gateway.podTemplate.dnsConfig",
    "gateway.podTemplate.securityContext",
    "gateway.podTemplate.containerSecurityContext",
];

fn revision(pipeline: &TracePipeline) -> String {
    objects::revision(&planned(pipeline, &observed(pipeline, PARTITIONS)))
}

/// Fields of the full sample that a change of this one cannot stand beside.
fn conflicting(field: &str) -> &'static [&'static str] {
    match field {
        "sink.clickhouse.schema.preset" => &[
            "sink.clickhouse.schema.layout",
            "sink.clickhouse.schema.maxDynamicPaths",
            "sink.clickhouse.schema.typedPaths",
        ],
        "sink.clickhouse.schema.layout" => &[
            "sink.clickhouse.schema.maxDynamicPaths",
            "sink.clickhouse.schema.typedPaths",
            "sink.clickhouse.schema.columns",
        ],
        "sink.clickhouse.shards" => &["sink.clickhouse.endpoints"],
        "source.kafka.format" => &["edge"],
        // The former field decides where the new one is not set.
        "gateway.resources.memory" => {
            &["gateway.resources.limits.memory", "gateway.resources.requests.memory"]
        }
        "gateway.resources.cpuRequest" => &["gateway.resources.requests.cpu"],
        "gateway.resources.cpuLimit" => &["gateway.resources.limits.cpu"],
        // Both are one quantity.
        "gateway.resources.limits.memory" => &["gateway.resources.requests.memory"],
        "source.kafka.sasl.username" => &["source.kafka.sasl.secretRef.usernameKey"],
        "source.kafka.sasl.oauth.clientCredentials.clientId" => {
            &["source.kafka.sasl.oauth.clientCredentials.secretRef.clientIdKey"]
        }
        "sink.clickhouse.credentials.username" => &["sink.clickhouse.credentials.secretRef.usernameKey"],
        _ => &[],
    }
}

/// The sample that has what stands in the full one's place around this field: its login to Kafka.
fn with_login(field: &str) -> Option<&'static str> {
    let is_in = |part: &str| field.starts_with(&format!("source.kafka.sasl.oauth.{part}"));
    let all = [
        ("serviceAccountToken", "tracepipeline-service-account-token.yaml"),
        ("awsMskIam", "tracepipeline-msk-iam-keys.yaml"),
        ("clientCredentials.clientAssertion", "tracepipeline-event-hubs-workload-identity.yaml"),
        ("", "tracepipeline-oauth.yaml"),
    ];
    all.into_iter().find_map(|(part, name)| is_in(part).then_some(name))
}

/// The full sample, or that without Kafka, and with this change.
fn changed(field: &str, value: &Value) -> [TracePipeline; 2] {
    if field.starts_with("source.otlp.") {
        let before = sample("tracepipeline-otlp-secured.yaml");
        let mut after = serde_json::to_value(&before).unwrap();
        *after.pointer_mut(&format!("/spec/{}", field.replace('.', "/"))).unwrap() = value.clone();
        return [before, serde_json::from_value(after).unwrap()];
    }
    let mut object = serde_json::to_value(sample("tracepipeline-full.yaml")).unwrap();
    if let Some(name) = with_login(field) {
        object["spec"]["source"]["kafka"]["sasl"] =
            serde_json::to_value(sample(name).spec.source.kafka.unwrap().sasl).unwrap();
    }
    for (part, credentials) in [
        ("tokenSecretRef", json!({"tokenSecretRef": {"name": "cloud", "key": "jwt"}})),
        (
            "serviceAccountToken",
            json!({"serviceAccountToken": {"audience": "clickhouse", "expirationSeconds": 3_600}}),
        ),
    ] {
        if field.starts_with(&format!("sink.clickhouse.credentials.{part}")) {
            object["spec"]["sink"]["clickhouse"]["credentials"] = credentials;
        }
    }
    // The sample has a number of gateways, beside which it cannot stand.
    object["spec"]["scaling"]["idle"] = json!({"after": "30m", "refreshEvery": "24h"});
    if field.ends_with("connectionRef.name") {
        return referred(&object, field, value);
    }
    let before = object.clone();
    let place = |field: &str| {
        let pointer = format!("/spec/{}", field.replace('.', "/"));
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        (parent.to_owned(), name.to_owned())
    };
    for other in conflicting(field) {
        let (parent, name) = place(other);
        object.pointer_mut(&parent).unwrap().as_object_mut().unwrap().remove(&name);
    }
    let (parent, name) = place(field);
    object.pointer_mut(&parent).unwrap()[name] = value.clone();
    [before, object].map(|object| serde_json::from_value(object).unwrap())
}

/// The same pipeline by a connection with what it says itself, and by this other one.
fn referred(object: &Value, field: &str, other: &Value) -> [TracePipeline; 2] {
    let part = if field.starts_with("source") { "kafka" } else { "clickhouse" };
    let inline: TracePipeline = serde_json::from_value(object.clone()).unwrap();
    let spec = spec_of(&inline);
    let mut others = spec.clone();
    others["kafka"]["bootstrapServers"] = json!(["kafka-9.kafka:9093"]);
    others["clickhouse"]["endpoints"] = json!(["https://clickhouse-0.clickhouse:8443"]);
    let by = |name: &Value, spec: &Value| by_reference(&inline, &[part], name.as_str().unwrap(), spec);
    [by(&json!("main"), &spec), by(other, &others)]
}

/// Fields with a value of their own, as the definition has them.
fn fields() -> BTreeSet<String> {
    fn walk(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
        match schema["properties"].as_object() {
            Some(_) if OF_KUBERNETES.contains(&path) => drop(found.insert(path.to_owned())),
            Some(properties) => {
                for (name, schema) in properties {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(&path, schema, found);
                }
            }
            None => drop(found.insert(path.to_owned())),
        }
    }
    let definition = sluice_crds::crd();
    let mut found = BTreeSet::new();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    walk("", &schema["properties"]["spec"], &mut found);
    found
}

/// What the document says of each field.
fn documented() -> BTreeMap<String, bool> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")).map(|row| {
        let (field, answer) = row.split_once("` | ").unwrap();
        let restarts = match answer.split([' ', ';']).next().unwrap() {
            "yes" => true,
            "no" => false,
            other => panic!("{field}: {other}"),
        };
        (field.to_owned(), restarts)
    });
    rows.collect()
}

#[test]
fn the_document_says_of_every_field_whether_gateways_are_replaced() {
    let replaces = |field: &str, value: &Value| {
        let [before, after] = changed(field, value).map(|pipeline| revision(&pipeline));
        before != after
    };
    let found: BTreeMap<String, bool> = CHANGES
        .map(|(field, value)| (field.to_owned(), replaces(field, &serde_json::from_str(value).unwrap())))
        .into();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), fields(), "a field without a change");
    let rows = |fields: &BTreeMap<String, bool>| {
        fields
            .iter()
            .map(|(field, restarts)| format!("| `{field}` | {}", if *restarts { "yes" } else { "no" }))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&found), rows(&documented()));
}

#[test]
fn another_spelling_of_a_duration_replaces_no_gateway() {
    let of = |pointer: &str, text: &str| revision(&with(pointer, json!(text)));
    for (pointer, short, long) in [
        ("/spec/gateway/terminationGracePeriod", "90s", "1m30s"),
        ("/spec/gateway/terminationGracePeriod", "1h", "1h0m0s"),
        ("/spec/scaling/targetLag", "90m", "1h30m"),
        ("/spec/sink/clickhouse/schema/ttl", "36h", "1d12h"),
    ] {
        assert_eq!(of(pointer, short), of(pointer, long), "{pointer} {short}");
    }
}

#[test]
fn another_number_of_gateways_replaces_none_whoever_says_it() {
    for scaling in
        [json!({}), json!({"mode": "Auto"}), json!({"mode": "External"}), json!({"mode": "Recommend"})]
    {
        let with_replicas = |replicas: u32| {
            let mut object = serde_json::to_value(with("/spec/scaling", scaling.clone())).unwrap();
            object["spec"]["replicas"] = json!(replicas);
            revision(&serde_json::from_value(object).unwrap())
        };
        let expected = with_replicas(3);
        for replicas in [1, 2, 6, 24, 48, 96] {
            assert_eq!(with_replicas(replicas), expected, "{scaling} {replicas}");
        }
    }
}
