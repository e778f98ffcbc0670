//! Everything that there is: each object of each kind that the API server lists, of the cluster and of one namespace.
//!
//! Job: what a test leaves behind is what is there after it and was not before, whatever it is called. Limits: events come and go by
//! themselves and are left out.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};

use super::Namespace;

/// Lists at the same time.
const LISTS_MAX: usize = 8;

/// Kinds of which objects come and go by themselves, or only seem to be there.
const LEFT_OUT: [&str; 2] = ["Event", "ComponentStatus"];

impl Namespace {
    /// Kind and name of all that is in no namespace, and of all that is in this one.
    pub async fn inventory(&self) -> Result<BTreeSet<String>> {
        let client = self.cluster().client();
        let found = Discovery::new(client.clone())
            .run_aggregated()
            .await
            .context("ask for the kinds that there are")?;
        let kinds = found.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
        let listed = kinds.filter(|(kind, capabilities)| {
            capabilities.supports_operation(verbs::LIST) && !LEFT_OUT.contains(&kind.kind.as_str())
        });
        let apis: Vec<(ApiResource, Api<DynamicObject>)> = listed
            .map(|(kind, capabilities)| {
                let api = match capabilities.scope {
                    Scope::Cluster => Api::all_with(client.clone(), &kind),
                    Scope::Namespaced => Api::namespaced_with(client.clone(), self.name(), &kind),
                };
                (kind, api)
            })
            .collect();
        let names = stream::iter(apis).map(|(kind, api)| names(kind, api));
        let names: Vec<Vec<String>> = names.buffer_unordered(LISTS_MAX).try_collect().await?;
        Ok(names.into_iter().flatten().collect())
    }
}

async fn names(kind: ApiResource, api: Api<DynamicObject>) -> Result<Vec<String>> {
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.with_context(|| format!("list {}", kind.plural))?;
    Ok(listed.iter().map(|object| format!("{} {}", kind.kind, object.name_any())).collect())
}
