//! The `PodMonitor` of a pipeline's gateways: a kind that a cluster may not have, and may get later. So it is not watched; it is looked at
//! when the pipeline's spec has changed, when an operator starts, and, where one is wanted, every [`MONITOR_SECONDS`].
//!
//! Nothing waits for it: gateways run with metrics that nobody reads.

use crate::{
    api_error::{ApiError, ErrorClass},
    apply::{self, is_of},
    memory::{Key, MONITOR_SECONDS},
    prune,
    reconcile::World,
    report,
};
use kube::{Api, ResourceExt, api::DeleteParams};
use sluice_crds::TracePipeline;
use sluice_plan::{Plan, PodMonitor, pod_monitor};
use std::time::Instant;
use tracing::debug;

/// The reason of the API server for an object that is not there. Of a kind that is not there it says that there is no such page.
const NO_OBJECT: &str = "NotFound";

const KIND: &str = <PodMonitor as k8s_openapi::Resource>::KIND;

/// What could not be done about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not say whether there is one.
    #[error("cannot read the PodMonitor {name}")]
    Look {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
    /// It could not be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
    /// It could not be deleted.
    #[error(transparent)]
    Prune(#[from] prune::Error),
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Look { source, .. } => source.class(),
            Self::Apply(error) => error.class(),
            Self::Prune(error) => error.class(),
        }
    }
}

/// What there is.
enum Found {
    Object(Option<Box<PodMonitor>>),
    /// The cluster does not know the kind.
    NoKind,
}

/// Makes the `PodMonitor` what the plan wants, or deletes it where the plan wants none.
pub async fn tend(pipeline: &TracePipeline, plan: &Plan, world: &World) -> Result<(), Error> {
    let names = plan.names();
    let key = Key { namespace: names.namespace().to_owned(), name: names.pipeline().to_owned() };
    let (desired, now) = (pod_monitor(plan), Instant::now());
    let of = (pipeline.uid().unwrap_or_default(), pipeline.metadata.generation.unwrap_or_default());
    let memory = &world.shared.memory;
    if !memory.is_monitor_due(&key, (&of, desired.is_some()), now) {
        return Ok(());
    }
    let name = names.gateway();
    let found = match look(names.namespace(), &name, world).await {
        // Nobody asked for one, and who may not look has made none.
        Err(error) if desired.is_none() && ErrorClass::of(&error) == ErrorClass::Forbidden => {
            debug!(%error, pod_monitor = %name, "no right to read a PodMonitor that the pipeline does not ask for");
            Found::Object(None)
        }
        found => found.map_err(|source| Error::Look { name, source: source.into() })?,
    };
    let is_without_kind = desired.is_some() && matches!(found, Found::NoKind);
    match (desired, found) {
        (Some(_), Found::NoKind) if memory.is_monitor_without_kind(&key, &of) => {}
        (Some(_), Found::NoKind) => tell_of_no_kind(pipeline, world).await,
        (Some(desired), Found::Object(live)) => {
            apply::apply_over(pipeline, live.as_deref(), desired, world).await?;
        }
        (None, Found::Object(Some(live))) => switch_off(pipeline, &live, world).await?,
        (None, Found::Object(None) | Found::NoKind) => {}
    }
    memory.looked_at_monitor(&key, (of, is_without_kind), now);
    Ok(())
}

async fn look(namespace: &str, name: &str, world: &World) -> Result<Found, kube::Error> {
    let api: Api<PodMonitor> = Api::namespaced(world.shared.client.clone(), namespace);
    match api.get(name).await {
        Ok(found) => Ok(Found::Object(Some(Box::new(found)))),
        Err(kube::Error::Api(status)) if status.code == 404 && status.reason == NO_OBJECT => {
            Ok(Found::Object(None))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::NoKind),
        Err(error) => Err(error),
    }
}

/// Also one that a pipeline of the same name has left to itself; but not one that is on its way out: somebody else may hold it there.
async fn switch_off(pipeline: &TracePipeline, live: &PodMonitor, world: &World) -> Result<(), prune::Error> {
    let is_ours = is_of(live, &pipeline.name_any(), &pipeline.uid().unwrap_or_default());
    if !is_ours || live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    prune::delete(live, DeleteParams::background(), world).await
}

async fn tell_of_no_kind(pipeline: &TracePipeline, world: &World) {
    let note = format!(
        "spec.observability.podMonitor is enabled, but the cluster has no CRD for {KIND}: install the Prometheus operator. Sluice looks for \
         it every {MONITOR_SECONDS} s, and creates no {KIND} until then"
    );
    report::tell(pipeline, "NoPodMonitors", &note, &world.shared).await;
}
