//! Rollouts as they are written: one gateway first, back by itself, and pods that are stuck.

use crate::{
    api_server::Write,
    bench::{Bench, NAMESPACE},
    scaling::{clock, pass},
};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};
use sluice_operator::{reconcile::reconcile, world::api_error::ErrorClass};

const WORKLOAD: &str = "statefulsets/prod-gateway";
const GATEWAYS: u64 = 3;

struct Scene {
    bench: Bench,
    gateways: u64,
    /// Templates that were seen; a revision is called by the place in here.
    templates: Vec<Value>,
    pods: u32,
}

impl Scene {
    /// Gateways that run, with volumes of 1Gi.
    async fn running() -> Self {
        Self::running_with(GATEWAYS).await
    }

    async fn running_with(gateways: u64) -> Self {
        let bench = Bench::start().await;
        let mut pipeline = bench.pipeline("prod");
        pipeline["spec"]["replicas"] = gateways.into();
        pipeline["spec"]["queue"] = json!({"size": "1Gi"});
        bench.server.put("tracepipelines/prod", pipeline);
        bench.settle("prod").await;
        let mut scene = Self { bench, gateways, templates: Vec::new(), pods: 0 };
        scene.control(&[]);
        scene.bench.settle("prod").await;
        assert_eq!(
            (scene.rollout()["state"].clone(), scene.ready()),
            ("Complete".into(), "True Running".into())
        );
        scene
    }

    /// What the StatefulSet controller and the kubelet do until nothing is left to do; containers with these images cannot be had.
    fn control(&mut self, bad_images: &[&str]) {
        for _ in 0..6 {
            self.turn(bad_images);
        }
    }

    fn turn(&mut self, bad_images: &[&str]) {
        // It is made anew around its pods.
        let Some(workload) = self.bench.server.get(WORKLOAD) else { return };
        let (spec, template) = (&workload["spec"], &workload["spec"]["template"]);
        let update = self.revision(template);
        let current = workload["status"]["currentRevision"].as_str().unwrap_or(&update).to_owned();
        let (replicas, partition) =
            (count(&spec["replicas"]), count(&spec["updateStrategy"]["rollingUpdate"]["partition"]));
        for ordinal in 0..replicas {
            if self.pod(ordinal).is_none() {
                let revision = if ordinal < partition { current.clone() } else { update.clone() };
                self.start(ordinal, &revision, bad_images);
            }
        }
        for ordinal in replicas..self.gateways {
            self.bench.server.remove(&format!("pods/prod-gateway-{ordinal}"));
        }
        let outdated = (partition..replicas).rev().find(|ordinal| !self.has(*ordinal, &update));
        let unready = (partition..replicas).rev().find(|ordinal| !self.is_ready(*ordinal));
        if let Some(ordinal) = outdated.filter(|ordinal| unready.is_none_or(|unready| unready <= *ordinal)) {
            self.bench.server.remove(&format!("pods/prod-gateway-{ordinal}"));
        }
        let has = |ordinal: &u64| self.has(*ordinal, &update);
        let updated = (0..replicas).filter(has).count();
        let ready = (0..replicas).filter(|ordinal| self.is_ready(*ordinal)).count();
        let there = (0..replicas).filter(|ordinal| self.pod(*ordinal).is_some()).count();
        let is_done = u64::try_from(updated.min(ready)) == Ok(replicas);
        self.bench.server.change(WORKLOAD, |workload| {
            workload["status"] = json!({
                "observedGeneration": 1, "replicas": there, "readyReplicas": ready, "updatedReplicas": updated,
                "currentRevision": if is_done { &update } else { &current }, "updateRevision": update,
            });
        });
    }

    fn revision(&mut self, template: &Value) -> String {
        let known = self.templates.iter().position(|one| one == template);
        let place = known.unwrap_or(self.templates.len());
        if known.is_none() {
            self.templates.push(template.clone());
        }
        format!("prod-gateway-{place}")
    }

