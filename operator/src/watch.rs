//! Watches: one task for each kind of object. A task updates the copies in the [`Cache`] and sends the pipelines that an event concerns to
//! the reconciles. The tasks run until their [`JoinSet`] is dropped. A task that panics, which is a bug of the operator, lists again; the
//! panic is logged and counted as a failing watch.
//!
//! One bounded channel connects the watches with the reconciles. A full channel makes the watches wait. `operator/SECURITY.md` lists what
//! the watches can see.

pub mod coalesce;
pub mod state;

use crate::world::{
    cache::{AllPipelines, Cache, Pipeline, pipelines_with_secret},
    connections::{Connection, referring},
    error::panic_words,
};
use futures::{FutureExt, SinkExt, StreamExt, channel::mpsc::Sender};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use sluice_plan::names;
use state::WatchState;
use std::{collections::HashMap, fmt::Debug, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// A watch that panicked begins again at once, then after this many seconds, then after twice as long each time: the object that made it
/// panic may still exist. Chosen: the backoff of the client library for an unreachable server.
const AGAIN_SECONDS: u64 = 1;
/// The longest such wait in seconds. A watch that ran this long without a panic begins again at once.
const AGAIN_SECONDS_MAX: u64 = 60;
/// A watch that has failed and then neither fails nor brings an event for this many seconds works: the client library tries again within a
/// minute, and a watch that begins is no event. Chosen: twice that.
const WORKS_SECONDS: u64 = 120;

/// What is watched: one namespace, or all namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(pub Option<String>);

impl Scope {
    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.0 {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// Starts the watches of one scope.
pub struct Watches<'a> {
    /// Client of the API server.
    pub client: &'a Client,
    /// One namespace, or all.
    pub scope: &'a Scope,
    /// Owns the tasks of the watches.
    pub tasks: &'a mut JoinSet<()>,
    /// Channel of the pipelines to reconcile.
    pub concerned: Sender<ObjectRef<Pipeline>>,
    /// Records which watches fail.
    pub state: Arc<WatchState>,
    /// Pipelines are noted here.
    pub all: Arc<AllPipelines>,
}

impl Watches<'_> {
    /// Starts all watches.
    pub fn start(mut self) -> Cache {
        let pipelines = self.pipelines();
        let connections = self.connections(pipelines.clone());
        Cache {
            // Keep the managed fields: they name the manager of `replicas`.
            stateful_sets: self.owned(|_| {}),
            // As well here.
            deployments: self.owned(|_| {}),
            autoscalers: self.owned(forget_managers),
            config_maps: self.owned(forget_managers),
            services: self.owned(forget_managers),
            service_accounts: self.owned(forget_managers),
            disruption_budgets: self.owned(forget_managers),
            network_policies: self.owned(forget_managers),
            jobs: self.owned(forget_managers),
            pods: self.labelled(ours(), keep_what_we_read),
            claims: self.labelled(of_gateways(), forget_managers),
            secrets: self.secrets(pipelines.clone(), connections.clone()),
            pipelines,
            connections,
        }
    }

    /// The pipelines. A change of spec, labels or annotations, or a deletion, starts a reconcile: labels and annotations say which of several
    /// operators looks after a pipeline. A change of the status does not: the operator writes it.
    fn pipelines(&mut self) -> Store<Pipeline> {
        let all = Arc::clone(&self.all);
        self.watch(watcher::Config::default(), forget_managers, move || {
            let (mut seen, all) = (HashMap::new(), Arc::clone(&all));
            move |pipeline: &Pipeline, is_gone: bool| {
                all.note(pipeline, is_gone);
                let meta = pipeline.meta();
                let at = ObjectRef::from_obj(pipeline);
                let now = (
                    meta.uid.clone(),
                    meta.generation,
                    meta.labels.clone(),
                    meta.annotations.clone(),
                    meta.deletion_timestamp.is_some(),
                );
                let is_news = if is_gone {
                    seen.remove(&at);
                    true
                } else {
                    seen.insert(at.clone(), now.clone()) != Some(now)
                };
                if is_news { vec![at] } else { Vec::new() }
            }
        })
    }

    /// Connections concern the pipelines that reference them, when their spec changes, and when they come or go. Their status does not: the
    /// operator writes it.
    fn connections(&mut self, pipelines: Store<Pipeline>) -> Store<Connection> {
        self.watch(watcher::Config::default(), forget_managers, move || {
            let (mut seen, pipelines) = (HashMap::new(), pipelines.clone());
            move |connection: &Connection, is_gone: bool| {
                let meta = connection.meta();
                let at = ObjectRef::from_obj(connection);
                let now = (meta.uid.clone(), meta.generation);
                let is_news = if is_gone {
                    seen.remove(&at);
                    true
                } else {
                    seen.insert(at, now.clone()) != Some(now)
                };
                let namespace = meta.namespace.clone().unwrap_or_default();
                if is_news { referring(&pipelines, &namespace, &connection.name_any()) } else { Vec::new() }
            }
        })
    }

    /// Objects of the operator concern the pipeline in their owner references.
    fn owned<K>(&mut self, trim: fn(&mut K)) -> Store<K>
    where
        K: Watched,
    {
        self.watch(ours(), trim, || {
            |object: &K, _: bool| {
                let namespace = object.namespace();
                let owner = |owner| ObjectRef::from_owner_ref(namespace.as_deref(), owner, ());
                object.owner_references().iter().filter_map(owner).collect()
            }
        })
    }

    /// Pods belong to a StatefulSet or a Job, and claims may have any owner or none. Their label names the pipeline.
    fn labelled<K>(&mut self, config: watcher::Config, trim: fn(&mut K)) -> Store<K>
    where
        K: Watched,
    {
        self.watch(config, trim, || {
            |object: &K, _: bool| {
                let pipeline = object.labels().get(names::INSTANCE).zip(object.namespace());
                pipeline
                    .map(|(name, namespace)| ObjectRef::new(name).within(&namespace))
                    .into_iter()
                    .collect()
            }
        })
    }

    /// Secrets concern the pipelines that name them. Other Secrets are ignored.
    fn secrets(
        &mut self,
        pipelines: Store<Pipeline>,
        connections: Store<Connection>,
    ) -> Store<PartialObjectMeta<Secret>> {
        let all = watcher::Config::default();
        self.watch(all, keep_the_name, move || {
            let (pipelines, connections) = (pipelines.clone(), connections.clone());
            move |secret: &PartialObjectMeta<Secret>, _: bool| {
                secret.namespace().map_or_else(Vec::new, |namespace| {
                    pipelines_with_secret((&pipelines, &connections), &namespace, &secret.name_any())
                })
            }
        })
    }

    /// Starts one watch. `begin` returns a function from an object, and whether it is gone, to the pipelines that it concerns. After a panic
    /// `begin` is called again, so that the function starts without the state of the one before.
    pub fn watch<K, C>(
        &mut self,
        config: watcher::Config,
        trim: fn(&mut K),
        begin: impl Fn() -> C + Send + 'static,
    ) -> Store<K>
    where
        K: Watched,
        C: FnMut(&K, bool) -> Vec<ObjectRef<Pipeline>> + Send + 'static,
    {
        let (store, writer) = reflector::store();
        let watch = Watch {
            api: self.scope.api::<K>(self.client),
            config,
            trim,
            writer,
            concerned: self.concerned.clone(),
            state: Arc::clone(&self.state),
        };
        self.state.begins(&K::kind(&()));
        self.tasks.spawn(watch.run(begin));
        store
    }
}

struct Watch<K: Watched> {
    api: Api<K>,
    config: watcher::Config,
    trim: fn(&mut K),
    writer: Writer<K>,
    concerned: Sender<ObjectRef<Pipeline>>,
    state: Arc<WatchState>,
}

impl<K: Watched> Watch<K> {
    /// Runs until the receiver of the channel is gone. After a panic the watch lists again; until then the copies stay as they were.
    async fn run<C>(mut self, begin: impl Fn() -> C + Send)
    where
        C: FnMut(&K, bool) -> Vec<ObjectRef<Pipeline>> + Send + 'static,
    {
        let longest = Duration::from_secs(AGAIN_SECONDS_MAX);
        let mut wait = Duration::ZERO;
        loop {
            let since = Instant::now();
            let Err(panic) = AssertUnwindSafe(self.follow(begin())).catch_unwind().await else { return };
            self.state.panicked(&K::kind(&()), &panic_words(&*panic));
            if since.elapsed() >= longest {
                wait = Duration::ZERO;
            }
            sleep(wait).await;
            wait = (wait * 2).clamp(Duration::from_secs(AGAIN_SECONDS), longest);
        }
    }

    async fn follow(&mut self, mut concerns: impl FnMut(&K, bool) -> Vec<ObjectRef<Pipeline>>) {
        let kind = K::kind(&());
        let events = watcher::watcher(self.api.clone(), self.config.clone()).modify(self.trim);
        let mut events = events.default_backoff().boxed();
        let mut has_failed = false;
        loop {
            let next = events.next();
            let next = if has_failed {
                timeout(Duration::from_secs(WORKS_SECONDS), next).await
            } else {
                Ok(next.await)
            };
            let Ok(next) = next else {
                has_failed = false;
                self.state.works(&kind);
                continue;
            };
            let event = match next.expect("a watch has no end") {
                Ok(event) => event,
                Err(error) => {
                    has_failed = true;
                    self.state.failed(&kind, &error);
                    continue;
                }
            };
            self.writer.apply_watcher_event(&event);
            let refs = match &event {
                Event::Apply(object) | Event::InitApply(object) => concerns(object, false),
                Event::Delete(object) => concerns(object, true),
                Event::Init | Event::InitDone => Vec::new(),
            };
            match event {
                // A list was requested.
                Event::Init => {}
                Event::InitDone => self.state.listed(&kind),
                Event::Apply(_) | Event::InitApply(_) | Event::Delete(_) => self.state.works(&kind),
            }
            for concern in refs {
                // The receiver is gone only while the process ends.
                if self.concerned.send(concern).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A typed object with a namespace that can be watched.
pub trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("{}={}", names::MANAGED_BY, names::OPERATOR))
}

/// Claims of gateways. Kubernetes gives them the labels by which the StatefulSet selects its pods, and no others.
fn of_gateways() -> watcher::Config {
    let labels = [(names::NAME, names::PROGRAM), (names::COMPONENT, names::GATEWAY)];
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    watcher::Config::default().labels(&labels.join(","))
}

/// Drops the managed fields, which are the larger half of an object.
fn forget_managers<K: Resource>(object: &mut K) {
    object.managed_fields_mut().clear();
}

/// Drops annotations and labels too: `kubectl apply` copies the content of a Secret into an annotation.
fn keep_the_name<K: Resource>(object: &mut K) {
    forget_managers(object);
    object.annotations_mut().clear();
    object.labels_mut().clear();
}

/// Keeps only the fields of a pod that the operator reads, since there may be many pods: the status and the node (why it does not run), the
/// volumes (its config), and the resources of each container (its memory).
fn keep_what_we_read(pod: &mut Pod) {
    forget_managers(pod);
    let spec = pod.spec.take().unwrap_or_default();
    let containers = spec.containers.into_iter().map(|container| Container {
        name: container.name,
        resources: container.resources,
        ..Container::default()
    });
    pod.spec = Some(PodSpec {
        node_name: spec.node_name,
        volumes: spec.volumes,
        containers: containers.collect(),
        ..PodSpec::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use sluice_plan::{GatewaySeen, WorkloadSeen};

    #[test]
    fn what_is_kept_of_a_pod_is_all_that_is_read() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "a-gateway-0", "uid": "u", "managedFields": [{"manager": "kubelet"}],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "nodeName": "n",
                "volumes": [{"name": "config", "configMap": {"name": "a"}}],
                "containers": [{
                    "name": "gateway", "image": "i", "args": ["run"],
                    "resources": {"limits": {"memory": "256Mi"}},
                }],
            },
            "status": {"containerStatuses": [{
                "name": "gateway", "image": "i", "imageID": "", "ready": true, "restartCount": 1,
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }]},
        }))
        .unwrap();
        let whole = pod.clone();
        keep_what_we_read(&mut pod);
        assert_eq!(GatewaySeen::of(&pod), GatewaySeen::of(&whole));
        assert!(GatewaySeen::of(&pod).unwrap().memory.limit_bytes.is_some());
        let seen = |pod: &Pod| WorkloadSeen::of(&StatefulSet::default(), std::slice::from_ref(pod)).pods;
        assert_eq!(seen(&pod), seen(&whole));
        assert!(seen(&pod)[0].going.is_some());
        let (kept, spec) = (pod.spec.unwrap(), whole.spec.unwrap());
        assert_eq!(kept.volumes, spec.volumes);
        assert!(
            kept.containers[0].args.is_none() && pod.metadata.managed_fields.is_none_or(|all| all.is_empty())
        );
    }
}
