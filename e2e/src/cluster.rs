//! The Kubernetes cluster as the tests use it: apply, look, wait, kill, collect.
//!
//! Job: fixtures and questions for the end-to-end tests, on any cluster that a kubeconfig leads to. Place in the flow: under
//! `pipeline` and the tests. Owner: the test. Limits: nothing here waits without a deadline, and a deadline that passes
//! says what was seen last.
//!
//! Pods are reached through the API server only (logs, deletion, [`Pods::metrics`] by its pod proxy), since a pod's address
//! need not be reachable from here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use serde_json::Value;

mod evidence;
mod inventory;
mod namespace;
mod nodes;
mod operator;
mod pods;
mod wait;

pub use evidence::{Evidence, logs_folder};
pub use namespace::{Namespace, gateway_selector, pipeline_selector};
pub use operator::{OPERATOR_NAMESPACE, Operator, Paused};
pub use pods::{Pods, metric_sum};
pub use wait::{Seen, until};

/// Field manager of everything that the tests apply.
const FIELD_MANAGER: &str = "sluice-e2e";

/// Longest time for one request to the API server. A watch is never used, so nothing legitimate takes longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    /// The cluster of the kubeconfig file's current context.
    pub async fn connect(kubeconfig: &Path) -> Result<Cluster> {
        let file =
            Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let mut config = config.with_context(|| format!("understand {}", kubeconfig.display()))?;
        config.read_timeout = Some(REQUEST_TIMEOUT);
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        // The client's own retries of 429, 503 and 504 go on for minutes; here every wait has a deadline of its own.
        config.default_retry = false;
        let client = Client::try_from(config).context("make a Kubernetes client")?;
        client
            .apiserver_version()
            .await
            .with_context(|| format!("ask the cluster of {}", kubeconfig.display()))?;
        Ok(Cluster { client })
    }

    /// The client, for typed questions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Applies `object` on the server's side, as the only owner of the fields it has. A refusal carries the server's words.
    pub async fn apply(&self, object: &Value) -> Result<DynamicObject> {
        self.apply_with(object, &PatchParams::apply(FIELD_MANAGER).force()).await
    }

    /// The same, and a field that the definition does not know is refused, not dropped.
    pub async fn apply_strictly(&self, object: &Value) -> Result<DynamicObject> {
        self.apply_with(object, &PatchParams::apply(FIELD_MANAGER).force().validation_strict()).await
    }

    async fn apply_with(&self, object: &Value, parameters: &PatchParams) -> Result<DynamicObject> {
        let (api, name) = self.api_of(object).await?;
        let applied = api.patch(&name, parameters, &Patch::Apply(object)).await;
        applied.with_context(|| format!("apply {} {name}", text_at(object, "/kind")))
    }

    /// Deletes `object`. One that is gone already is fine.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api_of(object).await?;
        match api.delete(&name, &DeleteParams::background()).await {
            Err(error) if !is_missing(&error) => {
                Err(error).with_context(|| format!("delete {} {name}", text_at(object, "/kind")))
            }
            _ => Ok(()),
        }
    }

    /// The API and the name of an object with `apiVersion`, `kind` and `metadata`.
    async fn api_of(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let api_version = text_at(object, "/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, text_at(object, "/kind"));
        let resource = self.resource(&kind).await?;
        let name = text_at(object, "/metadata/name").to_owned();
        let api = match object.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        };
        Ok((api, name))
    }

    async fn resource(&self, kind: &GroupVersionKind) -> Result<ApiResource> {
        let found = discovery::pinned_kind(&self.client, kind).await;
        let (resource, _) = found.with_context(|| format!("the cluster does not know {kind:?}"))?;
        Ok(resource)
    }
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// True when the API server said that there is no such object.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
