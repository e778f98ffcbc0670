//! What `kubectl sluice status` prints for each status.

use super::*;
use serde_json::{Value, json};

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn pipeline(status: &Value) -> TracePipeline {
    let object = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline",
        "metadata": {"name": "prod", "namespace": "tracing", "generation": 2},
        "spec": {
            "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["otlp_spans"]}},
            "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
            "gateway": {"resources": {"limits": {"memory": "256Mi"}}},
        },
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// A pipeline that is well, with other conditions in front.
fn well(conditions: &[Value]) -> Value {
    let usual = [
        condition("Ready", "True", "Running", "all 3 gateways are ready"),
        condition("Reconciling", "False", "Ok", "nothing is on its way"),
        condition("Stalled", "False", "Ok", "nothing keeps it"),
        condition("SourceReachable", "True", "Ok", "12 partitions in 1 topics"),
    ];
    let named = |one: &&Value| !conditions.iter().any(|other| other["type"] == one["type"]);
    let all: Vec<_> = conditions.iter().chain(usual.iter().filter(named)).cloned().collect();
    json!({
        "observedGeneration": 2, "conditions": all, "desiredReplicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "topics": [{"name": "otlp_spans", "partitions": 12}], "consumerGroup": "tracing.prod",
        "lag": {"messages": 1200}, "delivery": {"guarantee": "ExactlyOnceEffect"},
        "queue": {"blocks": 3, "bytes": 24_000_000}, "image": "sluice-gateway:0.1.0",
        "scaling": {"reason": "3 gateways: 12,000 messages/s arrive and one takes 5,000", "lagSeconds": 61},
    })
}

#[test]
fn a_pipeline_that_is_well_is_told_in_ten_lines() {
    let story = Story::of(&pipeline(&well(&[])));
    assert_eq!(
        story.to_string(),
        "tracing/prod: ready\n\
        \x20 runs      3 of 3 gateways ready; sluice-gateway:0.1.0, 256Mi each\n\
        \x20 reads     otlp_spans (12 partitions) as tracing.prod from kafka:9092\n\
        \x20 writes    otel.otel_traces at http://clickhouse:8123\n\
        \x20 behind    1200 messages, 1 min 1 s of arrivals\n\
        \x20 queue     3 blocks, 22 MiB on the queue volumes\n\
        \x20 delivery  ExactlyOnceEffect: every row is in the table once\n\
        \x20 size      Fixed: 3 gateways: 12,000 messages/s arrive and one takes 5,000\n\
        \x20 now       nothing is on its way\n\
        \x20 to do     nothing\n"
    );
    let json = serde_json::to_value(&story).unwrap();
    assert_eq!((&json["ready"], &json["toDo"], &json["name"]), (&json!(true), &json!([]), &json!("prod")));
}

#[test]
fn a_pipeline_without_kafka_says_where_it_accepts_spans_and_what_waits() {
    let lines = |status: &Value, otlp: Value| {
        let mut object = serde_json::to_value(pipeline(status)).unwrap();
        object["spec"]["source"] = json!({"otlp": otlp});
        let story = Story::of(&serde_json::from_value(object).unwrap());
        (story.reads, story.behind, story.queue)
    };
    let mut status = well(&[]);
    assert!(lines(&status, json!({})).0.starts_with("OTLP at no Service yet"));
    status["endpoints"] = json!(["prod-otlp.tracing.svc:4317", "prod-otlp.tracing.svc:4318"]);
    let (reads, behind, queue) = lines(&status, json!({}));
    assert_eq!(
        reads,
        "OTLP at prod-otlp.tracing.svc:4317 (gRPC) and prod-otlp.tracing.svc:4318 (HTTP), from every client that reaches it"
    );
    assert_eq!(behind, "1200 requests in the gateways' logs, 1 min 1 s of arrivals");
    assert_eq!(queue, "the logs have 22 MiB on the queue volumes, which are the only copy of what waits");
    status["endpoints"] = json!(["prod-otlp.tracing.svc:4318"]);
    let secured = json!({
        "grpc": {"enabled": false},
        "tls": {"certificateSecretRef": {"name": "c"}, "clientCaSecretRef": {"name": "ca"}},
    });
    assert_eq!(
        lines(&status, secured).0,
        "OTLP with TLS at prod-otlp.tracing.svc:4318 (HTTP), from clients with a certificate"
    );
}

#[test]
fn a_volume_that_no_gateway_has_read_does_not_look_empty() {
    let told = |ready: u32, queue: Value, commit: &str| {
        let mut status = well(&[]);
        status["readyReplicas"] = json!(ready);
        status["queue"] = queue;
        let mut object = serde_json::to_value(pipeline(&status)).unwrap();
        object["spec"]["delivery"]["commit"] = json!(commit);
        let story = Story::of(&serde_json::from_value(object).unwrap());
        (story.queue, story.to_do)
    };
    let empty = json!({"blocks": 0, "bytes": 4_096});
    let nothing = "nothing waits on the queue volumes of the gateways".to_owned();
    assert_eq!(told(3, empty.clone(), "AfterEnqueue"), (nothing, Vec::new()));
    let unknown =
        "2 of 3 gateways are not ready and may not have read their volumes yet: how much waits is not known";
    let to_do = format!("delete no claim of a queue volume, which may hold the only copy of rows: {unknown}");
    // An older operator leaves 0 in the status.
    for queue in [Value::Null, empty] {
        let all = told(1, queue.clone(), "AfterEnqueue");
        assert_eq!(all, (unknown.to_owned(), vec![to_do.clone()]));
        assert_eq!(told(1, queue, "AfterInsert"), (unknown.to_owned(), Vec::new()), "Kafka has the rows");
    }
    let (line, to_do) = told(2, json!({"blocks": 3, "bytes": 24_000_000}), "AfterEnqueue");
    let last = "3 blocks, 22 MiB on the queue volumes when it was last known; 1 of 3 gateways is not ready";
    assert!(line.starts_with(last) && line.ends_with("how much waits is not known"), "{line}");
    assert_eq!(to_do.len(), 1);
    let (line, to_do) = told(3, Value::Null, "AfterEnqueue");
    assert_eq!(line, "not every gateway has said what waits on its volume: how much waits is not known");
    assert_eq!(to_do.len(), 1);
}

#[test]
fn volumes_without_a_gateway_may_hold_something() {
    let mut status = well(&[]);
    status["queue"] = json!({"blocks": 0, "bytes": 0});
    status["volumes"] = json!({"desired": "1Gi", "resized": 3, "pending": 0, "drained": 0, "orphaned": 1});
    let line = Story::of(&pipeline(&status)).queue;
    let left = "1 queue volume without a gateway may hold something";
    assert_eq!(line, format!("nothing waits on the queue volumes of the gateways; {left}"));
}

#[test]
fn a_pipeline_that_references_a_connection_names_it() {
    let lines = |status: &Value| {
        let mut object = serde_json::to_value(pipeline(status)).unwrap();
        let named = json!({"name": "main"});
        object["spec"]["source"]["kafka"] = json!({"topics": ["otlp_spans"], "connectionRef": named});
        object["spec"]["sink"]["clickhouse"] = json!({"connectionRef": named});
        let story = Story::of(&serde_json::from_value(object).unwrap());
        (story.reads, story.writes, story.to_do)
    };
    let mut status = well(&[]);
    let (reads, writes, _) = lines(&status);
    assert_eq!(reads, "otlp_spans (12 partitions) as tracing.prod from the TraceConnection main");
    assert_eq!(writes, "otel.otel_traces at the servers of the TraceConnection main");
    status["bootstrapServers"] = json!(["kafka:9092"]);
    let reads = lines(&status).0;
    assert!(reads.ends_with("from kafka:9092 (TraceConnection main)"), "{reads}");
    let missing = well(&[
        condition("Ready", "False", "ConnectionMissing", "no brokers; no servers"),
        condition("SourceReachable", "False", "ConnectionMissing", "no brokers"),
        condition("SinkReachable", "False", "ConnectionMissing", "no servers"),
    ]);
    let expected = [
        "SourceReachable is false (ConnectionMissing): no brokers",
        "SinkReachable is false (ConnectionMissing): no servers",
    ];
    assert_eq!(lines(&missing).2, expected);
}

#[test]
fn a_field_that_the_next_release_does_not_read_is_named_last() {
    let mut object = pipeline(&well(&[]));
    object.spec.gateway.resources =
        serde_json::from_value(json!({"memory": "256Mi", "cpuRequest": "500m"})).unwrap();
    let story = Story::of(&object);
    assert_eq!(
        (story.ready, story.to_do),
        (
            true,
            vec![
                "spec.gateway.resources.memory is deprecated, and the next release does not read it: use \
                 spec.gateway.resources.limits.memory"
                    .to_owned()
            ]
        )
    );
}

#[test]
fn what_a_person_must_do_is_said_once_each() {
    let missing = "Kafka has no topic \"otlp_spans\"";
    let story = Story::of(&pipeline(&well(&[
        condition("Ready", "False", "SourceUnavailable", missing),
        condition("SourceReachable", "False", "TopicMissing", missing),
        condition("SchemaReady", "False", "JobRunning", "the schema Job is running"),
        condition("Stalled", "True", "TopicMissing", missing),
        condition("ScalingLimited", "True", "MaxReplicas", "16 are wanted, scaling.maxReplicas is 12"),
        condition("Reconciling", "True", "Waiting", missing),
    ])));
    assert!(!story.ready);
    assert_eq!(story.now, format!("Waiting: {missing}"));
    assert_eq!(
        story.to_do,
        [
            format!("SourceReachable is false (TopicMissing): {missing}"),
            "scaling is limited (MaxReplicas): 16 are wanted, scaling.maxReplicas is 12".into(),
        ]
    );
}

#[test]
fn an_edge_has_a_line_and_what_keeps_its_pods_is_for_a_person() {
    let with_edge = |status: &Value| {
        let mut object = pipeline(status);
        let edge = json!({"http": {"port": 80}});
        object.spec.edge = Some(Box::new(serde_json::from_value(edge).unwrap()));
        Story::of(&object)
    };
    assert_eq!(Story::of(&pipeline(&well(&[]))).edge, None);
    let starts =
        with_edge(&well(&[condition("EdgeReady", "False", "Progressing", "is about to be started")]));
    assert_eq!(starts.edge.as_deref(), Some("no pods yet; OTLP at prod-edge:4317 (gRPC) and 80 (HTTP)"));
    assert_eq!(starts.to_do, [""; 0]);
    let words = "1 of 2 pods of the edge is ready; prod-edge-a: ImagePullBackOff";
    let mut status = well(&[condition("EdgeReady", "False", "ReplicasNotReady", words)]);
    status["edge"] = json!({"replicas": 2, "readyReplicas": 1});
    let unready = with_edge(&status);
    assert!(unready.to_string().contains("\n  edge      1 of 2 pods ready; OTLP at "), "{unready}");
    assert_eq!(unready.to_do, [format!("EdgeReady is false (ReplicasNotReady): {words}")]);
    let leaving = Story::of(&pipeline(&status));
    assert_eq!(leaving.edge.as_deref(), Some("is removed, 2 pods left"));
}

#[test]
fn messages_that_gateways_reject_are_for_a_person_beside_a_pipeline_that_is_ready() {
    let words = "gateways reject some of the messages (malformed)";
    let rejected = condition("SourceReachable", "True", "MessagesRejected", words);
    let story = Story::of(&pipeline(&well(&[rejected])));
    assert_eq!((story.ready, story.to_do), (true, vec![words.to_owned()]));
}

#[test]
fn a_gateway_that_is_not_ready_is_no_rollout() {
    let words = "2 of 3 gateways are ready; not ready: prod-gateway-1";
    let unready = [
        condition("Ready", "False", "Progressing", words),
        condition("Reconciling", "True", "RollingOut", words),
    ];
    let rollout = |state: &str| {
        let mut status = well(&unready);
        status["rollout"] =
            json!({"state": state, "revision": "b", "since": "2026-01-01T00:00:00Z", "message": ""});
        Story::of(&pipeline(&status)).now
    };
    assert_eq!(rollout("Complete"), words);
    assert_eq!(rollout("Rolling"), format!("RollingOut: {words}"));
}

#[test]
fn a_volume_that_no_node_reaches_is_for_a_person() {
    let words = "prod-gateway-1: no node that reaches the volume pvc-7 takes it";
    let kept = [condition("Ready", "False", "VolumeOutOfReach", words)];
    assert_eq!(Story::of(&pipeline(&well(&kept))).to_do, [words]);
}

#[test]
fn whatever_waits_for_a_person_is_said_in_its_own_words() {
    for (kind, status, reason, words) in [
        ("Ready", "False", "ConsumerGroupTaken", "the pipeline a/b has the same consumer group"),
        ("Ready", "False", "PartitionsLost", "the topic \"spans\" has 2 partitions and had 8"),
        ("Ready", "False", "ApplyFailed", "cannot apply the StatefulSet a: exceeded quota (status 403)"),
        (
            "Ready",
            "False",
            "PodsRefused",
            "0 of 3 gateways exist; Kubernetes does not create the others: quota",
        ),
        ("Ready", "False", "StorageClassMissing", "there is no StorageClass \"fast\""),
        ("VolumesResized", "False", "StorageClassMissing", "there is no StorageClass \"fast\""),
        ("Ready", "False", "ReplicasNotReady", "prod-gateway-0: ImagePullBackOff, no such image"),
        ("Ready", "False", "JobNotStarted", "the schema Job does not start: prod-schema-1-x: Unschedulable"),
        (
            "VolumesResized",
            "False",
            "Replacing",
            "the API server does not let their claims be deleted: forbidden",
        ),
        ("VolumesResized", "False", "Resizing", "queue-a-gateway-0 does not grow (NodeResizeInfeasible)"),
        ("VolumesDrained", "False", "DrainFailed", "queue-a-gateway-1 could not be drained"),
        (
            "VolumesDrained",
            "False",
            "Draining",
            "the Job a-drain-1 does not start: a-drain-1-x: Unschedulable",
        ),
        (
            "VolumesDrained",
            "True",
            "NotDeleted",
            "the API server does not let their claims be deleted: forbidden",
        ),
    ] {
        let story = Story::of(&pipeline(&well(&[condition(kind, status, reason, words)])));
        assert_eq!(story.to_do, [words], "{kind} {reason}");
    }
    for (kind, status, reason) in [("VolumesResized", "False", "Resizing"), ("Ready", "False", "Progressing")]
    {
        let story = Story::of(&pipeline(&well(&[condition(kind, status, reason, "1 of 3")])));
        assert_eq!(story.to_do, Vec::<String>::new(), "{kind} {reason} passes");
    }
    // If the source and the pipeline have the same message, it is printed once.
    let twice = ["Ready", "SourceReachable"].map(|kind| condition(kind, "False", "PartitionsLost", "2 of 8"));
    assert_eq!(
        Story::of(&pipeline(&well(&twice))).to_do,
        ["SourceReachable is false (PartitionsLost): 2 of 8"]
    );
}

#[test]
fn a_guarantee_that_is_less_than_once_is_said_with_its_remedy() {
    let mut less = well(&[]);
    less["delivery"] = json!({"guarantee": "AtLeastOnce", "reason": "WindowOff"});
    let story = Story::of(&pipeline(&less));
    assert!(story.ready && story.to_do.len() == 1, "{:?}", story.to_do);
    assert!(
        story.to_do[0].starts_with("rows may be stored twice (WindowOff): ALTER TABLE"),
        "{:?}",
        story.to_do
    );
}

#[test]
fn what_rows_survive_is_said_behind_what_is_promised() {
    for (durability, expected) in [
        ("process", "; it survives the end of the ClickHouse process, not a power failure of its host"),
        ("fsync", "; it survives a power failure of ClickHouse's host"),
        ("quorum", "; it survives the loss of a ClickHouse host"),
        ("unknown", "; what it survives is unknown"),
    ] {
        let mut durable = well(&[]);
        durable["delivery"]["durability"] = json!(durability);
        let told = Story::of(&pipeline(&durable)).delivery;
        assert_eq!(told, format!("ExactlyOnceEffect: every row is in the table once{expected}"));
    }
}

#[test]
fn messages_that_kafka_deleted_unread_are_said_beside_what_is_promised() {
    let mut lost = well(&[]);
    lost["loss"] = json!({"messages": 40_000, "lastTime": "2026-01-01T00:00:00Z"});
    let story = Story::of(&pipeline(&lost));
    assert_eq!(
        story.delivery,
        "ExactlyOnceEffect: every row is in the table once; but Kafka deleted 40000 messages before they were read, last noticed \
         at 2026-01-01T00:00:00Z"
    );
    assert_eq!(serde_json::to_value(&story).unwrap()["lostMessages"], 40_000);
}

#[test]
fn a_pipeline_that_is_left_alone_is_not_said_to_want_nothing() {
    let mut alone = pipeline(&well(&[]));
    alone.spec.management_state = ManagementState::Unmanaged;
    let story = Story::of(&alone);
    assert!(story.to_string().starts_with("tracing/prod: ready, unmanaged\n"), "{story}");
    assert!(story.to_do[0].starts_with("managementState is Unmanaged"), "{:?}", story.to_do);
}

#[test]
fn memory_that_was_given_in_place_is_to_be_kept_by_a_person() {
    let mut given = well(&[]);
    given["memoryResizes"] =
        json!([{"pod": "prod-gateway-2", "uid": "u", "memory": "384Mi", "ends": 1, "state": "Done"}]);
    assert_eq!(
        Story::of(&pipeline(&given)).to_do,
        [
            "prod-gateway-2 was resized to 384Mi in place; set gateway.resources.limits.memory: 384Mi to keep it"
        ]
    );
    let words = "gateways run out; prod-gateway-2 was resized to 384Mi in place; set gateway.resources.limits.memory: 384Mi to keep it";
    given["conditions"].as_array_mut().unwrap().push(condition("ScalingLimited", "True", "Memory", words));
    assert_eq!(Story::of(&pipeline(&given)).to_do.len(), 1, "it is said once");
}

#[test]
fn a_suspended_pipeline_says_so_before_all_else() {
    let words = "the pipeline is suspended: no gateway runs";
    let mut resting = well(&[
        condition("Ready", "True", "Suspended", words),
        condition("Suspended", "True", "Suspended", words),
    ]);
    resting["desiredReplicas"] = json!(0);
    let story = Story::of(&pipeline(&resting));
    assert!(story.to_string().starts_with("tracing/prod: suspended, nothing is read\n"), "{story}");
    assert_eq!((story.ready, story.suspended, story.now.as_str()), (true, true, words));
    assert_eq!(story.to_do, Vec::<String>::new());

    let leaving = well(&[
        condition("Ready", "False", "Suspended", "3 gateways leave"),
        condition("Reconciling", "True", "Draining", "3 gateways leave"),
        condition("Suspended", "False", "Draining", "3 gateways leave"),
    ]);
    let story = Story::of(&pipeline(&leaving));
    assert!(story.to_string().starts_with("tracing/prod: not ready\n"), "{story}");
    assert_eq!((story.suspended, story.now.as_str()), (false, "Draining: 3 gateways leave"));
}

#[test]
fn what_nobody_has_said_is_not_made_up() {
    let story = Story::of(&pipeline(&json!({"observedGeneration": -1})));
    assert_eq!((story.ready, story.now.as_str()), (false, UNSEEN));
    assert_eq!((story.behind.as_str(), story.delivery.as_str()), ("unknown", "unknown"));
    assert_eq!(
        (story.runs.as_str(), story.size.as_str()),
        ("no gateways yet", "Fixed: one gateway for 4 partitions")
    );
    // If the spec is newer than its conditions, the pipeline is not ready, whatever these say.
    let mut older = well(&[]);
    older["observedGeneration"] = json!(1);
    let story = Story::of(&pipeline(&older));
    assert_eq!(
        (story.ready, story.now.as_str()),
        (false, "the operator has not reconciled the newest spec yet")
    );
}
