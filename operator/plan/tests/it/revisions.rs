//! An operator that is upgraded or downgraded with unchanged pipelines replaces no gateway.

use crate::{defaults, observed, planned, sample};
use sluice_plan::{Defaults, Planned, build, plan, rollout};

/// The revisions of the samples with 12 partitions, as every released operator plans them.
const REVISIONS: [(&str, &str); 2] =
    [("tracepipeline.yaml", "1b32f29956"), ("tracepipeline-full.yaml", "e884ce70bc")];

/// A word that is nowhere else.
const VERSION: &str = "77.66.55";

#[test]
fn the_revisions_of_the_samples_are_those_of_every_released_operator() {
    for (name, expected) in REVISIONS {
        let pipeline = sample(name);
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
