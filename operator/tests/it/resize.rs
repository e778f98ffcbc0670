//! Memory in place: what is asked of the API server after a kill, how often, and what is said of it.

use crate::scaling::{Scene, pass};
use serde_json::{Value, json};
use sluice_operator::{world::api_error::ErrorClass, write::resize::MEMORY};

const POD: &str = "pods/prod-gateway-1";

/// Two gateways of 512Mi that run, of a pipeline that says this about their memory.
async fn running(resize: &str) -> Scene {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["gateway"]["resources"]["resize"] = resize.into());
    let size = json!({"limits": {"memory": "512Mi"}, "requests": {"cpu": "500m", "memory": "512Mi"}});
    for ordinal in 0..2 {
        scene.bench.server.change(&format!("pods/prod-gateway-{ordinal}"), |pod| {
            pod["spec"] = json!({"containers": [{"name": "gateway", "resources": size}]});
            pod["status"]["containerStatuses"][0]["resources"] = size.clone();
        });
    }
    scene.bench.settle("prod").await;
    scene.bench.server.take_events();
    scene
}

/// The kubelet gives what the pod asks for.
fn given(scene: &Scene) {
    scene.bench.server.change(POD, |pod| {
        let size = pod["spec"]["containers"][0]["resources"].clone();
        pod["status"]["containerStatuses"][0]["resources"] = size;
    });
}

fn limit(scene: &Scene) -> Value {
    scene.bench.server.get(POD).unwrap()["spec"]["containers"][0]["resources"]["limits"]["memory"].clone()
}

fn said(scene: &Scene) -> Value {
    scene.bench.server.get("tracepipelines/prod").unwrap()["status"]["memoryResizes"].clone()
}

fn state(scene: &Scene) -> (String, String) {
    let entry = said(scene)[0].clone();
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("memory"), text("state"))
}

/// Reconciles until nothing is written, and returns what was asked of pods.
async fn asked(scene: &Scene) -> Vec<(String, String)> {
    let writes = scene.bench.settle("prod").await;
    assert!(writes.iter().all(|write| write.what.split('/').next() != Some("statefulsets")), "{writes:?}");
    let pods = writes.into_iter().filter(|write| write.what.starts_with("pods/"));
    pods.map(|write| (write.what, write.field_manager)).collect()
}