    fn start(&mut self, ordinal: u64, revision: &str, bad_images: &[&str]) {
        self.pods += 1;
        let place: usize = revision.rsplit_once('-').unwrap().1.parse().unwrap();
        let image = self.templates[place]["spec"]["containers"][0]["image"].as_str().unwrap();
        let is_bad = bad_images.contains(&image);
        let now = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
        let state = if is_bad {
            json!({"waiting": {"reason": "ErrImageNeverPull", "message": format!("{image} is not present")}})
        } else {
            json!({"running": {}})
        };
        let name = format!("prod-gateway-{ordinal}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("pod-{}", self.pods), "creationTimestamp": now,
                "labels": {
                    "app.kubernetes.io/managed-by": "sluice-operator", "app.kubernetes.io/instance": "prod",
                    "app.kubernetes.io/component": "gateway", "controller-revision-hash": revision,
                }},
            "status": {
                "conditions": [{"type": "Ready", "status": if is_bad { "False" } else { "True" }, "lastTransitionTime": now}],
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": !is_bad, "restartCount": 0,
                    "state": state, "lastState": {}}],
            },
        });
        self.bench.server.put(&format!("pods/{name}"), pod);
    }

    fn pod(&self, ordinal: u64) -> Option<Value> {
        self.bench.server.get(&format!("pods/prod-gateway-{ordinal}"))
    }

    fn has(&self, ordinal: u64, revision: &str) -> bool {
        self.pod(ordinal).is_some_and(|pod| pod["metadata"]["labels"]["controller-revision-hash"] == revision)
    }

    fn is_ready(&self, ordinal: u64) -> bool {
        self.pod(ordinal).is_some_and(|pod| pod["status"]["conditions"][0]["status"] == "True")
    }

    fn uids(&self) -> Vec<Value> {
        (0..self.gateways)
            .filter_map(|ordinal| self.pod(ordinal))
            .map(|pod| pod["metadata"]["uid"].clone())
            .collect()
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.bench.server.change("tracepipelines/prod", |pipeline| {
            change(&mut pipeline["spec"]);
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
    }

    fn workload(&self) -> Value {
        self.bench.server.get(WORKLOAD).unwrap()
    }

    fn partition(&self) -> u64 {
        count(&self.workload()["spec"]["updateStrategy"]["rollingUpdate"]["partition"])
    }

    fn remembered(&self) -> Value {
        self.workload()["metadata"]["annotations"]["sluice.dev/proved-template"].clone()
    }

    fn volume_size(&self) -> Value {
        let claim = &self.workload()["spec"]["volumeClaimTemplates"][0];
        claim["spec"]["resources"]["requests"]["storage"].clone()
    }

    fn rollout(&self) -> Value {
        self.bench.server.get("tracepipelines/prod").unwrap()["status"]["rollout"].clone()
    }

    fn ready(&self) -> String {
        self.bench.condition("prod", "Ready")
    }

    /// Pods that one look deletes.
    async fn deleted(&self) -> Vec<String> {
        self.bench.server.take_writes();
        self.bench.reconcile("prod").await.unwrap();
        self.deletions()
    }

    /// Pods that were to be deleted since the last call.
    fn deletions(&self) -> Vec<String> {
        let writes = self.bench.server.take_writes().into_iter();
        let pods = writes.filter(|write| write.method == "DELETE").map(|write| write.what);
        pods.filter_map(|what| what.strip_prefix("pods/prod-gateway-").map(str::to_owned)).collect()
    }

    /// Looks until it rests, with time and the controller in between.
    async fn settle(&mut self, bad_images: &[&str]) {
        for _ in 0..12 {
            self.bench.reconcile("prod").await.unwrap();
            self.control(bad_images);
            pass(30);
        }
    }
}

fn count(number: &Value) -> u64 {
    number.as_u64().unwrap_or(0)
}

fn image(image: &str) -> impl FnOnce(&mut Value) {
    let image = image.to_owned();
    move |spec| spec["gateway"] = json!({"image": image})
}

#[tokio::test]
async fn a_change_is_tried_by_one_gateway_whoever_dies_meanwhile() {
    let mut scene = Scene::running().await;
    let before = scene.uids();
    scene.edit(|spec| spec["gateway"] = json!({"logLevel": "debug"}));
    // The template is given, and the operator dies before it has written that.
    scene.bench.server.refuse("tracepipelines/prod/status", 500);
    scene.bench.fail("prod").await;
    assert_eq!((scene.partition(), scene.rollout()["state"].clone()), (2, "Complete".into()));
    scene.bench.server.relent();
    scene.bench.restart();
    scene.control(&[]);
    for _ in 0..2 {
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!((scene.partition(), scene.rollout()["state"].clone()), (2, "Canary".into()));
    }
    assert_eq!(scene.ready(), "False Progressing");
    assert_eq!((&scene.uids()[..2], scene.uids()[2] == before[2]), (&before[..2], false));
    let configs = scene.bench.server.list("configmaps").len();
    assert_eq!(configs, 2, "the one before is kept");
    pass(60);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.partition(), scene.rollout()["state"].clone()), (0, "Rolling".into()));
    scene.settle(&[]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
    assert!(scene.uids().iter().all(|uid| !before.contains(uid)));
    let annotations = scene.workload()["metadata"]["annotations"].clone();
    assert!(annotations["sluice.dev/proved-template"].is_null(), "it is not needed any more: {annotations}");
    scene.bench.server.take_writes();
    scene.bench.restart();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.bench.server.take_writes(), []);
}

