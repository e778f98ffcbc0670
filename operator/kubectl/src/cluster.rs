//! The plugin's requests to a cluster: it reads pipelines, asks and commands their gateways, and runs programs in their pods.
//!
//! The plugin reads from gateways through the pod proxy of the API server. It sends commands over a port-forward, which ends inside the
//! pod: from outside of the pod, gateways accept commands only from the operator.
//!
//! Limits: [`ASK_SECONDS`] for one gateway, [`ASKED_MAX`] gateways at the same time. The largest answer is a gateway's `/metrics`: two
//! lines of 100 bytes for each partition, and the rest.

mod compared;
mod own_pod;

pub(crate) use own_pod::Right;

use crate::{
    exchange,
    exit_codes::{EXIT_MISSING, EXIT_UNAVAILABLE},
    kubeconfig, request_error,
};
use futures::{StreamExt as _, stream};
use hyper::{Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{AttachParams, AttachedProcess, ListParams, Patch, PatchParams},
    client::UpgradeConnectionError,
    config::KubeConfigOptions,
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_gateway_config::STATE_PATH;
use sluice_plan::{
    Names,
    names::{ADMIN_PORT, GATEWAY_CONTAINER, KEPT_OUT},
    pods,
};
use std::time::Duration;
use tokio::time::timeout;

/// Longest request to one gateway or to the API server, in seconds: several times what a busy node needs.
const ASK_SECONDS: u64 = 10;

/// Gateways that are asked at the same time: more would load the API server, and a person would not notice the difference.
const ASKED_MAX: usize = 16;

/// Why a command of the plugin failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no kubeconfig, or it names no cluster.
    #[error("cannot find a cluster (KUBECONFIG, ~/.kube/config): {0}")]
    Infer(String),
    /// The context is not in the kubeconfig.
    #[error("cannot use the context {context:?}: {why}")]
    Context { context: String, why: String },
    /// A request to the API server failed.
    #[error("cannot {what}: {}", request_error::words(source))]
    Ask { what: String, source: Box<kube::Error> },
    /// The cluster has no CRD of pipelines.
    #[error("the API server at {server} knows no TracePipelines: is Sluice installed there?")]
    NotInstalled { server: String },
    /// There was no answer within [`ASK_SECONDS`].
    #[error("cannot {what}: no answer within {ASK_SECONDS} s")]
    Late { what: String },
    /// The object does not exist.
    #[error("there is no {what} in the namespace {namespace}")]
    Missing { what: String, namespace: String },
    /// A command to a gateway failed, maybe after it arrived.
    #[error("cannot send POST {path} to {pod}: {source}")]
    Tell { pod: String, path: String, source: exchange::Error },
    /// The gateway refuses a command.
    #[error("{pod} answers {path} with status {status}: {words}")]
    Refused { pod: String, path: String, status: StatusCode, words: String },
    /// A gateway's answer about its drain is not the JSON that the plugin knows.
    #[error("cannot read the answer of {pod} about its drain: {source}")]
    Drain { pod: String, source: serde_json::Error },
    /// The user may not do what the command needs.
    #[error("you lack rights in the namespace {namespace}: {rights}")]
    NoRights { rights: String, namespace: String },
    /// The pipeline has no gateways' template that a pod can be made from.
    #[error("the pipeline {name} has no StatefulSet of gateways to make the pod from: {why}")]
    NoWorkload { name: String, why: String },
    /// The pod's program did not start in time.
    #[error("{pod} has not started, and is deleted: {words}")]
    NotStarted { pod: String, words: String },
    /// Something else than the program ended the pod.
    #[error("{pod} was ended before its program was done: {why}")]
    Killed { pod: String, why: String },
    /// Neither the program nor the kubelet has ended the pod.
    #[error("{pod} has not ended within {seconds} s: does its node answer?")]
    NotEnded { pod: String, seconds: u64 },
    /// The connection broke, or nothing came, while the log of a pod was read.
    #[error("cannot read the log of {pod} to its end: {source}")]
    LogBroken { pod: String, source: std::io::Error },
    /// An audit has ended, but its log cannot be read. The pod stays, because only its log has the result.
    #[error(
        "the audit ended with code {code}, but its log cannot be read: {why}. Its pod is kept: {commands}"
    )]
    LogUnread { code: u8, why: String, commands: String },
    /// An audit has ended with a result, which its log does not have.
    #[error(
        "the log is incomplete: the audit ended with code {code}, but the log has no result. If the kubelet rotated it, audit fewer \
         partitions (--partition)"
    )]
    LogIncomplete { code: u8 },
    /// A signal cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// Standard output or standard error cannot be written to.
    #[error("cannot write the output: {0}")]
    Write(#[source] std::io::Error),
}

impl Error {
    /// The exit status.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing { .. } | Self::NoWorkload { .. } => EXIT_MISSING,
            _ => EXIT_UNAVAILABLE,
        }
    }
}

