//! What `kubectl sluice plan` says of the samples, and of samples with something wrong.

use super::*;

const SAMPLES: [&str; 2] = [
    include_str!("../../../../config/samples/tracepipeline.yaml"),
    include_str!("../../../../config/samples/tracepipeline-full.yaml"),
];

fn assumed(partitions: u32) -> Assumed {
    let server = Some(Server { memory_bytes: 48 << 30, cores: 16 });
    Assumed {
        partitions,
        server,
        gateway_image: "sluice-gateway:0.1.0".into(),
        namespace: "default".into(),
        pipeline: None,
        connections: Vec::new(),
    }
}

/// The files of `config/samples` that hold a pipeline, by name.
fn samples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let read = |file: std::path::PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        name.starts_with("tracepipeline").then(|| (name, std::fs::read_to_string(file).unwrap()))
    };
    let samples: Vec<_> = files.filter_map(read).collect();
    assert!(samples.len() >= 7, "{samples:?}");
    samples
}

#[test]
fn the_samples_are_planned_without_a_cluster() {
    for (name, sample) in samples() {
        let outline = outline(&sample, &assumed(12)).unwrap_or_else(|found| panic!("{name}: {found}"));
        let is_full = name.contains("full");
        let monitor = is_full.then_some("PodMonitor");
        let edge =
            ["ServiceAccount", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget", "Deployment"];
        let has_edge = is_full || name.contains("edge");
        let kinds: Vec<_> = outline.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["ServiceAccount", "ConfigMap", "Service"]
                .into_iter()
                .chain(name.contains("otlp").then_some("Service"))
                .chain(["NetworkPolicy", "PodDisruptionBudget", "ConfigMap", "Job", "StatefulSet"])
                .chain(edge.into_iter().filter(|_| has_edge))
                .chain(is_full.then_some("HorizontalPodAutoscaler"))
                .chain(monitor)
                .collect::<Vec<_>>()
        );
        let yaml = outline.to_yaml().unwrap();
        assert_eq!(yaml.matches("\n---\n").count(), kinds.len());
        for document in yaml.split("---\n").skip(1) {
            let read: Value = serde_saphyr::from_str(document).unwrap();
            assert!(outline.objects.contains(&read), "{document}");
        }
    }
}

#[test]
fn what_stands_beside_a_pipeline_has_the_names_that_it_says() {
    let beside = include_str!("../../../../config/samples/side-by-side.yaml");
    let beside: Vec<Value> = serde_saphyr::from_multiple(beside).unwrap();
    let find = |kind: &str, name: &str| {
        let found = beside.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
    };
    let text = include_str!("../../../../config/samples/tracepipeline-side-by-side.yaml");
    let pipeline: TracePipeline = serde_saphyr::from_str(text).unwrap();
    let (kafka, clickhouse) = (pipeline.spec.source.kafka.as_ref().unwrap(), &pipeline.spec.sink.clickhouse);
    let [topic] = &kafka.topics[..] else { panic!("{:?}", kafka.topics) };
    let cluster = &find("KafkaTopic", topic)["metadata"]["labels"]["strimzi.io/cluster"];
    let cluster = cluster.as_str().unwrap();
    find("KafkaTopic", &format!("{topic}.dead-letter"));
    assert!(kafka.bootstrap_servers[0].starts_with(&format!("{cluster}-kafka-bootstrap.")));
    assert_eq!(
        kafka.tls.as_ref().unwrap().ca_secret_ref.as_ref().unwrap().name,
        format!("{cluster}-cluster-ca-cert")
    );
    let user = find("Secret", &kafka.sasl.as_ref().unwrap().secret_ref.as_ref().unwrap().name);
    let user = find("KafkaUser", user["stringData"]["username"].as_str().unwrap());
    let acls = user["spec"]["authorization"]["acls"].to_string();
    assert!(acls.contains(&format!("\"name\":\"{}\"", kafka.consumer_group.as_deref().unwrap())), "{acls}");
    let writer = find("Secret", &clickhouse.credentials.as_ref().unwrap().secret_ref.as_ref().unwrap().name);
    let servers = find("ClickHouseInstallation", "traces");
    let name = writer["stringData"]["username"].as_str().unwrap();
    assert!(
        servers["spec"]["configuration"]["users"]
            .to_string()
            .contains(&format!("{name}/k8s_secret_password"))
    );
    let first = &servers["spec"]["configuration"]["clusters"][0];
    assert_eq!(clickhouse.schema.cluster.as_deref(), first["name"].as_str());
    assert_eq!(Some(clickhouse.endpoints.len() as u64), first["layout"]["replicasCount"].as_u64());
}

