//! Writes the status of connections: how many pipelines reference one. It is no part of a reconcile, which is about a pipeline.
//!
//! Every [`COUNT_SECONDS`] the copies are counted. A status is written when it says something new, so that nothing is written at rest, and
//! at most one write of a connection falls into that time. A status that the server refuses, or that an older CRD drops, is written again only
//! when it changes, or when the operator starts.

use crate::world::{
    World,
    api_error::{ApiError, ErrorClass, described},
    connections::{is_listed, referring},
};
use futures::FutureExt as _;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sluice_crds::{TraceConnection, TraceConnectionStatus};
use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};
use tokio::time::{interval, timeout};
use tracing::{debug, warn};

use super::status::STATUS;

/// Seconds between two counts. Chosen: soon enough for a person who looks before a deletion, and no load for thousands of copies.
const COUNT_SECONDS: u64 = 10;
/// Longest write in seconds.
const WRITE_SECONDS_MAX: u64 = 10;
/// Writes in one count; the others follow in the next one. Chosen: after an upgrade, thousands of connections are no burst.
const WRITES_MAX: usize = 20;

/// What was last written for each connection, by its UID: as many as there are connections.
pub type Written = HashMap<String, TraceConnectionStatus>;

/// Counts again and again.
pub async fn count(worlds: &[Arc<World>]) -> Infallible {
    let mut ticks = interval(Duration::from_secs(COUNT_SECONDS));
    let mut written: Vec<Written> = worlds.iter().map(|_| Written::new()).collect();
    loop {
        ticks.tick().await;
        for (world, written) in worlds.iter().zip(&mut written) {
            count_once(world, written).await;
        }
    }
}

/// Counts the pipelines of each connection of a scope, and writes what is new.
pub async fn count_once(world: &World, written: &mut Written) {
    let cache = &world.cache;
    let is_ready = cache.ready().now_or_never().is_some_and(|ready| ready.is_ok());
    if !is_ready || !is_listed(&cache.connections) {
        return;
    }
    let all = cache.connections.state();
    let readable: Vec<&TraceConnection> = all.iter().filter_map(|one| one.0.as_ref().ok()).collect();
    written.retain(|uid, _| readable.iter().any(|one| one.metadata.uid.as_ref() == Some(uid)));
    let due = readable.into_iter().filter_map(|connection| {
        let wanted = status(connection, world);
        let uid = connection.uid()?;
        let is_there = connection.status.as_ref() == Some(&wanted) || written.get(&uid) == Some(&wanted);
        (!is_there).then_some((connection, uid, wanted))
    });
    let due: Vec<_> = due.take(WRITES_MAX).collect();
    for (connection, uid, wanted) in due {
        if write(connection, &wanted, world).await {
            written.insert(uid, wanted);
        }
    }
}

fn status(connection: &TraceConnection, world: &World) -> TraceConnectionStatus {
    let namespace = connection.namespace().unwrap_or_default();
    let pipelines = referring(&world.cache.pipelines, &namespace, &connection.name_any()).len();
    TraceConnectionStatus { pipelines: Some(u32::try_from(pipelines).unwrap_or(u32::MAX)) }
}

/// Returns whether the server took or refused it; else it did not answer, and the next count tries again. A failure fails nothing: the number is
/// for people.
async fn write(connection: &TraceConnection, status: &TraceConnectionStatus, world: &World) -> bool {
    let (namespace, name) = (connection.namespace().unwrap_or_default(), connection.name_any());
    let api: Api<TraceConnection> = Api::namespaced(world.shared.client.clone(), &namespace);
    let full = json!({
        "apiVersion": TraceConnection::api_version(&()), "kind": TraceConnection::kind(&()),
        // The uid fails the write if another connection now has this name.
        "metadata": {"name": name, "namespace": namespace, "uid": connection.uid()},
        "status": status,
    });
    world.shared.metrics.wrote("connection status");
    let (how, patch) = (PatchParams::apply(STATUS).force(), Patch::Apply(full));
    let longest = Duration::from_secs(WRITE_SECONDS_MAX);
    match timeout(longest, api.patch_status(&name, &how, &patch)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            let class = ErrorClass::of(&error);
            let error = described(&ApiError::from(error));
            // The connection was deleted meanwhile.
            if class == ErrorClass::Missing {
                return true;
            }
            if matches!(class, ErrorClass::Refused | ErrorClass::Forbidden) {
                warn!(%namespace, connection = %name, %error, "the API server refuses the status of the connection");
                return true;
            }
            debug!(%namespace, connection = %name, %error, "cannot write the status of the connection");
            false
        }
        Err(_) => {
            debug!(%namespace, connection = %name, "the status of the connection was not written in time");
            false
        }
    }
}
