//! Watches: one task for each kind of object, which keeps the copies of the [`Cache`] and says which pipelines an event
//! concerns. All of them end with the [`JoinSet`] they were started in.
//!
//! Between the watches and the reconciles lies one bounded channel; a full one holds the watches back.

use crate::{
    cache::{Cache, Pipeline},
    watch_state::WatchState,
};
use futures::{SinkExt, StreamExt, channel::mpsc::Sender};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use sluice_plan::names;
use std::{collections::HashMap, fmt::Debug, sync::Arc};
use tokio::task::JoinSet;

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
        let mut seen = HashMap::new();
        self.watch(watcher::Config::default(), forget_managers, move |pipeline: &Pipeline, is_gone| {
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
        })
    }

    /// Objects of ours concern the pipeline that owns them.
    fn owned<K>(&mut self, trim: fn(&mut K)) -> Store<K>
    where
        K: Watched,
    {
        self.watch(ours(), trim, |object: &K, _| {
            let namespace = object.namespace();
            let owner = |owner| ObjectRef::from_owner_ref(namespace.as_deref(), owner, ());
            object.owner_references().iter().filter_map(owner).collect()
        })
    }

    /// Pods belong to a StatefulSet or a Job, claims to nobody or anybody; the label says which pipeline that is for.
    fn labelled<K>(&mut self, config: watcher::Config, trim: fn(&mut K)) -> Store<K>
    where
        K: Watched,
    {
        self.watch(config, trim, |object: &K, _| {
            let pipeline = object.labels().get(names::INSTANCE).zip(object.namespace());
            pipeline.map(|(name, namespace)| ObjectRef::new(name).within(&namespace)).into_iter().collect()
        })
    }

    /// Secrets concern the pipelines that name them; the others are nobody's business.
    fn secrets(&mut self, pipelines: Store<Pipeline>) -> Store<PartialObjectMeta<Secret>> {
        let all = watcher::Config::default();
        self.watch(all, keep_the_name, move |secret: &PartialObjectMeta<Secret>, _| {
            secret.namespace().map_or_else(Vec::new, |namespace| {
                crate::cache::pipelines_with_secret(&pipelines, &namespace, &secret.name_any())
            })
        })
    }

    /// Starts one watch. `concerns` is told whether the object is gone.
    fn watch<K>(
        &mut self,
        config: watcher::Config,
        trim: fn(&mut K),
        mut concerns: impl FnMut(&K, bool) -> Vec<ObjectRef<Pipeline>> + Send + 'static,
    ) -> Store<K>
    where
        K: Watched,
    {
        let (store, writer) = reflector::store();
        let events = watcher::watcher(self.scope.api::<K>(self.client), config).modify(trim);
        let mut events = events.default_backoff().reflect(writer).boxed();
        let (state, mut concerned) = (Arc::clone(&self.state), self.concerned.clone());
        state.begins(&K::kind(&()));
        self.tasks.spawn(async move {
            let kind = K::kind(&());
            while let Some(event) = events.next().await {
                let refs = match &event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => concerns(object, false),
                    Ok(Event::Delete(object)) => concerns(object, true),
                    Ok(Event::Init | Event::InitDone) => Vec::new(),
                    Err(error) => {
                        state.failed(&kind, error);
                        continue;
                    }
                };
                // `Init` only says that a list was asked for.
                if !matches!(event, Ok(Event::Init)) {
                    state.works(&kind);
                }
                for concern in refs {
                    // The other end is gone only while the process ends.
                    if concerned.send(concern).await.is_err() {
                        return;
                    }
                }
            }
        });
        store
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

/// Of pods there may be many; why they do not run is in the status, which config they read in the volumes, how much memory they may use
/// with each container.
fn keep_what_we_read(pod: &mut Pod) {
    forget_managers(pod);
    let spec = pod.spec.take().unwrap_or_default();
    let containers = spec.containers.into_iter().map(|container| Container {
        name: container.name,
        resources: container.resources,
        ..Container::default()
    });
    pod.spec =
        Some(PodSpec { volumes: spec.volumes, containers: containers.collect(), ..PodSpec::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_plan::GatewaySeen;

    #[test]
    fn what_is_kept_of_a_pod_is_all_that_is_read() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a-gateway-0", "uid": "u", "managedFields": [{"manager": "kubelet"}]},
            "spec": {
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
        let (kept, spec) = (pod.spec.unwrap(), whole.spec.unwrap());
        assert_eq!(kept.volumes, spec.volumes);
        assert!(
            kept.containers[0].args.is_none() && pod.metadata.managed_fields.is_none_or(|all| all.is_empty())
        );
    }
}
