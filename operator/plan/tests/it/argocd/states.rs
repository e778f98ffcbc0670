//! Situations whose statuses no end-to-end test reads off a cluster, each with why, and what the facts are in it.

use crate::{
    observed, planned, sample,
    statuses::{running, said},
    volumes::{growing, unscheduled},
    with,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;
use sluice_crds::{
    DrainState, DrainStatus, QueueMode, RolloutState, RolloutStatus, ScalingMode, ScalingStatus,
    SchemaManagement, SecretUse, TopicStatus, TracePipeline, status::reason,
};
use sluice_plan::{
    DrainJobSeen, DrainJobState, Hindrance, Observed, SchemaFailed, SchemaFailure, SchemaSeen, SecretSeen,
    SourceFailure, TopicSeen, removing, rollout,
};

/// A state that is over before a test that waits for it can be sure to see it.
const BRIEF: &str = "It lasts for less than the time between two looks of a test";
/// A state that takes what the local stack has not.
const FOREIGN: &str = "It takes a storage driver, a zone or an admission policy that the local stack has not, or a test that plays it";
/// A state that an end-to-end test causes, beside others that are exported, without stopping at it.
const PASSED: &str = "An end-to-end test causes it; its conditions are those of a state like it";

/// A state that takes an API server that refuses what it takes from every other pipeline.
const REFUSED: &str = "It takes a quota, a policy or a webhook that the local stack has not";

/// One situation.
pub struct State {
    pub name: String,
    /// Why it is not read off a cluster.
    pub why: &'static str,
    pub pipeline: TracePipeline,
    pub facts: Observed,
}

fn time() -> Time {
    Time("2026-01-01T00:00:00Z".parse().unwrap())
}

/// All of them.
pub fn states() -> Vec<State> {
    let state = |(name, why, (pipeline, facts)): Named| State { name: name.to_owned(), why, pipeline, facts };
    let of_all: [Vec<Named>; 6] =
        [of_gateways(), of_rollouts(), of_intent(), of_hindrances(), of_the_source(), of_volumes()];
    of_all.into_iter().flatten().map(state).chain(of_the_sink()).collect()
}

type Named = (&'static str, &'static str, (TracePipeline, Observed));

fn well() -> (TracePipeline, Observed) {
    running(&json!({}), &[])
}

fn but(change: impl FnOnce(&mut TracePipeline, &mut Observed)) -> (TracePipeline, Observed) {
    let (mut pipeline, mut facts) = well();
    change(&mut pipeline, &mut facts);
    (pipeline, facts)
}

fn of_gateways() -> Vec<Named> {
    let crashes: Pod = serde_json::from_value(json!({
        "metadata": {"name": "demo-gateway-0"},
        "status": {"containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false,
            "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 69, "message": "no such user"}}}]},
    }))
    .unwrap();
    let scaled = |mode, replicas| {
        but(move |pipeline, facts| {
            pipeline.spec.scaling.mode = mode;
            pipeline.spec.replicas = replicas;
            let scaling = ScalingStatus { recommended_replicas: Some(3), ..ScalingStatus::default() };
            pipeline.status.get_or_insert_default().scaling = Some(scaling);
            // It runs with what is planned in that mode.
            let plan = planned(pipeline, facts);
            let workload = facts.workload.as_mut().unwrap();
            workload.plan_hash = Some(rollout::plan_hash(&plan));
            workload.revision = Some(rollout::revision(&plan));
        })
    };
    vec![
        ("running", PASSED, well()),
        ("rolling", BRIEF, running(&json!({"updatedReplicas": 1, "updateRevision": "b"}), &[])),
        ("scaling", BRIEF, running(&json!({"replicas": 2, "readyReplicas": 2}), &[])),
        (
            "about-to-change",
            BRIEF,
            but(|pipeline, _| pipeline.spec.gateway.log_level = sluice_crds::LogLevel::Debug),
        ),
        ("replicas-not-ready", PASSED, running(&json!({"readyReplicas": 2}), &[crashes])),
        ("scaled-by-the-operator", PASSED, scaled(ScalingMode::Auto, None)),
        ("scaled-by-others", PASSED, scaled(ScalingMode::External, Some(3))),
        (
            "scaling-contested",
            PASSED,
            but(|_, facts| facts.scaling.contested = Some("kubectl has set it".into())),
        ),
    ]
}

fn of_rollouts() -> Vec<Named> {
    let rollout = |state| {
        but(move |_, facts| {
            let message = "a gateway is tried".into();
            let (revision, proved, healthy_since, failed_spec) = ("a".into(), None, None, None);
            let since = time();
            facts.rollout =
                Some(RolloutStatus { state, revision, proved, since, healthy_since, message, failed_spec });
        })
    };
    vec![(
        "rollout-failed",
        "It takes a change that fails after the way back was given up",
        rollout(RolloutState::Failed),
    )]
}

fn of_intent() -> Vec<Named> {
    vec![
        ("suspending", BRIEF, but(|pipeline, _| pipeline.spec.suspend = true)),
        ("group-taken", PASSED, but(|_, facts| facts.rival = Some("tracing/older".into()))),
    ]
}

/// What the API server does not take, or does not make.
fn of_hindrances() -> Vec<Named> {
    let hindered = |reason, stays| {
        but(move |_, facts| {
            let message = "statefulsets demo-gateway: exceeded quota".into();
            facts.hindrance = Some(Hindrance { reason, message, stays });
        })
    };
    let (pipeline, mut refused) = running(&json!({"replicas": 2, "readyReplicas": 2}), &[]);
    refused.pods_refused = Some("pods \"demo-gateway-2\" is forbidden: exceeded quota".into());
    vec![
        ("apply-refused", REFUSED, hindered(reason::APPLY_FAILED, true)),
        ("apply-failing", REFUSED, hindered(reason::APPLY_FAILED, false)),
        (
            "malformed",
            "The API server has taken it under an older definition",
            hindered(reason::MALFORMED, true),
        ),
        ("pods-refused", REFUSED, (pipeline, refused)),
    ]
}

fn of_the_source() -> Vec<Named> {
    let seen = |topic| but(|_, facts| facts.partitions = [("otlp_spans".into(), topic)].into());
    let away = |failure| seen(TopicSeen::Unavailable { failure, message: "no answer".into() });
    let incomplete = but(|_, facts| {
        facts.secrets.insert(SecretUse::ClickHouseUser, SecretSeen::KeysMissing { keys: vec!["password"] });
    });
    vec![
        (
            "partitions-lost",
            PASSED,
            but(|pipeline, facts| {
                let topic = TopicStatus { name: "otlp_spans".into(), partitions: 12 };
                pipeline.status.get_or_insert_default().topics = vec![topic];
                facts.partitions = [("otlp_spans".into(), TopicSeen::Known(4))].into();
            }),
        ),
        ("source-away", PASSED, away(SourceFailure::Timeout)),
        ("source-unreachable", PASSED, away(SourceFailure::Unreachable)),
        ("source-refuses-user", PASSED, away(SourceFailure::AuthFailed)),
        ("source-without-tls", PASSED, away(SourceFailure::TlsFailed)),
        ("secret-incomplete", PASSED, incomplete),
    ]
}

fn of_volumes() -> Vec<Named> {
    let grown = |size, claims, change: fn(&mut Observed)| {
        let (pipeline, mut facts) = growing(size, claims);
        change(&mut facts);
        (pipeline, facts)
    };
    let words = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.";
    let (_, unplaced) = running(&json!({"readyReplicas": 2}), &[unscheduled(words)]);
    let (kept, mut out_of_reach) = growing("1Gi", &[(1, 1), (1, 1), (1, 1)]);
    out_of_reach.workload = unplaced.workload;
    let (small, same) = (&[(2, 1), (2, 1), (2, 1)], &[(1, 1), (1, 1), (1, 1), (1, 1)]);
    vec![
        ("volumes-growing", FOREIGN, grown("2Gi", &[(2, 2), (2, 1), (2, 1)], |_| {})),
        (
            "file-systems-pending",
            FOREIGN,
            grown("2Gi", small, |facts| {
                facts.volumes.claims.iter_mut().for_each(|claim| claim.waits_for_file_system = true);
            }),
        ),
        (
            "not-expandable",
            FOREIGN,
            grown("2Gi", &[(1, 1), (1, 1), (1, 1)], |facts| {
                facts.volumes.expandable = [("fast".to_owned(), false)].into();
            }),
        ),
        ("volumes-replacing", BRIEF, grown("1Gi", &[(2, 2), (2, 2), (2, 2)], |_| {})),
        ("volume-out-of-reach", PASSED, (kept, out_of_reach)),
        (
            "volumes-not-drained",
            FOREIGN,
            grown("1Gi", same, |facts| {
                let claim = &mut facts.volumes.claims[3];
                claim.has_gateway = false;
                let state =
                    DrainJobState::Failed { message: "no space".into(), ago: std::time::Duration::ZERO };
                let job = DrainJobSeen {
                    name: "drain".into(),
                    ordinal: 3,
                    claim_uid: claim.uid.clone(),
                    workload_version: "w.1".into(),
                    state,
                    going_for: None,
                };
                facts.volumes.jobs = vec![job];
            }),
        ),
        (
            "volumes-not-deleted",
            FOREIGN,
            grown("1Gi", same, |facts| {
                let claim = &mut facts.volumes.claims[3];
                (claim.has_gateway, claim.is_drained) = (false, true);
                claim.not_deleted = Some("forbidden".into());
            }),
        ),
        ("without-volumes", PASSED, but(|pipeline, _| pipeline.spec.queue.mode = QueueMode::Disabled)),
    ]
}

/// What the schema Job comes to, and what gateways insert.
fn of_the_sink() -> Vec<State> {
    let failed = [
        (reason::COLUMN_MISMATCH, "table-unfit"),
        (reason::TLS_FAILED, "sink-without-tls"),
        (reason::UNREACHABLE, "sink-unreachable"),
        (reason::TIMEOUT, "sink-away"),
        (reason::DATABASE_MISSING, "database-missing"),
        (reason::SCHEMA_DIFFERS, "table-differs"),
        (reason::SERVERS_NOT_REACHED, "servers-not-reached"),
        (reason::JOB_FAILED, "schema-job-failed"),
    ];
    let failed = failed.map(|(reason, name)| {
        let failure = SchemaFailure { reason, message: "what the Job said".into() };
        let schema = SchemaSeen::Failed(SchemaFailed { failure, times: 1, ..SchemaFailed::default() });
        (name, schema)
    });
    let others = [("schema-job-at-work", SchemaSeen::Running), ("not-asked", SchemaSeen::NotStarted)];
    let of_the_job = failed.into_iter().chain(others).map(|(name, schema)| {
        let (pipeline, facts) = well();
        let name = name.to_owned();
        State { name, why: PASSED, pipeline, facts: Observed { schema, ..facts } }
    });
    let unmanaged = with("/spec/sink/clickhouse/schema", json!({"management": "None"}));
    assert_eq!(unmanaged.spec.sink.clickhouse.schema.management, SchemaManagement::None);
    let facts = Observed { schema: SchemaSeen::NotNeeded, ..observed(&unmanaged, 12) };
    let unmanaged = State { name: "table-not-managed".into(), why: PASSED, pipeline: unmanaged, facts };
    of_the_job.chain([unmanaged]).collect()
}

/// A pipeline that is deleted while its gateways insert what they hold.
pub fn draining() -> TracePipeline {
    let (mut pipeline, mut facts) = well();
    pipeline.status = Some(said(&pipeline, &facts));
    pipeline.metadata.deletion_timestamp = Some(time());
    facts.scaling.drain = Some(DrainStatus {
        state: DrainState::Draining,
        target: 0,
        from: 3,
        since: time(),
        reason: "1 of 3 are empty".into(),
    });
    pipeline.status = Some(removing(&pipeline, &facts, &time()));
    pipeline
}

/// The smallest pipeline, before anybody has looked at it.
pub fn unseen() -> TracePipeline {
    sample("tracepipeline.yaml")
}
