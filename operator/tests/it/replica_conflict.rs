//! Another client sets the replicas of the StatefulSet, as an HPA does: the operator keeps that number, and manages everything else.

use crate::scaling::Scene;
use serde_json::{Value, json};

const WORKLOAD: &str = "statefulsets/prod-gateway";
const HPA: &str = "kube-controller-manager";

impl Scene {
    /// Another client sets the number, and Kubernetes follows.
    async fn is_scaled_by(&mut self, manager: &str, replicas: u32) {
        self.bench.server.scale_by(manager, WORKLOAD, replicas);
        self.control().await;
    }

    /// Who has the number.
    fn scalers(&self) -> Vec<String> {
        let workload = self.bench.server.get(WORKLOAD).unwrap();
        let entries = workload["metadata"]["managedFields"].as_array().unwrap().clone();
        let having = entries.iter().filter(|entry| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object());
        having.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
    }

    fn image(&self) -> Value {
        self.bench.server.get(WORKLOAD).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    }

    async fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.poll().await;
            self.control().await;
        }
    }

    fn is_anybody_told(&self) -> bool {
        (0..self.pods.all.len()).any(|ordinal| !self.told(ordinal).is_empty())
    }
}

#[tokio::test]
async fn a_number_that_somebody_else_set_is_kept_and_everything_else_is_applied() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    assert_eq!(scene.scalers(), ["sluice-operator/scaler"]);
    for (replicas, image) in [(6, "sluice-gateway:up"), (1, "sluice-gateway:down")] {
        scene.is_scaled_by(HPA, replicas).await;
        scene.pods.each(|gateway| gateway.blocks = 3);
        scene.change_spec(|spec| spec["gateway"]["image"] = image.into());
        scene.rounds(6).await;
        assert!(!scene.is_anybody_told(), "nobody leaves for a number that is not kept");
        assert_eq!((scene.replicas(), scene.scalers()), (replicas, vec![HPA.to_owned()]), "{image}");
        assert_eq!(scene.image(), image);
        assert_eq!(scene.bench.condition("prod", "ScalingLimited"), "True ScalingConflict");
    }
}

#[tokio::test]
async fn whoever_else_scales_is_named_once_in_an_event_and_in_a_condition_until_they_stop() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    scene.is_scaled_by(HPA, 6).await;
    scene.bench.server.take_events();
    scene.rounds(3).await;
    let pipeline = scene.bench.server.get("tracepipelines/prod").unwrap();
    let conditions = pipeline["status"]["conditions"].as_array().unwrap().clone();
    let limited = conditions.iter().find(|condition| condition["type"] == "ScalingLimited").unwrap();
    let who = "\"kube-controller-manager\" (a HorizontalPodAutoscaler, maybe of KEDA) set the replicas";
    assert!(limited["message"].as_str().unwrap().contains(who), "{limited}");
    let events = scene.bench.server.take_events();
    let told: Vec<_> = events.iter().filter(|event| event["reason"] == "ScalingConflict").collect();
    assert_eq!(told.len(), 1, "{events:?}");
    assert!(told[0]["note"].as_str().unwrap().contains(who), "{told:?}");
    // As the words say: the StatefulSet is made anew around its pods, and its number is ours.
    scene.bench.server.remove(WORKLOAD);
    for _ in 0..8 {
        scene.rounds(1).await;
    }
    assert_eq!((scene.replicas(), scene.scalers()), (4, vec!["sluice-operator/scaler".to_owned()]));
    assert_eq!(scene.bench.condition("prod", "ScalingLimited"), "False Ok");
}

#[tokio::test]
async fn a_number_that_happens_to_be_the_wanted_one_stays_theirs() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    scene.is_scaled_by("kubectl", 6).await;
    scene.change_spec(|spec| spec["replicas"] = 6.into());
    scene.rounds(3).await;
    assert_eq!(scene.bench.condition("prod", "ScalingLimited"), "False Ok", "nobody wants anything else");
    scene.change_spec(|spec| spec["replicas"] = 3.into());
    scene.rounds(3).await;
    assert!(!scene.is_anybody_told());
    assert_eq!((scene.replicas(), scene.scalers()), (6, vec!["kubectl".to_owned()]));
    assert_eq!(scene.bench.condition("prod", "ScalingLimited"), "True ScalingConflict");
}

#[tokio::test]
async fn gateways_that_were_told_to_leave_are_told_to_stay_when_somebody_else_sets_the_number() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    scene.change_spec(|spec| spec["replicas"] = 3.into());
    scene.bench.settle("prod").await;
    assert_eq!(scene.told(3).pop(), Some("/drain".to_owned()));
    scene.is_scaled_by(HPA, 5).await;
    scene.rounds(3).await;
    assert_eq!(scene.told(3).pop(), Some("/resume".to_owned()));
    assert_eq!((scene.replicas(), scene.said()["drain"].clone()), (5, Value::Null));
    assert!(scene.pods.all.iter().all(|pod| !pod.behaviour.lock().unwrap().is_drained));
}

#[tokio::test]
async fn a_pipeline_that_is_to_rest_rests_whoever_set_the_number() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.is_scaled_by(HPA, 3).await;
    scene.rounds(2).await;
    scene.change_spec(|spec| spec["suspend"] = true.into());
    scene.rounds(6).await;
    assert_eq!((scene.replicas(), scene.scalers()), (0, vec!["sluice-operator/scaler".to_owned()]));
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Suspended");
    scene.change_spec(|spec| spec["suspend"] = false.into());
    scene.rounds(3).await;
    assert_eq!((scene.replicas(), scene.scalers()), (2, vec!["sluice-operator/scaler".to_owned()]));
}

#[tokio::test]
async fn who_takes_over_takes_the_number_once_however_often_they_are_cut_off() {
    let mut scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.change_spec(|spec| spec["managementState"] = "Unmanaged".into());
    scene.bench.settle("prod").await;
    scene.is_scaled_by("kubectl", 3).await;
    let port = |service: &mut Value| service["spec"]["ports"][0]["port"] = 1.into();
    scene.bench.server.change("services/prod-gateway", port);
    scene.bench.settle("prod").await;
    scene.change_spec(|spec| spec["managementState"] = "Managed".into());
    // It gets no further than this. Who has set the same number owns it, too.
    scene.bench.server.refuse("services", 500);
    scene.bench.fail("prod").await;
    let both = ["kubectl", "sluice-operator/scaler"].map(str::to_owned).to_vec();
    assert_eq!((scene.replicas(), scene.scalers()), (3, both));
    scene.bench.server.take_writes();
    scene.bench.restart();
    scene.bench.fail("prod").await;
    let writes = scene.bench.server.take_writes();
    assert!(writes.iter().all(|write| !write.what.starts_with("statefulsets")), "{writes:?}");
    assert_eq!(scene.bench.condition("prod", "ReconciliationPaused"), "True Unmanaged");
}
