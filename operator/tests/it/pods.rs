//! Gateways as the operator meets them: a pod that the API server lists, and its admin port on an address of this machine.

use crate::{api_server::ApiServer, bench::NAMESPACE, scaling::clock};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sluice_gateway_config::{STATE_PATH, STATE_VERSION, pod_uid::POD_UID_HEADER};
use sluice_operator::read::gateways::without_state;
use std::{
    convert::Infallible,
    future::pending,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
};
use tokio::{net::TcpListener, task::JoinHandle};

/// The port of every gateway.
const ADMIN_PORT: u16 = 9090;
/// The port at which those that have one take commands.
const CONTROL_PORT: u16 = 9091;
/// Tests of one process that have gateways.
static BENCHES: AtomicU8 = AtomicU8::new(1);

/// Where a gateway takes commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Commands {
    /// At its admin port, and it is too old to say whether it drains.
    Old,
    /// At its admin port, as one does whose other port is taken.
    #[default]
    Admin,
    /// At a port of their own alone.
    Control,
}

/// What a gateway says and does.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what it does or does not, each by itself")]
pub struct Behaviour {
    pub partitions: u32,
    pub messages: u64,
    pub busy_seconds: f64,
    pub source_seconds: f64,
    pub insert_failures: u64,
    /// Whether its blocks wait for ClickHouse.
    pub is_behind: bool,
    /// Whether it knows `/drain`.
    pub can_drain: bool,
    pub is_drained: bool,
    pub commands: Commands,
    pub blocks: u64,
    /// More lines of its metrics.
    pub more: String,
    /// Whether it is of a version that has no `/state`, but says whether it drains.
    pub is_before_state: bool,
    /// What it answers at `/state` instead of its own.
    pub strange: Option<String>,
    /// Paths that it was asked for, in their order.
    pub asked: Vec<String>,
    /// How its last insert failed, as it says it at `/state`.
    pub insert_error: Option<Value>,
    /// Why it takes no part; empty while it does.
    pub absence: String,
    /// Whether it takes requests and answers none.
    pub hangs: bool,
    /// Requests that came while it did.
    pub unanswered: u32,
    /// Those of them that were given up.
    pub given_up: u32,
    /// Requests that change something, in their order.
    pub told: Vec<String>,
}

impl Behaviour {
    fn metrics(&self) -> String {
        format!(
            "sluice_gateway_worker_seconds_total{{state=\"busy\",worker=\"0\"}} {}\n\
             sluice_gateway_worker_seconds_total{{state=\"source\",worker=\"0\"}} {}\n\
             sluice_gateway_messages_total {}\nsluice_gateway_message_bytes_total {}\n\
             sluice_gateway_insert_failures_total{{class=\"retry\"}} {}\n\
             sluice_gateway_memory_used_bytes{{part=\"process\"}} 104857600\n\
             sluice_gateway_block_pool_bytes{{state=\"free\"}} 0\n\
             sluice_gateway_memory_budget_bytes{{part=\"base\"}} 536870912\nsluice_gateway_partitions_owned {}\n\
             sluice_gateway_sink_behind {}\n{}",
            self.busy_seconds,
            self.source_seconds,
            self.messages,
            self.messages * 900,
            self.insert_failures,
            self.partitions,
            u8::from(self.is_behind),
            self.more,
        )
    }

    /// As a gateway of today answers. What it says is written as metrics, which are what it says as well.
    fn state(&self, name: &str, uid: Option<&str>) -> Value {
        let reasons: Vec<&str> =
            Some(self.absence.as_str()).filter(|why| !why.is_empty()).into_iter().collect();
        let mut state = json!({
            "version": STATE_VERSION,
            "pod": {"namespace": NAMESPACE, "name": name, "uid": uid},
            "readiness": {"ready": reasons.is_empty(), "reasons": reasons},
            "sample": without_state::read(&self.metrics()),
            "remaining": self.drainz(),
        });
        if let Some(error) = &self.insert_error {
            state["sample"]["insertError"] = error.clone();
        }
        state
    }

    fn has_no_state(&self) -> bool {
        self.is_before_state || !self.can_drain || self.commands == Commands::Old
    }

    fn drainz(&self) -> Value {
        let mut held = json!({"blocks": self.blocks, "bytes": 0, "uncommitted": 0, "damaged": false});
        if self.commands != Commands::Old {
            held["draining"] = self.is_drained.into();
        }
        if self.commands == Commands::Control {
            held["control"] = CONTROL_PORT.into();
        }
        held
    }

    fn answer(&mut self, name: &str, port: u16, request: &Request<Incoming>) -> (u16, String) {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let uid = request.headers().get(POD_UID_HEADER).and_then(|uid| uid.to_str().ok());
        self.asked.push(path.to_owned());
        if method == "POST" {
            if (self.commands == Commands::Control) != (port == CONTROL_PORT) {
                return (404, String::new());
            }
            self.told.push(path.to_owned());
        }
        match path {
            STATE_PATH if self.has_no_state() => (404, String::new()),
            STATE_PATH => (200, self.strange.clone().unwrap_or_else(|| self.state(name, uid).to_string())),
            "/metrics" => (200, self.metrics()),
            "/readyz" if !self.absence.is_empty() => (503, format!("{}\n", self.absence)),
            "/drain" | "/resume" if self.can_drain => {
                self.is_drained = path == "/drain";
                (202, String::new())
            }
            "/drainz" if self.can_drain => (200, self.drainz().to_string()),
            _ => (404, String::new()),
        }
    }
}

