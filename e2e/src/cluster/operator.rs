//! The installed operator.
//!
//! Job: find it, kill it, let it rest, wait until it works again. Place in the flow: tests of restarts. Limits: found by its label in one
//! namespace, so that any release name will do.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};

use super::{Cluster, Pods, Seen, until};

/// Namespace that the chart is installed into.
pub const OPERATOR_NAMESPACE: &str = "sluice-system";

/// Label of the operator's Deployment and pods.
const OPERATOR_SELECTOR: &str = "app.kubernetes.io/name=sluice-operator";

/// How long pods of it may take to come or to go: their grace period is 40 s.
const SCALED: Duration = Duration::from_mins(3);

/// The operator's Deployment and pods.
#[derive(Clone)]
pub struct Operator {
    cluster: Cluster,
}

impl Operator {
    /// The operator of `cluster`; an error tells when there is none.
    pub async fn find(cluster: &Cluster) -> Result<Operator> {
        let operator = Operator { cluster: cluster.clone() };
        operator.deployment().await?;
        Ok(operator)
    }

    /// Its Deployment.
    pub async fn deployment(&self) -> Result<Deployment> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client(), OPERATOR_NAMESPACE);
        let found = api
            .list(&ListParams::default().labels(OPERATOR_SELECTOR))
            .await
            .context("list Deployments")?
            .items;
        match <[Deployment; 1]>::try_from(found) {
            Ok([deployment]) => Ok(deployment),
            Err(found) => bail!(
                "{} Deployments with label {OPERATOR_SELECTOR} in namespace {OPERATOR_NAMESPACE}, expected one: \
                 `cargo verify` installs the operator",
                found.len()
            ),
        }
    }

    /// Its pods.
    pub fn pods(&self) -> Pods {
        Pods::new(&self.cluster, OPERATOR_NAMESPACE, OPERATOR_SELECTOR)
    }

    /// Kills all its pods at once and waits until as many others are available.
    pub async fn kill_and_wait(&self, deadline: Duration) -> Result<()> {
        let old = self.pods().uids().await?;
        for name in old.keys() {
            self.pods().kill(name).await?;
        }
        until("operator available again after its pods were killed", deadline, async || {
            let new = self.pods().uids().await?;
            let deployment = self.deployment().await?;
            let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let available = status.available_replicas.unwrap_or(0);
            let replaced = new.values().all(|uid| !old.values().any(|gone| gone == uid));
            Ok(if replaced && available == wanted {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{available} of {wanted} available, pods {:?}", new.keys()))
            })
        })
        .await
    }
}

/// An installed operator that was told to rest.
pub struct Paused {
    operator: Option<(Operator, i32)>,
}

impl Operator {
    /// Takes the installed operator's pods away, where there is one, until [`Paused::resume`].
    pub async fn pause_installed(cluster: &Cluster) -> Result<Paused> {
        let Ok(operator) = Operator::find(cluster).await else { return Ok(Paused { operator: None }) };
        let replicas = operator.deployment().await?.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        operator.scale(0).await?;
        Ok(Paused { operator: Some((operator, replicas)) })
    }

    async fn scale(&self, replicas: i32) -> Result<()> {
        let name = self.deployment().await?.name_any();
        let api: Api<Deployment> = Api::namespaced(self.cluster.client(), OPERATOR_NAMESPACE);
        let scale = Patch::Merge(serde_json::json!({"spec": {"replicas": replicas}}));
        let scaled = api.patch_scale(&name, &PatchParams::default(), &scale).await;
        scaled.with_context(|| format!("scale the Deployment {name} to {replicas}"))?;
        until(&format!("{replicas} pods of the operator"), SCALED, async || {
            let pods = self.pods().list().await?.len();
            let available = self.deployment().await?.status.and_then(|status| status.available_replicas);
            let is_so = i32::try_from(pods) == Ok(replicas) && available.unwrap_or(0) == replicas;
            Ok(if is_so {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{pods} pods, {available:?} available"))
            })
        })
        .await
    }
}

impl Paused {
    /// Brings its pods back and waits for them.
    pub async fn resume(self) -> Result<()> {
        match self.operator {
            Some((operator, replicas)) => operator.scale(replicas).await,
            None => Ok(()),
        }
    }
}
