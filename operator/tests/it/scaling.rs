//! Who sets the number of gateways: what is polled, what is decided, how gateways leave, and what is written of it.

use crate::{bench::Bench, pods::Pods};
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use sluice_gateway_config::SESSION_SECONDS;
use sluice_plan::Moment;
use std::{cell::Cell, time::Duration};

/// Partitions of the bench's topic.
const PARTITIONS: u32 = 8;
const POLL_SECONDS: u64 = 15;

thread_local! {
    /// Each test has a thread, and so a time, of its own. It begins at some moment of 2026.
    static NOW_MS: Cell<u64> = const { Cell::new(1_790_000_000_000) };
    static IS_BROKEN: Cell<bool> = const { Cell::new(false) };
}

/// The clock that the operator goes by.
pub fn clock() -> Moment {
    assert!(!IS_BROKEN.get(), "the clock is broken");
    Moment(NOW_MS.get())
}

/// The clock panics when it is read, like a defect of the operator.
pub fn break_clock(is_broken: bool) {
    IS_BROKEN.set(is_broken);
}

/// Lets this many seconds pass.
pub fn pass(seconds: u64) {
    NOW_MS.set(NOW_MS.get() + seconds * 1_000);
}

/// A pipeline with gateways that answer.
pub struct Scene {
    pub bench: Bench,
    pub pods: Pods,
}

impl Scene {
    /// A pipeline with this many gateways that run, under these rules.
    pub async fn with(gateways: u32, scaling: Value) -> Self {
        let bench = Bench::start().await;
        let mut pipeline = bench.pipeline("prod");
        pipeline["spec"]["partitionsPerReplica"] = (PARTITIONS / gateways).into();
        pipeline["spec"]["scaling"] = scaling;
        bench.server.put("tracepipelines/prod", pipeline);
        let pods = Pods::of(&bench.server, "prod");
        let mut scene = Self { bench, pods };
        scene.settle_in().await;
        assert_eq!(scene.replicas(), gateways);
        scene
    }

    /// The first gateways start.
    async fn settle_in(&mut self) {
        self.bench.settle("prod").await;
        self.control().await;
        self.poll().await;
        self.poll().await;
        self.bench.settle("prod").await;
    }

    /// What the StatefulSet controller and the kubelet do.
    pub async fn control(&mut self) {
        self.bench.gateways_become_ready("prod");
        self.pods.become_ready(self.replicas() as usize, PARTITIONS).await;
    }

    /// One reconcile after the time between two polls.
    pub async fn poll(&self) -> Action {
        pass(POLL_SECONDS);
        self.bench.reconcile("prod").await.unwrap()
    }

    /// Gateways are half busy for the time of one poll, with 1,000 messages a second at the most.
    async fn work(&self) {
        self.pods.each(|gateway| {
            gateway.busy_seconds += 7.5;
            gateway.source_seconds += 7.5;
            gateway.messages += 7_500;
        });
        self.poll().await;
    }

    /// Gateways wait for messages for the time of one poll.
    async fn rest(&self) -> Action {
        self.pods.each(|gateway| gateway.source_seconds += 15.0);
        self.poll().await
    }

    pub fn replicas(&self) -> u32 {
        let workload = self.bench.server.get("statefulsets/prod-gateway").unwrap();
        u32::try_from(workload["spec"]["replicas"].as_u64().unwrap()).unwrap()
    }

    pub fn said(&self) -> Value {
        self.bench.server.get("tracepipelines/prod").unwrap()["status"]["scaling"].clone()
    }

    pub fn change_spec(&self, change: impl FnOnce(&mut Value)) {
        self.bench.server.change("tracepipelines/prod", |pipeline| {
            change(&mut pipeline["spec"]);
            let generation = pipeline["metadata"]["generation"].as_i64().unwrap();
            pipeline["metadata"]["generation"] = (generation + 1).into();
        });
    }

    pub fn told(&self, ordinal: usize) -> Vec<String> {
        std::mem::take(&mut self.pods.all[ordinal].behaviour.lock().unwrap().told)
    }
}

