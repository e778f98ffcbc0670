//! Between the operator and the API server: passes every request on with the token of the chart's account, and counts it. It may let
//! only so many writes through: the last of them gets to the API server, its answer to nobody, and nothing gets through after it.
//!
//! Owner: the run; a task for each connection. Limits: at most [`WRITES_MAX`] writes are remembered by path, all are counted.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Writes that are remembered by path: twenty for each of five thousand pipelines.
const WRITES_MAX: usize = 100_000;

/// What a request does, in the words of Kubernetes' rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads all objects of a kind.
    List,
    /// Is told of their changes.
    Watch,
    /// Makes an object.
    Create,
    /// Server-side apply.
    Apply,
    /// Any other patch.
    Patch,
    /// Replaces an object.
    Update,
    /// Deletes.
    Delete,
}

impl Verb {
    /// Whether it may change something.
    pub fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// To what: `statefulsets`, `tracepipelines/status`.
    pub resource: String,
}

impl Call {
    /// Whether it is work: it may change something, and is neither about who leads nor only for people to read.
    pub fn works(&self) -> bool {
        self.verb.writes() && !matches!(self.resource.as_str(), "leases" | "events")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = format!("{:?}", self.verb).to_lowercase();
        write!(f, "{verb} {}", self.resource)
    }
}

/// How many requests there were of each kind.
pub type Calls = BTreeMap<Call, u64>;

/// A request that may have changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it did.
    pub call: Call,
    /// Its namespace, where it has one.
    pub namespace: Option<String>,
    /// Name of the object; none where the server or the body names it.
    pub name: Option<String>,
    /// The server's answer.
    pub status: u16,
}

#[derive(Default)]
struct Seen {
    calls: Calls,
    writes: Vec<Write>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    is_cut: AtomicBool,
    /// Writes of work that get through; `None`: all.
    works_max: Option<usize>,
    /// Those that were asked for.
    works: AtomicUsize,
    /// The last that gets through was carried out.
    last: Notify,
}

/// A request that gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    /// With its answer.
    Usual,
    /// Without its answer, and nothing after it.
    Last,
}

impl Shared {
    fn admit(&self, is_work: bool) -> Option<Passage> {
        if self.is_cut.load(Ordering::Acquire) {
            return None;
        }
        let Some(most) = self.works_max.filter(|_| is_work) else { return Some(Passage::Usual) };
        let before = self.works.fetch_add(1, Ordering::Relaxed);
        match before + 1 {
            work if work < most => Some(Passage::Usual),
            work if work == most => Some(Passage::Last),
            _ => None,
        }
    }
}

/// The front. Ends when dropped.
pub struct Front {
    url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl Front {
    /// Listens on a free port of this machine, for the cluster of the kubeconfig. At most `works_max` writes of work get through.
    pub async fn start(kubeconfig: &Path, token: String, works_max: Option<usize>) -> Result<Front> {
        let client = client(kubeconfig, token).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the operator")?;
        let url = format!("http://{}", listener.local_addr().context("ask for the front's port")?);
        let shared = Arc::new(Shared { works_max, ..Shared::default() });
        let serving = tokio::spawn(serve(listener, client, Arc::clone(&shared)));
        Ok(Front { url, shared, serving })
    }

    /// The kubeconfig that leads here.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: front\n\
             clusters: [{{name: front, cluster: {{server: \"{}\"}}}}]\n\
             contexts: [{{name: front, context: {{cluster: front, user: front}}}}]\n\
             users: [{{name: front, user: {{}}}}]\n",
            self.url
        )
    }

    /// What was asked so far.
    pub fn calls(&self) -> Calls {
        self.seen().calls.clone()
    }

    /// Every write so far, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.seen().writes.clone()
    }

    /// From now on no request gets through: the API server is away, for this operator alone.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::Release);
    }

    /// Waits until the API server has carried out the last write that gets through. Whoever asked for it does not know.
    pub async fn wait_last(&self) {
        self.shared.last.notified().await;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.shared.seen)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing of the administrator goes in but the server's address and its authority.
async fn client(kubeconfig: &Path, token: String) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| format!("understand {}", kubeconfig.display()))?;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    config.default_retry = false;
    Client::try_from(config).context("make a client with the account's token")
}

async fn serve(listener: TcpListener, client: Client, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (client, shared) = (client.clone(), Arc::clone(&shared));
        let answer = service_fn(move |request| {
            let (client, shared) = (client.clone(), Arc::clone(&shared));
            async move { Ok::<_, Infallible>(pass(request, &client, &shared).await) }
        });
        // A connection that breaks is the operator's to make again.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

async fn pass(request: Request<Incoming>, client: &Client, shared: &Shared) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let target = Target::of(&parts.method, &parts.uri, &parts.headers);
    // What arrives in part is not asked for.
    let Ok(body) = body.collect().await else { return refusal(StatusCode::BAD_REQUEST) };
    let body = body.to_bytes();
    let is_dry = is_dry(&parts.uri, &body);
    let Some(passage) = shared.admit(target.call.works() && !is_dry) else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE);
    };
    *lock(&shared.seen).calls.entry(target.call.clone()).or_default() += 1;
    let mut onward = Request::new(Body::from(body));
    *onward.method_mut() = parts.method;
    *onward.uri_mut() = parts.uri;
    copy(&parts.headers, onward.headers_mut());
    let answer = forward(onward, client).await;
    if target.call.verb.writes() && !is_dry {
        let mut seen = lock(&shared.seen);
        if seen.writes.len() < WRITES_MAX {
            seen.writes.push(target.written(answer.status()));
        }
    }
    if passage == Passage::Last {
        shared.is_cut.store(true, Ordering::Release);
        shared.last.notify_one();
        std::future::pending::<()>().await;
    }
    answer
}

