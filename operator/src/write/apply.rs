//! Applies a pipeline's objects: first what pods mount and run as, the gateways last.
//!
//! Each write is a server-side apply under [`OBJECTS`]. The number of gateways has its own field manager ([`SCALER`]), so that the operator
//! notices when another client scales, instead of undoing it. An object that is already as wanted is not written (`drift.rs`).

use crate::{
    world::{
        World,
        api_error::{ApiError, ErrorClass},
        cache::{find, is_of},
        error::Error,
        status::is_taking_over,
    },
    write::drift,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::reflector::Store,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{
    Applied, Desired, Names, Objects, Parts, VolumesSeen, names, replica_conflict_message, scaled_by_others,
    volumes::removal::to_be_retained,
};
use std::{fmt::Debug, sync::Arc};

/// Field manager of the objects. Only the operator creates them, so that it reverts changes by others.
pub const OBJECTS: &str = "sluice-operator";
/// Field manager of the number of gateways. It takes the field from another manager only for a pipeline that is suspended, or was unmanaged.
pub use names::SCALER;

/// Tries to set the number of gateways while the StatefulSet changes: its version changes with each pod that starts, ends or gets ready. The
/// next reconcile tries again.
const SCALE_TRIES: usize = 4;

/// Owner of the field `replicas` when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// No known owner: an owner that appears meanwhile keeps the field.
    Nobodys,
    /// The operator, in the version that was read.
    OursInThisVersion,
    /// The operator takes the field from any owner.
    Ours,
}

/// A kind that can be applied: a namespaced kind of Kubernetes.
pub trait Appliable:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + k8s_openapi::Resource
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + 'static
{
}

impl<K> Appliable for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + k8s_openapi::Resource
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + 'static
{
}

/// Applies all objects, and returns them as the server has them.
pub async fn apply(
    pipeline: &TracePipeline,
    desired: Objects<Desired>,
    replicas: u32,
    world: &World,
) -> Result<Objects<Applied>, Error> {
    let writer = Writer::of(pipeline, world);
    let (cache, parts) = (&world.cache, desired.into_parts());
    let parts = Parts {
        service_account: writer.apply(&cache.service_accounts, parts.service_account).await?,
        config_map: writer.apply(&cache.config_maps, parts.config_map).await?,
        service: writer.apply(&cache.services, parts.service).await?,
        otlp_service: writer.apply_some(&cache.services, parts.otlp_service).await?,
        network_policy: writer.apply_some(&cache.network_policies, parts.network_policy).await?,
        disruption_budget: writer.apply_some(&cache.disruption_budgets, parts.disruption_budget).await?,
        schema_config_map: writer.apply_some(&cache.config_maps, parts.schema_config_map).await?,
        schema_job: writer.apply_some(&cache.jobs, parts.schema_job).await?,
        workload: match parts.workload {
            Some(workload) => {
                // The future holds a StatefulSet in three forms over four awaits: keep it on the heap.
                Some(Box::pin(writer.workload(&cache.stateful_sets, workload, replicas)).await?)
            }
            None => None,
        },
        // The edge is applied beside these objects (`edge.rs`).
        edge: None,
    };
    Ok(Objects::confirm(parts))
}

/// Sets only the number of gateways of an existing StatefulSet, and takes the field from any owner: for a pipeline that is suspended, or
/// managed again.
pub async fn scale(pipeline: &TracePipeline, replicas: u32, world: &World) -> Result<(), Error> {
    let Some((writer, now)) = to_scale(pipeline, world)? else { return Ok(()) };
    // Taking over includes the field, or the operator could not change it later. It does so only once: an operator that is interrupted here
    // each time would never get further.
    let is_ours = !writer.takes_over || is_scaled_by_us(&now);
    if is_ours && has_replicas(&now, replicas) {
        return Ok(());
    }
    writer.scale(&now, replicas, Whose::Ours).await.map(drop)
}