/// The answer of one gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The gateway's pod.
    pub pod: String,
    /// The metrics in Prometheus' text format, or the state; or why there is no answer.
    pub text: Result<String, String>,
}

/// One namespace of a cluster.
pub struct Cluster {
    client: Client,
    /// URL of the API server.
    server: String,
    namespace: String,
}

/// Pipelines of a namespace.
pub struct Listed {
    /// The readable pipelines, by name.
    pub pipelines: Vec<TracePipeline>,
    /// One line for each other pipeline: its name, and why it cannot be read. Another version of Sluice may have more fields or values.
    pub unread: Vec<String>,
}

impl Error {
    /// Whether the command may have reached the gateway although it failed.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, Self::Tell { .. } | Self::Late { .. })
    }
}

impl Cluster {
    /// Reads the kubeconfig or the pod's service account. It sends no request yet.
    pub async fn connect(context: Option<&str>, namespace: Option<&str>) -> Result<Self, Error> {
        let mut config = match context {
            None => Config::infer().await.map_err(|error| Error::Infer(kubeconfig::words(&error)))?,
            Some(context) => {
                let options =
                    KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
                let failed =
                    |error| Error::Context { context: context.to_owned(), why: kubeconfig::words(&error) };
                Config::from_kubeconfig(&options).await.map_err(failed)?
            }
        };
        // A person waits at the terminal: show the error at once instead of retrying.
        config.default_retry = false;
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|source| Error::Ask {
            what: "connect to the cluster".into(),
            source: Box::new(source),
        })?;
        Ok(Self::of(client, server, namespace))
    }

    /// A namespace that this client reaches at this URL.
    pub fn of(client: Client, server: String, namespace: String) -> Self {
        Self { client, server, namespace }
    }

    /// The namespace of all requests.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// All pipelines, by name.
    pub async fn pipelines(&self) -> Result<Listed, Error> {
        let kind = ApiResource::erase::<TracePipeline>(&());
        let all: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        let listed = match self.in_time("list the pipelines", all.list(&ListParams::default())).await {
            Err(Error::Ask { source, .. }) if request_error::is_missing(&source) => {
                return Err(Error::NotInstalled { server: self.server.clone() });
            }
            listed => listed?,
        };
        let mut found = Listed { pipelines: Vec::new(), unread: Vec::new() };
        for object in listed.items {
            let name = object.name_any();
            match object.try_parse() {
                Ok(pipeline) => found.pipelines.push(pipeline),
                Err(error) => found.unread.push(format!(
                    "{}/{name}: this version of kubectl sluice cannot read it: {error}",
                    self.namespace
                )),
            }
        }
        Ok(found)
    }

    /// The pipeline with this name.
    pub async fn pipeline(&self, name: &str) -> Result<TracePipeline, Error> {
        let pipelines = self.of_pipelines();
        let found = self.in_time(&format!("read the pipeline {name}"), pipelines.get_opt(name)).await?;
        found.ok_or_else(|| self.missing(format!("pipeline {name}")))
    }

    /// The metrics of each gateway of the pipeline, by name.
    pub async fn metrics(&self, pipeline: &TracePipeline) -> Result<Vec<Said>, Error> {
        self.said(pipeline, "/metrics").await
    }

    /// The state of every gateway of a pipeline, or why there is none.
    pub async fn states(&self, pipeline: &TracePipeline) -> Result<Vec<Said>, Error> {
        self.said(pipeline, STATE_PATH).await
    }

    /// What every gateway of a pipeline answers at a path.
    async fn said(&self, pipeline: &TracePipeline, path: &str) -> Result<Vec<Said>, Error> {
        let pods = self.gateways(pipeline).await?;
        let names = pods.iter().map(ResourceExt::name_any);
        let said = stream::iter(names).map(|pod| async move {
            let text = self.ask(&pod, path).await.map_err(|error| error.to_string());
            Said { pod, text }
        });
        Ok(said.buffered(ASKED_MAX).collect().await)
    }

    /// Gateways that can read all dead letters of a pipeline between them: with a topic, one; with `source.otlp` every running one, since each
    /// has its own on its volume.
    pub async fn with_letters(&self, pipeline: &TracePipeline) -> Result<Vec<String>, Error> {
        if pipeline.spec.source.otlp.is_none() {
            return Ok(vec![self.a_gateway(pipeline).await?]);
        }
        let pods = self.gateways(pipeline).await?;
        let running = pods.iter().filter(|pod| pods::is_running(pod)).map(ResourceExt::name_any);
        let running: Vec<String> = running.collect();
        if running.is_empty() {
            return Err(self.missing(format!("running gateway of {}", pipeline.name_any())));
        }
        Ok(running)
    }

    /// A ready gateway, else any running one.
    async fn a_gateway(&self, pipeline: &TracePipeline) -> Result<String, Error> {
        let pods = self.gateways(pipeline).await?;
        let ready = pods.iter().find(|pod| pods::is_ready(pod));
        let found = ready.or_else(|| pods.iter().find(|pod| pods::is_running(pod)));
        let none = || self.missing(format!("running gateway of {}", pipeline.name_any()));
        found.map(ResourceExt::name_any).ok_or_else(none)
    }

    /// Gets a path of a gateway's admin port through the API server.
    pub async fn ask(&self, pod: &str, path: &str) -> Result<String, Error> {
        let what = format!("get {path} of {pod}");
        let uri = format!("/api/v1/namespaces/{}/pods/{pod}:{ADMIN_PORT}/proxy{path}", self.namespace);
        let request = Request::get(uri).body(Vec::new());
        let request = request.map_err(|source| self.failed(&what, kube::Error::HttpError(source)))?;
        match self.in_time(&what, self.client.request_text(request)).await {
            Err(Error::Ask { source, .. }) if request_error::is_missing(&source) => {
                Err(self.missing(format!("pod {pod}")))
            }
            answer => answer,
        }
    }

    /// Sends a command to a gateway through a port-forward.
    pub async fn tell(&self, pod: &str, path: &str) -> Result<String, Error> {
        let told = timeout(Duration::from_secs(ASK_SECONDS), self.post(pod, path)).await;
        told.unwrap_or_else(|_| Err(Error::Late { what: format!("send POST {path} to {pod}") }))
    }

    async fn post(&self, pod: &str, path: &str) -> Result<String, Error> {
        let port = u16::try_from(ADMIN_PORT).expect("it is the number of a port");
        let mut forwarded =
            self.of_pods().portforward(pod, &[port]).await.map_err(|source| match source {
                kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(
                    StatusCode::NOT_FOUND,
                )) => self.missing(format!("pod {pod}")),
                source => self.failed(&format!("forward a port to {pod}"), source),
            })?;
        let stream = forwarded.take_stream(port).expect("it was asked for, and is taken once");
        let answer = exchange::post(stream, path).await;
        forwarded.abort();
        let (pod, path) = (pod.to_owned(), path.to_owned());
        match answer {
            Ok((status, body)) if status.is_success() => Ok(String::from_utf8_lossy(&body).into_owned()),
            Ok((status, body)) => {
                let words = String::from_utf8_lossy(&body).trim_end().to_owned();
                Err(Error::Refused { pod, path, status, words })
            }
            Err(source) => Err(Error::Tell { pod, path, source }),
        }
    }

    /// Adds or removes the annotation [`KEPT_OUT`] of a pod. The operator resumes a gateway that drains without it.
    pub async fn keep_out(&self, pod: &str, is_kept_out: bool) -> Result<(), Error> {
        let mark = if is_kept_out { Value::from("true") } else { Value::Null };
        let change = json!({"metadata": {"annotations": {KEPT_OUT: mark}}});
        let how = PatchParams { field_manager: Some("kubectl-sluice".into()), ..PatchParams::default() };
        let (pods, patch) = (self.of_pods(), Patch::Merge(&change));
        match self.in_time(&format!("annotate the pod {pod}"), pods.patch_metadata(pod, &how, &patch)).await {
            Ok(_) => Ok(()),
            Err(Error::Ask { source, .. }) if request_error::is_missing(&source) => {
                Err(self.missing(format!("pod {pod}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Starts a program in a gateway's container. The caller reads its output.
    pub async fn execute(&self, pod: &str, words: &[String]) -> Result<AttachedProcess, Error> {
        let how = AttachParams::default().container(GATEWAY_CONTAINER).stdin(false).stdout(true).stderr(true);
        let pods = self.of_pods();
        self.in_time(&format!("run {} in {pod}", words.join(" ")), pods.exec(pod, words, &how)).await
    }

    async fn gateways(&self, pipeline: &TracePipeline) -> Result<Vec<Pod>, Error> {
        // A pipeline whose name makes no valid object names has no gateways.
        let Ok(names) = Names::of(pipeline) else { return Ok(Vec::new()) };
        let of_it = ListParams::default().labels(&names.selector_text());
        let all = self.of_pods();
        let mut pods = self.in_time("list the gateways", all.list(&of_it)).await?.items;
        pods.sort_by_key(pods::ordinal);
        Ok(pods)
    }

    fn of_pipelines(&self) -> Api<TracePipeline> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn of_pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The API server's answer, or [`Error::Late`] after [`ASK_SECONDS`].
    async fn in_time<T>(
        &self,
        what: &str,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        match timeout(Duration::from_secs(ASK_SECONDS), answer).await {
            Ok(answer) => answer.map_err(|source| self.failed(what, source)),
            Err(_) => Err(Error::Late { what: self.there(what) }),
        }
    }

    fn failed(&self, what: &str, source: kube::Error) -> Error {
        Error::Ask { what: self.there(what), source: Box::new(source) }
    }

    fn there(&self, what: &str) -> String {
        format!("{what} in the namespace {} at {}", self.namespace, self.server)
    }

    /// The error that the namespace has no such object.
    pub fn missing(&self, what: String) -> Error {
        Error::Missing { what, namespace: self.namespace.clone() }
    }
}
