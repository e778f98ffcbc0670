//! Suspended, left alone, deleted, refused: what is decided, and what is said of it.

use crate::{defaults, observed, planned, sample, statuses::running, statuses::said, with};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;
use sluice_crds::{
    DeletionPolicy, DrainOutcome, DrainState, DrainStatus, FINALIZER, ManagementState, OnTimeout, QueueMode,
    QueueStatus, Resources, ScalingMode, SuspensionStatus, TopicStatus, TracePipeline, TracePipelineStatus,
};
use sluice_plan::{
    ClaimSeen, Intent, Moment, Observed, Planned, SourceFailure, StorageClassSeen, TopicSeen, WorkloadSeen,
    drain::{
        Answer, Seen, Terms,
        lifecycle::{LetGo, Removal, has_finalizer, needs_finalizer, removal, suspension, terms, there},
        request, step,
    },
    plan, removing,
};
use std::collections::BTreeMap;

/// The moment at which pipelines of these tests are deleted, in seconds.
const DELETED: u64 = 1_767_225_600;

fn at(seconds: u64) -> Moment {
    Moment((DELETED + seconds) * 1_000)
}

fn time() -> Time {
    Time("2026-01-01T00:00:00Z".parse().unwrap())
}

fn deleted(policy: DeletionPolicy) -> TracePipeline {
    let mut pipeline = sample("tracepipeline.yaml");
    pipeline.metadata.deletion_timestamp = Some(time());
    pipeline.metadata.finalizers = Some(vec!["another".into(), FINALIZER.into()]);
    pipeline.spec.deletion_policy = policy;
    pipeline
}

fn workload(wanted: u32) -> WorkloadSeen {
    WorkloadSeen { wanted, replicas: wanted, ready: wanted, ..WorkloadSeen::default() }
}

fn in_mode(mode: ScalingMode) -> TracePipeline {
    let mut pipeline = sample("tracepipeline.yaml");
    pipeline.spec.scaling.mode = mode;
    pipeline.spec.replicas = (mode == ScalingMode::External).then_some(3);
    pipeline
}

fn summary(status: &TracePipelineStatus) -> [String; 5] {
    ["Ready", "Reconciling", "Stalled", "Suspended", "ReconciliationPaused"].map(|kind| {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        format!("{}/{}", found.status, found.reason)
    })
}

fn message(status: &TracePipelineStatus) -> &str {
    &status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap().message
}

#[test]
fn to_go_is_before_to_be_left_alone_and_that_before_to_rest() {
    use ManagementState::{Managed, Unmanaged};
    for (state, suspend, is_deleted, expected) in [
        (Managed, false, false, Intent::Run),
        (Managed, true, false, Intent::Suspend),
        (Unmanaged, true, false, Intent::LeaveAlone),
        (Unmanaged, true, true, Intent::Remove),
        (Managed, false, true, Intent::Remove),
    ] {
        let mut pipeline = sample("tracepipeline.yaml");
        pipeline.spec.management_state = state;
        pipeline.spec.suspend = suspend;
        pipeline.metadata.deletion_timestamp = is_deleted.then(time);
        assert_eq!(Intent::of(&pipeline), expected, "{state:?} {suspend} {is_deleted}");
    }
}

#[test]
fn a_suspended_pipeline_says_so_on_its_way_and_when_it_rests() {
    let (mut pipeline, busy) = running(&json!({}), &[]);
    pipeline.spec.suspend = true;
    let status = said(&pipeline, &busy);
    let way = ["False/Suspended", "True/Draining", "False/Ok", "False/Draining", "False/Managed"];
    assert_eq!(summary(&status), way);
    assert_eq!(
        (status.desired_replicas, status.suspension),
        (Some(0), Some(SuspensionStatus { replicas: 3, ..SuspensionStatus::default() }))
    );
    assert_eq!(status.ready.as_deref(), Some("3/0"));
    assert!(message(&status).contains("for at most 15m"), "{}", message(&status));
    let rests = ["True/Suspended", "False/Suspended", "False/Ok", "True/Suspended", "False/Managed"];
    // Gateways without their StatefulSet read on: it does not rest before they are gone.
    let mut alone = Observed { workload: None, ..busy.clone() };
    alone.volumes.left_alone = Some(3);
    let status = said(&pipeline, &alone);
    assert_eq!(summary(&status), way);
    assert_eq!(status.suspension, Some(SuspensionStatus { replicas: 3, ..SuspensionStatus::default() }));
    // Also when it never ran, and with Kafka, the topic or the Secret away.
    let away = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    for topic in [TopicSeen::Known(12), TopicSeen::Missing, away] {
        for there in [None, Some(workload(0))] {
            let partitions = [("otlp_spans".into(), topic.clone())].into();
            let facts = Observed { partitions, workload: there, ..busy.clone() };
            assert_eq!(summary(&said(&pipeline, &facts)), rests, "{facts:?}");
        }
    }
}

