//! An operator that is upgraded or downgraded with unchanged pipelines replaces no gateway. More partitions, and an edit that is taken back, find the
//! revision that gateways have.

use crate::{defaults, observed, planned, sample, with};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::json;
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    Defaults, Observed, Planned, ProvedSeen, WorkloadSeen, build, objects, plan, rollout::spec_hash,
};

/// Fields that came later than the first revision of the full sample below. Without them it is what it was.
const LATER: [&str; 13] = [
    "/spec/gateway/upgradeStrategy",
    "/spec/gateway/imagePullSecrets",
    "/spec/gateway/podTemplate",
    "/spec/queue/maxBytes",
    "/spec/queue/onZoneLoss",
    "/spec/delivery/deadLetter/topic",
    "/spec/podDisruptionBudget",
    "/spec/networkPolicy",
    "/spec/observability",
    "/spec/sink/clickhouse/insert/format",
    "/spec/sink/clickhouse/schema/durability",
    "/spec/sink/clickhouse/schema/optionalColumns",
    "/spec/attributes",
];

/// Those of them that have a default by now.
const WITH_DEFAULT: [&str; 6] = [
    "/gateway/upgradeStrategy",
    "/queue/onZoneLoss",
    "/podDisruptionBudget",
    "/observability",
    "/sink/clickhouse/insert/format",
    "/sink/clickhouse/schema/durability",
];

/// The revisions of the samples with 12 partitions, without the fields above, as every released operator plans them for gateways that read
/// eight partitions at the same time.
const REVISIONS: [(&str, &str); 2] =
    [("tracepipeline.yaml", "1b32f29956"), ("tracepipeline-full.yaml", "e884ce70bc")];

/// The revision of the full sample with every field, and of the one with shards, which that cannot have beside its endpoints.
const REVISIONS_OF_ALL: [(&str, &str); 2] =
    [("tracepipeline-full.yaml", "f13d12b798"), ("tracepipeline-sharded.yaml", "8e27f3ba41")];

/// The revisions of pipelines that begin now.
const REVISIONS_AT_FIRST: [(&str, &str); 3] = [
    ("tracepipeline.yaml", "24779c6170"),
    ("tracepipeline-full.yaml", "05a726ed9e"),
    ("tracepipeline-sharded.yaml", "315b8f7c78"),
];

/// A word that is nowhere else.
const VERSION: &str = "77.66.55";

#[test]
fn the_revisions_of_the_samples_are_those_of_every_released_operator() {
    for (name, expected) in REVISIONS {
        let found = revision_of_running(&without_later(sample(name)), expected);
        assert_eq!(
            found, expected,
            "{name} gets another pod template: an operator with this change replaces every gateway of every pipeline when it is \
             upgraded. What can be, goes into the template only where the spec asks for it. Where it cannot be avoided, say \
             so in the chart's NOTES.txt, and write the new revision here"
        );
    }
}

#[test]
fn the_revision_of_every_field_is_that_of_every_operator_that_knows_them() {
    for (name, expected) in REVISIONS_OF_ALL {
        assert_eq!(revision_of_running(&sample(name), expected), expected, "{name}: see the test above");
    }
    for (name, expected) in REVISIONS_AT_FIRST {
        let pipeline = sample(name);
        let found = objects::revision(&planned(&pipeline, &observed(&pipeline, 12)));
        assert_eq!(found, expected, "{name}: see the test above");
    }
}

/// The revision that is planned for gateways which an operator before made with this one.
fn revision_of_running(pipeline: &TracePipeline, live: &str) -> String {
    let workload = WorkloadSeen { revision: Some(live.into()), ..WorkloadSeen::default() };
    let seen = Observed { workload: Some(workload), ..observed(pipeline, 12) };
    objects::revision(&planned(pipeline, &seen))
}

#[test]
fn a_pipeline_that_has_no_later_field_is_not_tried_again_after_an_upgrade() {
    // A revision that was rolled back is known by the spec's hash: a field that is not set must not be in the hash, nor its default.
    let mut pipeline = without_later(sample("tracepipeline-full.yaml"));
    let before = spec_hash(&pipeline);
    let object = serde_json::to_value(&pipeline.spec).unwrap();
    for pointer in LATER.map(|pointer| pointer.strip_prefix("/spec").unwrap()) {
        let default = object.pointer(pointer);
        assert_eq!(default.is_some(), WITH_DEFAULT.contains(&pointer), "{pointer}");
    }
    pipeline.spec.gateway.upgrade_strategy = None;
    pipeline.spec.queue.on_zone_loss = None;
    pipeline.spec.sink.clickhouse.insert.format = None;
    pipeline.spec.sink.clickhouse.schema.durability = None;
    (pipeline.spec.pod_disruption_budget, pipeline.spec.observability) = (None, None);
    assert_eq!(spec_hash(&pipeline), before);
}

