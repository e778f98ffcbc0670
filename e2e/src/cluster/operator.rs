//! The installed operator.
//!
//! Job: find it, kill it, wait until it works again. Place in the flow: tests of restarts. Limits: found by its label in one
//! namespace, so that any release name will do.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};

use super::{Cluster, Pods, Seen, until};

/// Namespace that the chart is installed into.
pub const OPERATOR_NAMESPACE: &str = "sluice-system";

/// Label of the operator's Deployment and pods.
const OPERATOR_SELECTOR: &str = "app.kubernetes.io/name=sluice-operator";

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
