//! Volumes that no node reaches: what has to be known before one is given up, and what is said meanwhile.

use super::{growing, unscheduled};
use crate::statuses::{condition, running, said};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::json;
use sluice_crds::{Commit, LossStatus, OnZoneLoss, TopicStatus, TracePipeline, VolumesStatus};
use sluice_plan::{
    Moment, Observed,
    volumes::zone_loss::{OutOfReach, recreated},
};

const WORDS: &str = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.";

/// A second of the test.
fn at(second: u64) -> Time {
    Time(Timestamp::from_millisecond(i64::try_from(moment(second).0).unwrap()).unwrap())
}

fn moment(second: u64) -> Moment {
    Moment(1_767_225_600_000 + second * 1_000)
}

/// The second of three gateways has found no node since second 100; all volumes were empty at second 50.
fn lost() -> (TracePipeline, Observed) {
    let mut pod = unscheduled(WORDS);
    pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = Some(at(100));
    let (_, waiting) = running(&json!({"readyReplicas": 2}), &[pod]);
    let (mut pipeline, facts) = growing("1Gi", &[(1, 1), (1, 1), (1, 1)]);
    pipeline.spec.queue.on_zone_loss = Some(OnZoneLoss::Recreate);
    was_empty(&mut pipeline);
    (pipeline, Observed { workload: waiting.workload, has_uncommitted: true, ..facts })
}

/// At second 50, with the source that the spec has.
fn was_empty(pipeline: &mut TracePipeline) {
    let kafka = pipeline.spec.source.kafka.clone().unwrap();
    let status = pipeline.status.get_or_insert_default();
    status.volumes = Some(VolumesStatus { cache_since: Some(at(50)), ..VolumesStatus::default() });
    status.topics = kafka.topics.into_iter().map(|name| TopicStatus { name, partitions: 12 }).collect();
    status.bootstrap_servers = kafka.bootstrap_servers;
}

fn given_up(second: u64, pipeline: &TracePipeline, facts: &Observed) -> Vec<String> {
    let lost = recreated(moment(second), pipeline, facts);
    lost.map(|OutOfReach { claim, .. }| claim.name.clone()).collect()
}

#[test]
fn a_volume_that_holds_nothing_but_copies_is_given_up_after_ten_minutes() {
    let (pipeline, facts) = lost();
    assert_eq!(given_up(699, &pipeline, &facts), [""; 0]);
    assert_eq!(given_up(700, &pipeline, &facts), ["queue-demo-gateway-1"]);
    let message = condition(&said(&pipeline, &facts), "Ready").message.clone();
    assert!(message.contains("the operator recreates it at 2026-01-01T00:11:40Z"), "{message}");
}

#[test]
fn a_volume_that_may_hold_more_is_not_given_up_and_why_is_said() {
    type Change = fn(&mut TracePipeline, &mut Observed);
    let changes: [(&str, Change); 10] = [
        ("", |pipeline, _| pipeline.spec.queue.on_zone_loss = Some(OnZoneLoss::Wait)),
        ("may hold the only copy", |pipeline, _| pipeline.spec.delivery.commit = Commit::AfterEnqueue),
        ("not all volumes have been empty", |pipeline, _| {
            pipeline.status.as_mut().unwrap().volumes.as_mut().unwrap().cache_since = None;
        }),
        ("not all volumes have been empty", |pipeline, _| {
            let loss = LossStatus { messages: 1, last_time: at(51), gateways: [].into() };
            pipeline.status.as_mut().unwrap().loss = Some(loss);
        }),
        ("not all volumes have been empty", |_, facts| {
            facts.messages_lost.insert(0, 1);
        }),
        ("not all volumes have been empty", |pipeline, _| {
            pipeline.status.as_mut().unwrap().topics[0].name = "another".into();
        }),
        ("not all volumes have been empty", |pipeline, _| {
            pipeline.status.as_mut().unwrap().bootstrap_servers[0] = "another:9092".into();
        }),
        ("Kafka has not confirmed", |_, facts| facts.has_uncommitted = false),
        ("since when the pod is unschedulable", |_, facts| {
            facts.workload.as_mut().unwrap().pods[0].unscheduled_since = None;
        }),
        ("", |_, facts| facts.volumes.claims[1].is_going = true),
    ];
    for (why, change) in changes {
        let (mut pipeline, mut facts) = lost();
        change(&mut pipeline, &mut facts);
        assert_eq!(given_up(10_000, &pipeline, &facts), [""; 0], "{why}");
        let message = condition(&said(&pipeline, &facts), "Ready").message.clone();
        assert!(message.contains(why), "{why}: {message}");
    }
}

#[test]
fn volumes_are_copies_from_when_all_were_seen_empty_until_that_may_have_changed() {
    let (_, all_run) = running(&json!({}), &[]);
    let (pipeline, facts) = growing("1Gi", &[(1, 1), (1, 1), (1, 1)]);
    let facts = Observed { workload: all_run.workload, ..facts };
    let since =
        |pipeline: &TracePipeline, facts: &Observed| said(pipeline, facts).volumes.unwrap().cache_since;
    assert_eq!(since(&pipeline, &facts), None, "nobody has said that they are empty");
    let empty = Observed { has_empty_queue: true, ..facts.clone() };
    let first = since(&pipeline, &empty);
    assert!(first.is_some());

    // From then on it holds, also while they are in use.
    let mut known = pipeline.clone();
    was_empty(&mut known);
    assert_eq!(since(&known, &facts), Some(at(50)));
    let lost = |second| LossStatus { messages: 1, last_time: at(second), gateways: [].into() };
    known.status.as_mut().unwrap().loss = Some(lost(50));
    assert_eq!(since(&known, &facts), Some(at(50)), "what was lost by then is not on them");
    known.status.as_mut().unwrap().loss = Some(lost(51));
    assert_eq!(since(&known, &facts), None);
    assert_eq!(since(&known, &empty), first, "they are empty again");
    known.status.as_mut().unwrap().loss = None;
    known.spec.delivery.commit = Commit::AfterEnqueue;
    assert_eq!(since(&known, &empty), None);
}
