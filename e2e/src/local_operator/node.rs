//! A node without a kubelet: takes the pods of one namespace and says at once that they are ready, so that hundreds of
//! `StatefulSets` come to rest on a machine that could not run a tenth of their gateways.
//!
//! ```text
//! pod without a node -> bound to this node -> said to run, with this machine's address -> being deleted -> deleted
//!                                                            |
//!                                                            `-- answers /metrics as a gateway does
//! ```
//!
//! Owner: the run; a task each for the watch, the node's Lease and the answers, which end when this is dropped. Limits: nobody
//! else's pods are placed here, since the node is tainted and pods are bound past the scheduler; on a cluster whose own nodes
//! have as many cores as the pods ask for, the scheduler may be faster, and they run there.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::cluster::{Namespace, is_missing};

/// Cores that each pod asks for: more than a node of this machine has, so that the scheduler leaves them alone.
pub const POD_CORES: &str = "64";

/// A node counts as gone 40 s after its last sign of life; client-go's kubelet gives one every ten.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The gateways' port for metrics.
const ADMIN_PORT: u16 = 9_090;

/// Pods that are worked on at the same time.
const PODS_MAX: usize = 16;

/// What every gateway answers: the numbers that the operator reads of them.
const METRICS: &str = include_str!("../../../operator/tests/gateway-metrics.txt");

/// The node.
pub struct Node {
    client: Client,
    name: String,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    /// Makes the node and takes the pods of the namespace. They get the address that this machine has towards the API server of
    /// the kubeconfig.
    pub async fn start(namespace: &Namespace, kubeconfig: &Path) -> Result<Node> {
        let client = namespace.cluster().client();
        let address = address_towards(&api_server(kubeconfig).await?)?;
        let listener = TcpListener::bind((address, ADMIN_PORT)).await;
        let listener =
            listener.with_context(|| format!("listen on {address}:{ADMIN_PORT} for the gateways"))?;
        let mut node = Node { client: client.clone(), name: namespace.name().to_owned(), tasks: Vec::new() };
        node.make().await?;
        let kubelet = Kubelet { pods: namespace.api(), node: node.name.clone(), address };
        node.tasks.push(tokio::spawn(answer(listener)));
        node.tasks.push(tokio::spawn(beat(leases(&client), node.name.clone())));
        node.tasks.push(tokio::spawn(async move { kubelet.run().await }));
        Ok(node)
    }

    async fn make(&self) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}},
            "spec": {"taints": [{"key": "sluice.dev/no-kubelet", "effect": "NoSchedule"}]},
        });
        let object = serde_json::from_value(object).context("describe the node")?;
        nodes.create(&PostParams::default(), &object).await.context("make a node")?;
        renew(&leases(&self.client), &self.name).await.context("make the node's Lease")?;
        let plenty = json!({"cpu": "1000000", "memory": "100Ti", "pods": "100000"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "NoKubelet",
            "lastHeartbeatTime": Timestamp::now().to_string(), "lastTransitionTime": Timestamp::now().to_string()});
        let status = json!({"status": {"capacity": plenty, "allocatable": plenty, "conditions": [ready]}});
        let patched = nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.map(drop).context("say that the node is ready")
    }

    /// Takes the node away. Its pods must be gone.
    pub async fn remove(self) -> Result<()> {
        let at_once = DeleteParams::default();
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let gone = |answer: kube::Result<()>| match answer {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        };
        let of_node = gone(nodes.delete(&self.name, &at_once).await.map(drop)).context("remove the node");
        // It goes with the node as well, where a controller collects what belongs to none.
        let of_lease = gone(leases(&self.client).delete(&self.name, &at_once).await.map(drop));
        of_node.and(of_lease.context("remove the node's Lease"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Host and port of the API server.
async fn api_server(kubeconfig: &Path) -> Result<(String, u16)> {
    let file = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let url = config.context("understand the kubeconfig")?.cluster_url;
    let host = url.host().context("the API server has no host")?.trim_matches(['[', ']']);
    Ok((host.to_owned(), url.port_u16().unwrap_or(443)))
}

/// The address that this machine has towards the API server, which the kernel knows without a packet being sent.
fn address_towards((host, port): &(String, u16)) -> Result<IpAddr> {
    let mut found = (host.as_str(), *port).to_socket_addrs().with_context(|| format!("look up {host}"))?;
    let server: SocketAddr = found.next().with_context(|| format!("{host} has no address"))?;
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).context("make a socket")?;
    socket.connect(server).with_context(|| format!("find the way to {server}"))?;
    Ok(socket.local_addr().context("ask for this machine's address")?.ip())
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

async fn beat(leases: Api<Lease>, node: String) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        // One that fails is followed by another before the node counts as gone.
        renew(&leases, &node).await.ok();
    }
}

async fn renew(leases: &Api<Lease>, node: &str) -> kube::Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now},
    });
    leases.patch(node, &PatchParams::apply("sluice-e2e").force(), &Patch::Apply(&lease)).await.map(drop)
}

/// What a kubelet would do.
#[derive(Clone)]
struct Kubelet {
    pods: Api<Pod>,
    node: String,
    address: IpAddr,
}

impl Kubelet {
    async fn run(&self) {
        let pods = watcher(self.pods.clone(), watcher::Config::default()).default_backoff().applied_objects();
        // A watch that breaks begins anew; a request that fails is made again by the pod's next event, of which the watch's
        // next list is one.
        pods.into_stream()
            .for_each_concurrent(PODS_MAX, |pod| async move {
                if let Ok(pod) = pod {
                    self.look_after(&pod).await.ok();
                }
            })
            .await;
    }

    async fn look_after(&self, pod: &Pod) -> kube::Result<()> {
        let name = pod.name_any();
        let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if pod.metadata.deletion_timestamp.is_some() {
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            return if place == Some(&self.node) {
                self.pods.delete(&name, &at_once).await.map(drop)
            } else {
                Ok(())
            };
        }
        if place.is_none() {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
            });
            let bound: Value =
                self.pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
            drop(bound);
        }
        let is_ours = place.is_none_or(|place| place == self.node);
        if is_ours && !is_running(pod) {
            let running = Patch::Merge(self.running());
            self.pods.patch_status(&name, &PatchParams::default(), &running).await?;
        }
        Ok(())
    }

    fn running(&self) -> Value {
        let (now, address) = (Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), self.address);
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now.as_str()});
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        json!({"status": {
            "phase": "Running", "startTime": now, "hostIP": address, "podIP": address, "podIPs": [{"ip": address}],
            "conditions": conditions,
            "containerStatuses": [{
                "name": "gateway", "image": "none", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }],
        }})
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Answers for every gateway.
async fn answer(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = service_fn(|request: Request<Incoming>| async move {
            let is_known = request.uri().path() == "/metrics";
            let (status, text) =
                if is_known { (StatusCode::OK, METRICS) } else { (StatusCode::NOT_FOUND, "") };
            let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
            *answer.status_mut() = status;
            Ok::<_, std::convert::Infallible>(answer)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}
