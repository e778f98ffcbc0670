//! What the cluster has of the pipeline in a file, as far as a comparison needs it.
//!
//! Secrets are not read: their content is the business of gateways, and few users may read it.

use crate::cluster::{Cluster, Error};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::ResourceExt as _;
use sluice_crds::TracePipeline;
use sluice_plan::{ClaimSeen, ConnectionSeen, Names, Unresolved, references, resolved};
use std::collections::BTreeMap;

/// The objects of the cluster.
#[derive(Debug)]
pub(super) struct Live {
    /// The pipeline with what its connections say; `None` if there is none of this name.
    pub pipeline: Option<TracePipeline>,
    /// Which of its connections cannot be used.
    pub unresolved: Unresolved,
    /// The gateways' StatefulSet; `None` if there is none.
    pub workload: Option<StatefulSet>,
    /// The edge's Deployment, `None` if there is none; or why it cannot be read.
    pub edge: Result<Option<Deployment>, String>,
    /// The claims of queue volumes, or why they cannot be read. They are read only if the file changes `queue`.
    pub claims: Result<Vec<ClaimSeen>, String>,
}

impl Live {
    /// Reads them. An error says what could not be read, if nothing can be compared without it.
    pub async fn read(cluster: &Cluster, file: &TracePipeline) -> Result<Self, Error> {
        let found = match cluster.pipeline(&file.name_any()).await {
            Ok(found) => Some(found),
            Err(Error::Missing { .. }) => None,
            Err(error) => return Err(error),
        };
        let workload = cluster.workload(file).await?;
        let Some(found) = found else {
            let (unresolved, edge, claims) = (Unresolved::default(), Ok(None), Ok(Vec::new()));
            return Ok(Self { pipeline: None, unresolved, workload, edge, claims });
        };
        let connections = connections(cluster, &found).await?;
        let (pipeline, unresolved) =
            resolved(&found, |name| connections.get(name).cloned().unwrap_or(ConnectionSeen::Missing));
        let pipeline = pipeline.into_owned();
        let has_edge = pipeline.spec.edge.is_some() || file.spec.edge.is_some();
        let edge = match Names::of(file).ok().filter(|_| has_edge) {
            Some(names) => cluster.edge(&names).await.map_err(|error| error.to_string()),
            None => Ok(None),
        };
        let claims = if pipeline.spec.queue == file.spec.queue {
            Ok(Vec::new())
        } else {
            cluster.claims(file).await.map_err(|error| error.to_string())
        };
        Ok(Self { pipeline: Some(pipeline), unresolved, workload, edge, claims })
    }
}

/// The connections that the pipeline in the cluster references, by name.
async fn connections(
    cluster: &Cluster,
    pipeline: &TracePipeline,
) -> Result<BTreeMap<String, ConnectionSeen>, Error> {
    let mut found = BTreeMap::new();
    for name in references(&pipeline.spec) {
        if found.contains_key(name) {
            continue;
        }
        let seen = match cluster.connection(name).await? {
            Some(connection) => ConnectionSeen::Known(Box::new(connection.spec)),
            None => ConnectionSeen::Missing,
        };
        found.insert(name.to_owned(), seen);
    }
    Ok(found)
}