/// Sets only the number of gateways of an existing StatefulSet, whose pod template has to wait. Another manager that has set the number keeps it.
pub async fn scale_as_it_runs(pipeline: &TracePipeline, replicas: u32, world: &World) -> Result<(), Error> {
    let Some((writer, now)) = to_scale(pipeline, world)? else { return Ok(()) };
    let is_theirs = !writer.takes_over && !scaled_by_others(&now).is_empty();
    if is_theirs || has_replicas(&now, replicas) {
        return Ok(());
    }
    if is_scaled_by_us(&now) {
        return Box::pin(writer.keep_scale(StatefulSet::clone(&now), replicas)).await.map(drop);
    }
    Box::pin(writer.scale(&now, replicas, Whose::Nobodys)).await.map(drop)
}

/// The StatefulSet of the pipeline, with what writes it; `None` while there is none. One of another owner is an error.
fn to_scale<'a>(
    pipeline: &TracePipeline,
    world: &'a World,
) -> Result<Option<(Writer<'a>, Arc<StatefulSet>)>, Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(None) };
    let writer = Writer::of(pipeline, world);
    match find(&world.cache.stateful_sets, names.namespace(), &names.gateway()) {
        Some(now) if !writer.may_change(&*now) => {
            Err(Error::Foreign { kind: "StatefulSet", name: names.gateway() })
        }
        now => Ok(now.map(|now| (writer, now))),
    }
}

fn has_replicas(now: &StatefulSet, replicas: u32) -> bool {
    let there = now.spec.as_ref().and_then(|spec| spec.replicas);
    there.is_some_and(|there| u32::try_from(there) == Ok(replicas))
}

/// Makes the StatefulSet retain its claims, if an older operator had set it to delete them. Returns whether it wrote that.
pub async fn retain(pipeline: &TracePipeline, seen: &VolumesSeen, world: &World) -> Result<bool, Error> {
    let fields = to_be_retained(pipeline, seen);
    let Ok(names) = Names::of(pipeline) else { return Ok(false) };
    let (kind, name) = ("StatefulSet", names.gateway());
    let Some(now) = find(&world.cache.stateful_sets, names.namespace(), &name) else { return Ok(false) };
    let writer = Writer::of(pipeline, world);
    if fields.is_empty() || !writer.may_change(&*now) {
        return Ok(false);
    }
    let policy: Map<String, Value> =
        fields.into_iter().map(|field| (field.to_owned(), "Retain".into())).collect();
    let patch = json!({
        "metadata": {"uid": now.uid()}, "spec": {"persistentVolumeClaimRetentionPolicy": policy},
    });
    let how = PatchParams { field_manager: Some(OBJECTS.to_owned()), ..PatchParams::default() };
    world.shared.metrics.wrote(kind);
    match writer.api::<StatefulSet>(names.namespace()).patch(&name, &how, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(true),
        // It is gone, or another one has its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::request(format!("cannot apply the {kind} {name}"), source)),
    }
}

/// Applies one object of the pipeline that is not in [`Parts`].
pub async fn apply_one<K: Appliable>(
    pipeline: &TracePipeline,
    live: &Store<K>,
    desired: K,
    world: &World,
) -> Result<K, Error> {
    let writer = Writer::of(pipeline, world);
    writer.apply(live, desired).await
}

/// Applies one object of the pipeline over `live`, which the caller has just read from the server.
pub async fn apply_over<K: Appliable>(
    pipeline: &TracePipeline,
    live: Option<&K>,
    desired: K,
    world: &World,
) -> Result<K, Error> {
    Writer::of(pipeline, world).apply_over(live, desired).await
}

