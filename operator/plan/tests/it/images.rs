//! Which image gateways run: an operator that is upgraded brings another one, and replaces nothing that runs.

use crate::{defaults, observed, planned, statuses::running};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use sluice_crds::{
    RolloutState, RolloutStatus, SchemaManagement, TracePipeline, TracePipelineStatus, UpgradeStrategy,
};
use sluice_plan::{
    Defaults, Observed, Plan, Planned, WorkloadSeen, build, objects, plan, schema_job_name, status,
};

const OLD: &str = "sluice-gateway:0.1.0";
const NEW: &str = "sluice-gateway:0.2.0";

fn upgraded() -> Defaults {
    Defaults { gateway_image: NEW.into(), operator_version: "0.2.0".into(), ..defaults() }
}

fn now() -> Time {
    Time("2026-01-01T00:00:01Z".parse().unwrap())
}

/// A reconcile of this operator: what is planned, and the pipeline with the status that it leaves.
fn reconciled(
    pipeline: &TracePipeline,
    facts: &Observed,
    operator: &Defaults,
) -> (Box<Plan>, TracePipeline, TracePipelineStatus) {
    let outcome = plan(pipeline, facts, operator);
    let said = status(pipeline, facts, outcome.as_ref(), &now());
    let Ok(Planned::Ready(plan)) = outcome else { panic!("{outcome:?}") };
    (plan, TracePipeline { status: Some(said.clone()), ..pipeline.clone() }, said)
}

/// The images of a status: what runs, what an empty one stands for, and what the operator has besides.
fn images(said: &TracePipelineStatus) -> [Option<&str>; 3] {
    [said.image.as_deref(), said.default_image.as_deref(), said.operator_image.as_deref()]
}

fn rolled(state: RolloutState, proved: Option<&str>) -> RolloutStatus {
    let proved = proved.map(Into::into);
    let (revision, message) = ("a".into(), String::new());
    RolloutStatus {
        state,
        revision,
        proved,
        since: now(),
        healthy_since: None,
        message,
        failed_spec: None,
        held_since: None,
    }
}

#[test]
fn pull_secrets_of_the_operator_are_those_of_the_service_account_and_replace_no_gateway() {
    let (pipeline, facts) = running(&json!({}), &[]);
    let (without, ..) = reconciled(&pipeline, &facts, &defaults());
    let secrets = vec!["registry".to_owned(), "mirror".to_owned()];
    let operator = Defaults { gateway_image_pull_secrets: secrets, ..defaults() };
    let (with, ..) = reconciled(&pipeline, &facts, &operator);
    let (mut with, without) =
        (build(&with).into_parts().documents(), build(&without).into_parts().documents());
    assert_eq!(without[0].get("imagePullSecrets"), None, "others may have the list");
    let account = with[0].as_object_mut().unwrap();
    assert_eq!(account.remove("imagePullSecrets"), Some(json!([{"name": "registry"}, {"name": "mirror"}])));
    assert_eq!(with, without, "nothing else may change: a change of the StatefulSet replaces gateways");
}

#[test]
fn an_operator_with_another_image_replaces_no_gateway_and_runs_no_job() {
    let (pipeline, facts) = running(&json!({}), &[]);
    let (before, pipeline, said) = reconciled(&pipeline, &facts, &defaults());
    assert_eq!(images(&said), [Some(OLD), Some(OLD), None]);
    // Up, and down again.
    let (up, pipeline, said) = reconciled(&pipeline, &facts, &upgraded());
    assert_eq!(images(&said), [Some(OLD), Some(OLD), Some(NEW)]);
    let (down, _, said) = reconciled(&pipeline, &facts, &defaults());
    assert_eq!(images(&said), [Some(OLD), Some(OLD), None]);
    for after in [up, down] {
        assert_eq!(build(&after).into_parts().workload, build(&before).into_parts().workload);
        assert_eq!(build(&after).into_parts().schema_job, build(&before).into_parts().schema_job);
    }
    // The Job that is looked for is the one that ran.
    let name = |defaults: &Defaults| {
        schema_job_name(&pipeline, &facts.secrets, &facts.partitions, facts.workload.as_ref(), defaults)
    };
    assert!(name(&defaults()).is_some() && name(&defaults()) == name(&upgraded()));
}

#[test]
fn a_pipeline_of_an_operator_that_did_not_write_its_image_down_keeps_the_one_that_is_live() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let (before, ..) = reconciled(&pipeline, &facts, &defaults());
    for written in [
        // Lost, or the pipeline was made anew around gateways that were left.
        None,
        Some(TracePipelineStatus { image: Some(OLD.into()), ..TracePipelineStatus::default() }),
        // Gateways that went back have what they had before.
        Some(TracePipelineStatus {
            image: Some(OLD.into()),
            rollout: Some(rolled(RolloutState::RolledBack, Some("b"))),
            ..TracePipelineStatus::default()
        }),
    ] {
        pipeline.status = written;
        let (after, _, said) = reconciled(&pipeline, &facts, &upgraded());
        assert_eq!(images(&said), [Some(OLD), Some(OLD), Some(NEW)], "{:?}", pipeline.status);
        assert_eq!(objects::revision(&after), objects::revision(&before));
    }
    // None is ready, and they were: nodes are away, or the pipeline rests.
    let (_, away) = running(&json!({"replicas": 0, "readyReplicas": 0}), &[]);
    let complete = Some(rolled(RolloutState::Complete, None));
    pipeline.status =
        Some(TracePipelineStatus { image: Some(OLD.into()), rollout: complete, ..Default::default() });
    assert_eq!(reconciled(&pipeline, &away, &upgraded()).0.image(), OLD);
    // The StatefulSet is being made anew.
    assert_eq!(reconciled(&pipeline, &observed(&pipeline, 12), &upgraded()).0.image(), OLD);
}

