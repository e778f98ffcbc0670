//! The plugin's requests for a pod of its own: what it is made from, the pod itself, its log and its end.

use super::{Cluster, Error};
use crate::request_error::{is_lasting, is_missing, is_refusal};
use futures::AsyncBufRead;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{Event, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, PostParams},
};
use sluice_crds::TracePipeline;
use sluice_plan::Names;
use std::pin::Pin;

/// The log of a container, as it comes.
pub(crate) type LogReader = Pin<Box<dyn AsyncBufRead + Send>>;

/// A right in the namespace: a verb, and a resource with its subresource.
pub(crate) type Right = (&'static str, &'static str, Option<&'static str>);

impl Cluster {
    /// The StatefulSet of the pipeline's gateways; `None` if there is none yet.
    pub(crate) async fn workload(&self, pipeline: &TracePipeline) -> Result<Option<StatefulSet>, Error> {
        // A pipeline whose name makes no valid object names has no gateways.
        let Ok(names) = Names::of(pipeline) else { return Ok(None) };
        let all: Api<StatefulSet> = Api::namespaced(self.client.clone(), self.namespace());
        let name = names.gateway();
        self.in_time(&format!("read the StatefulSet {name}"), all.get_opt(&name)).await
    }

    /// Those of the rights on pods that the user lacks. If the API server does not say, a right counts as given: the request itself will
    /// tell.
    pub(crate) async fn lacking(&self, rights: &[Right]) -> Vec<String> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let mut lacking = Vec::new();
        for (verb, resource, subresource) in rights {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(self.namespace().to_owned()),
                        verb: Some((*verb).to_owned()),
                        resource: Some((*resource).to_owned()),
                        subresource: subresource.map(str::to_owned),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let how = PostParams::default();
            let asked = self.in_time("ask for your rights", reviews.create(&how, &review)).await;
            if asked.is_ok_and(|review| review.status.is_some_and(|status| !status.allowed)) {
                let of = subresource.map(|part| format!("/{part}")).unwrap_or_default();
                lacking.push(format!("{verb} {resource}{of}"));
            }
        }
        lacking
    }

    /// Makes a pod.
    pub(crate) async fn create_pod(&self, pod: &Pod) -> Result<(), Error> {
        let (all, how) = (self.of_pods(), PostParams::default());
        self.in_time(&format!("create the pod {}", pod.name_any()), all.create(&how, pod)).await.map(drop)
    }

    /// The pod with its present status.
    pub(crate) async fn pod(&self, name: &str) -> Result<Pod, Error> {
        let all = self.of_pods();
        let found = self.in_time(&format!("read the pod {name}"), all.get_opt(name)).await?;
        found.ok_or_else(|| self.missing(format!("pod {name}")))
    }

    /// Deletes a pod, if it is there.
    pub(crate) async fn delete_pod(&self, name: &str) -> Result<(), Error> {
        let (all, how) = (self.of_pods(), DeleteParams::default());
        match self.in_time(&format!("delete the pod {name}"), all.delete(name, &how)).await {
            Err(Error::Ask { source, .. }) if is_missing(&source) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// The newest warning about a pod; `None` also if the user may not read events.
    pub(crate) async fn warning(&self, pod: &str) -> Option<String> {
        let all: Api<Event> = Api::namespaced(self.client.clone(), self.namespace());
        let of_it = ListParams::default().fields(&format!("involvedObject.name={pod},type=Warning"));
        let mut events = self.in_time("list events", all.list(&of_it)).await.ok()?.items;
        events.sort_by_key(|event| event.last_timestamp.clone());
        let newest = events.pop()?;
        Some(format!("{}: {}", newest.reason.unwrap_or_default(), newest.message.unwrap_or_default()))
    }

    /// The log of a container from its beginning, also what is still to come. The stream ends with the container. Without a limit of
    /// time: the kubelet answers with the first line.
    pub(crate) async fn log(&self, pod: &str, container: &str) -> Result<LogReader, Error> {
        // Named, because a webhook may have added containers: the API server does not choose among several.
        let how = LogParams { container: Some(container.to_owned()), follow: true, ..LogParams::default() };
        match self.of_pods().log_stream(pod, &how).await {
            Ok(log) => Ok(Box::pin(log)),
            Err(source) if is_missing(&source) => Err(self.missing(format!("pod {pod}"))),
            Err(source) => Err(self.failed(&format!("read the log of {pod}"), source)),
        }
    }
}

impl Error {
    /// Whether the API server may have done what was asked although the request failed.
    pub(crate) fn may_be_done(&self) -> bool {
        !matches!(self, Self::Ask { source, .. } if is_refusal(source))
    }

    /// Whether the same request would fail again.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Ask { source, .. } => is_lasting(source),
            Self::Late { .. } | Self::LogBroken { .. } => false,
            _ => true,
        }
    }
}
