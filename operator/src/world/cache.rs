//! Copies of the operator's objects, kept up to date by watches.
//!
//! There is one [`Cache`] for each watched scope: all namespaces or one. Reads never leave the process. A copy may be a moment old; a
//! decision from an old copy at worst repeats a write without effect.

use super::connections::{Connection, resolve, uses_secret};
use futures::FutureExt as _;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Resource, ResourceExt,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::reflector::{Lookup, ObjectRef, Store, store::WriterDropped},
};
use sluice_crds::TracePipeline;
use sluice_plan::{group_of, names};
use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A `TracePipeline` that may be unreadable. An unreadable one must not stop the others.
pub type Pipeline = DeserializeGuard<TracePipeline>;

/// Copies of all objects of one scope.
#[derive(Clone)]
pub struct Cache {
    pub pipelines: Store<Pipeline>,
    /// Connections that pipelines share. They may never be listed: an older installation has no CRD of them.
    pub connections: Store<Connection>,
    /// Workloads of gateways.
    pub stateful_sets: Store<StatefulSet>,
    /// Workloads of edges. They may never be listed: roles of an older installation lack the right.
    pub deployments: Store<Deployment>,
    /// Autoscalers of edges. They may never be listed, as the Deployments.
    pub autoscalers: Store<HorizontalPodAutoscaler>,
    /// Configs of gateways, edges and schema Jobs.
    pub config_maps: Store<ConfigMap>,
    /// Headless Services of gateways, and those that clients of edges send to.
    pub services: Store<Service>,
    pub service_accounts: Store<ServiceAccount>,
    pub disruption_budgets: Store<PodDisruptionBudget>,
    pub network_policies: Store<NetworkPolicy>,
    /// Schema Jobs, and Jobs that drain volumes.
    pub jobs: Store<Job>,
    /// Pods of gateways, edges and Jobs.
    pub pods: Store<Pod>,
    /// Claims of gateways.
    pub claims: Store<PersistentVolumeClaim>,
    /// Metadata of all Secrets, never their content.
    pub secrets: Store<PartialObjectMeta<Secret>>,
}

/// The pipelines of all scopes. Two pipelines with one consumer group may be in namespaces of different scopes.
///
/// A look asks for the pipelines of its own group only, so that it costs the same among any number of others.
#[derive(Default)]
pub struct AllPipelines {
    scopes: Mutex<Vec<OfScope>>,
    groups: Mutex<Groups>,
}

/// The pipelines of a scope, and the connections that they reference.
type OfScope = (Store<Pipeline>, Store<Connection>);

/// Which pipelines read with which consumer group, as the watches have told.
#[derive(Default)]
struct Groups {
    of: HashMap<ObjectRef<Pipeline>, String>,
    members: HashMap<String, HashSet<ObjectRef<Pipeline>>>,
}

impl Groups {
    fn set(&mut self, at: ObjectRef<Pipeline>, group: Option<String>) {
        if self.of.get(&at) == group.as_ref() {
            return;
        }
        if let Some(before) = self.of.remove(&at)
            && let Some(members) = self.members.get_mut(&before)
        {
            members.remove(&at);
            if members.is_empty() {
                self.members.remove(&before);
            }
        }
        if let Some(group) = group {
            self.members.entry(group.clone()).or_default().insert(at.clone());
            self.of.insert(at, group);
        }
    }
}

impl AllPipelines {
    /// Adds the pipelines of a scope.
    pub fn add(&self, scope: &Cache) {
        self.scopes().push((scope.pipelines.clone(), scope.connections.clone()));
    }

    /// Has the pipelines of this scope, and no others.
    pub fn only(&self, scope: &Cache) {
        *self.scopes() = vec![(scope.pipelines.clone(), scope.connections.clone())];
    }

    /// Records that a pipeline exists, has changed, or is gone.
    pub fn note(&self, pipeline: &Pipeline, is_gone: bool) {
        let group = pipeline.0.as_ref().ok().filter(|_| !is_gone).and_then(group_of);
        self.groups().set(ObjectRef::from_obj(pipeline), group);
    }

    /// The known pipelines that read with this consumer group, as far as they can be read, each with what its connections say. One whose
    /// connection is missing has no brokers but those of its status.
    pub fn sharing(&self, group: &str) -> Vec<TracePipeline> {
        let members: Vec<_> = self.groups().members.get(group).into_iter().flatten().cloned().collect();
        let scopes = self.scopes();
        let found = |at: &ObjectRef<Pipeline>| {
            // A pipeline that was deleted while its watch was down is in no store.
            scopes.iter().find_map(|(pipelines, connections)| Some((pipelines.get(at)?, connections)))
        };
        let readable = |(pipeline, connections): (Arc<Pipeline>, &Store<Connection>)| {
            let pipeline = pipeline.0.as_ref().ok()?;
            Some(resolve(pipeline, connections).0.into_owned())
        };
        members.iter().filter_map(found).filter_map(readable).collect()
    }

