//! What is planned for objects that API servers have stored for earlier versions.

use crate::{golden::yaml, observed, planned, sample};
use serde_json::Value;
use sluice_crds::TracePipeline;

/// An object in `crds/tests/stored`, with an identity as that of [`sample`] and without a status.
fn stored(name: &str) -> Value {
    let path = format!("{}/../../crds/tests/stored/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut object: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    object.as_object_mut().unwrap().remove("status");
    object["metadata"] = serde_json::to_value(sample(name).metadata).unwrap();
    object
}

const NAMES: [&str; 7] = [
    "tracepipeline.yaml",
    "tracepipeline-autoscaled.yaml",
    "tracepipeline-full.yaml",
    "tracepipeline-gitops.yaml",
    "tracepipeline-sharded.yaml",
    "tracepipeline-side-by-side.yaml",
    "tracepipeline-tls-sasl.yaml",
];

/// The samples say the same in today's form, so no gateway restarts when the form is changed.
#[test]
fn a_stored_object_has_the_objects_of_its_sample_of_today() {
    for name in NAMES {
        let before: TracePipeline = serde_json::from_value(stored(name)).unwrap();
        let after = sample(name);
        let of = |pipeline: &TracePipeline| yaml(&planned(pipeline, &observed(pipeline, 12)));
        assert!(of(&before) == of(&after), "{name}");
    }
}
