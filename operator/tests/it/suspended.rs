//! What is remembered of gateways that a suspension removed.

use crate::scaling::{Scene, pass};
use serde_json::json;

/// `scaling.drain.timeout` when a spec does not say.
const LIMIT_SECONDS: u64 = 900;

#[tokio::test]
async fn a_suspension_that_removes_gateways_with_blocks_says_so_and_remembers_it() {
    for (blocks, is_late) in [(7, true), (0, false)] {
        let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
        scene.pods.each(|gateway| gateway.blocks = blocks);
        scene.change_spec(|spec| spec["suspend"] = true.into());
        for _ in 0..2 {
            scene.bench.reconcile("prod").await.unwrap();
        }
        if is_late {
            scene.bench.reconcile("prod").await.unwrap();
            assert_eq!(scene.replicas(), 2, "the gateways hold blocks");
            pass(LIMIT_SECONDS);
        }
        scene.events();
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(scene.replicas(), 0);
        scene.control().await;
        scene.bench.settle("prod").await;
        let late = scene.events().iter().filter(|reason| *reason == "DrainTimedOut").count();
        assert_eq!(late, usize::from(is_late), "{blocks} blocks");
        let suspension = scene.pipeline().unwrap()["status"]["suspension"].clone();
        assert_eq!(suspension["isEmpty"] == json!(true), !is_late, "{suspension}");
        assert_eq!(scene.bench.condition("prod", "Suspended"), "True Suspended");
    }
}