#[tokio::test]
async fn a_bad_image_is_taken_back_and_an_edit_heals() {
    let mut scene = Scene::running().await;
    let (before, template) = (scene.uids(), scene.workload()["spec"]["template"].clone());
    scene.edit(image("bad:1"));
    scene.settle(&["bad:1"]).await;
    assert_eq!(scene.workload()["spec"]["template"], template);
    assert_eq!((scene.ready().as_str(), &scene.uids()[..2]), ("False RolledBack", &before[..2]));
    assert_eq!(scene.bench.condition("prod", "Stalled"), "True RolledBack");
    let said = scene.rollout()["message"].as_str().unwrap().to_owned();
    assert!(
        said.starts_with(
            "prod-gateway-2: ErrImageNeverPull, bad:1 is not present; the operator rolled the gateways back"
        ),
        "{said}"
    );
    let status = scene.bench.server.get("tracepipelines/prod").unwrap()["status"].clone();
    assert_eq!(status["image"], "sluice-gateway:test", "that is what runs");
    // It rests, also for an operator that knows nothing but what is written.
    scene.bench.server.take_writes();
    scene.bench.restart();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
        pass(600);
    }
    assert_eq!(scene.bench.server.take_writes(), []);
    scene.edit(image("good:2"));
    scene.settle(&["bad:1"]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
}

#[tokio::test]
async fn what_failed_is_told_as_an_event() {
    let mut scene = Scene::running().await;
    scene.edit(image("bad:1"));
    scene.bench.reconcile("prod").await.unwrap();
    scene.control(&["bad:1"]);
    scene.bench.server.take_writes();
    scene.bench.reconcile("prod").await.unwrap();
    let events = |writes: &[Write]| writes.iter().filter(|write| write.what == "events").count();
    assert_eq!((events(&scene.bench.server.take_writes()), scene.ready()), (1, "False RolledBack".into()));
}

