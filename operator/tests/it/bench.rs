//! Everything that one reconcile needs: a server, Kafka, and copies of what the server has.

use crate::api_server::{ApiServer, Write};
use futures::Stream;
use kube::{
    Client, Config, Resource,
    runtime::{
        controller::Action,
        events::Reporter,
        reflector::{self, ObjectRef, Store},
        watcher::Event,
    },
};
use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_operator::{
    read::{
        Sources,
        gateways::{commands::Commands, looks::Looks},
    },
    reconcile::{Failed, Reconciler, reconcile},
    watch::state::WatchState,
    world::{
        Shared, World,
        api_error::ErrorClass,
        cache::{Cache, Pipeline},
        events::Events,
        memory::Memory,
        metrics::Metrics,
        responsibility::Responsibility,
        server_time::ServerTime,
    },
};
use sluice_plan::{Defaults, Responsible};
use std::{sync::Arc, time::Duration};

pub const NAMESPACE: &str = "tracing";
/// Longest wait of a reconcile for gateways: those of the bench answer, or refuse, however busy this machine is.
const ANSWERS_MAX: Duration = Duration::from_secs(30);
/// Reconciles after which nothing may be left to do.
const ROUNDS_MAX: usize = 5;

/// One namespace with one Kafka, which has the topic `spans` of 8 partitions.
pub struct Bench {
    pub server: ApiServer,
    kafka: MockCluster<'static, DefaultProducerContext>,
    pub shared: Arc<Shared>,
    pub sources: Arc<Sources>,
    /// Which watches fail: none, unless a test says so.
    pub watches: Arc<WatchState>,
}

/// One of several operators of a bench.
pub struct Operator {
    shared: Arc<Shared>,
    sources: Arc<Sources>,
}

impl Bench {
    pub async fn start() -> Self {
        let server = ApiServer::start().await;
        let kafka = MockCluster::new(1).unwrap();
        kafka.create_topic("spans", 8, 1).unwrap();
        let (shared, sources) = (shared(&server), sources(ANSWERS_MAX));
        let watches = Arc::new(WatchState::new(Arc::clone(&shared.metrics)));
        Self { server, kafka, shared, sources, watches }
    }

    /// Another operator beside this one, with a Lease of its own and this selector.
    pub fn beside(&self, name: &str, selector: &str) -> Operator {
        let who = Responsible { name: name.to_owned(), selector: selector.parse().ok() };
        Operator { shared: shared_by(&self.server, who), sources: sources(ANSWERS_MAX) }
    }

    /// From now on this operator reconciles.
    pub fn switch(&mut self, to: &Operator) {
        (self.shared, self.sources) = (Arc::clone(&to.shared), Arc::clone(&to.sources));
    }

    /// Another operator, which remembers nothing.
    pub fn restart(&mut self) {
        self.restart_waiting(ANSWERS_MAX);
    }

    /// Another operator, which waits for gateways for this long.
    pub fn restart_waiting(&mut self, answers_max: Duration) {
        (self.shared, self.sources) = (shared(&self.server), sources(answers_max));
    }

    /// Pipelines whose gateways answered after their reconcile went on.
    pub fn late(&self) -> impl Stream<Item = ObjectRef<Pipeline>> + Unpin + use<> {
        self.sources.looks.late()
    }