#[tokio::test]
async fn gateways_that_are_too_many_leave_once_they_are_empty() {
    let mut scene = Scene::with(4, json!({"mode": "Auto"})).await;
    scene.pods.each(|gateway| gateway.blocks = 3);
    let mut polls = 0;
    while scene.said()["drain"].is_null() {
        scene.work().await;
        polls += 1;
        assert!(polls < 60, "{}", scene.said());
    }
    assert!(polls >= 40, "a surplus lasts ten minutes, not {polls} polls");
    assert_eq!(scene.told(3), Vec::<String>::new(), "what is not written has not begun");
    assert_eq!((scene.replicas(), scene.said()["drain"]["target"].clone()), (4, 2.into()));
    // Another operator goes on from here, and waits.
    scene.bench.restart();
    let action = scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(action, Action::requeue(Duration::from_secs(2)));
    assert_eq!((scene.told(3), scene.told(1)), (vec!["/drain".to_owned()], vec![]));
    assert_eq!((scene.replicas(), scene.said()["drain"]["reason"].clone()), (4, "0 of 2 are empty".into()));
    scene.pods.each(|gateway| gateway.blocks = 0);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 2);
    scene.control().await;
    scene.bench.settle("prod").await;
    assert!(scene.said()["drain"].is_null());
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Running");
}

/// A pipeline without gateways, whose topic has never had a message.
async fn at_rest() -> Scene {
    let idle = json!({"after": "1m", "refreshEvery": "24h"});
    let mut scene = Scene::with(2, json!({"mode": "Auto", "minReplicas": 0, "idle": idle})).await;
    let mut polls = 0;
    while scene.said()["drain"].is_null() {
        scene.rest().await;
        polls += 1;
        assert!(polls < 10, "{}", scene.said());
    }
    assert_eq!((scene.replicas(), scene.said()["drain"]["target"].clone()), (2, 0.into()));
    // Another operator goes on from here.
    scene.bench.restart();
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    for gateway in [0, 1] {
        let told = scene.told(gateway);
        assert!(!told.is_empty() && told.iter().all(|command| command == "/drain"), "{told:?}");
    }
    assert_eq!(scene.replicas(), 0);
    scene.control().await;
    scene.bench.settle("prod").await;
    assert_eq!(scene.bench.condition("prod", "Ready"), "True Idle");
    scene
}

/// What is polled here, simulated days and random worlds decide elsewhere.
#[tokio::test]
async fn gateways_leave_an_idle_topic_and_one_comes_back_so_that_kafka_keeps_the_offsets() {
    let scene = at_rest().await;
    for _ in 0..20 {
        scene.poll().await;
        assert_eq!(scene.replicas(), 0, "{}", scene.said());
    }
    pass(24 * 3_600);
    scene.poll().await;
    scene.poll().await;
    assert_eq!(scene.replicas(), 1, "{}", scene.said());
}

#[tokio::test]
async fn a_schema_job_that_has_not_ended_keeps_no_gateway_from_an_idle_topic_that_is_read_again() {
    let scene = at_rest().await;
    let template = |scene: &Scene| {
        let workload = scene.bench.server.get("statefulsets/prod-gateway").unwrap();
        workload["spec"]["template"].clone()
    };
    let before = template(&scene);
    scene.change_spec(|spec| {
        spec["sink"]["clickhouse"]["schema"] = json!({"management": "CreateIfMissing"});
    });
    scene.poll().await;
    let jobs = scene.bench.server.list("jobs");
    let has_begun = jobs.iter().any(|job| job["metadata"]["name"].as_str().unwrap().contains("-schema-"));
    assert!(has_begun && scene.replicas() == 0, "{jobs:?} {}", scene.said());
    pass(24 * 3_600);
    scene.poll().await;
    scene.poll().await;
    assert_eq!(scene.replicas(), 1, "{}", scene.said());
    assert_eq!(template(&scene), before, "it has the template that its predecessors had");
}

