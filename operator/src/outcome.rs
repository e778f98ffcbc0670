//! How a look at one pipeline ended: counted, logged, told, and when it is looked at again. Also of one that cannot be read, and of a
//! look that panicked: neither keeps the operator from the other pipelines.

use crate::{
    api_error::{ErrorClass, described},
    cache::Pipeline,
    finalizer, hindrance,
    memory::Key,
    metrics::ReconcileResult,
    next::{Next, REFUSED_SECONDS},
    reconcile::{Error, Failed, RECONCILE_SECONDS_MAX, World, story},
    replacement, report,
};
use futures::FutureExt as _;
use kube::runtime::controller::Action;
use sluice_crds::status::reason;
use sluice_plan::Hindrance;
use std::{any::Any, panic::AssertUnwindSafe, time::Duration};
use tokio::time::timeout;
use tracing::{info, warn};

/// Looks at a pipeline within its time.
pub async fn of(pipeline: &Pipeline, key: &Key, world: &World) -> (ReconcileResult, Result<Action, Failed>) {
    let longest = Duration::from_secs(RECONCILE_SECONDS_MAX);
    // What a look shares with others is behind locks that do without one that died, so that nothing half done is seen.
    let look = AssertUnwindSafe(timeout(longest, look(pipeline, key, world))).catch_unwind();
    let ended = match look.await {
        Ok(ended) => ended.unwrap_or(Err(Error::Timeout)),
        Err(panic) => Err(Error::Panicked(words(&*panic))),
    };
    match ended {
        Ok((result, action)) => (result, Ok(action)),
        Err(error) => (ReconcileResult::Failed, Err(failed(pipeline, key, error, world).await)),
    }
}

async fn look(pipeline: &Pipeline, key: &Key, world: &World) -> Result<(ReconcileResult, Action), Error> {
    match &pipeline.0 {
        Ok(pipeline) => {
            let Next { result, after_seconds } = story(pipeline, key, world).await?;
            if world.shared.memory.succeeded(key) {
                info!(namespace = %key.namespace, pipeline = %key.name, "reconciles work again");
            }
            if result != ReconcileResult::Waiting {
                world.shared.memory.concerned(key);
            }
            world.shared.metrics.set_failures((&key.namespace, &key.name), 0);
            Ok((result, Action::requeue(Duration::from_secs(after_seconds))))
        }
        // Nobody knows what it wants done before it goes.
        Err(invalid) if invalid.metadata.deletion_timestamp.is_some() => {
            finalizer::let_go(pipeline, world).await?;
            Ok((ReconcileResult::Refused, Action::await_change()))
        }
        Err(invalid) => {
            let is_told = malformed(pipeline, key, &invalid.error, world).await;
            let again = match replacement::let_all_go(&key.namespace, &key.name, world).await {
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
    // What passes by itself is no news to a person; what stays until somebody acts is.
    let is_for_a_person = matches!(
        class,
        ErrorClass::Conflict
            | ErrorClass::Refused
            | ErrorClass::Forbidden
            | ErrorClass::Missing
            | ErrorClass::Foreign
            | ErrorClass::Panicked
    );
    // Who else sets the number is told with the status that says it.
    if failure.is_news && is_for_a_person && error.contested().is_none() {
        report::tell(pipeline, "ReconcileFailed", &what, &world.shared).await;
    }
    hindrance::tell_failure(pipeline, key, (&error, failure.count), world).await;
    Failed { error, retry_after: failure.retry_after }
}

/// A pipeline that cannot be read as one: the schema of the installed CRD is not this operator's. What was said of it before is of
/// another spec.
async fn malformed(pipeline: &Pipeline, key: &Key, why: &str, world: &World) -> bool {
    let message = format!(
        "the operator cannot read this object and changes nothing of what runs: {}; apply the CRD of the operator's version \
         (kubectl get crd tracepipelines.sluice.dev shows the one in the cluster)",
        report::shortened(why)
    );
    let hindrance = Hindrance { reason: reason::MALFORMED, message, stays: true };
    if world.shared.memory.failed(key, why).is_news {
        warn!(namespace = %key.namespace, pipeline = %key.name, error = why, "cannot read this TracePipeline");
    }
    hindrance::tell(pipeline, key, &hindrance, world).await
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