#[test]
fn a_spec_that_is_wrong_is_said_to_be_so_also_of_a_suspended_pipeline() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.suspend = true;
    pipeline.spec.gateway.resources = Resources::default().with_memory("64Mi");
    assert_eq!(
        summary(&said(&pipeline, &facts))[..3],
        ["False/SpecInvalid", "False/SpecInvalid", "True/SpecInvalid"]
    );
}

#[test]
fn a_pipeline_that_is_left_alone_is_counted_and_compared_with_nothing() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.management_state = ManagementState::Unmanaged;
    // What is planned differs from what runs; for now the status must not report that.
    pipeline.spec.replicas = Some(7);
    let status = said(&pipeline, &facts);
    let well = ["True/Running", "False/Unmanaged", "False/Ok", "False/Ok", "True/Unmanaged"];
    assert_eq!(summary(&status), well);
    assert!(message(&status).starts_with("3 of 3 gateways are ready"), "{}", message(&status));
    let (_, facts) = running(&json!({"readyReplicas": 1}), &[]);
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status)[0], "False/ReplicasNotReady");
}

#[test]
fn as_many_come_back_as_there_were_where_nothing_else_says_how_many() {
    use ScalingMode::{Auto, External, Fixed, Recommend};
    for (mode, replicas) in [(Auto, 5), (Recommend, 5), (Fixed, 3), (External, 3)] {
        let mut pipeline = in_mode(mode);
        let well = observed(&pipeline, 12);
        let facts = |wanted| Observed { workload: Some(workload(wanted)), ..well.clone() };
        pipeline.spec.suspend = true;
        pipeline.status = Some(said(&pipeline, &facts(5)));
        assert_eq!(
            pipeline.status.as_ref().unwrap().suspension,
            Some(SuspensionStatus { replicas: 5, ..SuspensionStatus::default() })
        );
        pipeline.status = Some(said(&pipeline, &facts(0)));
        let config = planned(&pipeline, &facts(0)).config_hash();
        pipeline.spec.suspend = false;
        let back = planned(&pipeline, &facts(0));
        assert_eq!((back.replicas(), back.config_hash()), (replicas, config), "{mode:?}");
        // Until they are there it is remembered, by whichever operator; afterwards scaling goes on from them.
        let is_remembered = suspension(&pipeline, Some(&workload(0))).is_some();
        assert_eq!(is_remembered, matches!(mode, Auto | Recommend), "{mode:?}");
        assert_eq!(suspension(&pipeline, Some(&workload(5))), None);
    }
}

#[test]
fn it_is_remembered_of_a_rest_that_kafka_had_offsets_of_the_group() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let mut has_committed = |suspend, has_committed| {
        pipeline.spec.suspend = suspend;
        let status =
            said(&pipeline, &Observed { has_committed, workload: Some(workload(0)), ..facts.clone() });
        let remembered = status.suspension.map(|suspension| suspension.has_committed);
        pipeline.status = Some(status);
        remembered
    };
    assert_eq!(has_committed(false, true), None, "it runs");
    assert_eq!(has_committed(true, false), Some(false));
    assert_eq!(has_committed(true, true), Some(true));
    assert_eq!(has_committed(true, false), Some(true), "they are forgotten, or Kafka is away");
}