#[tokio::test]
async fn one_that_ends_as_it_is_to_leave_is_waited_for_and_nothing_is_tried_meanwhile() {
    let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
    let image = |scene: &Scene| {
        let workload = scene.bench.server.get("statefulsets/prod-gateway").unwrap();
        workload["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    let before = image(&scene);
    // It was evicted, and its pod ends.
    scene.pods.ends(3);
    scene.change_spec(|spec| {
        spec["replicas"] = 2.into();
        spec["gateway"] = json!({"image": "other:1"});
    });
    for _ in 0..3 {
        scene.bench.reconcile("prod").await.unwrap();
    }
    assert_eq!((scene.told(2).first().cloned(), scene.told(3)), (Some("/drain".to_owned()), vec![]));
    assert_eq!((scene.replicas(), scene.said()["drain"]["reason"].clone()), (4, "1 of 2 are empty".into()));
    assert_eq!(image(&scene), before, "the first to be tried would be one that leaves");
    // It is back, and is asked.
    scene.pods.is_back(3);
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!((scene.told(3), scene.replicas()), (vec!["/drain".to_owned()], 2));
    assert_eq!(image(&scene), before);
    scene.control().await;
    scene.bench.reconcile("prod").await.unwrap();
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(image(&scene), "other:1");
    let rollout = scene.bench.server.get("tracepipelines/prod").unwrap()["status"]["rollout"].clone();
    assert_eq!(rollout["state"], "Canary", "{rollout}");
}

#[tokio::test]
async fn one_that_ended_longer_ago_than_its_session_lasts_has_left() {
    let scene = Scene::with(2, json!({"mode": "Fixed"})).await;
    scene.pods.ends(1);
    pass(u64::from(SESSION_SECONDS));
    scene.change_spec(|spec| spec["replicas"] = 1.into());
    scene.bench.reconcile("prod").await.unwrap();
    assert_eq!(scene.replicas(), 1);
}

#[tokio::test]
async fn a_second_poll_at_rest_writes_nothing_nor_does_an_operator_that_starts() {
    let mut scene = Scene::with(2, json!({"mode": "Auto", "minReplicas": 2})).await;
    for _ in 0..5 {
        scene.work().await;
    }
    for _ in 0..8 {
        scene.rest().await;
    }
    scene.bench.server.take_writes();
    for _ in 0..8 {
        let action = scene.rest().await;
        assert_eq!(action, Action::requeue(Duration::from_secs(POLL_SECONDS)));
        assert_eq!(scene.bench.server.take_writes(), [], "{}", scene.said());
    }
    let capacity = scene.said()["capacityPerReplica"].clone();
    assert!(capacity.as_u64().is_some_and(|capacity| (900..=1_100).contains(&capacity)), "{capacity}");
    scene.bench.restart();
    for _ in 0..8 {
        scene.rest().await;
        assert_eq!(scene.bench.server.take_writes(), [], "{}", scene.said());
    }
    assert_eq!(scene.said()["capacityPerReplica"], capacity, "it outlives the operator");
}

#[tokio::test]
async fn kills_for_memory_add_gateways() {
    let scene = Scene::with(2, json!({"mode": "Auto"})).await;
    scene.pods.was_killed(1, 1);
    for _ in 0..4 {
        scene.work().await;
    }
    assert_eq!(scene.said()["cause"], "MemoryLimited", "{}", scene.said());
    assert_eq!(scene.replicas(), 3, "the next step of 8 partitions: {}", scene.said());
}

#[tokio::test]
async fn a_slow_sink_is_named_and_adds_no_gateway_whatever_else_speaks_for_one() {
    let scene = Scene::with(2, json!({"mode": "Auto"})).await;
    for _ in 0..5 {
        scene.work().await;
    }
    scene.pods.was_killed(1, 1);
    for _ in 0..8 {
        // Neither work nor messages to wait for: all of the time goes to waiting for ClickHouse.
        scene.pods.each(|gateway| gateway.insert_failures += 1);
        scene.poll().await;
    }
    assert_eq!(scene.said()["cause"], "SinkLimited", "{}", scene.said());
    assert_eq!(scene.replicas(), 2);
}

#[tokio::test]
async fn prometheus_is_told_of_lag_and_what_limits_in_modes_that_decide_nothing_and_the_status_is_not() {
    for mode in ["Fixed", "External"] {
        let scene = Scene::with(2, json!({"mode": mode})).await;
        scene.pods.each(|gateway| gateway.is_behind = true);
        for _ in 0..8 {
            scene.work().await;
        }
        let told = String::from_utf8(scene.bench.metrics().render().unwrap()).unwrap();
        for line in [
            r#"sluice_operator_pipeline_lag_seconds{name="prod",namespace="tracing"} 0"#,
            r#"sluice_operator_pipeline_scaling_cause{cause="SinkLimited",name="prod",namespace="tracing"} 1"#,
            r#"sluice_operator_pipeline_condition{name="prod",namespace="tracing",reason="Running",status="True",type="Ready"} 1"#,
        ] {
            assert!(told.contains(line), "{mode}: {line} is missing in\n{told}");
        }
        assert_eq!((scene.said(), scene.replicas()), (Value::Null, 2), "{mode}");
        // Gateways that do not answer any more say nothing of what limits; what waits in Kafka is known all the same.
        scene.pods.falls_silent(0);
        scene.pods.falls_silent(1);
        for _ in 0..3 {
            scene.poll().await;
        }
        let told = String::from_utf8(scene.bench.metrics().render().unwrap()).unwrap();
        assert!(
            told.contains(r#"sluice_operator_pipeline_lag_seconds{name="prod",namespace="tracing"} 0"#),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_slow_sink_is_named_also_where_queue_volumes_keep_the_workers_busy() {
    let scene = Scene::with(2, json!({"mode": "Auto"})).await;
    for _ in 0..5 {
        scene.work().await;
    }
    scene.pods.each(|gateway| gateway.is_behind = true);
    for _ in 0..8 {
        scene.work().await;
    }
    assert_eq!(scene.said()["cause"], "SinkLimited", "{}", scene.said());
    let reason = scene.said()["reason"].clone();
    assert!(reason.as_str().unwrap().contains("in 100 % of the gateways blocks wait for it"), "{reason}");
    assert_eq!(scene.replicas(), 2);
}

#[tokio::test]
async fn gateways_that_do_not_answer_hold_the_number_and_that_is_said() {
    let scene = Scene::with(4, json!({"mode": "Auto"})).await;
    for _ in 0..5 {
        scene.work().await;
    }
    scene.pods.falls_silent(1);
    for _ in 0..60 {
        scene.work().await;
    }
    assert_eq!((scene.replicas(), scene.said()["held"].clone()), (4, "MetricsUnavailable".into()));
    assert!(
        scene.said()["reason"].as_str().unwrap().starts_with("stays at 4: Kafka or a gateway did not answer")
    );
}

#[tokio::test]
async fn one_of_whose_partitions_one_has_stopped_holds_the_number_for_ten_minutes_and_no_longer() {
    let scene = Scene::with(4, json!({"mode": "Auto"})).await;
    for _ in 0..5 {
        scene.work().await;
    }
    scene.pods.is_unready(1);
    for _ in 0..39 {
        scene.work().await;
        assert_eq!(scene.said()["held"], "RolloutInProgress", "{}", scene.said());
    }
    scene.work().await;
    scene.work().await;
    scene.work().await;
    assert_eq!((scene.said()["held"].clone(), scene.replicas()), (Value::Null, 4), "{}", scene.said());
    // The numbers of gateways that do not answer stay unknown.
    scene.pods.falls_silent(2);
    for _ in 0..4 {
        scene.work().await;
    }
    assert_eq!(scene.said()["held"], "MetricsUnavailable", "{}", scene.said());
}

#[tokio::test]
async fn a_recommendation_is_said_and_changes_nothing() {
    let scene = Scene::with(4, json!({"mode": "Recommend"})).await;
    for _ in 0..60 {
        scene.work().await;
    }
    assert_eq!((scene.replicas(), scene.said()["recommendedReplicas"].clone()), (4, 1.into()));
    assert!(scene.said()["reason"].as_str().unwrap().starts_with("recommended only"), "{}", scene.said());
    assert!(scene.said()["drain"].is_null() && scene.said()["lastRescaleTime"].is_null());
    scene.bench.server.take_writes();
    for _ in 0..8 {
        scene.work().await;
        assert_eq!(scene.bench.server.take_writes(), [], "{}", scene.said());
    }
}

#[tokio::test]
async fn the_number_of_the_scale_subresource_is_taken_and_gateways_leave_in_every_mode() {
    for mode in ["External", "Fixed"] {
        let mut scene = Scene::with(4, json!({"mode": "Fixed"})).await;
        scene.change_spec(|spec| {
            spec["scaling"]["mode"] = mode.into();
            spec["replicas"] = 3.into();
        });
        scene.pods.each(|gateway| gateway.blocks = 1);
        scene.bench.settle("prod").await;
        assert_eq!((scene.replicas(), scene.told(3).pop()), (4, Some("/drain".to_owned())), "{mode}");
        // More gateways are wanted again: the operator resumes those that drain.
        scene.change_spec(|spec| spec["replicas"] = 6.into());
        scene.bench.settle("prod").await;
        assert_eq!((scene.replicas(), scene.told(3).pop()), (6, Some("/resume".to_owned())), "{mode}");
        assert!(scene.pods.all.iter().all(|pod| !pod.behaviour.lock().unwrap().is_drained));
        // Older gateways know nothing of it, and that is said.
        scene.control().await;
        scene.pods.each(|gateway| gateway.can_drain = false);
        scene.change_spec(|spec| spec["replicas"] = 5.into());
        scene.bench.settle("prod").await;
        assert_eq!(scene.replicas(), 5, "{mode}");
        let reason = scene.said()["drain"]["reason"].clone();
        assert!(
            reason.as_str().unwrap().starts_with("1 gateway of an older version cannot drain"),
            "{reason}"
        );
        scene.control().await;
        scene.bench.settle("prod").await;
        assert!(scene.said()["drain"].is_null());
    }
}
