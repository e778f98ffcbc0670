//! Secrets as pods mount them, and which change of one replaces pods.

use crate::{
    defaults, observed, planned,
    plans::{names, template},
    sample, secret_seen, with, with_credentials,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use sluice_crds::{SecretUse, Side, TracePipeline};
use sluice_plan::{
    KeptVersion, KeptVersions, Observed, SecretSeen, build,
    names::SECRETS_KEPT,
    objects::{revision, revision_with_secrets_of},
    schema_job_name,
};

#[test]
fn a_new_secret_replaces_pods_and_runs_the_job_again() {
    let pipeline = with_credentials();
    let facts = observed(&pipeline, 12);
    let secret = secret_seen("2222222222");
    let rotated = Observed { secrets: [(SecretUse::ClickHouseUser, secret)].into(), ..facts.clone() };
    assert_ne!(template(&pipeline, &facts, &defaults()), template(&pipeline, &rotated, &defaults()));
    assert_ne!(names(&pipeline, &facts)[1], names(&pipeline, &rotated)[1]);
}

#[test]
fn a_client_that_reads_no_secrets_knows_the_revision_that_gateways_have() {
    let pipeline = with_credentials();
    let facts = observed(&pipeline, 12);
    let secret = secret_seen("2222222222");
    let others = Observed { secrets: [(SecretUse::ClickHouseUser, secret)].into(), ..facts.clone() };
    let live = planned(&pipeline, &facts);
    let workload = build(&live).into_parts().workload.unwrap();
    let of_client = planned(&pipeline, &others);
    assert_ne!(revision(&of_client), revision(&live));
    assert_eq!(revision_with_secrets_of(&of_client, &workload), revision(&live));
    let moved = with("/spec/sink/clickhouse/credentials", json!({"secretRef": {"name": "another"}}));
    let of_client = planned(&moved, &others);
    assert_ne!(revision_with_secrets_of(&of_client, &workload), revision(&live), "another Secret is mounted");
    let without = with_none(sample("tracepipeline.yaml"));
    let plan = planned(&without, &observed(&without, 12));
    assert_eq!(revision_with_secrets_of(&plan, &workload), revision(&plan), "no Secret has no version");
}

/// The pipeline without a login to `ClickHouse`.
fn with_none(mut pipeline: TracePipeline) -> TracePipeline {
    pipeline.spec.sink.clickhouse.credentials = None;
    pipeline
}

#[test]
fn a_secret_that_changes_in_nothing_that_is_used_replaces_no_pod_and_runs_no_job() {
    let pipeline = sample("tracepipeline-full.yaml");
    let facts = observed(&pipeline, 12);
    let touched = facts.secrets.keys().map(|of| {
        let seen = SecretSeen::Present { version: "1111111111".into(), object: "2222222222".into() };
        (*of, seen)
    });
    let touched = Observed { secrets: touched.collect(), ..facts.clone() };
    assert_eq!(template(&pipeline, &facts, &defaults()), template(&pipeline, &touched, &defaults()));
    assert_eq!(names(&pipeline, &facts), names(&pipeline, &touched));
    let workload = |facts: &Observed| build(&planned(&pipeline, facts)).into_parts().workload.unwrap();
    let (before, after) = (workload(&facts), workload(&touched));
    assert_eq!(KeptVersions::noted_by(&before), KeptVersions::default(), "nothing is noted at rest");
    // What the next operator needs to plan the same.
    // Those of the edge's clients are no part of a version.
    let of_gateways = pipeline.spec.secrets().into_iter().filter(|named| named.of.side() != Side::Edge);
    for named in of_gateways {
        let kept = KeptVersion { version: "1111111111".into(), object: "2222222222".into() };
        assert_eq!(KeptVersions::noted_by(&after).of(named.of), Some(&kept), "{named:?}");
    }
    let without_note = |mut workload: StatefulSet| {
        workload.metadata.annotations.as_mut().unwrap().remove(SECRETS_KEPT);
        workload
    };
    assert_eq!(without_note(after), before);
}

#[test]
fn every_secret_is_mounted_where_the_config_looks_for_it() {
    let pipeline = sample("tracepipeline-full.yaml");
    let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
    let config: Value = serde_saphyr::from_str(&parts.config_map.data.unwrap()["gateway.yaml"]).unwrap();
    let pod = parts.workload.unwrap().spec.unwrap().template.spec.unwrap();
    let mounts = pod.containers[0].volume_mounts.clone().unwrap();
    let volumes = pod.volumes.unwrap();
    let source = &config["source"]["kafka"];
    let sink = &config["sink"]["clickhouse"];
    for (file, secret) in [
        (&source["tls"]["caFile"], "kafka-ca"),
        (&source["tls"]["certificateFile"], "kafka-client"),
        (&source["tls"]["keyFile"], "kafka-client"),
        (&source["sasl"]["usernameFile"], "kafka-user"),
        (&source["sasl"]["passwordFile"], "kafka-user"),
        (&sink["tls"]["caFile"], "clickhouse-ca"),
        (&sink["tls"]["certificateFile"], "clickhouse-client"),
        (&sink["tls"]["keyFile"], "clickhouse-client"),
        (&sink["credentials"]["usernameFile"], "clickhouse-writer"),
        (&sink["credentials"]["passwordFile"], "clickhouse-writer"),
    ] {
        let (folder, key) = file.as_str().unwrap().rsplit_once('/').unwrap();
        let mount = mounts.iter().find(|mount| mount.mount_path == folder).unwrap();
        assert_eq!(mount.read_only, Some(true));
        let volume = volumes.iter().find(|volume| volume.name == mount.name).unwrap();
        let mounted = volume.secret.as_ref().unwrap();
        assert_eq!(mounted.secret_name.as_deref(), Some(secret), "{file}");
        assert!(mounted.items.iter().flatten().any(|item| item.key == key && item.path == key), "{file}");
    }
}

/// Strimzi's Secrets, and one of External Secrets, by their own keys.
#[test]
fn keys_that_the_spec_names_are_mounted_under_the_names_that_the_config_has() {
    for (name, volume, expected) in [
        ("tracepipeline-strimzi-tls.yaml", "kafka-certificate", vec!["user.crt tls.crt", "user.key tls.key"]),
        ("tracepipeline-strimzi-tls.yaml", "kafka-ca", vec!["ca.crt ca.crt"]),
        ("tracepipeline-strimzi-scram.yaml", "kafka-user", vec!["password password"]),
        ("tracepipeline-cert-manager.yaml", "kafka-certificate", vec!["tls.crt tls.crt", "tls.key tls.key"]),
        (
            "tracepipeline-external-secrets.yaml",
            "kafka-user",
            vec!["api-key username", "api-secret password"],
        ),
        ("tracepipeline-external-secrets.yaml", "clickhouse-user", vec!["clickhouse-password password"]),
    ] {
        let pipeline = sample(name);
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        let pod = parts.workload.unwrap().spec.unwrap().template.spec.unwrap();
        let volumes = pod.volumes.unwrap();
        let mounted = volumes.iter().find(|one| one.name == volume).unwrap().secret.as_ref().unwrap();
        let items = mounted.items.iter().flatten().map(|item| format!("{} {}", item.key, item.path));
        assert_eq!(items.collect::<Vec<_>>(), expected, "{name} {volume}");
    }
    let pipeline = sample("tracepipeline-strimzi-scram.yaml");
    let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
    let config: Value = serde_saphyr::from_str(&parts.config_map.data.unwrap()["gateway.yaml"]).unwrap();
    let sasl = &config["source"]["kafka"]["sasl"];
    assert_eq!((&sasl["username"], &sasl["usernameFile"]), (&Value::from("sluice"), &Value::Null));
}

#[test]
fn tokens_come_from_the_endpoint_of_the_spec_or_from_a_volume_of_the_pod() {
    let sasl = |name: &str| {
        let pipeline = sample(name);
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        let config: Value = serde_saphyr::from_str(&parts.config_map.data.unwrap()["gateway.yaml"]).unwrap();
        let template = parts.workload.unwrap().spec.unwrap().template.spec.unwrap();
        let of_job = parts.schema_job.unwrap().spec.unwrap().template.spec.unwrap();
        (config["source"]["kafka"]["sasl"].clone(), template, of_job)
    };
    let (asked, pod, _) = sasl("tracepipeline-oauth.yaml");
    let expected = json!({
        "mechanism": "OAuthBearer",
        "oauth": {
            "clientCredentials": {
                "tokenEndpoint": "https://keycloak.example.com/realms/kafka/protocol/openid-connect/token",
                "clientIdFile": "/etc/sluice-secrets/kafka-client/client-id",
                "clientSecretFile": "/etc/sluice-secrets/kafka-client/client-secret",
                "parameters": {"audience": "kafka", "scope": "kafka"},
                "caFile": "/etc/sluice-secrets/kafka-token-ca/ca.crt",
            },
            "extensions": {"traceparent": "none"},
        },
    });
    assert_eq!(asked, expected);
    assert!(pod.volumes.unwrap().iter().all(|volume| volume.projected.is_none()));
    let (given, pod, of_job) = sasl("tracepipeline-service-account-token.yaml");
    assert_eq!(given["oauth"], json!({"tokenFile": "/etc/sluice-tokens/kafka-token/token"}));
    assert_eq!(pod.automount_service_account_token, Some(false), "the token for the API server stays out");
    let volumes = pod.volumes.unwrap();
    let volume = volumes.iter().find_map(|volume| volume.projected.as_ref()).unwrap();
    let token = volume.sources.as_ref().unwrap()[0].service_account_token.as_ref().unwrap();
    assert_eq!((token.audience.as_deref(), token.expiration_seconds), (Some("kafka"), Some(3_600)));
    let mounts = pod.containers[0].volume_mounts.clone().unwrap();
    assert!(mounts.iter().any(|mount| mount.mount_path == "/etc/sluice-tokens/kafka-token"));
    // The schema Job does not ask Kafka.
    assert!(of_job.volumes.unwrap().iter().all(|volume| volume.projected.is_none()));
}

#[test]
fn keys_of_aws_and_an_assertion_are_where_gateways_look_for_them() {
    let of = |name: &str| {
        let pipeline = sample(name);
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        let config: Value = serde_saphyr::from_str(&parts.config_map.data.unwrap()["gateway.yaml"]).unwrap();
        let pod = parts.workload.unwrap().spec.unwrap().template.spec.unwrap();
        let of_job = parts.schema_job.unwrap().spec.unwrap().template.spec.unwrap();
        assert!(of_job.volumes.unwrap().iter().all(|volume| !volume.name.starts_with("kafka-")), "{name}");
        (config["source"]["kafka"]["sasl"]["oauth"].clone(), pod)
    };
    let (found, pod) = of("tracepipeline-msk-iam-keys.yaml");
    let keys = json!({
        "accessKeyIdFile": "/etc/sluice-secrets/kafka-aws/access-key-id",
        "secretAccessKeyFile": "/etc/sluice-secrets/kafka-aws/secret-access-key",
        "sessionTokenFile": "/etc/sluice-secrets/kafka-aws/session-token",
    });
    assert_eq!(found, json!({"awsMskIam": {"region": "eu-central-1", "keys": keys}}));
    let volumes = pod.volumes.unwrap();
    let secret = volumes.iter().find(|one| one.name == "kafka-aws").unwrap().secret.as_ref().unwrap();
    assert_eq!(
        (secret.secret_name.as_deref(), secret.items.iter().flatten().count()),
        (Some("msk-reader"), 3)
    );
    // AWS gives its identity to the pod; nothing of it is the operator's to mount.
    let (found, pod) = of("tracepipeline-msk-iam.yaml");
    assert_eq!(found, json!({"awsMskIam": {}}));
    assert!(pod.volumes.unwrap().iter().all(|one| one.projected.is_none() && one.name != "kafka-aws"));
    let (found, pod) = of("tracepipeline-event-hubs-workload-identity.yaml");
    let client = &found["clientCredentials"];
    let file = "/etc/sluice-tokens/kafka-assertion/token";
    assert_eq!((&client["clientAssertionFile"], &client["clientSecretFile"]), (&json!(file), &Value::Null));
    let volumes = pod.volumes.unwrap();
    let volume =
        volumes.iter().find(|one| one.name == "kafka-assertion").unwrap().projected.as_ref().unwrap();
    let token = volume.sources.as_ref().unwrap()[0].service_account_token.as_ref().unwrap();
    assert_eq!(token.audience.as_deref(), Some("api://AzureADTokenExchange"));
    assert_eq!(token.expiration_seconds, Some(3_600));
}

#[test]
fn a_token_for_clickhouse_is_where_gateways_and_the_schema_job_look_for_it() {
    for (credentials, expected) in [
        (
            json!({"tokenSecretRef": {"name": "cloud", "key": "jwt"}}),
            "/etc/sluice-secrets/clickhouse-token/token",
        ),
        (
            json!({"serviceAccountToken": {"audience": "clickhouse"}}),
            "/etc/sluice-tokens/clickhouse-pod-token/token",
        ),
    ] {
        let pipeline = with("/spec/sink/clickhouse/credentials", credentials.clone());
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        let pods = [
            (parts.config_map, parts.workload.unwrap().spec.unwrap().template.spec.unwrap()),
            (
                parts.schema_config_map.unwrap(),
                parts.schema_job.unwrap().spec.unwrap().template.spec.unwrap(),
            ),
        ];
        for (config_map, pod) in pods {
            let text = config_map.data.unwrap().into_values().next().unwrap();
            let config: Value = serde_saphyr::from_str(&text).unwrap();
            let found = &config["sink"]["clickhouse"]["credentials"];
            assert_eq!(*found, json!({"tokenFile": expected}), "{credentials}");
            let folder = expected.rsplit_once('/').unwrap().0;
            let mounts = pod.containers[0].volume_mounts.clone().unwrap();
            assert!(mounts.iter().any(|mount| mount.mount_path == folder), "{credentials}");
        }
    }
}

/// A Job cannot be changed: with another key of the same Secret it is another Job.
#[test]
fn another_key_of_the_same_secret_replaces_pods_and_runs_the_job_again() {
    let before = with_credentials();
    let mut after = before.clone();
    let credentials = after.spec.sink.clickhouse.credentials.as_mut().unwrap();
    credentials.secret_ref.as_mut().unwrap().password_key = Some("secret".into());
    let facts = observed(&before, 12);
    assert_ne!(template(&before, &facts, &defaults()), template(&after, &facts, &defaults()));
    assert_ne!(names(&before, &facts)[1], names(&after, &facts)[1]);
    let mut same = before.clone();
    let credentials = same.spec.sink.clickhouse.credentials.as_mut().unwrap();
    credentials.secret_ref.as_mut().unwrap().password_key = Some("password".into());
    assert_eq!(template(&before, &facts, &defaults()), template(&same, &facts, &defaults()));
    assert_eq!(names(&before, &facts), names(&same, &facts));
}

#[test]
fn a_new_secret_of_kafka_replaces_pods_and_leaves_the_schema_alone() {
    let pipeline = sample("tracepipeline-full.yaml");
    let facts = observed(&pipeline, 12);
    for of in [SecretUse::KafkaAuthorities, SecretUse::KafkaCertificate, SecretUse::KafkaUser] {
        let mut rotated = facts.clone();
        rotated.secrets.insert(of, secret_seen("2222222222"));
        assert_ne!(template(&pipeline, &facts, &defaults()), template(&pipeline, &rotated, &defaults()));
        assert_eq!(names(&pipeline, &facts)[1], names(&pipeline, &rotated)[1], "{of:?}");
        rotated.secrets.insert(of, SecretSeen::Missing);
        assert_eq!(
            schema_job_name(&pipeline, &rotated.secrets, &facts.partitions, None, &defaults()),
            names(&pipeline, &facts)[1]
        );
    }
}