#[tokio::test]
async fn a_pod_that_is_stuck_is_deleted_one_at_a_time() {
    let mut scene = Scene::running().await;
    scene.edit(|spec| spec["rollout"] = json!({"autoRollback": false}));
    scene.edit(image("bad:1"));
    scene.bench.reconcile("prod").await.unwrap();
    scene.control(&["bad:1"]);
    // Two more came up with it, as after a node was lost while the controller knew no other revision.
    for ordinal in [0, 1] {
        scene.bench.server.remove(&format!("pods/prod-gateway-{ordinal}"));
        scene.start(ordinal, "prod-gateway-1", &["bad:1"]);
    }
    scene.edit(image("good:2"));
    scene.bench.reconcile("prod").await.unwrap();
    scene.turn(&["bad:1"]);
    for left in [1, 0] {
        assert_eq!(scene.deleted().await, [left.to_string()]);
        scene.turn(&["bad:1"]);
    }
    scene.settle(&["bad:1"]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
}

/// Eight gateways. Four may be unavailable, and the first one has proved a change; the controller has not seen that yet.
async fn four_at_a_time() -> Scene {
    let mut scene = Scene::running_with(8).await;
    scene.edit(|spec| spec["rollout"] = json!({"maxUnavailable": "50%"}));
    scene.edit(image("good:1"));
    scene.bench.reconcile("prod").await.unwrap();
    scene.control(&[]);
    scene.bench.reconcile("prod").await.unwrap();
    pass(60);
    assert_eq!(scene.deleted().await, [""; 0], "the first one is alone until it has proved itself");
    assert_eq!((scene.partition(), scene.rollout()["state"].clone()), (0, "Rolling".into()));
    scene
}

#[tokio::test]
async fn as_many_pods_are_deleted_as_may_be_away() {
    let mut scene = four_at_a_time().await;
    let before = scene.uids();
    // The controller takes 6, which it has not done yet.
    assert_eq!(scene.deleted().await, ["5", "4", "3"]);
    assert_eq!(scene.deleted().await, [""; 0], "three are away, and one is about to be");
    scene.turn(&[]);
    assert_eq!(scene.pod(6), None, "that was the controller");
    assert_eq!(scene.deleted().await, ["2", "1", "0"], "the others are ready again");
    scene.settle(&[]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
    assert!(scene.uids()[..7].iter().all(|uid| !before[..7].contains(uid)));
    assert_eq!(scene.uids()[7], before[7], "it had the change already");
    scene.bench.server.take_writes();
    scene.bench.restart();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.bench.server.take_writes(), []);
}

#[tokio::test]
async fn an_operator_that_dies_between_two_deletions_deletes_no_more_than_may_be_away() {
    let mut scene = four_at_a_time().await;
    scene.bench.server.cut_off_after(2);
    scene.bench.server.take_writes();
    scene.bench.fail("prod").await;
    assert_eq!(scene.deletions()[..2], ["5", "4"]);
    scene.bench.server.go_on();
    scene.bench.restart();
    assert_eq!(scene.deleted().await, ["3"]);
    assert_eq!(scene.deleted().await, [""; 0]);
    scene.settle(&[]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
}

#[tokio::test]
async fn once_a_pod_is_another_than_was_looked_at_the_others_are_looked_at_again() {
    let scene = four_at_a_time().await;
    scene.bench.server.refuse("pods/prod-gateway-5 DELETE", 409);
    assert_eq!(scene.deleted().await, ["5"]);
    scene.bench.server.relent();
    assert_eq!(scene.deleted().await, ["5", "4", "3"]);
    // Of a server that does not say what there is nothing is deleted.
    let scene = four_at_a_time().await;
    scene.bench.server.take_writes();
    scene.bench.server.refuse("statefulsets/prod-gateway GET", 500);
    scene.bench.fail("prod").await;
    assert_eq!(scene.deletions(), [""; 0]);
}

#[tokio::test]
async fn a_copy_of_the_workload_that_is_older_takes_no_template_back_while_gateways_leave() {
    let scene = Scene::running().await;
    scene.edit(image("good:1"));
    // Another client has changed a label, so the operator has something to write.
    scene.bench.server.change(WORKLOAD, |workload| {
        workload["metadata"]["labels"]["app.kubernetes.io/part-of"] = "other".into();
    });
    let older = scene.bench.world();
    scene.bench.reconcile("prod").await.unwrap();
    let given = scene.workload();
    // A gateway leaves.
    scene.edit(|spec| spec["replicas"] = 2.into());
    scene.bench.server.change("tracepipelines/prod", |pipeline| {
        let since = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
        pipeline["status"]["scaling"]["drain"] =
            json!({"state": "Draining", "target": 2, "from": 3, "since": since, "reason": ""});
    });
    let pipeline =
        scene.bench.world().cache.pipelines.get(&ObjectRef::new("prod").within(NAMESPACE)).unwrap();
    let failed = reconcile(pipeline, scene.bench.reconciler(older)).await.unwrap_err();
    assert_eq!(failed.error.class(), ErrorClass::Conflict);
    assert_eq!(scene.workload()["spec"]["template"], given["spec"]["template"]);
}

#[tokio::test]
async fn no_step_is_made_while_a_pipeline_rests_is_left_alone_or_goes() {
    type Change = fn(&mut Value);
    let suspended: [Change; 2] =
        [|object| object["spec"]["suspend"] = true.into(), |object| object["spec"]["suspend"] = false.into()];
    let left_alone: [Change; 2] = [
        |object| object["spec"]["managementState"] = "Unmanaged".into(),
        |object| object["spec"]["managementState"] = "Managed".into(),
    ];
    let deleted: [Change; 2] =
        [|object| object["metadata"]["deletionTimestamp"] = "2026-09-21T14:00:00Z".into(), |_| {}];
    for (what, [change, back]) in [("suspended", suspended), ("left alone", left_alone), ("deleted", deleted)]
    {
        let mut scene = Scene::running().await;
        scene.edit(|spec| spec["gateway"] = json!({"logLevel": "debug"}));
        scene.bench.reconcile("prod").await.unwrap();
        scene.control(&[]);
        scene.bench.reconcile("prod").await.unwrap();
        assert_eq!((scene.partition(), scene.rollout()["state"].clone()), (2, "Canary".into()), "{what}");
        let remembered = scene.remembered();
        scene.bench.server.change("tracepipelines/prod", change);
        scene.bench.server.take_writes();
        for _ in 0..3 {
            pass(60);
            if scene.bench.server.get("tracepipelines/prod").is_some() {
                scene.bench.reconcile("prod").await.unwrap();
            }
        }
        let writes = scene.bench.server.take_writes();
        let is_step = |write: &&Write| {
            write.what.starts_with("pods")
                || (write.what == WORKLOAD && write.field_manager == "sluice-operator")
        };
        assert_eq!(writes.iter().find(is_step), None, "{what}: {writes:?}");
        assert_eq!((scene.partition(), scene.remembered()), (2, remembered), "{what}");
        if what == "deleted" {
            continue;
        }
        assert_eq!(scene.rollout()["state"], "Canary", "{what}: it goes on from there");
        scene.control(&[]);
        scene.bench.server.change("tracepipelines/prod", back);
        scene.settle(&[]).await;
        assert_eq!(
            (scene.rollout()["state"].clone(), scene.ready(), scene.partition()),
            ("Complete".into(), "True Running".into(), 0),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_workload_is_made_anew_for_larger_volumes_once_nothing_is_left_to_go_back_to() {
    let mut scene = Scene::running().await;
    let (before, template) = (scene.uids(), scene.workload()["spec"]["template"].clone());
    scene.edit(|spec| spec["queue"]["size"] = "2Gi".into());
    scene.edit(image("bad:1"));
    scene.bench.server.take_writes();
    scene.settle(&["bad:1"]).await;
    let deleted = |scene: &Scene| {
        let writes = scene.bench.server.take_writes();
        let deleted = writes.into_iter().filter(|write| write.method == "DELETE" && write.what == WORKLOAD);
        deleted.map(|write| write.propagation).collect::<Vec<_>>()
    };
    assert_eq!((scene.ready().as_str(), deleted(&scene)), ("False RolledBack", vec![]));
    assert_eq!((scene.workload()["spec"]["template"].clone(), scene.volume_size()), (template, "1Gi".into()));
    assert_eq!((&scene.uids()[..2], scene.remembered().is_string()), (&before[..2], true));
    scene.edit(image("good:2"));
    scene.settle(&["bad:1"]).await;
    assert_eq!((scene.rollout()["state"].clone(), scene.ready()), ("Complete".into(), "True Running".into()));
    assert_eq!((scene.volume_size(), deleted(&scene)), ("2Gi".into(), vec!["Orphan".to_owned()]));
}
