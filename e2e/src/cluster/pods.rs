//! The pods of one label selector.
//!
//! Job: list, kill, read logs and metrics. Place in the flow: `Namespace::gateways` and `Operator::pods` make one. Limits:
//! the images have no shell, so nothing is ever executed inside a pod.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, LogParams};

use super::{Cluster, is_missing};

/// Pods of one namespace that a label selector picks.
#[derive(Clone)]
pub struct Pods {
    cluster: Cluster,
    namespace: String,
    selector: String,
}

impl Pods {
    /// The pods in `namespace` that `selector` picks; an empty selector picks all.
    pub fn new(cluster: &Cluster, namespace: &str, selector: &str) -> Pods {
        Pods { cluster: cluster.clone(), namespace: namespace.to_owned(), selector: selector.to_owned() }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// All of them, sorted by name.
    pub async fn list(&self) -> Result<Vec<Pod>> {
        let listed = self.api().list(&ListParams::default().labels(&self.selector)).await;
        let mut pods =
            listed.with_context(|| format!("list pods {} in {}", self.selector, self.namespace))?.items;
        pods.sort_by_key(ResourceExt::name_any);
        Ok(pods)
    }

    /// Names and UIDs, to tell a new pod from an old one of the same name.
    pub async fn uids(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.list().await?;
        Ok(pods.iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
    }

    /// How often the containers of pod `name` were started again.
    pub async fn restarts(&self, name: &str) -> Result<i32> {
        let pod = self.api().get(name).await.with_context(|| format!("get pod {name}"))?;
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        Ok(statuses.iter().map(|container| container.restart_count).sum())
    }

    /// Kills pod `name` at once, without the time to drain that a deletion usually gives.
    pub async fn kill(&self, name: &str) -> Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.remove(name, &at_once).await
    }

    /// Deletes pod `name` the usual way: SIGTERM and its grace period.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.remove(name, &DeleteParams::default()).await
    }

    async fn remove(&self, name: &str, parameters: &DeleteParams) -> Result<()> {
        match self.api().delete(name, parameters).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("delete pod {name}")),
        }
    }

    /// What container `container` of pod `name` wrote; `previous` for the run before its last restart.
    pub async fn logs(&self, name: &str, container: &str, previous: bool) -> Result<String> {
        let parameters =
            LogParams { container: Some(container.to_owned()), previous, ..LogParams::default() };
        self.api().logs(name, &parameters).await.with_context(|| format!("read the log of pod {name}"))
    }

    /// The text of `/metrics` of pod `name`, through the API server's pod proxy. Without a port in the path the API server
    /// takes the first that a container of the pod names, which is the admin port of gateways and operators alike.
    pub async fn metrics(&self, name: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{}/pods/{name}/proxy/metrics", self.namespace);
        let request = hyper::Request::get(&path)
            .body(Vec::new())
            .with_context(|| format!("make a request of {path}"))?;
        self.cluster
            .client()
            .request_text(request)
            .await
            .with_context(|| format!("read the metrics of pod {name}"))
    }
}

/// The sum over all label sets of metric `name` in a `/metrics` text; none when there is no such metric.
pub fn metric_sum(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.as_bytes().first()? {
            b'{' => rest.rsplit_once('}')?.1,
            b' ' => rest,
            _ => return None,
        };
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# HELP rows_total Rows.\nrows_total{table=\"a\"} 2\nrows_total{table=\"b} c\"} 3.5\n\
                    rows_total_created 9\nplain 7\n";
        assert_eq!(metric_sum(text, "rows_total"), Some(5.5));
        assert_eq!(metric_sum(text, "plain"), Some(7.0));
        assert_eq!(metric_sum(text, "rows"), None);
    }
}
