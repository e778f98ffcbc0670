//! The chart carries a copy of the CRD, because a chart cannot reach outside of itself.

#[test]
fn the_charts_crd_is_the_generated_one() {
    let read =
        |path: &str| std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(
        read("charts/sluice/files/tracepipelines.yaml") == read("crds/tracepipelines.yaml"),
        "stale: cp crds/tracepipelines.yaml charts/sluice/files/"
    );
}
