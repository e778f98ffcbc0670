//! A pipeline whose gateways accept OTLP themselves: what is made, what its gateways are asked, and who adds and removes them. No Kafka is there.

use crate::{bench::Bench, pods::Pods, scaling::pass};
use serde_json::{Value, json};

const POLL_SECONDS: u64 = 15;

/// A pipeline without Kafka under these rules, and its first gateways.
struct Accepting {
    bench: Bench,
    pods: Pods,
}

impl Accepting {
    async fn with(spec: Value) -> Self {
        let bench = Bench::start().await;
        let mut pipeline = bench.pipeline("prod");
        pipeline["spec"]["source"] = json!({"otlp": {}});
        for (field, value) in spec.as_object().unwrap() {
            pipeline["spec"][field] = value.clone();
        }
        bench.server.put("tracepipelines/prod", pipeline);
        let pods = Pods::of(&bench.server, "prod");
        let mut accepting = Self { bench, pods };
        accepting.bench.settle("prod").await;
        accepting.control().await;
        accepting.bench.settle("prod").await;
        accepting
    }

    fn replicas(&self) -> u32 {
        let workload = self.bench.server.get("statefulsets/prod-gateway").unwrap();
        u32::try_from(workload["spec"]["replicas"].as_u64().unwrap()).unwrap()
    }

    fn status(&self) -> Value {
        self.bench.server.get("tracepipelines/prod").unwrap()["status"].clone()
    }

    /// What the StatefulSet controller and the kubelet do; each gateway has one log.
    async fn control(&mut self) {
        let replicas = self.replicas();
        self.bench.gateways_become_ready("prod");
        self.pods.become_ready(replicas as usize, replicas).await;
        self.pods.each(|gateway| {
            if gateway.more.is_empty() {
                gateway.more = log(0, 0);
            }
        });
    }

    /// This many requests a second come to all gateways together, and each inserts 1,000 a second at the most, for the time of one poll.
    async fn take(&mut self, arrival: u64) {
        self.control().await;
        let share = arrival * POLL_SECONDS / u64::from(self.replicas().max(1));
        self.pods.each(|gateway| {
            let (committed, waiting) = numbers(&gateway.more);
            let done = (waiting + share).min(1_000 * POLL_SECONDS);
            let busy = f64::from(u32::try_from(done).unwrap()) / 1_000.0;
            gateway.busy_seconds += busy;
            gateway.source_seconds += 15.0 - busy;
            gateway.messages += done;
            gateway.more = log(committed + done, waiting + share - done);
        });
        pass(POLL_SECONDS);
        self.bench.reconcile("prod").await.unwrap();
    }
}

/// What a gateway exports of its log.
fn log(committed: u64, waiting: u64) -> String {
    format!(
        "sluice_gateway_committed_offset{{partition=\"0\",topic=\"otlp\"}} {committed}\n\
         sluice_gateway_lag_messages{{partition=\"0\",topic=\"otlp\"}} {waiting}\n"
    )
}

/// The same, read back.
fn numbers(text: &str) -> (u64, u64) {
    let mut values = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap());
    (values.next().unwrap(), values.next().unwrap())
}

#[tokio::test]
async fn its_objects_are_made_and_told_of_without_kafka() {
    let mut accepting = Accepting::with(json!({"replicas": 3})).await;
    let service = accepting.bench.server.get("services/prod-otlp").unwrap();
    let ports: Vec<_> =
        service["spec"]["ports"].as_array().unwrap().iter().map(|port| port["port"].clone()).collect();
    assert_eq!(ports, [json!(4317), json!(4318)]);
    assert!(accepting.bench.server.get("services/prod-gateway").is_some(), "the headless one");
    assert_eq!(accepting.replicas(), 3);
    assert_eq!(accepting.bench.condition("prod", "SourceReachable"), "True Ok");
    assert_eq!(accepting.bench.condition("prod", "Ready"), "True Running");
    accepting.pods.each(|gateway| gateway.more = log(100, 7));
    pass(60);
    accepting.bench.settle("prod").await;
    let status = accepting.status();
    assert_eq!(status["endpoints"], json!(["prod-otlp.tracing.svc:4317", "prod-otlp.tracing.svc:4318"]));
    assert_eq!(status["lag"]["messages"], 21);
    for field in ["topics", "partitions", "consumerGroup", "bootstrapServers"] {
        assert_eq!(status[field], Value::Null, "{field}");
    }
    // An operator that starts finds nothing to write.
    accepting.bench.restart();
    pass(60);
    accepting.bench.reconcile("prod").await.unwrap();
    assert_eq!(accepting.bench.server.take_writes().len(), 0);
}

#[tokio::test]
async fn the_operator_adds_gateways_for_the_load_and_drains_them_before_they_leave() {
    let scaling = json!({"mode": "Auto", "minReplicas": 1, "maxReplicas": 6});
    let mut accepting = Accepting::with(json!({"scaling": scaling})).await;
    assert_eq!(accepting.replicas(), 2, "what it begins with");
    let mut polls = 0;
    while accepting.replicas() < 5 {
        accepting.take(3_500).await;
        polls += 1;
        assert!(polls < 120, "{}", accepting.status()["scaling"]);
    }
    // Another operator goes on with what was learned.
    accepting.bench.restart();
    let mut polls = 0;
    while accepting.status()["scaling"]["drain"].is_null() {
        accepting.take(100).await;
        polls += 1;
        assert!(polls < 240, "{}", accepting.status()["scaling"]);
    }
    assert!(accepting.replicas() >= 5, "nobody leaves before it was asked and is empty");
}
