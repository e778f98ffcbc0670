//! What the status says of ClickHouse by what gateways report of their inserts.

use crate::{
    bench::Bench,
    gateway_report::{ONCE, saying},
    pods::Pods,
    scaling::pass,
};
use kube::runtime::controller::Action;
use serde_json::json;
use std::time::Duration;

/// Lets the gateways be asked again, and says what stands in the status then.
async fn looked(bench: &Bench) -> String {
    pass(30);
    bench.reconcile("prod").await.unwrap();
    bench.condition("prod", "SinkReachable")
}

fn inserts(pods: &Pods, done: u64, failed: u64) {
    pods.each(|gateway| {
        gateway.is_behind = true;
        gateway.insert_failures = failed;
        gateway.more = format!("{ONCE}sluice_gateway_blocks_inserted_total {done}\n");
    });
}

#[tokio::test]
async fn a_sink_that_takes_nothing_is_said_to_be_away_until_it_takes_something() {
    let (mut bench, pods) = saying(ONCE).await;
    inserts(&pods, 5, 1);
    let before = looked(&bench).await;
    assert_eq!(before, "Unknown NotManaged");
    inserts(&pods, 5, 2);
    assert_eq!(looked(&bench).await, before, "one look that fails may be a restart");
    inserts(&pods, 5, 3);
    assert_eq!(looked(&bench).await, "False InsertsFailing");
    // Between two tries, and after another operator has begun, it is said all the same, and nothing is written.
    bench.server.take_writes();
    assert_eq!(looked(&bench).await, "False InsertsFailing");
    inserts(&pods, 5, 4);
    assert_eq!(looked(&bench).await, "False InsertsFailing");
    bench.restart();
    assert_eq!(looked(&bench).await, "False InsertsFailing");
    assert_eq!(looked(&bench).await, "False InsertsFailing");
    assert_eq!(bench.server.take_writes(), []);
    assert_eq!(bench.condition("prod", "Ready"), "False SinkUnavailable");
    // A newer gateway says how. Times and sizes in the text are no news.
    for (message, failed) in [("301 parts", 5), ("302 parts", 6)] {
        let error = json!({"class": "back_pressure", "code": 252, "message": message});
        pods.each(|gateway| gateway.insert_error = Some(error.clone()));
        inserts(&pods, 5, failed);
        looked(&bench).await;
    }
    inserts(&pods, 5, 7);
    looked(&bench).await;
    let message = bench.written("prod", "SinkReachable").unwrap()["message"].clone();
    assert!(
        message.as_str().unwrap().contains("ClickHouse answered with code 252: 302 parts; "),
        "{message}"
    );
    pods.each(|gateway| {
        gateway.insert_error = Some(json!({"class": "back_pressure", "code": 252, "message": "303 parts"}));
    });
    inserts(&pods, 5, 8);
    bench.server.take_writes();
    looked(&bench).await;
    assert_eq!(bench.server.take_writes(), [], "the cause is the same");
    inserts(&pods, 6, 8);
    assert_eq!(looked(&bench).await, before);
    assert_eq!(bench.condition("prod", "Ready"), "True Running");
    bench.server.take_writes();
    assert_eq!(looked(&bench).await, before);
    assert_eq!(bench.server.take_writes(), []);
}

/// ClickHouse refuses everything right after a look: the next one sees what was inserted before.
#[tokio::test]
async fn a_sink_that_refuses_everything_is_named_within_a_minute() {
    let (bench, pods) = saying(ONCE).await;
    inserts(&pods, 5, 0);
    looked(&bench).await;
    for (seconds, done, failed) in [(30, 6, 3), (15, 6, 8), (15, 6, 13)] {
        assert_ne!(bench.condition("prod", "SinkReachable"), "False InsertsFailing");
        let next = bench.reconcile("prod").await.unwrap();
        assert_eq!(next, Action::requeue(Duration::from_secs(seconds)), "{failed}");
        inserts(&pods, done, failed);
        pass(seconds);
        bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(bench.condition("prod", "SinkReachable"), "False InsertsFailing");
    let next = bench.reconcile("prod").await.unwrap();
    assert_eq!(next, Action::requeue(Duration::from_secs(30)), "it is certain");
}

/// A password was changed on the server, and then in the Secret. The new gateways have inserted something by then, or nothing yet.
#[tokio::test]
async fn gateways_that_were_replaced_are_not_judged_by_their_predecessors() {
    for done in [7, 0] {
        let (bench, pods) = saying(ONCE).await;
        for failed in 1..=3 {
            inserts(&pods, 5, failed);
            looked(&bench).await;
        }
        assert_eq!(bench.condition("prod", "SinkReachable"), "False InsertsFailing");
        inserts(&pods, done, 0);
        pods.runs_anew(0);
        pods.runs_anew(1);
        // The report of their predecessors is a second old.
        pass(1);
        bench.reconcile("prod").await.unwrap();
        assert_eq!(bench.condition("prod", "SinkReachable"), "Unknown NotManaged", "{done}");
        assert_eq!(bench.condition("prod", "Ready"), "True Running", "{done}");
    }
}
