//! Runs one reconcile of a pipeline, then counts, logs and reports its result and decides when the next one is due. A pipeline that cannot be
//! parsed, or a reconcile that panics, does not affect other pipelines.

use super::{
    Failed, RECONCILE_SECONDS_MAX, Reconciler, apply_failure, handover,
    next::{Next, REFUSED_SECONDS, WAITING_SECONDS},
    story,
};
use crate::{
    volumes::replace,
    world::{
        World,
        api_error::{ErrorClass, described},
        cache::Pipeline,
        connections::resolve,
        error::{Error, panic_words},
        events::shortened,
        memory::Key,
        metrics::ReconcileResult,
    },
    write::{events, finalizer},
};
use futures::FutureExt as _;
use kube::runtime::controller::Action;
use sluice_crds::status::reason;
use sluice_plan::ReconcileFailure;
use std::{panic::AssertUnwindSafe, time::Duration};
use tokio::time::timeout;
use tracing::{info, warn};

/// Reconciles a pipeline within [`RECONCILE_SECONDS_MAX`].
pub async fn of(
    pipeline: &Pipeline,
    key: &Key,
    reconciler: &Reconciler,
) -> (ReconcileResult, Result<Action, Failed>) {
    let longest = Duration::from_secs(RECONCILE_SECONDS_MAX);
    // Unwind safe: shared state is behind locks whose holders change it in one step, so that a panic leaves nothing half done.
    let look = AssertUnwindSafe(timeout(longest, look(pipeline, key, reconciler))).catch_unwind();
    let ended = match look.await {
        Ok(ended) => ended.unwrap_or(Err(Error::Timeout { seconds: RECONCILE_SECONDS_MAX })),
        Err(panic) => Err(Error::Panicked(panic_words(&*panic))),
    };
    match ended {
        Ok((result, action)) => (result, Ok(action)),
        Err(error) => (ReconcileResult::Failed, Err(failed(pipeline, key, error, &reconciler.world).await)),
    }
}

/// When to look again at a pipeline while a kind was never listed: what runs is unknown, and nothing is changed. If the API server refuses the
/// kind, the status says so.
pub async fn unlisted(pipeline: &Pipeline, key: &Key, reconciler: &Reconciler) -> Action {
    let Some(failure) = apply_failure::of_watches(&reconciler.watches) else {
        return Action::requeue(Duration::from_secs(WAITING_SECONDS));
    };
    // Another operator may look after it.
    if let Some(action) = handover::before(pipeline, key, reconciler).await {
        return action;
    }
    // If the API server refuses the status, too, it is written later.
    let _is_told = apply_failure::tell(pipeline, key, &failure, &reconciler.world).await;
    Action::requeue(Duration::from_secs(REFUSED_SECONDS))
}

async fn look(
    pipeline: &Pipeline,
    key: &Key,
    reconciler: &Reconciler,
) -> Result<(ReconcileResult, Action), Error> {
    if let Some(action) = handover::before(pipeline, key, reconciler).await {
        return Ok((ReconcileResult::Left, action));
    }
    let world = &*reconciler.world;
    match &pipeline.0 {
        Ok(pipeline) => {
            let (resolved, unresolved) = resolve(pipeline, &world.cache.connections);
            let Next { result, after_seconds } = story((&resolved, unresolved), key, reconciler).await?;
            if world.shared.memory.succeeded(key) {
                info!(namespace = %key.namespace, pipeline = %key.name, "reconciles work again");
            }
            if result != ReconcileResult::Waiting {
                world.shared.memory.concerned(key);
            }
            world.shared.metrics.set_failures((&key.namespace, &key.name), 0);
            Ok((result, Action::requeue(Duration::from_secs(after_seconds))))
        }
        // Without a readable spec the operator cannot know what to do before the deletion: remove the finalizer.
        Err(invalid) if invalid.metadata.deletion_timestamp.is_some() => {
            finalizer::let_go(pipeline, world).await?;
            Ok((ReconcileResult::Refused, Action::await_change()))
        }
        Err(invalid) => {
            let is_told = malformed(pipeline, key, &invalid.error, world).await;
            let again = match replace::let_all_go(&key.namespace, &key.name, world).await {
                Ok(()) if is_told => Action::await_change(),
                Ok(()) => Action::requeue(Duration::from_secs(REFUSED_SECONDS)),
                Err(error) => {
                    warn!(namespace = %key.namespace, pipeline = %key.name, error = described(&error), "its pods still have the operator's finalizer");
                    Action::requeue(Duration::from_secs(REFUSED_SECONDS))
                }
            };
            Ok((ReconcileResult::Refused, again))
        }
    }
}

async fn failed(pipeline: &Pipeline, key: &Key, error: Error, world: &World) -> Failed {
    let (class, what) = (error.class(), described(&error));
    world.shared.metrics.failed(class.label());
    let failure = world.shared.memory.failed(key, &what);
    world.shared.metrics.set_failures((&key.namespace, &key.name), failure.count);
    if failure.is_news {
        warn!(namespace = %key.namespace, pipeline = %key.name, %class, error = %what, "reconcile failed; the operator tries again");
    }
    // Publish no event about temporary failures, only about those that need a person. A conflict is temporary: another client wrote the object
    // since it was read, and the next reconcile reads it anew.
    let is_for_a_person = matches!(
        class,
        ErrorClass::Refused
            | ErrorClass::Forbidden
            | ErrorClass::Missing
            | ErrorClass::Foreign
            | ErrorClass::Panicked
    );
    if failure.is_news && is_for_a_person {
        events::tell(pipeline, "ReconcileFailed", &what, &world.shared).await;
    }
    apply_failure::tell_failure(pipeline, key, (&error, failure.count), world).await;
    Failed { error, retry_after: failure.retry_after }
}

/// Reports a pipeline that cannot be parsed: the installed CRD is not that of this operator's version. The older conditions are about another
/// spec.
async fn malformed(pipeline: &Pipeline, key: &Key, why: &str, world: &World) -> bool {
    let message = format!(
        "the operator cannot read this object and changes nothing of what runs: {}; apply the CRD of the operator's version \
         (kubectl get crd tracepipelines.sluice.dev shows the one in the cluster)",
        shortened(why)
    );
    let failure = ReconcileFailure { reason: reason::MALFORMED, message, stays: true };
    if world.shared.memory.failed(key, why).is_news {
        warn!(namespace = %key.namespace, pipeline = %key.name, error = why, "cannot read this TracePipeline");
    }
    apply_failure::tell(pipeline, key, &failure, world).await
}
