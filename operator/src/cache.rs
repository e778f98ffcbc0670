//! Copies of the operator's objects, kept up to date by watches.
//!
//! There is one [`Cache`] for each watched scope: all namespaces or one. Reads never leave the process. A copy may be a moment old; a
//! decision from an old copy at worst repeats a write without effect.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
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
use sluice_plan::names;
use std::{
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A `TracePipeline` that may be unreadable. An unreadable one must not stop the others.
pub type Pipeline = DeserializeGuard<TracePipeline>;

/// Copies of all objects of one scope.
#[derive(Clone)]
pub struct Cache {
    /// The pipelines.
    pub pipelines: Store<Pipeline>,
    /// Workloads of gateways.
    pub stateful_sets: Store<StatefulSet>,
    /// Configs of gateways and schema Jobs.
    pub config_maps: Store<ConfigMap>,
    /// Headless Services.
    pub services: Store<Service>,
    /// Service accounts.
    pub service_accounts: Store<ServiceAccount>,
    /// Disruption budgets.
    pub disruption_budgets: Store<PodDisruptionBudget>,
    /// Network policies.
    pub network_policies: Store<NetworkPolicy>,
    /// Schema Jobs, and Jobs that drain volumes.
    pub jobs: Store<Job>,
    /// Pods of gateways and of Jobs.
    pub pods: Store<Pod>,
    /// Claims of gateways.
    pub claims: Store<PersistentVolumeClaim>,
    /// Metadata of all Secrets, never their content.
    pub secrets: Store<PartialObjectMeta<Secret>>,
}

/// The pipelines of all scopes. Two pipelines with one consumer group may be in namespaces of different scopes.
#[derive(Default)]
pub struct AllPipelines(Mutex<Vec<Store<Pipeline>>>);

impl AllPipelines {
    /// Adds the pipelines of a scope.
    pub fn add(&self, scope: Store<Pipeline>) {
        self.scopes().push(scope);
    }

    /// All known pipelines.
    pub fn state(&self) -> Vec<Arc<Pipeline>> {
        self.scopes().iter().flat_map(Store::state).collect()
    }

    fn scopes(&self) -> MutexGuard<'_, Vec<Store<Pipeline>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Waits until every watch has listed.
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

    /// Pods of one pipeline, gateways and Jobs alike.
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

/// The pipelines that name this Secret.
pub fn pipelines_with_secret(
    pipelines: &Store<Pipeline>,
    namespace: &str,
    secret: &str,
) -> Vec<ObjectRef<Pipeline>> {
    let names_it = |pipeline: &Pipeline| {
        let Ok(pipeline) = &pipeline.0 else { return false };
        pipeline.metadata.namespace.as_deref() == Some(namespace)
            && pipeline.spec.secrets().iter().any(|(_, name)| *name == secret)
    };
    pipelines.state_filter(names_it).iter().map(|pipeline| ObjectRef::from_obj(&**pipeline)).collect()
}