fn without_later(pipeline: TracePipeline) -> TracePipeline {
    let mut object = serde_json::to_value(pipeline).unwrap();
    for (parent, field) in LATER.map(|pointer| pointer.rsplit_once('/').unwrap()) {
        object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn no_object_has_the_operators_version() {
    for (name, _) in REVISIONS {
        let pipeline = sample(name);
        let newer = Defaults { operator_version: VERSION.into(), ..defaults() };
        let Ok(Planned::Ready(plan)) = plan(&pipeline, &observed(&pipeline, 12), &newer) else { panic!() };
        for document in build(&plan).parts().documents() {
            assert!(!document.to_string().contains(VERSION), "{name}: {document}");
        }
    }
}

/// What is planned where the StatefulSet has the first of these revisions, and remembers or tells of the others.
fn planned_beside(pipeline: &TracePipeline, partitions: u32, revisions: [Option<&str>; 3]) -> String {
    let [live, proved, written] = revisions.map(|revision| revision.map(str::to_owned));
    let proved = proved.map(|revision| ProvedSeen { revision, image: None, config_hash: None });
    let workload = live.map(|live| WorkloadSeen { revision: Some(live), proved, ..WorkloadSeen::default() });
    let mut pipeline = pipeline.clone();
    pipeline.status = written.map(|revision| {
        let rollout = RolloutStatus {
            state: RolloutState::RolledBack,
            revision,
            proved: None,
            since: Time(Timestamp::UNIX_EPOCH),
            healthy_since: None,
            message: String::new(),
            failed_spec: None,
            held_since: None,
        };
        TracePipelineStatus { rollout: Some(rollout), ..TracePipelineStatus::default() }
    });
    let seen = Observed { workload, ..observed(&pipeline, partitions) };
    objects::revision(&planned(&pipeline, &seen))
}

#[test]
fn more_partitions_replace_gateways_only_of_a_topic_that_had_few() {
    for (before, now, kept) in
        [(8, 16, true), (16, 64, true), (64, 256, true), (16, 8, true), (2, 4, false), (4, 64, false)]
    {
        for replicas in [0, 1, 4] {
            let mut pipeline = with("/spec/replicas", json!(replicas));
            let live = objects::revision(&planned(&pipeline, &observed(&pipeline, before)));
            let found = planned_beside(&pipeline, now, [Some(&live), None, None]);
            assert_eq!(found == live, kept, "{before} {now} {replicas}");
            // An edit that replaces them anyway brings what is planned.
            pipeline.spec.gateway.workers = Some(2);
            let edited = planned_beside(&pipeline, now, [Some(&live), None, None]);
            assert_eq!(
                edited,
                objects::revision(&planned(&pipeline, &observed(&pipeline, now))),
                "{before} {now}"
            );
        }
    }
}

#[test]
fn an_edit_that_is_taken_back_finds_the_revision_that_was_there_before() {
    let pipeline = with("/spec/replicas", json!(2));
    let before = objects::revision(&planned(&pipeline, &observed(&pipeline, 16)));
    let failed = {
        let mut edited = pipeline.clone();
        edited.spec.gateway.workers = Some(2);
        objects::revision(&planned(&edited, &observed(&edited, 32)))
    };
    // Rolled back; while the canary is tried; with nothing but the StatefulSet; while that is made anew.
    for known in [
        [Some(&*before), Some(&*before), Some(&*failed)],
        [Some(&failed), Some(&before), Some(&failed)],
        [Some(&before), None, None],
        [None, None, Some(&before)],
    ] {
        assert_eq!(planned_beside(&pipeline, 32, known), before, "{known:?}");
    }
    // What failed is not tried again for its number alone either.
    let mut edited = pipeline;
    edited.spec.gateway.workers = Some(2);
    assert_eq!(planned_beside(&edited, 64, [Some(&before), Some(&before), Some(&failed)]), failed);
}