#[test]
fn gateways_on_their_way_out_are_none_that_come_back() {
    let mut pipeline = in_mode(ScalingMode::Auto);
    pipeline.spec.suspend = true;
    let drain = |state| DrainStatus {
        state,
        target: 2,
        from: 5,
        since: time(),
        reason: String::new(),
        outcome: None,
    };
    for (state, replicas) in [(DrainState::Draining, 2), (DrainState::Waiting, 5)] {
        let scaling = sluice_crds::ScalingStatus { drain: Some(drain(state)), ..Default::default() };
        pipeline.status =
            Some(TracePipelineStatus { scaling: Some(scaling), ..TracePipelineStatus::default() });
        assert_eq!(
            suspension(&pipeline, Some(&workload(5))),
            Some(SuspensionStatus { replicas, ..SuspensionStatus::default() }),
            "{state:?}"
        );
    }
}

#[test]
fn who_leaves_for_good_is_not_waited_for_for_ever() {
    let mut pipeline = sample("tracepipeline.yaml");
    assert_eq!(terms(&pipeline).unwrap().on_timeout, OnTimeout::Abort);
    pipeline.spec.suspend = true;
    // Kafka may not have any more what they hold: their volumes stay.
    assert_eq!(terms(&pipeline), Some(Terms { timeout_seconds: 900, on_timeout: OnTimeout::Job }));
    // A removal has the deletion's own limit.
    let removed = terms(&deleted(DeletionPolicy::Drain)).unwrap();
    assert_eq!(removed, Terms { timeout_seconds: u32::MAX, on_timeout: OnTimeout::Job });
    pipeline.spec.queue.mode = QueueMode::Disabled;
    assert_eq!(terms(&pipeline), Some(Terms { timeout_seconds: 900, on_timeout: OnTimeout::Force }));
}

#[test]
fn a_removal_does_what_the_policy_says() {
    use DeletionPolicy::{Drain, Immediate, Orphan};
    let there = Some(workload(2));
    for (policy, seconds, seen, expected) in [
        (Immediate, 0, &there, Removal::LetGo(LetGo::AtOnce)),
        (Drain, 0, &there, Removal::Drain),
        (Drain, 899, &there, Removal::Drain),
        (Drain, 900, &there, Removal::LetGo(LetGo::Late(900))),
        (Drain, 0, &None, Removal::LetGo(LetGo::Empty)),
        (Drain, 5_000, &None, Removal::LetGo(LetGo::Empty)),
        (Orphan, 899, &there, Removal::Orphan),
        (Orphan, 899, &None, Removal::Orphan),
        (Orphan, 900, &None, Removal::LetGo(LetGo::Late(900))),
    ] {
        let found = removal(at(seconds), &deleted(policy), seen.as_ref());
        assert_eq!(found, expected, "{policy:?} {seconds} {seen:?}");
    }
    let mut free = deleted(Drain);
    free.metadata.finalizers = Some(vec!["another".into()]);
    assert_eq!(removal(at(0), &free, there.as_ref()), Removal::Free);
    assert!(has_finalizer(&deleted(Drain)) && !has_finalizer(&free));
    for (policy, expected) in [(Immediate, false), (Drain, true), (Orphan, true)] {
        assert_eq!(needs_finalizer(&deleted(policy)), expected);
    }
}

/// If a gateway did not confirm that its volume was empty, the volume does not count as empty.
#[test]
fn a_suspended_pipeline_remembers_whether_each_gateway_was_empty() {
    let (mut pipeline, mut busy) = running(&json!({}), &[]);
    pipeline.spec.suspend = true;
    busy.volumes.claims = (0..3)
        .map(|ordinal| ClaimSeen { ordinal, is_bound: true, has_gateway: true, ..ClaimSeen::default() })
        .collect();
    let drained = |status: &TracePipelineStatus| {
        let found = status.conditions.iter().find(|one| one.type_ == "VolumesDrained").unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    };
    for (outcome, is_empty) in
        [(DrainOutcome::Empty, true), (DrainOutcome::Unconfirmed, false), (DrainOutcome::TimedOut, false)]
    {
        let drain = |outcome| DrainStatus {
            state: DrainState::Draining,
            target: 0,
            from: 3,
            since: time(),
            reason: String::new(),
            outcome,
        };
        pipeline.status = None;
        busy.scaling.drain = Some(drain(None));
        let status = said(&pipeline, &busy);
        assert!(!status.suspension.unwrap().is_empty, "they drain");
        pipeline.status = Some(status);
        busy.scaling.drain = Some(drain(Some(outcome)));
        let status = said(&pipeline, &busy);
        assert_eq!(status.suspension, Some(SuspensionStatus { replicas: 3, is_empty, has_committed: false }));
        pipeline.status = Some(status);
        let mut gone = Observed { workload: Some(workload(0)), ..busy.clone() };
        gone.scaling.drain = None;
        for claim in &mut gone.volumes.claims {
            claim.has_gateway = false;
        }
        let rests = said(&pipeline, &gone);
        assert_eq!(rests.suspension, pipeline.status.as_ref().unwrap().suspension, "it is remembered");
        let (status, reason, message) = drained(&rests);
        if is_empty {
            assert_eq!((&*status, &*reason), ("True", "Ok"), "{message}");
            assert!(message.starts_with("every gateway had inserted"), "{message}");
        } else {
            assert_eq!((&*status, &*reason), ("False", "Draining"), "{message}");
            assert!(message.starts_with("3 queue volumes may hold blocks"), "{message}");
        }
    }
}

