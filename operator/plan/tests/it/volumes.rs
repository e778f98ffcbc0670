//! Queue volumes: how they grow, who may throw them away, and what is said of them.

use crate::{
    observed, planned, sample,
    statuses::{condition, running, said, summary},
    with,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_crds::{Commit, SuspensionStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    ClaimSeen, HolderSeen, Observed, ProvedSeen, TemplateSeen, VolumesSeen, WorkloadSeen, build, drain_job,
    volumes::{Drain, GrowthState},
};
use std::time::Duration;

mod model;
mod only_copies;
mod replacement;
mod zone_loss;

const GIB: u64 = 1 << 30;

/// The claim of a gateway that runs, of this many GiB asked for and had.
fn claim(ordinal: u32, requested: u64, capacity: u64) -> ClaimSeen {
    ClaimSeen {
        name: format!("queue-demo-gateway-{ordinal}"),
        uid: format!("u{ordinal}"),
        ordinal,
        requested: Some(requested * GIB),
        capacity: Some(capacity * GIB),
        storage_class: Some("fast".into()),
        is_bound: true,
        has_gateway: true,
        ..ClaimSeen::default()
    }
}

fn template(size: &str) -> TemplateSeen {
    TemplateSeen { size: Some(size.into()), version: "w.1".into(), ..TemplateSeen::default() }
}

/// The demo with three gateways that run, whose volumes were 1Gi, and a spec that asks for another size.
pub fn growing(size: &str, claims: &[(u64, u64)]) -> (TracePipeline, Observed) {
    let (_, facts) = running(&json!({}), &[]);
    let claims = (0..).zip(claims).map(|(ordinal, (asked, has))| claim(ordinal, *asked, *has));
    let volumes =
        VolumesSeen { template: Some(template("1Gi")), claims: claims.collect(), ..VolumesSeen::default() };
    (with("/spec/queue/size", json!(size)), Observed { volumes, ..facts })
}

#[test]
fn each_step_of_growing_has_its_words_and_gateways_are_left_alone() {
    for (claims, state, resized, summed_up) in [
        ([(1, 1), (1, 1), (1, 1)], "Ask", "False/Resizing", "True/ResizingVolumes"),
        ([(2, 1), (2, 1), (1, 1)], "Ask", "False/Resizing", "True/ResizingVolumes"),
        ([(2, 1), (2, 1), (2, 2)], "Recreate", "False/Resizing", "True/ResizingVolumes"),
        ([(2, 2), (2, 2), (2, 2)], "Recreate", "True/UpToDate", "True/ResizingVolumes"),
    ] {
        let (pipeline, facts) = growing("2Gi", &claims);
        let plan = planned(&pipeline, &facts);
        assert!(format!("{:?}", plan.growth().unwrap().state).starts_with(state), "{claims:?}");
        let workload = build(&plan).into_parts().workload;
        assert_eq!(workload.is_none(), state == "Recreate", "while it is deleted it is not written");
        let status = said(&pipeline, &facts);
        let volumes = condition(&status, "VolumesResized");
        assert_eq!(format!("{}/{}", volumes.status, volumes.reason), resized, "{claims:?}");
        assert_eq!(summary(&status), ["False/Progressing", summed_up, "False/Ok"], "{claims:?}");
        let counted = status.volumes.unwrap();
        assert_eq!((counted.desired.as_str(), counted.resized + counted.pending), ("2Gi", 3));
    }
}

/// The second of three gateways, which the scheduler has these words for.
pub fn unscheduled(words: &str) -> Pod {
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words});
    let pod = json!({"metadata": {"name": "demo-gateway-1"}, "status": {"conditions": [condition]}});
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_gateway_that_cannot_reach_its_volume_is_named_with_what_would_help() {
    let words = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match PersistentVolume's node affinity.";
    let (_, waiting) = running(&json!({"readyReplicas": 2}), &[unscheduled(words)]);
    let (mut pipeline, mut facts) = growing("1Gi", &[(1, 1), (1, 1), (1, 1)]);
    facts.workload = waiting.workload;
    let claim = &mut facts.volumes.claims[1];
    (claim.volume, claim.selected_node) = (Some("pvc-7".into()), Some("node-b".into()));
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/VolumeOutOfReach", "True/Waiting", "False/Ok"]);
    let message = &condition(&status, "Ready").message;
    let volume = "the volume pvc-7 of its claim queue-demo-gateway-1, made for the node node-b, takes it.";
    for part in [
        "demo-gateway-1: unschedulable, because no node that reaches",
        volume,
        "kubectl delete pvc queue-demo-gateway-1 && kubectl delete pod demo-gateway-1",
        words,
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    pipeline.spec.delivery.commit = Commit::AfterEnqueue;
    let status = said(&pipeline, &facts);
    let message = &condition(&status, "Ready").message;
    assert!(message.contains("may hold the only copy") && !message.contains("kubectl delete"), "{message}");
}

#[test]
fn a_gateway_that_no_node_takes_for_another_reason_has_the_words_of_the_scheduler() {
    let words = "0/3 nodes are available: 3 Insufficient memory.";
    let (pipeline, facts) = running(&json!({"readyReplicas": 2}), &[unscheduled(words)]);
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/ReplicasNotReady", "True/RollingOut", "False/Ok"]);
    assert_eq!(condition(&status, "Ready").message, format!("demo-gateway-1: Unschedulable, {words}"));
}

#[test]
fn volumes_whose_file_systems_wait_are_told_apart() {
    let (pipeline, mut facts) = growing("2Gi", &[(2, 1), (2, 2), (2, 1)]);
    let reason = |facts: &Observed| condition(&said(&pipeline, facts), "VolumesResized").reason.clone();
    facts.volumes.claims[0].waits_for_file_system = true;
    assert_eq!(reason(&facts), "Resizing", "one of them has not grown at all");
    facts.volumes.claims[2].waits_for_file_system = true;
    assert_eq!(reason(&facts), "FileSystemResizePending");
}

#[test]
fn a_storage_class_that_lets_nothing_grow_is_named_with_what_helps_and_nothing_is_touched() {
    let (pipeline, mut facts) = growing("2Gi", &[(1, 1), (1, 1), (1, 1)]);
    for change in [
        |seen: &mut VolumesSeen| {
            seen.expandable.insert("fast".into(), false);
        },
        |seen: &mut VolumesSeen| {
            seen.expandable.clear();
            seen.refusal = Some("only dynamically provisioned pvc can be resized".into());
        },
    ] {
        change(&mut facts.volumes);
        let status = said(&pipeline, &facts);
        assert_eq!(summary(&status), ["False/NotExpandable", "False/NotExpandable", "True/NotExpandable"]);
        let volumes = condition(&status, "VolumesResized");
        assert_eq!((volumes.status.as_str(), volumes.reason.as_str()), ("False", "NotExpandable"));
        for words in ["allowVolumeExpansion: true", "queue.size back to 1Gi"] {
            assert!(volumes.message.contains(words), "{}", volumes.message);
        }
        // Whatever else is asked for is done, with claims as they are.
        let workload = build(&planned(&pipeline, &facts)).into_parts().workload.unwrap();
        assert_eq!(claim_size(&serde_json::to_value(workload).unwrap()), "1Gi");
    }
    // Set back, all is well again.
    let (pipeline, _) = running(&json!({}), &[]);
    facts.volumes.refusal = None;
    assert_eq!(summary(&said(&pipeline, &facts)), ["True/Running", "False/Ok", "False/Ok"]);
}

#[test]
fn the_workload_is_made_anew_only_while_nothing_else_changes_it() {
    let claims = [(2, 2), (2, 2), (2, 2)];
    for (workload, is_later) in [
        (json!({}), false),
        (json!({"updatedReplicas": 2, "updateRevision": "b"}), true),
        (json!({"replicas": 2}), true),
    ] {
        let (_, running) = running(&workload, &[]);
        let (pipeline, facts) = growing("2Gi", &claims);
        let plan = planned(&pipeline, &Observed { workload: running.workload, ..facts });
        assert_eq!(plan.growth().unwrap().state == GrowthState::Later, is_later, "{workload}");
    }
}

#[test]
fn a_rollout_that_is_not_over_or_about_to_begin_keeps_its_workload() {
    let (pipeline, facts) = growing("2Gi", &[(2, 2), (2, 2), (2, 2)]);
    let state = |pipeline: &TracePipeline, change: &dyn Fn(&mut WorkloadSeen)| {
        let mut facts = facts.clone();
        change(facts.workload.as_mut().unwrap());
        planned(pipeline, &facts).growth().unwrap().state.clone()
    };
    assert_eq!(state(&pipeline, &|_| {}), GrowthState::Recreate);
    // By an operator that named no revisions.
    assert_eq!(state(&pipeline, &|seen| seen.revision = None), GrowthState::Recreate);
    // What was taken back runs, or what is gone back to is still remembered.
    assert_eq!(state(&pipeline, &|seen| seen.revision = Some("another".into())), GrowthState::Later);
    let proved = ProvedSeen { revision: "another".into(), image: None, config_hash: None };
    assert_eq!(state(&pipeline, &|seen| seen.proved = Some(proved.clone())), GrowthState::Later);
    let mut edited = pipeline;
    edited.spec.gateway.image = Some("other:1".into());
    assert_eq!(state(&edited, &|_| {}), GrowthState::Later);
}

#[test]
fn volumes_of_a_suspended_pipeline_wait_for_its_gateways_and_are_no_orphans() {
    let (mut pipeline, facts) = growing("1Gi", &[(1, 1), (1, 1), (1, 1), (1, 1)]);
    let resting = |volumes: &VolumesSeen| {
        let claims = volumes.claims.iter().map(|claim| ClaimSeen { has_gateway: false, ..claim.clone() });
        VolumesSeen { claims: claims.collect(), ..volumes.clone() }
    };
    let workload = WorkloadSeen { wanted: 0, replicas: 0, ready: 0, ..facts.workload.clone().unwrap() };
    let facts = Observed { volumes: resting(&facts.volumes), workload: Some(workload), ..facts };
    for (suspend, came_back, orphaned, words) in [
        (true, 4, 0, "every gateway had inserted what it held before the suspension removed it"),
        (true, 3, 1, "Jobs drain 1 queue volume without a gateway when the pipeline resumes"),
        // Three of them come back at once, and use their volumes again.
        (false, 4, 1, "Jobs drain 1 queue volume without a gateway"),
    ] {
        pipeline.spec.suspend = suspend;
        let suspension =
            SuspensionStatus { replicas: came_back, is_empty: true, ..SuspensionStatus::default() };
        pipeline.status =
            Some(TracePipelineStatus { suspension: Some(suspension), ..TracePipelineStatus::default() });
        let status = said(&pipeline, &facts);
        assert_eq!(status.volumes.as_ref().unwrap().orphaned, orphaned, "{words}");
        assert_eq!(condition(&status, "VolumesDrained").message, words);
    }
}

/// Kubernetes keeps such a claim until its pod has ended, and then deletes its volume. If the node is gone, it never learns that the pod has
/// ended.
#[test]
fn a_claim_that_is_deleted_under_its_gateway_is_named_with_what_to_do() {
    let (pipeline, mut facts) = growing("1Gi", &[(1, 1), (1, 1), (1, 1)]);
    facts.volumes.claims[1].is_deleted = true;
    facts.volumes.claims[1].is_going = true;
    let enqueues = with("/spec/delivery/commit", json!("AfterEnqueue"));
    let name = facts.volumes.claims[1].name.clone();
    for (pipeline, late, words) in [
        (&pipeline, None, "Kafka has what is on it; for a new volume, kubectl delete pod pod-1"),
        (&pipeline, Some(59), "kubectl delete pod pod-1"),
        (&pipeline, Some(60), "pod-1 had to end and has not: where its node is off"),
        (&enqueues, None, "it may be the only copy of rows: to keep it, first kubectl patch pv "),
    ] {
        let late_for = late.map(Duration::from_secs);
        let holder = HolderSeen { name: "pod-1".into(), ordinal: 1, late_for, ..HolderSeen::default() };
        facts.volumes.holders = vec![holder];
        let status = said(pipeline, &facts);
        let drained = condition(&status, "VolumesDrained");
        assert_eq!((&drained.status[..], &drained.reason[..]), ("False", "ClaimDeleted"));
        let begins = format!("the claim {name} was deleted; it goes, with its volume, once pod-1 has ended.");
        assert!(drained.message.starts_with(&begins), "{}", drained.message);
        assert!(drained.message.contains(words), "{}", drained.message);
    }
    // The operator has done it, for another volume.
    let replacing = json!({"gateway": 1, "state": "Draining", "since": "2026-01-01T00:00:00Z"});
    facts.volumes.replacing = Some(serde_json::from_value(replacing).unwrap());
    assert_eq!(condition(&said(&pipeline, &facts), "VolumesDrained").status, "True");
}

#[test]
fn a_smaller_size_goes_into_the_template_before_any_volume_is_replaced() {
    let (pipeline, facts) = growing("512Mi", &[(1, 1), (1, 1), (1, 1)]);
    let plan = planned(&pipeline, &facts);
    assert_eq!(
        (plan.growth().map(|growth| &growth.state), plan.replaced_next()),
        (Some(&GrowthState::Recreate), None)
    );
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status)[1], "True/ResizingVolumes");
    assert_eq!(status.volumes.as_ref().map(|volumes| (volumes.resized, volumes.pending)), Some((0, 3)));
    let message = &condition(&status, "VolumesResized").message;
    assert!(message.starts_with("3 of 3 queue volumes are replaced by new ones of 512Mi"), "{message}");
}