/// Whether nothing is to be changed: a deletion says so in its body, everything else in its query.
fn is_dry(uri: &Uri, body: &[u8]) -> bool {
    let says_so = || {
        let options: Value = serde_json::from_slice(body).ok()?;
        options.get("dryRun").map(|_| ())
    };
    uri.query().is_some_and(|query| query.contains("dryRun=All")) || says_so().is_some()
}

async fn forward(request: Request<Body>, client: &Client) -> Response<Body> {
    match client.send(request).await {
        Ok(answer) => {
            let (parts, body) = answer.into_parts();
            let mut answer = Response::new(body);
            *answer.status_mut() = parts.status;
            copy(&parts.headers, answer.headers_mut());
            answer
        }
        Err(Error::Api(status)) => {
            refusal(StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY))
        }
        Err(_) => refusal(StatusCode::BAD_GATEWAY),
    }
}

/// Everything else is about the connection.
fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = from.get(&name) {
            to.insert(name, value.clone());
        }
    }
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// What a request is about.
struct Target {
    call: Call,
    namespace: Option<String>,
    name: Option<String>,
}

impl Target {
    fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Target {
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let resource = match rest {
            [] => "discovery".to_owned(),
            [plural] | [plural, _] => (*plural).to_owned(),
            [plural, _, subresource, ..] => format!("{plural}/{subresource}"),
        };
        let name = rest.get(1).copied();
        let is_watch = uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        let is_apply = headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH if is_apply => Verb::Apply,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if is_watch => Verb::Watch,
            _ if name.is_none() && !rest.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        Target {
            call: Call { verb, resource },
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        }
    }

    fn written(self, status: StatusCode) -> Write {
        Write { call: self.call, namespace: self.namespace, name: self.name, status: status.as_u16() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &Method, uri: &str, content_type: &str) -> (String, Option<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        let found = Target::of(method, &uri.parse().unwrap(), &headers);
        (found.call.to_string(), found.namespace, found.name)
    }

    #[test]
    fn only_so_many_writes_of_work_get_through_and_the_last_is_known() {
        let shared = Shared { works_max: Some(2), ..Shared::default() };
        let admit = |verb, resource: &str| shared.admit(Call { verb, resource: resource.to_owned() }.works());
        assert_eq!(admit(Verb::Patch, "leases"), Some(Passage::Usual));
        assert_eq!(admit(Verb::Create, "events"), Some(Passage::Usual));
        assert_eq!(admit(Verb::Apply, "configmaps"), Some(Passage::Usual));
        assert_eq!(admit(Verb::Apply, "tracepipelines/status"), Some(Passage::Last));
        assert_eq!(admit(Verb::Delete, "jobs"), None);
        assert_eq!(admit(Verb::Watch, "jobs"), Some(Passage::Usual));
        shared.is_cut.store(true, Ordering::Release);
        assert_eq!(admit(Verb::Watch, "jobs"), None);
    }

    #[test]
    fn what_changes_nothing_is_known_by_its_query_or_its_body() {
        let of = |uri: &str, body: &str| is_dry(&uri.parse().unwrap(), body.as_bytes());
        assert!(of("/api/v1/namespaces/a/pods/p?dryRun=All", "{}"));
        assert!(of("/api/v1/namespaces/a/pods/p", r#"{"dryRun": ["All"]}"#));
        assert!(!of("/api/v1/namespaces/a/pods/p?force=true", r#"{"preconditions": {"uid": "u"}}"#));
        assert!(!of("/api/v1/namespaces/a/pods/p", ""));
    }

    #[test]
    fn requests_are_named_as_rules_name_them() {
        let apply = "application/apply-patch+yaml";
        let some = |text: &str| Some(text.to_owned());
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/namespaces/a/pods?watch=true", ("watch pods", some("a"), None)),
            (Method::GET, "/api/v1/secrets?limit=1", ("list secrets", None, None)),
            (
                Method::GET,
                "/api/v1/namespaces/a/secrets/s?watch=false",
                ("get secrets", some("a"), some("s")),
            ),
            (Method::GET, "/api/v1/namespaces/a", ("get namespaces", None, some("a"))),
            (Method::GET, "/version", ("get discovery", None, None)),
            (
                Method::PATCH,
                "/apis/sluice.dev/v1alpha1/namespaces/a/tracepipelines/p/status?force=true",
                ("apply tracepipelines/status", some("a"), some("p")),
            ),
            (Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/j", ("delete jobs", some("a"), some("j"))),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/a/events?", ("create events", some("a"), None)),
        ] {
            let (call, namespace, name) = target(&method, uri, apply);
            assert_eq!((call.as_str(), namespace, name), expected, "{uri}");
        }
        assert_eq!(
            target(&Method::PATCH, "/api/v1/nodes/n", "application/merge-patch+json").0,
            "patch nodes"
        );
    }
}