/// One gateway that runs; it stops with this value.
pub struct Pod {
    pub behaviour: Arc<Mutex<Behaviour>>,
    serving: Vec<JoinHandle<()>>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

/// The gateways of one pipeline.
pub struct Pods {
    server: ApiServer,
    pipeline: String,
    network: [u8; 2],
    pub all: Vec<Pod>,
}

impl Pods {
    pub fn of(server: &ApiServer, pipeline: &str) -> Self {
        // Other processes on this machine have gateways on this port too.
        let process = u8::try_from(std::process::id() % 250).unwrap() + 1;
        let network = [process, BENCHES.fetch_add(1, Ordering::Relaxed)];
        Self { server: server.clone(), pipeline: pipeline.to_owned(), network, all: Vec::new() }
    }

    /// Starts and ends pods until there are so many, and shares this many partitions among them.
    pub async fn become_ready(&mut self, count: usize, partitions: u32) {
        while self.all.len() < count {
            self.start().await;
        }
        for ordinal in count..self.all.len() {
            self.server.remove(&format!("pods/{}", self.name(ordinal)));
        }
        self.all.truncate(count);
        let count = u32::try_from(count).unwrap();
        for (pod, ordinal) in self.all.iter().zip(0..) {
            let before = |ordinal: u32| partitions * ordinal / count;
            pod.behaviour.lock().unwrap().partitions = before(ordinal + 1) - before(ordinal);
        }
    }

    /// Changes what all of them say and do.
    pub fn each(&self, change: impl Fn(&mut Behaviour)) {
        self.all.iter().for_each(|pod| change(&mut pod.behaviour.lock().unwrap()));
    }

    /// The kernel killed a gateway for its memory, for the so many-th time, just now.
    pub fn was_killed(&self, ordinal: usize, times: u32) {
        let now = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
        self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
            let container = &mut pod["status"]["containerStatuses"][0];
            container["restartCount"] = times.into();
            container["lastState"] =
                json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": now}});
        });
    }

    /// The kubelet sees who is drained, and who is not any more.
    pub fn are_probed(&self) {
        for (ordinal, pod) in self.all.iter().enumerate() {
            let is_ready = !pod.behaviour.lock().unwrap().is_drained;
            self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
                pod["status"]["conditions"][0]["status"] = if is_ready { "True" } else { "False" }.into();
            });
        }
    }

    /// A partition of it has stopped: it reads the others, and the kubelet sees that it is not ready, since now.
    pub fn is_unready(&self, ordinal: usize) {
        let now = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
        self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
            pod["status"]["conditions"][0] =
                json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        });
    }

    /// Its pod is being deleted, within the grace period.
    pub fn ends(&self, ordinal: usize) {
        let now = Timestamp::from_millisecond(i64::try_from(clock().0).unwrap()).unwrap().to_string();
        self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
            pod["metadata"]["deletionTimestamp"] = now.into();
        });
    }

    /// The StatefulSet has made its pod again, and it runs.
    pub fn is_back(&self, ordinal: usize) {
        self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
            pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        });
    }

    /// Another process runs in its pod.
    pub fn runs_anew(&self, ordinal: usize) {
        self.server.change(&format!("pods/{}", self.name(ordinal)), |pod| {
            pod["status"]["containerStatuses"][0]["containerID"] = "containerd://another".into();
        });
    }

    /// From now on it answers no request.
    pub fn falls_silent(&self, ordinal: usize) {
        self.all[ordinal].serving.iter().for_each(JoinHandle::abort);
    }

    fn name(&self, ordinal: usize) -> String {
        format!("{}-gateway-{ordinal}", self.pipeline)
    }

    async fn start(&mut self) {
        let ordinal = self.all.len();
        let [process, bench] = self.network;
        let address = Ipv4Addr::new(127, process, bench, u8::try_from(ordinal + 1).unwrap());
        let behaviour = Arc::new(Mutex::new(Behaviour { can_drain: true, ..Behaviour::default() }));
        let mut serving = Vec::new();
        for port in [ADMIN_PORT, CONTROL_PORT] {
            let listener = TcpListener::bind((address, port)).await.unwrap();
            serving.push(tokio::spawn(serve(listener, (self.name(ordinal), port), Arc::clone(&behaviour))));
        }
        self.all.push(Pod { behaviour, serving });
        let name = self.name(ordinal);
        self.server.put(&format!("pods/{name}"), self.object(&name, &address.to_string()));
    }

    fn object(&self, name: &str, ip: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
                "app.kubernetes.io/managed-by": "sluice-operator", "app.kubernetes.io/instance": self.pipeline,
                "app.kubernetes.io/component": "gateway",
            }},
            "status": {
                "podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {}}, "lastState": {}}],
            },
        })
    }
}

async fn serve(listener: TcpListener, (name, port): (String, u16), behaviour: Arc<Mutex<Behaviour>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (behaviour, asked, name) = (Arc::clone(&behaviour), Arc::clone(&behaviour), name.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let mut behaviour = asked.lock().unwrap();
            let hangs = behaviour.hangs;
            behaviour.unanswered += u32::from(hangs);
            let (status, body) =
                if hangs { (500, String::new()) } else { behaviour.answer(&name, port, &request) };
            let response = Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap();
            async move {
                if hangs {
                    pending::<()>().await;
                }
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            behaviour.lock().unwrap().given_up += u32::from(served.is_err());
        });
    }
}