#[test]
fn an_image_with_which_no_gateway_was_ever_ready_gives_way_to_the_operators_next_one() {
    let (pipeline, facts) = running(&json!({"readyReplicas": 0}), &[]);
    let begun = Some(rolled(RolloutState::Rolling, None));
    let pipeline = TracePipeline {
        status: Some(TracePipelineStatus { rollout: begun, ..TracePipelineStatus::default() }),
        ..pipeline
    };
    let (_, pipeline, said) = reconciled(&pipeline, &facts, &defaults());
    assert_eq!(images(&said), [Some(OLD), None, None]);
    let (_, _, said) = reconciled(&pipeline, &facts, &upgraded());
    assert_eq!(images(&said), [Some(NEW), None, None]);
}

#[test]
fn a_new_pipeline_begins_with_the_image_of_its_operator() {
    let (pipeline, _) = running(&json!({}), &[]);
    let (plan, _, said) = reconciled(&pipeline, &observed(&pipeline, 12), &upgraded());
    assert_eq!((plan.image(), images(&said)), (NEW, [Some(NEW), None, None]));
    // Its StatefulSet could not be made before the operator was replaced.
    let written = TracePipelineStatus { image: Some(OLD.into()), ..TracePipelineStatus::default() };
    let pipeline = TracePipeline { status: Some(written), ..pipeline };
    assert_eq!(reconciled(&pipeline, &observed(&pipeline, 12), &upgraded()).0.image(), NEW);
}

#[test]
fn automatic_moves_on_and_manual_stays_where_it_got_to() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.gateway.upgrade_strategy = Some(UpgradeStrategy::Automatic);
    let (before, mut pipeline, said) = reconciled(&pipeline, &facts, &defaults());
    assert_eq!((before.image(), images(&said)), (OLD, [Some(OLD), Some(OLD), None]));
    let (after, moved, said) = reconciled(&pipeline, &facts, &upgraded());
    assert_eq!((after.image(), images(&said)), (NEW, [Some(NEW), Some(NEW), None]));
    let mut moved = moved;
    moved.spec.gateway.upgrade_strategy = Some(UpgradeStrategy::Manual);
    assert_eq!(reconciled(&moved, &facts, &defaults()).0.image(), NEW);
    // Set to Manual before the upgrade, it stays.
    pipeline.spec.gateway.upgrade_strategy = None;
    assert_eq!(reconciled(&pipeline, &facts, &upgraded()).0.image(), OLD);
}

#[test]
fn an_image_that_is_named_counts_and_one_that_is_taken_away_leaves_the_operators() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.gateway.image = Some("mine:1".into());
    let (plan, mut pipeline, said) = reconciled(&pipeline, &facts, &upgraded());
    assert_eq!((plan.image(), images(&said)), ("mine:1", [Some("mine:1"), Some(NEW), None]));
    // Objects of 0.1.0 have an empty one.
    for none in [Some(String::new()), None] {
        pipeline.spec.gateway.image = none;
        assert_eq!(reconciled(&pipeline, &facts, &upgraded()).0.image(), NEW);
    }
    // What it went back from is not what gateways without an image run.
    let mut failed = facts.clone();
    failed.rollout = Some(rolled(RolloutState::RolledBack, Some("b")));
    assert_eq!(reconciled(&pipeline, &failed, &upgraded()).0.image(), NEW);
}

#[test]
fn the_schema_job_has_the_image_of_the_gateways() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.sink.clickhouse.schema.management = SchemaManagement::Evolve;
    let (_, pipeline, _) = reconciled(&pipeline, &facts, &defaults());
    let (plan, ..) = reconciled(&pipeline, &facts, &upgraded());
    let job = build(&plan).into_parts().schema_job.unwrap().spec.unwrap().template.spec.unwrap();
    assert_eq!(job.containers[0].image.as_deref(), Some(OLD));
}

#[test]
fn the_image_is_read_off_the_gateway_among_containers() {
    let (pipeline, facts) = running(&json!({}), &[]);
    let mut workload = build(&planned(&pipeline, &facts)).into_parts().workload.unwrap();
    assert_eq!(WorkloadSeen::of(&workload, &[]).image.as_deref(), Some(OLD));
    let spec = workload.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    let other = json!({"name": "injected", "image": "other:1"});
    spec.containers.insert(0, serde_json::from_value(other).unwrap());
    assert_eq!(WorkloadSeen::of(&workload, &[]).image.as_deref(), Some(OLD));
}
