//! An API server for one pipeline and one pod of the plugin, in memory or at a port: what it answers is scripted, and what it was asked is
//! noted.

use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body, core::Status};
use serde_json::{Value, json};
use sluice_kubectl::Cluster;
use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::net::{TcpListener, TcpStream};

const NAMESPACE: &str = "tracing";

/// What it answers.
#[derive(Default)]
pub struct Script {
    pub pipeline: Option<Value>,
    pub workload: Option<Value>,
    /// The pod's status at each look; the last one stays. A number is an answer with this HTTP status.
    pub pod: VecDeque<Value>,
    /// The log of the pod's container `audit` at each reading, or an answer with this HTTP status; the last one stays.
    pub logs: VecDeque<Result<&'static str, u16>>,
    /// Warnings about the pod.
    pub warnings: Vec<&'static str>,
    /// Rights that the user lacks, as `create pods` and `get pods/log`.
    pub lacking: Vec<&'static str>,
    /// Why no pod is created, with status 403.
    pub refusal: Option<&'static str>,
}

/// The server; clones are the same one.
#[derive(Clone)]
pub struct ApiServer {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ApiServer {
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(Mutex::new(script)), asked: Arc::default() }
    }

    pub fn cluster(&self) -> Cluster {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Cluster::of(Client::new(service, NAMESPACE), "http://server".into(), NAMESPACE.into())
    }

    /// Serves at a port of this machine, for a program.
    pub async fn listen(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(server.clone().serve(stream));
            }
        });
        port
    }

    async fn serve(self, stream: TcpStream) {
        let service = service_fn(|request: Request<Incoming>| {
            let server = self.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = Body::from(body.collect().await.unwrap().to_bytes());
                Ok::<_, Infallible>(server.answer(Request::from_parts(head, body)).await)
            }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        // A client may close whenever it wants to.
        drop(served);
    }

    /// What was asked that changes something, as `POST pods` and `DELETE pods/traces-audit-0a1b2`.
    pub fn writes(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut script = self.script.lock().unwrap();
        if path.ends_with("/selfsubjectaccessreviews") {
            return found(&reviewed(&script, body));
        }
        let object = path.rsplit_once(&format!("/namespaces/{NAMESPACE}/")).unwrap().1;
        if method != Method::GET {
            self.asked.lock().unwrap().push(format!("{method} {object}"));
        }
        match (method, object) {
            (Method::POST, "pods") => match script.refusal {
                Some(why) => failed(StatusCode::FORBIDDEN, why),
                None => found(&body),
            },
            (Method::DELETE, _) => {
                found(&json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
            }
            (_, "events") => found(&events(&script)),
            (_, "tracepipelines/traces") => or_missing(script.pipeline.as_ref()),
            (_, "statefulsets/traces-gateway") => or_missing(script.workload.as_ref()),
            (_, log) if log.ends_with("/log") => logged(&mut script, &query),
            (_, pod) => {
                let name = pod.strip_prefix("pods/").unwrap();
                let status = next(&mut script.pod);
                match status.as_u64() {
                    Some(code) => failed(status_code(u16::try_from(code).unwrap()), "etcd is away"),
                    None => found(
                        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": status}),
                    ),
                }
            }
        }
    }
}

/// The next of several answers; the last one stays.
fn next<T: Clone>(answers: &mut VecDeque<T>) -> T {
    let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
    answer.unwrap()
}

/// The log of the container `audit`. As in a cluster where webhooks add containers, it must be named.
fn logged(script: &mut Script, query: &str) -> Response<Body> {
    if !query.split('&').any(|option| option == "container=audit") {
        let why = "a container name must be specified, choose one of: [istio-proxy audit]";
        return failed(StatusCode::BAD_REQUEST, why);
    }
    match next(&mut script.logs) {
        Ok(text) => Response::new(Body::from(text.as_bytes().to_vec())),
        Err(code) => failed(status_code(code), "the kubelet is away"),
    }
}

fn status_code(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

fn reviewed(script: &Script, mut review: Value) -> Value {
    let asked = &review["spec"]["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let subresource = asked["subresource"].as_str().map(|part| format!("/{part}")).unwrap_or_default();
    let right = format!("{} {}{subresource}", text("verb"), text("resource"));
    review["status"] = json!({"allowed": !script.lacking.contains(&right.as_str())});
    review
}

fn events(script: &Script) -> Value {
    let of = |message: &&str| json!({"metadata": {}, "involvedObject": {}, "reason": "FailedMount", "message": message});
    let items: Vec<_> = script.warnings.iter().map(of).collect();
    json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items})
}

fn found(object: &Value) -> Response<Body> {
    Response::new(Body::from(object.to_string().into_bytes()))
}

fn or_missing(object: Option<&Value>) -> Response<Body> {
    object.map_or_else(|| failed(StatusCode::NOT_FOUND, "there is none"), found)
}

fn failed(code: StatusCode, why: &str) -> Response<Body> {
    // As Kubernetes writes it: `NotFound`.
    let reason = code.canonical_reason().unwrap().replace(' ', "");
    let status = Status { code: code.as_u16(), ..Status::failure(why, &reason) };
    let mut answer = found(&serde_json::to_value(status).unwrap());
    *answer.status_mut() = code;
    answer
}
