//! Gateways that take connections and answer nothing delay no reconcile, neither of their own pipeline nor of another one.

use crate::{
    bench::Bench,
    pods::Pods,
    scaling::{Scene, pass},
};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// Pipelines whose gateways are silent.
const SILENT: usize = 5;

/// A pipeline with two gateways that run.
async fn running(bench: &Bench, name: &str) -> Pods {
    let mut pipeline = bench.pipeline(name);
    pipeline["spec"]["scaling"] = json!({"mode": "Auto", "minReplicas": 2});
    bench.server.put(&format!("tracepipelines/{name}"), pipeline);
    bench.settle(name).await;
    bench.gateways_become_ready(name);
    let mut pods = Pods::of(&bench.server, name);
    pods.become_ready(2, 8).await;
    bench.settle(name).await;
    pods
}

/// Requests that were given up, and those that wait for an answer.
fn requests(pods: &Pods) -> (u32, u32) {
    let all = pods.all.iter().map(|pod| pod.behaviour.lock().unwrap());
    all.fold((0, 0), |(given_up, unanswered), pod| (given_up + pod.given_up, unanswered + pod.unanswered))
}

async fn until(is_so: impl Fn() -> bool) {
    let waited = timeout(Duration::from_mins(1), async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap();
}

#[tokio::test]
async fn reconciles_end_before_silent_gateways_are_given_up() {
    let mut bench = Bench::start().await;
    let healthy = running(&bench, "healthy").await;
    let mut silent = Vec::new();
    for number in 0..SILENT {
        silent.push(running(&bench, &format!("silent-{number}")).await);
    }
    for pods in &silent {
        pods.each(|gateway| gateway.hangs = true);
    }
    bench.restart_waiting(Duration::ZERO);
    let mut late = bench.late();
    for number in 0..SILENT {
        bench.reconcile(&format!("silent-{number}")).await.unwrap();
    }
    bench.reconcile("healthy").await.unwrap();
    let given_up = || silent.iter().map(|pods| requests(pods).0).sum::<u32>();
    assert_eq!(given_up(), 0, "somebody waited for a silent gateway");
    // All of them are asked all the same, also the healthy ones, and whose answers came late is looked at again.
    until(|| silent.iter().all(|pods| requests(pods).1 == 2)).await;
    let first = timeout(Duration::from_mins(1), late.next()).await.unwrap().unwrap();
    assert_eq!(first.name, "healthy");
    let others = late.take(SILENT).collect::<Vec<_>>();
    assert_eq!(timeout(Duration::from_mins(1), others).await.unwrap().len(), SILENT);
    assert_eq!(requests(&healthy), (0, 0));
    let all = 2 * u32::try_from(SILENT).unwrap();
    until(|| given_up() == all).await;
}

#[tokio::test]
async fn gateways_that_are_told_to_leave_and_are_silent_delay_no_reconcile_and_are_told_once_they_hear() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.pods.all[3].behaviour.lock().unwrap().hangs = true;
    scene.bench.restart_waiting(Duration::ZERO);
    scene.change_spec(|spec| spec["replicas"] = 2.into());
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!(requests(&scene.pods).0, 0, "somebody waited for it");
    // What has been asked is not asked beside that once more.
    until(|| requests(&scene.pods).1 == 2).await;
    until(|| !scene.pods.all[2].behaviour.lock().unwrap().told.is_empty()).await;
    scene.pods.each(|gateway| (gateway.hangs, gateway.blocks) = (false, 0));
    scene.bench.restart();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(3), scene.replicas()), (vec!["/drain".to_owned()], 2));
}

/// That a gateway is empty is known of the process that said it, and of no other in its pod.
#[tokio::test]
async fn what_a_process_has_said_before_it_was_started_again_is_no_proof() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    let container = |id: &str| {
        scene.bench.server.change("pods/prod-gateway-1", |pod| {
            pod["status"]["containerStatuses"][0]["containerID"] = id.into();
        });
    };
    container("c://1");
    scene.pods.each(|gateway| gateway.blocks = 1);
    scene.change_spec(|spec| spec["replicas"] = 1.into());
    scene.bench.reconcile("prod").await.unwrap();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(1), scene.replicas()), (vec!["/drain".to_owned()], 2));
    // It is empty and reports that; the operator does not wait for the report.
    scene.pods.each(|gateway| gateway.blocks = 0);
    scene.bench.restart_waiting(Duration::ZERO);
    scene.bench.reconcile("prod").await.unwrap();
    until(|| !scene.pods.all[1].behaviour.lock().unwrap().told.is_empty()).await;
    // Another process is there by the next look, and does not answer.
    let started = scene.bench.server.get("pods/prod-gateway-1").unwrap();
    assert_eq!(started["status"]["containerStatuses"][0]["containerID"], "c://1");
    scene.bench.server.change("pods/prod-gateway-1", |pod| {
        pod["status"]["containerStatuses"][0]["containerID"] = "c://2".into();
    });
    scene.pods.each(|gateway| gateway.hangs = true);
    pass(2);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 2, "nobody knows what it holds");
    scene.pods.each(|gateway| gateway.hangs = false);
    scene.bench.restart();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 1);
    scene.control().await;
    scene.bench.settle("prod").await;
}