#[test]
fn the_number_of_gateways_outlives_the_workload() {
    let mut pipeline = with("/spec/scaling", json!({"mode": "Auto"}));
    let mut facts = observed(&pipeline, 12);
    facts.volumes.left_alone = Some(5);
    assert_eq!(planned(&pipeline, &facts).replicas(), 5);
    pipeline.status =
        Some(TracePipelineStatus { desired_replicas: Some(7), ..TracePipelineStatus::default() });
    assert_eq!(planned(&pipeline, &facts).replicas(), 7, "one of them may be on its way back");
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/Progressing", "True/ResizingVolumes", "False/Ok"]);
}

#[test]
fn kubernetes_throws_away_nothing_but_what_is_to_go_at_once() {
    let retention = |spec: &Value, change: &dyn Fn(&mut Observed)| {
        let (pipeline, mut facts) = running(&json!({}), &[]);
        let mut pipeline = serde_json::to_value(pipeline).unwrap();
        for (pointer, value) in spec.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            pipeline.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        change(&mut facts);
        let plan = planned(&serde_json::from_value(pipeline).unwrap(), &facts);
        let workload = serde_json::to_value(build(&plan).into_parts().workload.unwrap()).unwrap();
        let policy = &workload["spec"]["persistentVolumeClaimRetentionPolicy"];
        let word = |field: &str| policy[field].as_str().unwrap().to_owned();
        (word("whenScaled"), word("whenDeleted"))
    };
    let (delete, retain) = ("Delete".to_owned(), "Retain".to_owned());
    let nothing = |_: &mut Observed| {};
    for spec in [
        json!({}),
        json!({"/spec/scaling/drain/onTimeout": "Job"}),
        json!({"/spec/scaling/drain/onTimeout": "Force"}),
        json!({"/spec/deletionPolicy": "Orphan"}),
        json!({"/spec/deletionPolicy": "Immediate", "/spec/queue/retentionPolicy": {"whenDeleted": "Retain"}}),
    ] {
        assert_eq!(retention(&spec, &nothing), (retain.clone(), retain.clone()), "{spec}");
    }
    // Who wants everything gone at once says so; and no volume goes with its gateway for that.
    let at_once = json!({"/spec/deletionPolicy": "Immediate"});
    let retention = |change: &dyn Fn(&mut Observed)| retention(&at_once, change);
    assert_eq!(retention(&nothing), (retain.clone(), delete.clone()));
    // Back from AfterEnqueue: kept until the gateways that commit after the insert say that nothing is queued.
    let kept = |has_empty_queue: bool| {
        move |facts: &mut Observed| {
            let keeps_all = TemplateSeen { keeps_scaled: true, keeps_deleted: true, ..template("1Gi") };
            facts.volumes.template = Some(keeps_all);
            facts.has_empty_queue = has_empty_queue;
        }
    };
    assert_eq!(retention(&kept(false)), (retain.clone(), retain.clone()));
    assert_eq!(retention(&kept(true)), (retain.clone(), delete));
    // One that no gateway uses is drained first: it may be taken again.
    let left = |facts: &mut Observed| {
        kept(true)(facts);
        facts.volumes.claims = vec![ClaimSeen { has_gateway: false, ..claim(7, 1, 1) }];
    };
    assert_eq!(retention(&left), (retain.clone(), retain.clone()));
    let rolling = |facts: &mut Observed| {
        kept(true)(facts);
        facts.workload.as_mut().unwrap().updated = 1;
    };
    assert_eq!(retention(&rolling), (retain.clone(), retain.clone()));
    // Taken back: all are ready, with the config that is not planned.
    let taken_back = |facts: &mut Observed| {
        kept(true)(facts);
        facts.workload.as_mut().unwrap().revision = Some("another".into());
    };
    assert_eq!(retention(&taken_back), (retain.clone(), retain));
}

