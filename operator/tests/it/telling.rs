//! What gateways say of themselves for people: guarantee and queue, in the status and as events.

use crate::{bench::Bench, pods::Pods};
use serde_json::{Value, json};

const ONCE: &str = "sluice_gateway_delivery_guarantee{guarantee=\"exactly_once_effect\",reason=\"none\"} 1\n";
const WINDOW_OFF: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"window_off\"} 1\n";

/// A pipeline with two gateways that say this.
async fn saying(lines: &str) -> (Bench, Pods) {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    let mut pods = Pods::of(&bench.server, "prod");
    pods.become_ready(2, 8).await;
    pods.each(|gateway| lines.clone_into(&mut gateway.more));
    bench.settle("prod").await;
    (bench, pods)
}

fn status(bench: &Bench) -> Value {
    bench.server.get("tracepipelines/prod").unwrap()["status"].clone()
}

#[tokio::test]
async fn guarantee_and_queue_of_all_gateways_stand_in_the_status() {
    let (mut bench, pods) = saying(ONCE).await;
    assert_eq!(status(&bench)["delivery"], json!({"guarantee": "exactly_once_effect"}));
    assert!(status(&bench)["queue"].is_null(), "these gateways do not say it");
    pods.each(|gateway| {
        gateway.more =
            format!("{WINDOW_OFF}sluice_gateway_spool_blocks 61\nsluice_gateway_spool_bytes 12345678\n");
    });
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    let writes: Vec<String> = bench.server.take_writes().into_iter().map(|write| write.what).collect();
    assert_eq!(
        writes,
        ["tracepipelines/prod/status", "events", "events"],
        "the promise, and that blocks wait"
    );
    let now = status(&bench);
    assert_eq!(now["delivery"], json!({"guarantee": "at_least_once", "reason": "window_off"}));
    assert_eq!(now["queue"], json!({"blocks": 120, "bytes": 24_000_000}));
    assert_eq!(bench.condition("prod", "Ready"), "True Running", "it is a report, not a failure");
    bench.reconcile("prod").await.unwrap();
    assert_eq!(bench.server.take_writes(), []);
}

#[tokio::test]
async fn one_that_is_silent_changes_nothing_that_was_said() {
    let (mut bench, pods) = saying(ONCE).await;
    pods.falls_silent(1);
    bench.restart();
    bench.server.take_writes();
    bench.reconcile("prod").await.unwrap();
    assert_eq!(status(&bench)["delivery"], json!({"guarantee": "exactly_once_effect"}));
    assert_eq!(bench.server.take_writes(), []);
}