#[test]
fn a_limit_that_cannot_be_read_is_the_default_one() {
    let mut pipeline = deleted(DeletionPolicy::Drain);
    pipeline.spec.scaling.drain.timeout = "soon".into();
    assert_eq!(removal(at(899), &pipeline, Some(&workload(1))), Removal::Drain);
    assert_eq!(removal(at(900), &pipeline, Some(&workload(1))), Removal::LetGo(LetGo::Late(900)));
}

#[test]
fn a_pipeline_that_is_deleted_says_what_is_waited_for_and_keeps_what_was_said_of_the_rest() {
    let (before, facts) = running(&json!({}), &[]);
    let mut pipeline = deleted(DeletionPolicy::Drain);
    let said_before = said(&before, &facts);
    pipeline.status = Some(said_before.clone());
    let drain = DrainStatus {
        state: DrainState::Draining,
        target: 0,
        from: 3,
        since: time(),
        reason: "1 of 3 are empty".into(),
        outcome: None,
    };
    let mut facts = Observed { workload: facts.workload, ..Observed::default() };
    facts.scaling.drain = Some(drain);
    let status = removing(&pipeline, &facts, &time());
    assert_eq!(summary(&status)[..3], ["False/Deleting", "True/Draining", "False/Ok"]);
    assert!(message(&status).ends_with("for at most 15m: 1 of 3 are empty"), "{}", message(&status));
    let reachable = status.conditions.iter().find(|condition| condition.type_ == "SourceReachable").unwrap();
    assert_eq!((reachable.status.as_str(), status.topics.len()), ("True", 1));
    assert_eq!(status.conditions.len(), said_before.conditions.len());
    // Said again it is no news.
    pipeline.status = Some(status.clone());
    assert_eq!(removing(&pipeline, &facts, &Time("2026-01-01T00:01:00Z".parse().unwrap())), status);
}

#[test]
fn a_topic_that_lost_partitions_is_waited_for_until_somebody_says_that_it_is_meant() {
    let (mut pipeline, mut facts) = running(&json!({}), &[]);
    pipeline.status = Some(said(&pipeline, &facts));
    facts.partitions = [("otlp_spans".into(), TopicSeen::Known(4))].into();
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status)[..3], ["False/PartitionsLost", "True/Waiting", "False/Ok"]);
    assert!(message(&status).contains("has 4 partitions and had 12"), "{}", message(&status));
    assert_eq!(
        status.topics,
        [TopicStatus { name: "otlp_spans".into(), partitions: 12 }],
        "it is not forgotten"
    );
    pipeline.spec.suspend = true;
    let resting = said(&pipeline, &Observed { workload: Some(workload(0)), ..facts.clone() });
    assert_eq!(resting.topics[0].partitions, 4);
    (pipeline.spec.suspend, pipeline.status) = (false, Some(resting));
    assert_eq!(planned(&pipeline, &facts).partitions(), 4);
}

