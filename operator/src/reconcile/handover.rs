//! What comes before a reconcile if several operators divide the pipelines of a cluster by labels (`--pipeline-selector`). The operator
//! ignores pipelines of other operators. It signs a pipeline that becomes its own, and removes its signature from one that no longer is.
//!
//! Reconciles of one pipeline never overlap in a process. So once the signature is removed here, this operator writes nothing more for it.

use super::Reconciler;
use crate::{
    world::{Shared, api_error::described, cache::Pipeline, memory::Key},
    write::{events, signature},
};
use kube::{Resource, runtime::controller::Action};
use sluice_plan::{OperatorWait, Responsible, Turn, names::SIGNATURE};
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// Longest write of a signature in seconds.
const WRITE_SECONDS_MAX: u64 = 10;
/// Seconds until the next look at a pipeline whose signature was written: its watch tells of the change before, as a rule.
const SIGNED_SECONDS: u64 = 2;
/// Seconds between looks at a pipeline that another operator is to leave.
const WAITING_SECONDS: u64 = 10;

/// When to look again at a pipeline that this operator does not reconcile now; `None` if it does.
pub async fn before(pipeline: &Pipeline, key: &Key, reconciler: &Reconciler) -> Option<Action> {
    let shared = &reconciler.world.shared;
    let (turn, is_news) = shared.responsibility.turn(key, pipeline.meta(), reconciler.world.now());
    let again = match turn {
        Turn::Ours => return None,
        Turn::Sign => write(pipeline, key, Some(&shared.responsibility.who), reconciler).await,
        Turn::Unsign => {
            reconciler.leave(key);
            write(pipeline, key, None, reconciler).await
        }
        Turn::Theirs => {
            reconciler.leave(key);
            return Some(Action::await_change());
        }
        Turn::Waits(wait) => {
            reconciler.leave(key);
            if is_news {
                tell(pipeline, key, &wait, shared).await;
            }
            WAITING_SECONDS
        }
    };
    Some(Action::requeue(Duration::from_secs(again)))
}

/// Writes the signature, and says after how many seconds to look again.
async fn write(pipeline: &Pipeline, key: &Key, by: Option<&Responsible>, reconciler: &Reconciler) -> u64 {
    let longest = Duration::from_secs(WRITE_SECONDS_MAX);
    let error = match timeout(longest, signature::write(pipeline, by, &reconciler.world)).await {
        // It changed since it was read, or is gone.
        Ok(Ok(false)) => return SIGNED_SECONDS,
        Ok(Ok(true)) => {
            info!(namespace = %key.namespace, pipeline = %key.name, is_ours = by.is_some(), "signature of the pipeline written");
            return SIGNED_SECONDS;
        }
        Ok(Err(error)) => described(&error),
        Err(_) => "no answer in time".to_owned(),
    };
    warn!(namespace = %key.namespace, pipeline = %key.name, %error, "cannot write the signature of the pipeline; the operator tries again");
    WAITING_SECONDS
}

/// Says once what a pipeline waits for. Two operators that select it are a mistake that a person has to correct, who may see no other sign of
/// it: a pipeline that was restored from another cluster with its signature has no conditions here.
async fn tell(pipeline: &Pipeline, key: &Key, wait: &OperatorWait, shared: &Shared) {
    let Key { namespace, name } = key;
    match wait {
        OperatorWait::Handover { operator } => {
            info!(%namespace, pipeline = %name, %operator, "waits until another operator leaves the pipeline");
        }
        OperatorWait::Overlap { operator, selector } => {
            warn!(
                %namespace, pipeline = %name, %operator, %selector,
                "another operator looks after the pipeline, and its selector selects it, too: change one of the selectors; if that operator is \
                 gone, kubectl annotate tracepipeline NAME sluice.dev/operator- lets this one take over"
            );
            events::tell(pipeline, "OtherOperator", &overlap(key, operator, selector), shared).await;
        }
    }
}

fn overlap(Key { namespace, name }: &Key, operator: &str, selector: &str) -> String {
    format!(
        "the operator {operator} looks after this pipeline, and its selector {selector} selects it, too; this operator writes nothing. If \
         {operator} is gone: kubectl annotate tracepipeline {name} -n {namespace} {SIGNATURE}-"
    )
}