    fn scopes(&self) -> MutexGuard<'_, Vec<OfScope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        // A panic may have left a pipeline out; the next listing adds it again.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Waits until every watch has listed but those of connections and of edges, which may have nothing to list: pipelines without a reference
    /// and without an edge need none.
    pub async fn ready(&self) -> Result<(), WriterDropped> {
        self.pipelines.wait_until_ready().await?;
        self.stateful_sets.wait_until_ready().await?;
        self.config_maps.wait_until_ready().await?;
        self.services.wait_until_ready().await?;
        self.service_accounts.wait_until_ready().await?;
        self.disruption_budgets.wait_until_ready().await?;
        self.network_policies.wait_until_ready().await?;
        self.jobs.wait_until_ready().await?;
        self.pods.wait_until_ready().await?;
        self.claims.wait_until_ready().await?;
        self.secrets.wait_until_ready().await
    }

    /// Whether the API server has listed the kinds that only an edge has. Roles of an older installation do not let the operator do that.
    pub fn has_listed_edges(&self) -> bool {
        let deployments = self.deployments.wait_until_ready().now_or_never();
        let autoscalers = self.autoscalers.wait_until_ready().now_or_never();
        matches!((deployments, autoscalers), (Some(Ok(())), Some(Ok(()))))
    }

    /// Pods of one pipeline, those of gateways, edge and Jobs alike.
    pub fn pods_of(&self, namespace: &str, pipeline: &str) -> Vec<Arc<Pod>> {
        of_pipeline(&self.pods, namespace, pipeline)
    }

    /// Claims of one pipeline.
    pub fn claims_of(&self, namespace: &str, pipeline: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        of_pipeline(&self.claims, namespace, pipeline)
    }
}

fn of_pipeline<K>(store: &Store<K>, namespace: &str, pipeline: &str) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state_filter(|object| {
        object.meta().namespace.as_deref() == Some(namespace)
            && object.labels().get(names::INSTANCE).is_some_and(|name| name == pipeline)
    })
}

/// The copy of a namespaced object.
pub fn find<K>(store: &Store<K>, namespace: &str, name: &str) -> Option<Arc<K>>
where
    K: Lookup<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store.get(&ObjectRef::new(name).within(namespace))
}

/// The copies of all objects that belong to this owner.
pub fn owned<K>(store: &Store<K>, owner_uid: &str) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state_filter(|object| is_owned(object, owner_uid))
}

/// Whether an object belongs to this owner.
pub fn is_owned<K: Resource>(object: &K, owner_uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == owner_uid)
}

/// Whether an object of the pipeline's namespace belongs to the pipeline, or is an orphan of a pipeline with the same name.
pub fn is_of<K: Resource>(object: &K, pipeline: &str, uid: &str) -> bool {
    let labels = object.labels();
    let has = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    let is_orphan = object.owner_references().is_empty()
        && has(names::MANAGED_BY, names::OPERATOR)
        && has(names::INSTANCE, pipeline);
    is_orphan || is_owned(object, uid)
}

/// The pipelines that name this Secret, or reference a connection that does.
pub fn pipelines_with_secret(
    (pipelines, connections): (&Store<Pipeline>, &Store<Connection>),
    namespace: &str,
    secret: &str,
) -> Vec<ObjectRef<Pipeline>> {
    let names_it = |pipeline: &Pipeline| {
        let Ok(pipeline) = &pipeline.0 else { return false };
        pipeline.metadata.namespace.as_deref() == Some(namespace)
            && uses_secret(pipeline, secret, connections)
    };
    pipelines.state_filter(names_it).iter().map(|pipeline| ObjectRef::from_obj(&**pipeline)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pipeline(name: &str, group: &str) -> Pipeline {
        let kafka = json!({"bootstrapServers": ["kafka:9092"], "topics": ["t"], "consumerGroup": group});
        let sink = json!({"clickhouse": {"endpoints": ["http://clickhouse:8123"]}});
        let object = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline",
            "metadata": {"name": name, "namespace": "tracing"}, "spec": {"source": {"kafka": kafka}, "sink": sink}});
        serde_json::from_value(object).unwrap()
    }

    fn sharing(all: &AllPipelines, group: &str) -> Vec<String> {
        let mut names: Vec<_> = all.sharing(group).iter().map(ResourceExt::name_any).collect();
        names.sort_unstable();
        names
    }

    /// What a look compares its pipeline with does not grow with the others.
    #[test]
    fn a_look_sees_the_pipelines_of_its_own_group_alone() {
        let (store, mut writer) = kube::runtime::reflector::store();
        let (connections, _none) = kube::runtime::reflector::store();
        let all = AllPipelines::default();
        all.scopes().push((store, connections));
        let mut note = |pipeline: Pipeline| {
            all.note(&pipeline, false);
            writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(pipeline));
        };
        for number in 0..1_000 {
            note(pipeline(&format!("p{number}"), ""));
        }
        assert_eq!(sharing(&all, "tracing.p7"), ["p7"]);
        note(pipeline("p8", "tracing.p7"));
        assert_eq!(sharing(&all, "tracing.p7"), ["p7", "p8"]);
        assert!(sharing(&all, "tracing.p8").is_empty());
        all.note(&pipeline("p7", ""), true);
        assert_eq!(sharing(&all, "tracing.p7"), ["p8"]);
    }
}