#[test]
fn an_unknown_storage_class_is_named_before_any_claim_is_made_of_it() {
    let pipeline = with("/spec/queue", json!({"mode": "Spill", "size": "1Gi", "storageClassName": "fast"}));
    let facts = |class, workload| Observed { storage_class: class, workload, ..observed(&pipeline, 12) };
    let missing = said(&pipeline, &facts(StorageClassSeen::Missing, None));
    assert_eq!(summary(&missing)[..2], ["False/StorageClassMissing", "True/Waiting"]);
    assert!(message(&missing).contains("no StorageClass \"fast\"; create it"), "{}", message(&missing));
    for (class, there) in [
        (StorageClassSeen::Missing, Some(workload(3))),
        (StorageClassSeen::Present, None),
        (StorageClassSeen::NotAsked, None),
    ] {
        let found = plan(&pipeline, &facts(class, there), &defaults());
        assert!(matches!(found, Ok(Planned::Ready(_))), "{class:?}");
    }
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        Just(Answer::Gone),
        Just(Answer::Silent),
        (1u64..9).prop_map(|blocks| Answer::Holds { blocks }),
    ]
}

proptest! {
    #[test]
    fn a_suspension_ends_within_its_limit_whatever_gateways_answer(
        gateways in 1u32..6, rounds in proptest::collection::vec(proptest::collection::vec(answers(), 6), 40),
    ) {
        const LIMIT: u32 = 60;
        let terms = Terms { timeout_seconds: LIMIT, on_timeout: OnTimeout::Force };
        let mut written: Option<DrainStatus> = None;
        for (round, said) in (0u64..).zip(&rounds) {
            let now = Moment(round * 2_000);
            // What is asked follows from what is written, so that an operator that begins anew asks the same.
            let asked = request(written.as_ref()).map_or(0..0, |(_, ordinals)| ordinals);
            let answers = asked.map(|ordinal| (ordinal, said[usize::try_from(ordinal).unwrap()])).collect();
            let (running, away, stopped) = ((0..gateways).collect(), Vec::new(), BTreeMap::new());
            let seen = Seen { current: gateways, wanted: 0, running, away, answers, stopped, has_kafka: true };
            let next = step(now, terms, written.as_ref(), &seen);
            if next.replicas == 0 {
                let all_empty = seen.answers.values().all(|answer| matches!(answer, Answer::Done | Answer::Gone));
                prop_assert!(all_empty || round * 2 >= u64::from(LIMIT), "taken away too early");
                return Ok(());
            }
            written = next.next;
        }
        prop_assert!(false, "still there after 80 s: {:?}", written);
    }

    #[test]
    fn a_removal_waits_for_nothing_once_its_limit_is_over(
        seconds in 0u64..20_000, limit in 10u32..10_000, there in proptest::option::of(0u32..9),
        alone in proptest::option::of(1u32..9), orphan: bool,
    ) {
        let mut pipeline = deleted(if orphan { DeletionPolicy::Orphan } else { DeletionPolicy::Drain });
        pipeline.spec.scaling.drain.timeout = format!("{limit}s");
        let mut facts = Observed { workload: there.map(workload), ..Observed::default() };
        facts.volumes.left_alone = alone.filter(|_| there.is_none());
        let is_let_go = matches!(removal(at(seconds), &pipeline, self::there(&facts).as_ref()), Removal::LetGo(_));
        let is_late = seconds >= u64::from(limit);
        // Pods without their StatefulSet are gateways as others are.
        let is_empty = there.is_none() && alone.is_none();
        prop_assert_eq!(is_let_go, is_late || (!orphan && is_empty));
    }
}

#[test]
fn a_queue_that_is_not_known_is_never_written_as_empty() {
    let queue = |blocks, bytes| Some(QueueStatus { blocks, bytes });
    let written = |before: Option<QueueStatus>, seen: Option<QueueStatus>| {
        let (mut pipeline, facts) = running(&json!({}), &[]);
        pipeline.status = Some(TracePipelineStatus { queue: before, ..TracePipelineStatus::default() });
        said(&pipeline, &Observed { queue: seen, ..facts }).queue
    };
    assert_eq!(written(queue(0, 4_096), None), None);
    assert_eq!(written(queue(3, 24_000_000), None), queue(3, 24_000_000), "as last known");
    assert_eq!(written(queue(3, 24_000_000), queue(0, 0)), queue(0, 0), "every gateway has said it");
}
