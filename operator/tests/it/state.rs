//! What gateways answer at `/state`, and what becomes of answers that are none.

use crate::{
    bench::{Bench, NAMESPACE},
    pods::Pods,
    scaling::{Scene, pass},
};
use serde_json::{Value, json};
use sluice_gateway_config::STATE_BYTES_MAX;
use sluice_operator::{
    read::gateways::{Absence, Gateway, looks::Said},
    world::memory::Key,
};

/// A pipeline with two gateways.
async fn running() -> (Bench, Pods) {
    let bench = Bench::start().await;
    bench.create("prod");
    bench.settle("prod").await;
    bench.gateways_become_ready("prod");
    let mut pods = Pods::of(&bench.server, "prod");
    pods.become_ready(2, 8).await;
    bench.settle("prod").await;
    (bench, pods)
}

/// Asks the first gateway, as a look does.
async fn said(bench: &Bench) -> (Absence, Result<u64, String>) {
    let pod = bench.server.get("pods/prod-gateway-0").unwrap();
    let gateway = Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap();
    let key = Key { namespace: NAMESPACE.into(), name: "prod".into() };
    pass(10);
    let look = bench.sources.looks.look(&key, &[gateway]).await.unwrap();
    let Said { absence, report, .. } = &look.said[0];
    let messages = report.as_ref().map(|report| report.counted.read).map_err(ToString::to_string);
    (absence.clone(), messages)
}

fn asked(pods: &Pods) -> Vec<String> {
    std::mem::take(&mut pods.all[0].behaviour.lock().unwrap().asked)
}

#[tokio::test]
async fn all_that_a_gateway_says_is_one_answer_also_while_it_is_not_ready() {
    let (bench, pods) = running().await;
    pods.each(|gateway| gateway.messages = 7);
    asked(&pods);
    assert_eq!(said(&bench).await, (Absence::None, Ok(7)));
    assert_eq!(asked(&pods), ["/state"]);
    pods.is_unready(0);
    pods.each(|gateway| gateway.absence = "it waits for its table".into());
    assert_eq!(said(&bench).await, (Absence::Because("it waits for its table".into()), Ok(7)));
    assert_eq!(asked(&pods), ["/state"]);
    // A reconcile asks no more.
    pass(60);
    bench.reconcile("prod").await.unwrap();
    assert_eq!(asked(&pods), ["/state"]);
}

#[tokio::test]
async fn gateways_without_a_state_are_read_as_before() {
    let (bench, pods) = running().await;
    pods.each(|gateway| (gateway.is_before_state, gateway.messages) = (true, 7));
    asked(&pods);
    assert_eq!(said(&bench).await, (Absence::None, Ok(7)));
    assert_eq!(asked(&pods), ["/state", "/metrics"]);
    pods.is_unready(0);
    pods.each(|gateway| gateway.absence = "it waits for its table".into());
    assert_eq!(said(&bench).await, (Absence::Because("it waits for its table".into()), Ok(7)));
    assert_eq!(asked(&pods), ["/state", "/readyz", "/drainz", "/metrics"]);
    pods.each(|gateway| gateway.is_drained = true);
    assert_eq!(said(&bench).await, (Absence::None, Ok(7)), "it was asked to leave");
}

#[tokio::test]
async fn gateways_with_and_without_a_state_are_drained() {
    for is_before_state in [false, true] {
        let scene = Scene::with(4, json!({"mode": "Fixed"})).await;
        scene.pods.each(|gateway| (gateway.is_before_state, gateway.blocks) = (is_before_state, 1));
        scene.change_spec(|spec| spec["replicas"] = 3.into());
        for _ in 0..2 {
            scene.bench.reconcile("prod").await.unwrap();
        }
        assert_eq!((scene.told(3), scene.replicas()), (vec!["/drain".to_owned()], 4), "{is_before_state}");
        scene.pods.each(|gateway| gateway.blocks = 0);
        pass(2);
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!(scene.replicas(), 3, "{is_before_state}");
    }
}

/// A state of this gateway, changed.
fn state(change: impl Fn(&mut Value)) -> String {
    let mut state = json!({"version": 1, "pod": {"name": "prod-gateway-0"}, "sample": {"messages": 7},
        "remaining": {"blocks": 0, "damaged": false, "draining": false}});
    change(&mut state);
    state.to_string()
}

#[tokio::test]
async fn an_answer_that_is_no_state_is_none_and_says_what_it_is_and_where() {
    let (bench, pods) = running().await;
    let whole = state(|_| {});
    pods.each(|gateway| gateway.strange = Some(whole.clone()));
    assert_eq!(said(&bench).await.1, Ok(7));
    for (answer, words) in [
        ("x".repeat(STATE_BYTES_MAX + 1), "the answer has more than 4194304 bytes"),
        ("<html>".to_owned(), "cannot be read at .: expected value"),
        (whole[..whole.len() / 2].to_owned(), "cannot be read at "),
        (state(|state| state["remaining"] = Value::Null), "cannot be read at remaining: invalid type: null"),
        (state(|state| state["sample"]["messages"] = (-1).into()), "cannot be read at sample.messages: "),
        (
            state(|state| drop(state["remaining"]["draining"].take())),
            "at remaining: missing field `draining`",
        ),
        (state(|state| state["pod"]["name"] = "b-gateway-0".into()), "as another pod, b-gateway-0, not as"),
        (
            state(|state| state["pod"]["namespace"] = "staging".into()),
            "as another pod, staging/prod-gateway-0,",
        ),
        (
            state(|state| state["pod"]["uid"] = "two".into()),
            "as another pod, prod-gateway-0 with another UID,",
        ),
    ] {
        pods.is_unready(0);
        pods.each(|gateway| gateway.strange = Some(answer.clone()));
        let (absence, report) = said(&bench).await;
        let error = report.unwrap_err();
        assert!(error.contains(words), "{words} is not in {error}");
        assert!(error.contains(":9090") && error.contains("/state"), "{error}");
        assert_eq!(absence, Absence::Silent, "{error}");
    }
}

#[tokio::test]
async fn that_another_pod_is_empty_is_no_proof() {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.change_spec(|spec| spec["replicas"] = 1.into());
    for _ in 0..2 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((scene.told(1), scene.replicas()), (vec!["/drain".to_owned()], 2));
    let empty = |name: &str| {
        let remaining =
            json!({"blocks": 0, "bytes": 0, "uncommitted": 0, "damaged": false, "draining": true});
        let empty = state(|state| {
            state["pod"]["name"] = name.into();
            state["remaining"] = remaining.clone();
        });
        scene.pods.each(|gateway| gateway.strange = Some(empty.clone()));
    };
    empty("other-gateway-1");
    pass(2);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 2);
    empty("prod-gateway-1");
    pass(2);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 1);
}