/// Writes objects of one pipeline.
pub(super) struct Writer<'a> {
    world: &'a World,
    pipeline: String,
    owner_uid: String,
    /// Whether the operator takes the field `replicas` from its owner.
    takes_over: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn of(pipeline: &TracePipeline, world: &'a World) -> Self {
        Self {
            world,
            pipeline: pipeline.name_any(),
            owner_uid: pipeline.uid().unwrap_or_default(),
            takes_over: is_taking_over(pipeline),
        }
    }

    /// Whether an object belongs to the pipeline, or is an orphan of a pipeline with the same name.
    pub(super) fn may_change<K: Resource>(&self, object: &K) -> bool {
        is_of(object, &self.pipeline, &self.owner_uid)
    }

    pub(super) async fn apply_some<K: Appliable>(
        &self,
        live: &Store<K>,
        desired: Option<K>,
    ) -> Result<Option<K>, Error> {
        match desired {
            Some(desired) => self.apply(live, desired).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn apply<K: Appliable>(&self, live: &Store<K>, desired: K) -> Result<K, Error> {
        let (name, namespace) = (desired.name_any(), desired.namespace().unwrap_or_default());
        let live = find(live, &namespace, &name);
        if live.is_none() {
            // The copies hold only objects with the operator's label; another object may have the same name.
            self.leave_others_alone::<K>(&namespace, &name).await?;
        }
        // A Job takes 10 KB: box the future, so that there is only one copy.
        Box::pin(self.apply_over(live.as_deref(), desired)).await
    }

    pub(super) async fn apply_over<K: Appliable>(
        &self,
        live: Option<&K>,
        mut desired: K,
    ) -> Result<K, Error> {
        let (kind, name) = (<K as k8s_openapi::Resource>::KIND, desired.name_any());
        let namespace = desired.namespace().unwrap_or_default();
        // Which version it is made from is none of what is wanted: with each of them it would be another object.
        let version = desired.meta_mut().resource_version.take();
        let stamped = drift::stamp(json_of(&desired));
        match live {
            Some(live) if !self.may_change(live) => return Err(Error::Foreign { kind, name }),
            Some(live) if drift::is_as_desired(&stamped, &json_of(live)) => return Ok(live.clone()),
            Some(_) | None => {}
        }
        let mut sent = stamped;
        if let Some(live) = live.filter(|_| kind == <StatefulSet as k8s_openapi::Resource>::KIND) {
            // The uid prevents that the apply creates a StatefulSet that is gone: without `replicas` it would have one, adopt the gateways
            // and delete all but one.
            sent["metadata"]["uid"] = live.uid().into();
        }
        if let Some(version) = version {
            sent["metadata"]["resourceVersion"] = version.into();
        }
        self.world.shared.metrics.wrote(kind);
        let how = PatchParams::apply(OBJECTS).force();
        self.api::<K>(&namespace)
            .patch(&name, &how, &Patch::Apply(&sent))
            .await
            .map_err(|source| Error::request(format!("cannot apply the {kind} {name}"), source))
    }

    async fn leave_others_alone<K: Appliable>(&self, namespace: &str, name: &str) -> Result<(), Error> {
        let kind = <K as k8s_openapi::Resource>::KIND;
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.world.shared.client.clone(), namespace);
        let found = api.get_opt(name).await;
        let found = found.map_err(|source| {
            Error::request(format!("cannot read whether there is a {kind} {name}"), source)
        })?;
        match found {
            Some(other) if !self.may_change(&other) => Err(Error::Foreign { kind, name: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Applies the StatefulSet and its number of replicas, each under its own field manager.
    ///
    /// A StatefulSet without `replicas` gets 1, and would delete the other pods that it adopts (it may have been deleted without its pods).
    /// So it is created with the number, the scaler then owns the number, and this manager gives it up. If the scaler does not own the number
    /// yet, it goes first, so that the operator may stop at any point.
    ///
    /// If another manager owns the number, it is left out, also if it is the wanted one: a shared field would look like the operator's own next
    /// time.
    async fn workload(
        &self,
        live: &Store<StatefulSet>,
        desired: StatefulSet,
        replicas: u32,
    ) -> Result<StatefulSet, Error> {
        let (name, namespace) = (desired.name_any(), desired.namespace().unwrap_or_default());
        match find(live, &namespace, &name) {
            None => {
                let made = self.apply(live, with_replicas(desired.clone(), replicas)).await?;
                let made = self.scale(&made, replicas, Whose::Nobodys).await?;
                self.apply_over(Some(&made), desired).await
            }
            Some(now) if !self.takes_over && !scaled_by_others(&now).is_empty() => {
                self.apply(live, desired).await
            }
            Some(now) if self.may_change(&*now) && !is_scaled_by_us(&now) => {
                self.scale(&now, replicas, Whose::Nobodys).await?;
                self.apply(live, desired).await
            }
            Some(_) => {
                let applied = self.apply(live, desired).await?;
                let now = applied.spec.as_ref().and_then(|spec| spec.replicas);
                if now.is_some_and(|now| u32::try_from(now) == Ok(replicas)) {
                    return Ok(applied);
                }
                self.keep_scale(applied, replicas).await
            }
        }
    }

    /// Sets a number that the operator owned when it was read. The write is forced, since a manager that applied the same number shares the
    /// field and would block any other number. A manager that sets another number at this moment keeps the field: so the write names the version
    /// that was read, and reads again if it has changed, as it does with each pod.
    async fn keep_scale(&self, mut now: StatefulSet, replicas: u32) -> Result<StatefulSet, Error> {
        let (name, namespace) = (now.name_any(), now.namespace().unwrap_or_default());
        let mut tries = 1;
        loop {
            let others = scaled_by_others(&now);
            if !others.is_empty() {
                return Err(Error::ReplicaConflict {
                    words: replica_conflict_message(&others, &name),
                    source: None,
                });
            }
            match self.scale(&now, replicas, Whose::OursInThisVersion).await {
                Err(Error::Request { source, .. })
                    if tries < SCALE_TRIES && source.class() == ErrorClass::Conflict =>
                {
                    tries += 1;
                }
                ended => return ended,
            }
            now = self
                .api(&namespace)
                .get(&name)
                .await
                .map_err(|source| not_scaled(&name, replicas, source))?;
        }
    }

    /// Sets the number of exactly this StatefulSet, by its uid.
    async fn scale(&self, now: &StatefulSet, replicas: u32, whose: Whose) -> Result<StatefulSet, Error> {
        let (name, namespace) = (now.name_any(), now.namespace().unwrap_or_default());
        let mut scaled = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": namespace, "uid": now.uid()},
            "spec": {"replicas": replicas},
        });
        if whose == Whose::OursInThisVersion && !self.takes_over {
            scaled["metadata"]["resourceVersion"] = now.resource_version().into();
        }
        let force = self.takes_over || whose != Whose::Nobodys;
        let how = PatchParams { force, ..PatchParams::apply(SCALER) };
        self.world.shared.metrics.wrote("replicas");
        let answer = self.api::<StatefulSet>(&namespace).patch(&name, &how, &Patch::Apply(&scaled)).await;
        answer.map_err(|error| match ApiError::from(error) {
            // Without managers the conflict is about the version or the object, not about a field.
            source if !source.managers().is_empty() => Error::ReplicaConflict {
                words: replica_conflict_message(&source.managers(), &name),
                source: Some(source),
            },
            source => not_scaled(&name, replicas, source),
        })
    }

    fn api<K: Appliable>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.world.shared.client.clone(), namespace)
    }
}

fn not_scaled(name: &str, replicas: u32, source: impl Into<ApiError>) -> Error {
    Error::request(format!("cannot set the StatefulSet {name} to {replicas} replicas"), source)
}

fn json_of<K: Serialize>(object: &K) -> Value {
    serde_json::to_value(object).expect("objects of Kubernetes serialise: their maps have string keys")
}

fn with_replicas(mut workload: StatefulSet, replicas: u32) -> StatefulSet {
    // The plan bounds it at 1,000.
    let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
    workload.spec.get_or_insert_default().replicas = Some(replicas);
    workload
}

fn is_scaled_by_us(workload: &StatefulSet) -> bool {
    workload.managed_fields().iter().any(|fields| fields.manager.as_deref() == Some(SCALER))
}
