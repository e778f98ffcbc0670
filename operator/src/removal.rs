//! A pipeline that is deleted: its gateways leave, or its objects are left to themselves, and then it is let go. Neither Kafka nor
//! `ClickHouse` nor any Secret is needed for that, and there is a limit on the time that it takes.
//!
//! ```text
//!  look at the workload -> removal (pure) -> drain step -> status ........................ again in 2 s
//!                                |                  `----> nobody holds anything ---> event, finalizer away
//!                                +-- orphan: owner references away -----------------> event, finalizer away
//!                                `-- late, or nothing to do ------------------------> event, finalizer away
//! ```
//!
//! What the status says is all that there is to go on from, so that an operator may end at any of these steps.

use crate::{
    api_error::{ApiError, ErrorClass},
    apply::{Appliable, OBJECTS},
    cache::owned,
    finalizer,
    memory::Key,
    metrics::ReconcileResult,
    observe,
    reconcile::{Error as Failure, LEAVING_SECONDS, Next, REFUSED_SECONDS, World},
    replacement, report,
    scaling::written,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::Store,
};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{
    TemplateSeen,
    lifecycle::{KeptVolumes, LetGo, Removal, removal},
    removing,
};

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not take an owner away.
    #[error("cannot leave the {kind} {name} to itself")]
    Orphan {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Orphan { source, .. } => source.class(),
        }
    }
}

/// Goes on with a pipeline that is deleted.
pub async fn remove(pipeline: &TracePipeline, key: &Key, world: &World) -> Result<Next, Failure> {
    let mut facts = observe::gateways(pipeline, world);
    let workload = facts.observed.workload.clone();
    let template = facts.stateful_set.as_deref().map(TemplateSeen::of);
    let kept = KeptVolumes::of(pipeline, template.as_ref());
    let now = world.shared.scaling.now();
    match (removal(now, pipeline, workload.as_ref()), workload) {
        (Removal::Free, _) => Ok(Next { result: ReconcileResult::Done, after_seconds: REFUSED_SECONDS }),
        (Removal::LetGo(why), _) => let_go(pipeline, (why, kept), world).await,
        (Removal::Orphan, _) => {
            replacement::give_back(pipeline, &facts, world).await?;
            orphan(pipeline, world).await?;
            let_go(pipeline, (LetGo::Orphaned, kept), world).await
        }
        (Removal::Drain, None) => let_go(pipeline, (LetGo::Empty, kept), world).await,
        (Removal::Drain, Some(workload)) => {
            let step = world.shared.scaling.drain_step(pipeline, &workload, 0, &facts.gateways).await;
            if step.replicas == 0 {
                return let_go(pipeline, (LetGo::Empty, kept), world).await;
            }
            facts.observed.scaling.drain = step.next;
            let said = removing(pipeline, &facts.observed, &Time(Timestamp::now()));
            report::report(pipeline, key, said, world).await?;
            Ok(Next { result: ReconcileResult::Waiting, after_seconds: LEAVING_SECONDS })
        }
    }
}

/// Says why, and takes the finalizer away; the pipeline is gone then, and what it owns is collected.
async fn let_go(
    pipeline: &TracePipeline,
    (why, kept): (LetGo, KeptVolumes),
    world: &World,
) -> Result<Next, Failure> {
    let state = written(pipeline).map_or("no gateway was told to leave", |drain| &drain.reason);
    report::let_go(pipeline, why, &why.words(state, kept), &world.shared).await;
    finalizer::let_go(pipeline, world).await?;
    Ok(Next { result: ReconcileResult::Done, after_seconds: REFUSED_SECONDS })
}

/// Takes the pipeline out of the owners of all its objects, so that they stay when it goes.
async fn orphan(pipeline: &TracePipeline, world: &World) -> Result<(), Error> {
    let (uid, cache) = (pipeline.uid().unwrap_or_default(), &world.cache);
    // The gateways first: the rest is of no use without them.
    orphan_all(&cache.stateful_sets, &uid, world).await?;
    orphan_all(&cache.config_maps, &uid, world).await?;
    orphan_all(&cache.services, &uid, world).await?;
    orphan_all(&cache.service_accounts, &uid, world).await?;
    orphan_all(&cache.disruption_budgets, &uid, world).await?;
    orphan_all(&cache.network_policies, &uid, world).await?;
    orphan_all(&cache.jobs, &uid, world).await
}

async fn orphan_all<K: Appliable>(store: &Store<K>, owner_uid: &str, world: &World) -> Result<(), Error> {
    for object in owned(store, owner_uid) {
        let (kind, name) = (<K as k8s_openapi::Resource>::KIND, object.name_any());
        let others: Vec<_> =
            object.owner_references().iter().filter(|owner| owner.uid != owner_uid).collect();
        let patch = json!({"metadata": {"uid": object.uid(), "ownerReferences": others}});
        let api: Api<K> =
            Api::namespaced(world.shared.client.clone(), &object.namespace().unwrap_or_default());
        let how = PatchParams { field_manager: Some(OBJECTS.to_owned()), ..PatchParams::default() };
        world.shared.metrics.wrote(kind);
        match api.patch_metadata(&name, &how, &Patch::Merge(patch)).await {
            Ok(_) => {}
            // Gone already, and so is nothing to keep.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => return Err(Error::Orphan { kind, name, source: source.into() }),
        }
    }
    Ok(())
}