#[test]
fn gateways_are_told_when_offsets_are_committed_and_volumes_stay_where_they_may_be_the_only_copy() {
    let (_, facts) = running(&json!({}), &[]);
    let plan = planned(&with("/spec/delivery", json!({"commit": "AfterEnqueue"})), &facts);
    assert!(plan.config_yaml().contains("commit: AfterEnqueue"), "{}", plan.config_yaml());
    let workload = serde_json::to_value(build(&plan).into_parts().workload.unwrap()).unwrap();
    let policy = &workload["spec"]["persistentVolumeClaimRetentionPolicy"];
    assert_eq!(policy, &json!({"whenScaled": "Retain", "whenDeleted": "Retain"}));
    let before = planned(&with("/spec/delivery", json!({"commit": "AfterInsert"})), &facts);
    assert!(!before.config_yaml().contains("AfterEnqueue"));
}

#[test]
fn a_job_that_drains_is_as_confined_as_a_gateway_and_has_its_volume() {
    let pipeline = sample("tracepipeline.yaml");
    let plan = planned(&pipeline, &observed(&pipeline, 12));
    let drain = Drain {
        ordinal: 7,
        claim: "queue-demo-gateway-7".into(),
        claim_uid: "u7".into(),
        workload_version: "w.1".into(),
    };
    let job = serde_json::to_value(drain_job(&plan, &drain)).unwrap();
    let gateway = serde_json::to_value(build(&plan).into_parts().workload.unwrap()).unwrap();
    assert_eq!(job["metadata"]["name"], "demo-drain-7");
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 900);
    let (pod, of_gateway) = (&job["spec"]["template"], &gateway["spec"]["template"]);
    let labels = &pod["metadata"]["labels"];
    assert_eq!(
        labels["app.kubernetes.io/component"], "drain",
        "the StatefulSet does not take it for a gateway"
    );
    for field in ["securityContext", "automountServiceAccountToken", "serviceAccountName"] {
        assert_eq!(pod["spec"][field], of_gateway["spec"][field], "{field}");
    }
    let (container, of_gateway) = (&pod["spec"]["containers"][0], &of_gateway["spec"]["containers"][0]);
    for field in ["image", "securityContext", "volumeMounts"] {
        assert_eq!(container[field], of_gateway[field], "{field}");
    }
    assert_eq!(container["resources"]["limits"]["memory"], of_gateway["resources"]["limits"]["memory"]);
    assert_eq!(container["args"], json!(["drain", "--config", "/etc/sluice/gateway.yaml"]));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let claims: Vec<_> =
        volumes.iter().filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).collect();
    assert_eq!(claims, ["queue-demo-gateway-7"]);
}

fn claim_size(workload: &Value) -> &str {
    workload["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"].as_str().unwrap()
}
