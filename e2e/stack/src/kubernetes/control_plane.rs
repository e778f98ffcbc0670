//! etcd, the API server, the controllers and the scheduler.

use std::process::Command;
use std::time::Duration;

use super::{API_PORT, DNS_DOMAIN, ETCD_PORT, Kubernetes, NODE_ADDRESS, SERVICE_CIDR, certificates};
use crate::part::{Part, answers_http};
use crate::process::{command, output};

/// etcd answers within a second; with a long history it first reads for a few seconds.
const ETCD_PATIENCE: Duration = Duration::from_secs(30);

/// The API server is ready 3 s after its start on an idle machine, 4 s on a busy one.
const API_PATIENCE: Duration = Duration::from_mins(2);

/// Starts etcd and the API server, and makes the certificates before.
pub fn start(kubernetes: &Kubernetes) -> anyhow::Result<()> {
    certificates::ensure(kubernetes)?;
    etcd_part(kubernetes).ensure(&etcd(kubernetes), ETCD_PATIENCE)?;
    api_part(kubernetes).ensure(&api_server(kubernetes), API_PATIENCE)
}

/// Starts controllers and scheduler, which need the API server. Does not wait for them, because later steps wait for their results.
pub fn start_controllers(kubernetes: &Kubernetes) -> anyhow::Result<()> {
    kubernetes.daemon("kube-controller-manager").start(&controllers(kubernetes))?;
    kubernetes.daemon("kube-scheduler").start(&client(kubernetes, "kube-scheduler"))?;
    Ok(())
}

/// The processes, in the order in which they start.
pub fn parts(kubernetes: &Kubernetes) -> Vec<Part> {
    let silent =
        |name, address: &str| Part { address: address.to_owned(), ..Part::silent(kubernetes.daemon(name)) };
    vec![
        etcd_part(kubernetes),
        api_part(kubernetes),
        silent("kube-controller-manager", "127.0.0.1:10257"),
        silent("kube-scheduler", "127.0.0.1:10259"),
    ]
}

fn etcd_part(kubernetes: &Kubernetes) -> Part {
    let address = format!("127.0.0.1:{ETCD_PORT}");
    let asked = address.clone();
    let probe = Box::new(move || answers_http(&asked, "/health"));
    Part { daemon: kubernetes.daemon("etcd"), address, probe }
}

fn api_part(kubernetes: &Kubernetes) -> Part {
    let asked = kubernetes.clone();
    let probe = Box::new(move || output(asked.kubectl().args(["get", "--raw", "/readyz"])).map(drop));
    Part { daemon: kubernetes.daemon("kube-apiserver"), address: format!("{NODE_ADDRESS}:{API_PORT}"), probe }
}

fn etcd(kubernetes: &Kubernetes) -> Command {
    let clients = format!("http://127.0.0.1:{ETCD_PORT}");
    let peers = format!("http://127.0.0.1:{}", ETCD_PORT + 1);
    let mut etcd = command(kubernetes.programs.join("etcd"));
    // A test cluster may lose its last second in a power cut; waiting for the disk on every write would cost more.
    etcd.args(["--name", "sluice", "--unsafe-no-fsync", "--log-level", "warn", "--data-dir"])
        .arg(kubernetes.state.join("etcd"));
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.args(["--initial-cluster", &format!("sluice={peers}")]);
    etcd
}

fn api_server(kubernetes: &Kubernetes) -> Command {
    let pki = certificates::folder(&kubernetes.state);
    let file = |name: &str| pki.join(name).display().to_string();
    let mut server = command(kubernetes.programs.join("kube-apiserver"));
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{ETCD_PORT}")),
        // Never loopback: it becomes the address behind the Service `kubernetes`.
        ("advertise-address", NODE_ADDRESS.into()),
        ("secure-port", API_PORT.to_string()),
        ("service-cluster-ip-range", SERVICE_CIDR.into()),
        ("tls-cert-file", file("apiserver.crt")),
        ("tls-private-key-file", file("apiserver.key")),
        ("client-ca-file", file("ca.crt")),
        ("kubelet-client-certificate", file("apiserver-kubelet.crt")),
        ("kubelet-client-key", file("apiserver-kubelet.key")),
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", format!("https://kubernetes.default.svc.{DNS_DOMAIN}")),
        ("service-account-key-file", file("service-accounts.pub")),
        ("service-account-signing-key-file", file("service-accounts.key")),
        // Aggregated APIs, such as external metrics.
        ("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        ("requestheader-allowed-names", "front-proxy-client".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("proxy-client-cert-file", file("front-proxy.crt")),
        ("proxy-client-key-file", file("front-proxy.key")),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        // A pod gets its node's zone as a label, and the gateway reads its zone from there. On by default from 1.35 on.
        ("feature-gates", "PodTopologyLabelsAdmission=true".into()),
        ("allow-privileged", "true".into()),
        ("profiling", "false".into()),
    ];
    server.args(flags.map(|(name, value)| format!("--{name}={value}")));
    server
}

fn controllers(kubernetes: &Kubernetes) -> Command {
    let pki = certificates::folder(&kubernetes.state);
    let file = |name: &str, file: &str| format!("--{name}={}", pki.join(file).display());
    let mut controllers = client(kubernetes, "kube-controller-manager");
    controllers.args([
        "--use-service-account-credentials=true".to_owned(),
        file("service-account-private-key-file", "service-accounts.key"),
        file("root-ca-file", "ca.crt"),
        file("cluster-signing-cert-file", "ca.crt"),
        file("cluster-signing-key-file", "ca.key"),
        "--horizontal-pod-autoscaler-sync-period=5s".to_owned(),
    ]);
    controllers
}

/// A program that is a client of the API server, with the flags that controllers and scheduler share.
fn client(kubernetes: &Kubernetes, name: &str) -> Command {
    let kubeconfig = certificates::folder(&kubernetes.state).join(format!("{name}.kubeconfig"));
    let mut client = command(kubernetes.programs.join(name));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        client.arg(format!("--{flag}={}", kubeconfig.display()));
    }
    client.args(["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"]);
    // With the default of 20, the client throttles the controllers at their start: the default account then comes 3 s later.
    client.args(["--kube-api-qps=200", "--kube-api-burst=400"]);
    client
}
