//! Operators that divide the pipelines of a cluster by labels: each writes for its own alone, and one that changes its label goes from one to the
//! other with its gateways as they are.

use crate::{
    bench::{Bench, Operator},
    scaling::pass,
};
use serde_json::json;

/// The operator waits no longer for one that is gone.
const HANDOVER_SECONDS: u64 = 90;

/// A pipeline of team `a`, and operators of the teams `a` and `b`.
async fn two_teams() -> (Bench, Operator, Operator) {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.label("a");
    let (a, b) = (bench.beside("system/a", "team=a"), bench.beside("system/b", "team=b"));
    (bench, a, b)
}

impl Bench {
    fn label(&self, team: &str) {
        self.server.change("tracepipelines/prod", |pipeline| {
            pipeline["metadata"]["labels"] = json!({"team": team});
        });
    }

    fn signer(&self) -> Option<String> {
        let pipeline = self.server.get("tracepipelines/prod").unwrap();
        pipeline["metadata"]["annotations"]["sluice.dev/operator"].as_str().map(str::to_owned)
    }

    /// What is written by one reconcile.
    async fn written_by(&mut self, operator: &Operator) -> Vec<String> {
        self.switch(operator);
        self.reconcile("prod").await.unwrap();
        self.server.take_writes().into_iter().map(|write| write.what).collect()
    }

    /// Has this operator do all that there is to do, until the gateways are ready.
    async fn settled_by(&mut self, operator: &Operator) {
        self.switch(operator);
        self.settle("prod").await;
        self.gateways_become_ready("prod");
        self.settle("prod").await;
    }
}

/// The number of pipelines that an operator looks after.
const PIPELINES: &str = "sluice_operator_pipelines 1";

#[tokio::test]
async fn a_pipeline_is_written_by_the_operator_that_selects_it_alone() {
    let (mut bench, a, b) = two_teams().await;
    assert_eq!(bench.written_by(&b).await, [""; 0]);
    // It is signed before anything is made for it.
    assert_eq!(bench.written_by(&a).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer().as_deref(), Some("system/a"));
    bench.settled_by(&a).await;
    assert!(bench.exports(PIPELINES));
    assert_eq!(bench.written_by(&b).await, [""; 0]);
    assert!(!bench.exports(PIPELINES));
}

#[tokio::test]
async fn a_pipeline_with_another_label_goes_to_the_other_operator_with_its_gateways_as_they_are() {
    let (mut bench, a, b) = two_teams().await;
    bench.settled_by(&a).await;
    let before = bench.server.get("statefulsets/prod-gateway").unwrap();
    bench.label("b");
    // However often the other one looks, it waits for the first to leave.
    for _ in 0..3 {
        assert_eq!(bench.written_by(&b).await, [""; 0]);
    }
    assert_eq!(bench.written_by(&a).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer(), None);
    assert!(!bench.exports(PIPELINES), "its series are gone");
    assert_eq!(bench.written_by(&a).await, [""; 0]);
    assert_eq!(bench.written_by(&b).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer().as_deref(), Some("system/b"));
    bench.settled_by(&b).await;
    assert_eq!(bench.written_by(&a).await, [""; 0]);
    let after = bench.server.get("statefulsets/prod-gateway").unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test]
async fn an_operator_that_is_gone_is_waited_for_no_longer_than_its_last_reconcile_can_take() {
    let (mut bench, a, b) = two_teams().await;
    bench.settled_by(&a).await;
    bench.label("b");
    assert_eq!(bench.written_by(&b).await, [""; 0]);
    pass(HANDOVER_SECONDS - 1);
    assert_eq!(bench.written_by(&b).await, [""; 0]);
    pass(1);
    // A signature that the API server refuses is written by the next look, without another wait.
    bench.server.refuse("tracepipelines/prod PATCH", 409);
    assert_eq!(bench.written_by(&b).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer().as_deref(), Some("system/a"));
    bench.server.relent();
    assert_eq!(bench.written_by(&b).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer().as_deref(), Some("system/b"));
    // The first comes back: it is no longer its own.
    assert_eq!(bench.written_by(&a).await, [""; 0]);
}

#[tokio::test]
async fn selectors_that_overlap_leave_the_pipeline_where_it_is() {
    let (mut bench, a, _) = two_teams().await;
    let (wider, all) = (bench.beside("system/wider", "team in (a, b)"), bench.beside("system/all", ""));
    bench.settled_by(&a).await;
    for other in [&wider, &all] {
        bench.server.take_events();
        // A person reads it once.
        assert_eq!(bench.written_by(other).await, ["events"]);
        let event = bench.server.take_events().pop().unwrap();
        assert_eq!(event["reason"], "OtherOperator");
        let note = event["note"].as_str().unwrap();
        assert!(
            note.contains("the operator system/a looks after") && note.contains("its selector team=a"),
            "{note}"
        );
        assert!(
            note.ends_with("kubectl annotate tracepipeline prod -n tracing sluice.dev/operator-"),
            "{note}"
        );
        for _ in 0..3 {
            pass(2 * HANDOVER_SECONDS);
            assert_eq!(bench.written_by(other).await, [""; 0]);
        }
    }
    assert_eq!(bench.signer().as_deref(), Some("system/a"));
    // A person removes the signature of an operator that is gone.
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["metadata"]["annotations"].as_object_mut().unwrap().remove("sluice.dev/operator");
    });
    assert_eq!(bench.written_by(&wider).await, ["tracepipelines/prod"]);
    assert_eq!(bench.signer().as_deref(), Some("system/wider"));
}

#[tokio::test]
async fn a_pipeline_that_is_deleted_while_it_is_handed_over_is_released_by_one_of_them() {
    let (mut bench, a, b) = two_teams().await;
    bench.settled_by(&a).await;
    bench.label("b");
    bench.server.change("tracepipelines/prod", |pipeline| {
        pipeline["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    assert_eq!(bench.written_by(&b).await, [""; 0]);
    assert_eq!(bench.written_by(&a).await, ["tracepipelines/prod"], "the signature alone");
    assert_eq!(bench.written_by(&b).await, ["tracepipelines/prod"]);
    assert_ne!(bench.written_by(&b).await, [""; 0], "it drains the gateways, or lets the pipeline go");
}