    /// Whether a series is exported with this value.
    pub fn exports(&self, line: &str) -> bool {
        let text = String::from_utf8(self.metrics().render().unwrap()).unwrap();
        text.lines().any(|found| found == line)
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// A pipeline that does not create or change its table, with what the API server fills in.
    pub fn pipeline(&self, name: &str) -> Value {
        json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "source": {"kafka": {"bootstrapServers": [self.kafka.bootstrap_servers()], "topics": ["spans"]}},
                "sink": {"clickhouse": {
                    "endpoints": ["http://clickhouse:8123"], "schema": {"management": "None"},
                }},
            },
        })
    }

    /// Puts such a pipeline there.
    pub fn create(&self, name: &str) {
        self.server.put(&format!("tracepipelines/{name}"), self.pipeline(name));
    }

    pub async fn reconcile(&self, name: &str) -> Result<Action, Failed> {
        let world = self.world();
        let pipeline = world.cache.pipelines.get(&ObjectRef::new(name).within(NAMESPACE)).unwrap();
        // On the heap: otherwise each reconcile of a test would have a place on its stack.
        Box::pin(reconcile(pipeline, self.reconciler(world))).await
    }

    /// The operator, with copies of what there is now.
    pub fn world(&self) -> World {
        let cache = cache(&self.server);
        self.shared.pipelines.only(&cache);
        for pipeline in cache.pipelines.state() {
            self.shared.pipelines.note(&pipeline, false);
        }
        World { shared: Arc::clone(&self.shared), cache }
    }

    /// What reconciles this world.
    pub fn reconciler(&self, world: World) -> Arc<Reconciler> {
        Arc::new(Reconciler::new(Arc::new(world), Arc::clone(&self.sources), Arc::clone(&self.watches)))
    }

    /// Reconciles until nothing is written any more, and returns what was.
    pub async fn settle(&self, name: &str) -> Vec<Write> {
        let mut all = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.reconcile(name).await.unwrap();
            let writes = self.server.take_writes();
            if writes.is_empty() {
                return all;
            }
            all.extend(writes);
        }
        panic!("still writing after {ROUNDS_MAX} reconciles: {all:#?}");
    }

    /// Reconciles, expecting an error.
    pub async fn fail(&self, name: &str) -> (ErrorClass, u64) {
        let failed = self.reconcile(name).await.unwrap_err();
        (failed.error.class(), failed.retry_after.as_secs())
    }

    /// What a StatefulSet controller would do.
    pub fn gateways_become_ready(&self, name: &str) {
        self.server.change(&format!("statefulsets/{name}-gateway"), |workload| {
            let replicas = workload["spec"]["replicas"].clone();
            workload["status"] = json!({
                "observedGeneration": workload["metadata"]["generation"], "replicas": replicas, "readyReplicas": replicas,
                "updatedReplicas": replicas, "currentRevision": "a", "updateRevision": "a",
            });
        });
    }

    /// So many of them are ready.
    pub fn gateways_are_ready(&self, name: &str, ready: u32) {
        self.server.change(&format!("statefulsets/{name}-gateway"), |workload| {
            workload["status"]["readyReplicas"] = ready.into();
        });
    }

    /// A condition in the stored status.
    pub fn written(&self, name: &str, kind: &str) -> Option<Value> {
        let pipeline = self.server.get(&format!("tracepipelines/{name}")).unwrap();
        let conditions = pipeline["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind)
    }

    /// Status and reason of a condition.
    pub fn condition(&self, name: &str, kind: &str) -> String {
        self.written(name, kind).map_or_else(String::new, |found| {
            format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
        })
    }
}

fn shared(server: &ApiServer) -> Arc<Shared> {
    shared_by(server, Responsible { name: "sluice-system/sluice-operator".into(), selector: None })
}

fn shared_by(server: &ApiServer, who: Responsible) -> Arc<Shared> {
    let mut config = Config::new(server.url.parse().unwrap());
    // The scripted refusals are meant for the operator, not for the client library.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    Arc::new(Shared {
        events: Events::new(client.clone(), Reporter::from("sluice-operator")),
        client,
        metrics: Arc::new(Metrics::new("test", &ErrorClass::ALL.map(ErrorClass::label)).unwrap()),
        defaults: Defaults {
            gateway_image: "sluice-gateway:test".into(),
            gateway_image_pull_secrets: Vec::new(),
            operator_version: "test".into(),
            operator_pods: None,
        },
        memory: Memory::default(),
        responsibility: Responsibility::of(who),
        pipelines: Arc::default(),
        clock: crate::scaling::clock,
        server_time: ServerTime::default(),
    })
}

/// Gateways by the tests' clock, with this wait for them.
fn sources(answers_max: Duration) -> Arc<Sources> {
    Arc::new(Sources {
        looks: Looks::by(crate::scaling::clock, answers_max),
        commands: Commands::waiting(answers_max),
        ..Sources::default()
    })
}

/// Copies that are up to date.
fn cache(server: &ApiServer) -> Cache {
    Cache {
        pipelines: store(server, "tracepipelines"),
        connections: store(server, "traceconnections"),
        stateful_sets: store(server, "statefulsets"),
        deployments: store(server, "deployments"),
        autoscalers: store(server, "horizontalpodautoscalers"),
        config_maps: store(server, "configmaps"),
        services: store(server, "services"),
        service_accounts: store(server, "serviceaccounts"),
        disruption_budgets: store(server, "poddisruptionbudgets"),
        network_policies: store(server, "networkpolicies"),
        jobs: store(server, "jobs"),
        pods: store(server, "pods"),
        claims: store(server, "persistentvolumeclaims"),
        secrets: store(server, "secrets"),
    }
}

/// What carries our label, as the watches would have it.
fn store<K>(server: &ApiServer, plural: &str) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let (store, mut writer) = reflector::store::<K>();
    writer.apply_watcher_event(&Event::Init);
    for object in server.list(plural) {
        let is_ours = object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "sluice-operator";
        let all = ["tracepipelines", "traceconnections", "secrets", "persistentvolumeclaims"];
        if is_ours || all.contains(&plural) {
            writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object).unwrap()));
        }
    }
    writer.apply_watcher_event(&Event::InitDone);
    store
}
