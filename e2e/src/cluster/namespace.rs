//! A namespace of a test: enforces restricted pod security, and is removed with everything in it.
//!
//! Job: the fixture in which a test's pipeline runs. Place in the flow: made first, removed last. Owner: the test.

use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Namespace as Object;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sluice_crds::TracePipeline;

use super::{Cluster, Pods, Seen, is_missing, until};

/// Longest time until everything of a namespace is gone: pods get their grace period of at most a minute.
const GONE_DEADLINE: Duration = Duration::from_mins(3);

/// A namespace of a test.
#[derive(Clone)]
pub struct Namespace {
    cluster: Cluster,
    name: String,
}

impl Namespace {
    /// Makes namespace `name`, in which only pods of the restricted pod security standard may run.
    pub async fn create(cluster: &Cluster, name: &str) -> Result<Namespace> {
        let namespace = Namespace { cluster: cluster.clone(), name: name.to_owned() };
        let labels = json!({
            "app.kubernetes.io/managed-by": "sluice-e2e",
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/enforce-version": "latest",
        });
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        cluster.apply(&object).await?;
        namespace.wait_for_service_account().await?;
        Ok(namespace)
    }

    /// A namespace that is there already, or was.
    pub fn named(cluster: &Cluster, name: &str) -> Namespace {
        Namespace { cluster: cluster.clone(), name: name.to_owned() }
    }

    /// Pods cannot be made before the default service account is there.
    async fn wait_for_service_account(&self) -> Result<()> {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = self.api();
        until(&format!("service account of namespace {}", self.name), Duration::from_mins(1), async || {
            let found = accounts.get_opt("default").await.context("get service account default")?;
            Ok(found.map_or_else(|| Seen::NotYet("none".to_owned()), |_| Seen::Done(())))
        })
        .await
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Typed access to objects of this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + DeserializeOwned,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client(), &self.name)
    }

    /// All objects of a kind that `selector` picks.
    pub async fn list<K>(&self, selector: &str) -> Result<Vec<K>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let listed = self.api::<K>().list(&ListParams::default().labels(selector)).await;
        Ok(listed.with_context(|| format!("list objects {selector} in {}", self.name))?.items)
    }

    /// Applies `object` into this namespace.
    pub async fn apply(&self, object: &Value) -> Result<DynamicObject> {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.name);
        self.cluster.apply(&object).await
    }

    /// Makes or changes the Secret of a user.
    pub async fn apply_credentials(&self, name: &str, user: &str, password: &str) -> Result<()> {
        self.apply_secret(name, &[("username", user), ("password", password)]).await
    }

    /// Makes or changes a Secret with these keys and nothing else.
    pub async fn apply_secret(&self, name: &str, content: &[(&str, &str)]) -> Result<()> {
        let data: Map<String, Value> =
            content.iter().map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text)))).collect();
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        self.apply(&object).await.map(drop)
    }

    /// The gateways' pods of pipeline `pipeline`.
    pub fn gateways(&self, pipeline: &str) -> Pods {
        Pods::new(&self.cluster, &self.name, &gateway_selector(pipeline))
    }

    /// Removes the namespace: first the pipelines, without waiting for their gateways to be drained, since there may be no operator
    /// that does it; then all else.
    pub async fn delete(&self) -> Result<()> {
        let pipelines = self.api::<TracePipeline>();
        match pipelines.delete_collection(&DeleteParams::default(), &ListParams::default()).await {
            Ok(_) => {
                self.let_pipelines_go().await?;
                self.wait_without_pipelines().await?;
            }
            // A cluster that does not know the kind has none.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error).context("delete the pipelines"),
        }
        self.delete_itself().await
    }

    /// Takes the finalizers off pipelines that are deleted; nobody can add one any more.
    async fn let_pipelines_go(&self) -> Result<()> {
        let pipelines = self.api::<TracePipeline>();
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let held = match pipelines.list_metadata(&ListParams::default()).await {
            // The last of them took its definition along, which was deleted, too.
            Err(error) if is_missing(&error) => return Ok(()),
            held => held.context("list pipelines")?.items,
        };
        for held in held {
            match pipelines.patch_metadata(&held.name_any(), &PatchParams::default(), &free).await {
                Err(error) if !is_missing(&error) => {
                    return Err(error).with_context(|| format!("let pipeline {} go", held.name_any()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn wait_without_pipelines(&self) -> Result<()> {
        let pipelines = self.api::<TracePipeline>();
        until(&format!("end of the pipelines in {}", self.name), GONE_DEADLINE, async || {
            let left = match pipelines.list(&ListParams::default()).await {
                Err(error) if is_missing(&error) => return Ok(Seen::Done(())),
                left => left.context("list pipelines")?.items,
            };
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{} left", left.len())) })
        })
        .await
    }

    async fn delete_itself(&self) -> Result<()> {
        let namespaces: Api<Object> = Api::all(self.cluster.client());
        match namespaces.delete(&self.name, &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => {
                return Err(error).with_context(|| format!("delete namespace {}", self.name));
            }
            _ => {}
        }
        until(&format!("end of namespace {}", self.name), GONE_DEADLINE, async || {
            let found = namespaces.get_opt(&self.name).await.context("get the namespace")?;
            Ok(found.map_or(Seen::Done(()), |left| Seen::NotYet(format!("{:?}", left.status))))
        })
        .await
    }
}

/// Label selector of a pipeline's gateways.
pub fn gateway_selector(pipeline: &str) -> String {
    // The schema Job has the same name and instance, and another component.
    format!("{},app.kubernetes.io/component=gateway", pipeline_selector(pipeline))
}

/// Label selector of everything that belongs to a pipeline.
pub fn pipeline_selector(pipeline: &str) -> String {
    format!("app.kubernetes.io/name=sluice-gateway,app.kubernetes.io/instance={pipeline}")
}
