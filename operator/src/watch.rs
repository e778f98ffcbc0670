//! Watches: one task for each kind of object, which keeps the copies of the [`Cache`] and says which pipelines an event
//! concerns. All of them end with the [`JoinSet`] they were started in, and none before it: one that panics, which is a defect of the
//! operator, lists anew, and says so as one does that the API server refuses.
//!
//! Between the watches and the reconciles lies one bounded channel; a full one holds the watches back. What a watch may and may not see
//! is in `operator/SECURITY.md`.

use crate::{
    cache::{AllPipelines, Cache, Pipeline},
    outcome::words,
    watch_state::WatchState,
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
use std::{collections::HashMap, fmt::Debug, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// A watch that panicked begins again at once, then after this many seconds, then after twice as long each time: what it panicked of may
/// be an object that stays. Chosen as the client library does for a server that is away.
const AGAIN_SECONDS: u64 = 1;
/// The longest such wait in seconds. A watch that has gone on for so long without a panic begins at once again.
const AGAIN_SECONDS_MAX: u64 = 60;

/// What is watched: one namespace, or all of the cluster.
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
    /// The API server.
    pub client: &'a Client,
    /// Where to watch.
    pub scope: &'a Scope,
    /// The tasks are started in here.
    pub tasks: &'a mut JoinSet<()>,
    /// Pipelines to look at are sent here.
    pub concerned: Sender<ObjectRef<Pipeline>>,
    /// Says when a watch fails and when it works again.
    pub state: Arc<WatchState>,
    /// Pipelines are noted here.
    pub all: Arc<AllPipelines>,
}

impl Watches<'_> {
    /// Starts all of them.
    pub fn start(mut self) -> Cache {
        let pipelines = self.pipelines();
        Cache {
            // Who set the number of replicas is written in the managed fields.
            stateful_sets: self.owned(|_| {}),
            config_maps: self.owned(forget_managers),
            services: self.owned(forget_managers),
            service_accounts: self.owned(forget_managers),
            disruption_budgets: self.owned(forget_managers),
            network_policies: self.owned(forget_managers),
            jobs: self.owned(forget_managers),
            pods: self.labelled(ours(), keep_what_we_read),
            claims: self.labelled(of_gateways(), forget_managers),
            secrets: self.secrets(pipelines.clone()),
            pipelines,
        }
    }

    /// The pipelines themselves, when their spec or annotations change, or they are deleted: a status that we wrote is no news.
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

    /// Objects of ours concern the pipeline that owns them.
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

    /// Pods belong to a StatefulSet or a Job, claims to nobody or anybody; the label says which pipeline that is for.
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

    /// Secrets concern the pipelines that name them; the others are nobody's business.
    fn secrets(&mut self, pipelines: Store<Pipeline>) -> Store<PartialObjectMeta<Secret>> {
        let all = watcher::Config::default();
        self.watch(all, keep_the_name, move || {
            let pipelines = pipelines.clone();
            move |secret: &PartialObjectMeta<Secret>, _: bool| {
                secret.namespace().map_or_else(Vec::new, |namespace| {
                    crate::cache::pipelines_with_secret(&pipelines, &namespace, &secret.name_any())
                })
            }
        })
    }

    /// Starts one watch. What `begin` gives says which pipelines an object concerns, and is told whether the object is gone; it is made
    /// anew for each course of the watch, with nothing of the one before.
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

/// One watch.
struct Watch<K: Watched> {
    api: Api<K>,
    config: watcher::Config,
    trim: fn(&mut K),
    writer: Writer<K>,
    concerned: Sender<ObjectRef<Pipeline>>,
    state: Arc<WatchState>,
}

impl<K: Watched> Watch<K> {
    /// Until nobody is there any more to be told. A panic ends one course of it: the copies stay as they were until the next one has
    /// listed what there is.
    async fn run<C>(mut self, begin: impl Fn() -> C + Send)
    where
        C: FnMut(&K, bool) -> Vec<ObjectRef<Pipeline>> + Send + 'static,
    {
        let longest = Duration::from_secs(AGAIN_SECONDS_MAX);
        let mut wait = Duration::ZERO;
        loop {
            let since = Instant::now();
            let Err(panic) = AssertUnwindSafe(self.follow(begin())).catch_unwind().await else { return };
            self.state.panicked(&K::kind(&()), &words(&*panic));
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
        loop {
            let event = match events.next().await.expect("a watch has no end") {
                Ok(event) => event,
                Err(error) => {
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
            // `Init` only says that a list was asked for.
            if !matches!(event, Event::Init) {
                self.state.works(&kind);
            }
            for concern in refs {
                // The other end is gone only while the process ends.
                if self.concerned.send(concern).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What can be watched by its type.
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

/// Claims of gateways: Kubernetes gives them the labels by which the StatefulSet selects its pods, and no others.
fn of_gateways() -> watcher::Config {
    let labels = [(names::NAME, names::PROGRAM), (names::COMPONENT, names::GATEWAY)];
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    watcher::Config::default().labels(&labels.join(","))
}

/// Managed fields are the larger half of an object.
fn forget_managers<K: Resource>(object: &mut K) {
    object.managed_fields_mut().clear();
}

/// An annotation may hold the content: `kubectl apply` writes it there.
fn keep_the_name<K: Resource>(object: &mut K) {
    forget_managers(object);
    object.annotations_mut().clear();
    object.labels_mut().clear();
}

/// Of pods there may be many; why they do not run is in the status or with their node, which config they read in the volumes, how much
/// memory they may use with each container.
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
