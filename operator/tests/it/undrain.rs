//! A gateway that drains without a request is resumed. A gateway that the operator or a person asked to drain is not.

use crate::{bench::Bench, pods::Commands, scaling::Scene};
use serde_json::{Value, json};
use sluice_plan::names::KEPT_OUT;

async fn four() -> Scene {
    Scene::with(4, json!({"mode": "Fixed"})).await
}

/// A client that reaches its port drains a gateway, and the kubelet finds it not ready.
fn strays(scene: &Scene, ordinal: usize) {
    scene.pods.all[ordinal].behaviour.lock().unwrap().is_drained = true;
    scene.pods.are_probed();
}

fn told_of(bench: &Bench) -> Vec<Value> {
    let events = bench.server.take_events().into_iter();
    events.filter(|event| event["reason"] == "TakenBack").collect()
}

fn mark(scene: &Scene, ordinal: u32, is_kept_out: bool) {
    scene.bench.server.change(&format!("pods/prod-gateway-{ordinal}"), |pod| {
        pod["metadata"]["annotations"] = if is_kept_out { json!({KEPT_OUT: "true"}) } else { json!({}) };
    });
}

#[tokio::test]
async fn a_gateway_that_drains_unasked_is_taken_back_and_that_is_told_once() {
    let scene = four().await;
    scene.bench.server.take_events();
    strays(&scene, 1);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(1), scene.told(0)), (vec!["/resume".to_owned()], vec![]));
    let events = told_of(&scene.bench);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["type"], &events[0]["regarding"]["name"]), (&"Warning".into(), &"prod".into()));
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.contains("gateway 1 drained") && note.contains(KEPT_OUT), "{note}");
    // It takes part, and the kubelet has not seen it yet.
    scene.bench.reconcile("prod").await.unwrap();
    scene.pods.are_probed();
    scene.bench.settle("prod").await;
    assert_eq!((scene.told(1), told_of(&scene.bench).len()), (vec![], 0));
}

#[tokio::test]
async fn one_that_a_person_keeps_out_stays_out_until_the_mark_is_gone() {
    let scene = four().await;
    mark(&scene, 2, true);
    strays(&scene, 2);
    scene.bench.gateways_are_ready("prod", 3);
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((scene.told(2), told_of(&scene.bench).len()), (vec![], 0));
    // The status says why, after the minute that any gateway has to become ready.
    assert_eq!(scene.bench.condition("prod", "Ready"), "False Progressing");
    for _ in 0..5 {
        scene.poll().await;
    }
    assert_eq!(scene.bench.condition("prod", "Ready"), "False ReplicasNotReady");
    let message = scene.bench.written("prod", "Ready").unwrap()["message"].clone();
    let remedy = "kubectl sluice drain prod-gateway-2 --resume";
    assert!(
        message.as_str().unwrap().contains(remedy) && message.as_str().unwrap().contains(KEPT_OUT),
        "{message}"
    );
    mark(&scene, 2, false);
    scene.poll().await;
    assert_eq!(scene.told(2), ["/resume"]);
}

#[tokio::test]
async fn those_that_are_to_leave_are_told_so_and_nothing_else() {
    let scene = four().await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    scene.change_spec(|spec| spec["partitionsPerReplica"] = 4.into());
    for _ in 0..5 {
        scene.bench.reconcile("prod").await.unwrap();
        scene.pods.are_probed();
    }
    let told = scene.told(3);
    assert!(!told.is_empty() && told.iter().all(|path| path == "/drain"), "{told:?}");
    // Another one strays meanwhile.
    strays(&scene, 0);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.told(0), ["/resume"]);
    assert_eq!(told_of(&scene.bench).len(), 1);
}

#[tokio::test]
async fn an_older_gateway_that_cannot_say_whether_it_drains_is_taken_back_without_a_word() {
    let scene = four().await;
    scene.pods.each(|gateway| gateway.commands = Commands::Old);
    strays(&scene, 3);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(3), told_of(&scene.bench).len()), (vec!["/resume".to_owned()], 0));
}

#[tokio::test]
async fn gateways_with_a_port_for_commands_are_told_there_and_older_ones_beside_them_where_they_listen() {
    let mut scene = four().await;
    for ordinal in [1, 3] {
        scene.pods.all[ordinal].behaviour.lock().unwrap().commands = Commands::Control;
    }
    strays(&scene, 0);
    strays(&scene, 1);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(0), scene.told(1)), (vec!["/resume".to_owned()], vec!["/resume".to_owned()]));
    let events = told_of(&scene.bench);
    assert!(events.len() == 1 && events[0]["note"].as_str().unwrap().contains("gateways 0, 1"), "{events:?}");
    scene.change_spec(|spec| spec["partitionsPerReplica"] = 4.into());
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert!(scene.told(2).contains(&"/drain".to_owned()) && scene.told(3).contains(&"/drain".to_owned()));
    assert_eq!(scene.replicas(), 2, "both were empty");
    scene.control().await;
    scene.bench.settle("prod").await;
}

#[tokio::test]
async fn a_pipeline_that_is_left_alone_has_nobody_taken_back() {
    let scene = four().await;
    scene.change_spec(|spec| spec["managementState"] = "Unmanaged".into());
    strays(&scene, 0);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.told(0), Vec::<String>::new());
}

#[tokio::test]
async fn nobody_is_asked_while_all_are_ready() {
    let scene = four().await;
    scene.pods.each(|gateway| gateway.is_drained = true);
    scene.bench.reconcile("prod").await.unwrap();
    assert!((0..4).all(|ordinal| scene.told(ordinal).is_empty()), "the kubelet has seen nothing yet");
}
