//! The plugin's requests for a comparison of a file with the cluster: what it only reads.

use super::{Cluster, Error};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::PersistentVolumeClaim};
use kube::{Api, api::ListParams};
use sluice_crds::{TraceConnection, TracePipeline};
use sluice_plan::{ClaimSeen, Names};

impl Cluster {
    /// The same cluster, for requests in another namespace.
    pub(crate) fn within(&self, namespace: &str) -> Self {
        Self::of(self.client.clone(), self.server.clone(), namespace.to_owned())
    }

    /// URL of the API server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The connection with this name; `None` if there is none.
    pub(crate) async fn connection(&self, name: &str) -> Result<Option<TraceConnection>, Error> {
        let all: Api<TraceConnection> = Api::namespaced(self.client.clone(), self.namespace());
        self.in_time(&format!("read the TraceConnection {name}"), all.get_opt(name)).await
    }

    /// The Deployment of the pipeline's edge; `None` if there is none.
    pub(crate) async fn edge(&self, names: &Names) -> Result<Option<Deployment>, Error> {
        let all: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace());
        let name = names.edge();
        self.in_time(&format!("read the Deployment {name}"), all.get_opt(&name)).await
    }

    /// The claims of the pipeline's queue volumes, and which of them a gateway uses.
    pub(crate) async fn claims(&self, pipeline: &TracePipeline) -> Result<Vec<ClaimSeen>, Error> {
        // A pipeline whose name makes no valid object names has no volumes.
        let Ok(names) = Names::of(pipeline) else { return Ok(Vec::new()) };
        let pods = self.gateways(pipeline).await?;
        let all: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.namespace());
        let of_it = ListParams::default().labels(&names.selector_text());
        let claims = self.in_time("list the claims of queue volumes", all.list(&of_it)).await?.items;
        let prefix = names.claim_prefix();
        Ok(claims.iter().filter_map(|claim| ClaimSeen::of(claim, &prefix, &pods)).collect())
    }
}
