//! The objects of the samples, compared with files that are reviewed like code.
//! `UPDATE_GOLDEN=1 cargo test -p sluice-plan` writes the files.

use crate::{observed, planned, sample};
use serde::Serialize;
use sluice_plan::{EdgeParts, Parts, Plan, build, pod_monitor};

#[test]
fn the_objects_of_the_samples_are_the_golden_ones() {
    let samples = [
        "tracepipeline.yaml",
        "tracepipeline-edge.yaml",
        "tracepipeline-full.yaml",
        "tracepipeline-otlp.yaml",
        "tracepipeline-otlp-secured.yaml",
        "tracepipeline-sharded.yaml",
    ];
    for (name, partitions) in samples.map(|name| (name, 12)) {
        let pipeline = sample(name);
        let plan = planned(&pipeline, &observed(&pipeline, partitions));
        let found = yaml(&plan);
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == golden,
            "{name} differs: run `UPDATE_GOLDEN=1 cargo test -p sluice-plan` and look at the diff"
        );
    }
}

/// All objects as one stream of documents, in the order in which they are applied.
pub fn yaml(plan: &Plan) -> String {
    let Parts {
        service_account,
        config_map,
        service,
        otlp_service,
        network_policy,
        disruption_budget,
        schema_config_map,
        schema_job,
        workload,
        edge,
    } = build(plan).into_parts();
    let documents = [
        Some(document(&service_account)),
        Some(document(&config_map)),
        Some(document(&service)),
        otlp_service.as_ref().map(document),
        network_policy.as_ref().map(document),
        disruption_budget.as_ref().map(document),
        schema_config_map.as_ref().map(document),
        schema_job.as_ref().map(document),
        workload.as_ref().map(document),
        pod_monitor(plan).as_ref().map(document),
    ];
    let of_edge = edge.iter().flat_map(EdgeParts::documents).map(|object| document(&object));
    documents.into_iter().flatten().chain(of_edge).collect::<Vec<_>>().join("---\n")
}

fn document(object: &impl Serialize) -> String {
    serde_saphyr::to_string(object).unwrap()
}