fn events(scene: &Scene) -> Vec<String> {
    let events = scene.bench.server.take_events();
    events.iter().map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
pub async fn a_killed_gateway_is_given_more_in_place_once_and_it_is_said() {
    let mut scene = running("InPlace").await;
    let uid = scene.bench.server.get(POD).unwrap()["metadata"]["uid"].clone();
    scene.pods.was_killed(1, 1);
    assert_eq!(asked(&scene).await, [(format!("{POD}/resize"), MEMORY.to_owned())]);
    assert_eq!((limit(&scene), state(&scene).1.as_str()), ("704Mi".into(), "InProgress"));
    given(&scene);
    scene.bench.settle("prod").await;
    assert_eq!(state(&scene), ("704Mi".into(), "Done".into()));
    assert_eq!(events(&scene), ["MemoryResized"]);
    let told = scene.bench.metrics().render().unwrap();
    let line = "sluice_operator_pipeline_memory_resizes_total{name=\"prod\",namespace=\"tracing\",result=\"done\"} 1";
    assert!(String::from_utf8(told).unwrap().contains(line));
    // Neither time nor another operator is a reason to ask again.
    for _ in 0..4 {
        pass(30);
        scene.bench.restart();
        assert_eq!(scene.bench.settle("prod").await, []);
    }
    assert_eq!(scene.bench.server.get(POD).unwrap()["metadata"]["uid"], uid);
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
}

#[tokio::test]
async fn each_kill_is_one_step_and_there_is_an_end_to_it() {
    let scene = running("InPlace").await;
    for (kill, expected) in [(1, "704Mi"), (2, "960Mi"), (3, "1024Mi"), (4, "1024Mi")] {
        scene.pods.was_killed(1, kill);
        assert_eq!(asked(&scene).await.len(), usize::from(kill < 4), "{kill}");
        given(&scene);
        scene.bench.settle("prod").await;
        assert_eq!(limit(&scene), expected, "{kill}");
    }
    assert_eq!(state(&scene), ("1024Mi".into(), "AtBound".into()));
    // A pod that is made again begins with the spec's memory, and nothing is said of it.
    scene.bench.server.change(POD, |pod| {
        pod["metadata"]["uid"] = "another".into();
        pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "512Mi".into();
        pod["status"]["containerStatuses"][0]["lastState"] = json!({});
    });
    assert_eq!(asked(&scene).await, []);
    assert_eq!((said(&scene), limit(&scene)), (Value::Null, "512Mi".into()));
}

#[tokio::test]
async fn a_resize_goes_on_from_wherever_the_operator_was_cut_off() {
    for writes_before in 0..5 {
        let mut scene = running("InPlace").await;
        scene.pods.was_killed(1, 1);
        scene.bench.server.cut_off_after(writes_before);
        for _ in 0..4 {
            drop(scene.bench.reconcile("prod").await);
        }
        scene.bench.server.go_on();
        scene.bench.restart();
        scene.bench.server.take_writes();
        scene.bench.settle("prod").await;
        given(&scene);
        scene.bench.settle("prod").await;
        assert_eq!(limit(&scene), "704Mi", "after {writes_before} writes");
        assert_eq!(state(&scene), ("704Mi".into(), "Done".into()), "after {writes_before} writes");
    }
}

#[tokio::test]
async fn a_refusal_is_told_once_and_keeps_nothing_else_waiting() {
    for (code, words) in
        [(403, "scripted"), (422, "scripted"), (404, "1.33 or later"), (405, "1.33 or later")]
    {
        let scene = running("InPlace").await;
        scene.bench.server.refuse("/resize", code);
        scene.pods.was_killed(1, 1);
        assert_eq!(asked(&scene).await.len(), 1, "{code}");
        assert_eq!((state(&scene).1.as_str(), limit(&scene)), ("Refused", "512Mi".into()), "{code}");
        assert!(said(&scene)[0]["message"].as_str().unwrap().contains(words), "{}", said(&scene));
        assert_eq!(events(&scene), ["MemoryResizeRefused"], "{code}");
        assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
        // The next kill asks again: a quota may have room by then.
        scene.bench.server.relent();
        scene.pods.was_killed(1, 2);
        assert_eq!(asked(&scene).await.len(), 1, "{code}");
        assert_eq!(limit(&scene), "704Mi", "{code}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_away_is_asked_again() {
    let scene = running("InPlace").await;
    scene.pods.was_killed(1, 1);
    scene.bench.reconcile("prod").await.unwrap();
    scene.bench.server.refuse("/resize", 503);
    assert_eq!(scene.bench.fail("prod").await.0, ErrorClass::Unavailable);
    assert_eq!(state(&scene).1, "Asked");
    scene.bench.server.relent();
    scene.bench.settle("prod").await;
    assert_eq!(limit(&scene), "704Mi");
}

#[tokio::test]
async fn what_the_kubelet_cannot_give_is_told() {
    let scene = running("InPlace").await;
    scene.pods.was_killed(1, 1);
    scene.bench.settle("prod").await;
    scene.bench.server.take_events();
    scene.bench.server.change(POD, |pod| {
        let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "too small"});
        pod["status"]["conditions"].as_array_mut().unwrap().push(pending);
    });
    scene.bench.settle("prod").await;
    assert_eq!(
        (state(&scene).1.as_str(), said(&scene)[0]["message"].clone()),
        ("Infeasible", "too small".into())
    );
    assert_eq!(events(&scene), ["MemoryResizeInfeasible"]);
}

#[tokio::test]
async fn nobody_is_given_more_unless_the_spec_says_so() {
    let scene = running("None").await;
    scene.pods.was_killed(1, 1);
    assert_eq!(asked(&scene).await, []);
    assert_eq!((said(&scene), limit(&scene)), (Value::Null, "512Mi".into()));
}
