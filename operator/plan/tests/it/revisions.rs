//! An operator that is upgraded or downgraded with unchanged pipelines replaces no gateway.

use crate::{defaults, observed, planned, sample};
use sluice_crds::TracePipeline;
use sluice_plan::{Defaults, Planned, build, plan, rollout};

/// Fields that came later than the first revision of the full sample below. Without them it is what it was.
const LATER: [&str; 11] = [
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
];

/// The revisions of the samples with 12 partitions, without the fields above, as every released operator plans them.
const REVISIONS: [(&str, &str); 2] =
    [("tracepipeline.yaml", "1b32f29956"), ("tracepipeline-full.yaml", "e884ce70bc")];

/// The revision of the full sample with every field.
const REVISION_OF_ALL: &str = "354c51839d";

/// The revision of the sample with shards, which the full one cannot have beside its endpoints.
const REVISION_OF_SHARDS: &str = "8e27f3ba41";

/// A word that is nowhere else.
const VERSION: &str = "77.66.55";

#[test]
fn the_revisions_of_the_samples_are_those_of_every_released_operator() {
    for (name, expected) in REVISIONS {
        let pipeline = without_later(sample(name));
        let found = rollout::revision(&planned(&pipeline, &observed(&pipeline, 12)));
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
    for (name, expected) in
        [("tracepipeline-full.yaml", REVISION_OF_ALL), ("tracepipeline-sharded.yaml", REVISION_OF_SHARDS)]
    {
        let pipeline = sample(name);
        let found = rollout::revision(&planned(&pipeline, &observed(&pipeline, 12)));
        assert_eq!(found, expected, "{name}: see the test above");
    }
}

#[test]
fn a_pipeline_that_has_no_later_field_is_not_tried_again_after_an_upgrade() {
    // What was taken back is told by the spec's hash: a field that nobody set must not be in it.
    let object = serde_json::to_value(without_later(sample("tracepipeline-full.yaml"))).unwrap();
    for pointer in LATER {
        assert_eq!(object.pointer(pointer), None, "{pointer}");
    }
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