#[test]
fn the_numbers_follow_from_spec_partitions_and_server() {
    let outline = outline(SAMPLES[0], &assumed(12)).unwrap();
    assert_eq!((outline.replicas, outline.partitions, outline.derived.partitions_per_gateway), (3, 12, 4));
    assert_eq!(outline.derived.memory, "256Mi");
    // Twice a block of each partition per second for ten minutes, in powers of two of ten thousand.
    assert_eq!((outline.derived.deduplication_window, outline.advice.deduplication_window), (20_000, 20_000));
    // All of 1Gi but a twentieth.
    assert_eq!(outline.derived.queue.as_deref(), Some("972Mi"));
    // Half of 16 cores; 48 GiB / (3 x 8).
    assert_eq!(outline.advice.max_insert_threads, Some(8));
    assert_eq!(outline.advice.min_insert_block_size_bytes, Some(2 << 30));
    let comment = outline.comment();
    assert!(comment.lines().all(|line| line.starts_with("# ")), "{comment}");
    for line in [
        "memory per gateway             256Mi",
        "queue of a gateway, for blocks 972Mi",
        "# the table should remember 20000 blocks",
        "# the servers should accept ",
    ] {
        assert!(comment.contains(line), "{comment}");
    }
}

#[test]
fn an_endpoint_in_two_spellings_is_a_warning_with_both_and_with_the_one_that_is_used() {
    assert_eq!(outline(SAMPLES[0], &assumed(12)).unwrap().warnings, Vec::<String>::new());
    let from = "endpoints: [\"http://clickhouse.sluice-stack.svc.cluster.local:8123\"]";
    assert!(SAMPLES[0].contains(from));
    for (to, field) in [
        ("endpoints: [http://a:8123, http://b:8123, http://A:8123/]", "endpoints"),
        (
            "shards: [{endpoints: [http://b:8123]}, {endpoints: [http://a:8123, http://A:8123/]}]",
            "shards[1].endpoints",
        ),
    ] {
        let outline = outline(&SAMPLES[0].replace(from, to), &assumed(12)).unwrap();
        let warning = format!(
            "spec.sink.clickhouse.{field}: \"http://a:8123\" and \"http://A:8123/\" are one address: gateways use \"http://a:8123\" and \
             leave out \"http://A:8123/\"; list each server once"
        );
        assert_eq!(outline.warnings, std::slice::from_ref(&warning));
        assert_eq!(outline.comment().lines().next(), Some(format!("# warning: {warning}").as_str()));
        let config = outline.objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        assert!(!config.to_string().contains("A:8123"), "{config}");
    }
}

#[test]
fn a_server_in_two_shards_is_refused_and_a_warning_once_a_pipeline_has_run_with_it() {
    let from = "endpoints: [\"http://clickhouse.sluice-stack.svc.cluster.local:8123\"]";
    let shards = "shards: [{endpoints: [http://a:8123]}, {endpoints: [http://A:8123/]}]";
    let text = SAMPLES[0].replace(from, shards);
    let found = outline(&text, &assumed(12)).unwrap_err().to_string();
    let words = "spec.sink.clickhouse.shards[1].endpoints: \"http://A:8123/\" and \"http://a:8123\" of shards[0] are one address";
    assert!(found.starts_with(words), "{found}");
    let outline = outline(&format!("{text}status: {{image: i}}\n"), &assumed(12)).unwrap();
    assert!(matches!(&outline.warnings[..], [one] if one.starts_with(words)), "{:?}", outline.warnings);
}

#[test]
fn without_the_servers_size_the_rule_is_said() {
    let outline = outline(SAMPLES[0], &Assumed { server: None, ..assumed(12) }).unwrap();
    assert!(outline.comment().contains("about half of the server's cores"));
}

#[test]
fn every_violation_has_its_path() {
    for (from, to, path, message) in [
        (
            "gateway: {resources: {limits: {memory: 256Mi}}}",
            "gateway: {workers: 8, resources: {limits: {memory: 128Mi}}}",
            "spec.gateway.resources.limits.memory",
            "set at least",
        ),
        ("memory: 256Mi", "memory: 64Mi", "spec.gateway.resources.limits.memory", "at least 128Mi"),
        (
            "gateway: {",
            "gateway: {podTemplate: {labels: {}, tolerations: [], nodeSelectr: {a: b}}, ",
            "spec.gateway.podTemplate.nodeSelectr",
            "no such field",
        ),
        ("queue: {size: 1Gi}", "queu: {size: 1Gi}", "spec.queu", "no such field"),
        ("topics: [otlp_spans]", "topics: otlp_spans", "spec.source.kafka.topics", "is not of type"),
        ("topics: [otlp_spans]", "topics: ['a b']", "spec.source.kafka.topics", "is the name of a topic"),
        ("topics: [otlp_spans]", "topics: ['']", "spec.source.kafka.topics[0]", "shorter than 1 character"),
        ("kind: TracePipeline", "kind: Deployment", "kind", "not TracePipeline"),
        ("kind: TracePipeline", "kind: [", "file", "neither YAML nor JSON"),
    ] {
        assert!(SAMPLES[0].contains(from), "{from}");
        let found = outline(&SAMPLES[0].replace(from, to), &assumed(12)).unwrap_err();
        let json = violations_json(&found);
        let is_said = |one: &Value| one["path"] == path && one["message"].as_str().unwrap().contains(message);
        assert!(json["violations"].as_array().unwrap().iter().any(is_said), "{path}: {found}");
    }
}
