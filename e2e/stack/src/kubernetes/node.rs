//! The processes that make the machine a node: kubelet, kube-proxy, and `CoreDNS`, which runs on the node and not in a pod.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{NODE_ADDRESS, NODE_NAME, certificates, rendered};
use crate::part::{Part, Task, answers_http, beside, connect};
use crate::paths::put;
use crate::process::{Daemon, command};

pub(super) const KUBELET: &str = include_str!("../../kubernetes/kubelet.yaml");
pub(super) const KUBE_PROXY: &str = include_str!("../../kubernetes/kube-proxy.yaml");
pub(super) const COREFILE: &str = include_str!("../../kubernetes/Corefile");

/// Longest time to the first answer of each: a few seconds; the kubelet takes longest.
const PATIENCE: Duration = Duration::from_mins(1);

pub fn start(state: &Path, programs: &Path) -> anyhow::Result<()> {
    put(&state.join("kubelet/resolv.conf"), "")?;
    put(&state.join("kubelet/config.yaml"), &rendered(KUBELET, state))?;
    put(&state.join("kube-proxy.yaml"), &rendered(KUBE_PROXY, state))?;
    put(&state.join("Corefile"), &rendered(COREFILE, state))?;
    let configured = |program: &str, flag: &str, file: &str| {
        let mut program = command(programs.join(program));
        program.arg(flag).arg(state.join(file));
        program
    };
    let mut kubelet = configured("kubelet", "--config", "kubelet/config.yaml");
    kubelet.arg("--kubeconfig").arg(certificates::folder(state).join("kubelet.kubeconfig"));
    kubelet.arg("--root-dir").arg(state.join("kubelet")).arg("--cert-dir").arg(state.join("kubelet/pki"));
    kubelet.args(["--hostname-override", NODE_NAME, "--node-ip", NODE_ADDRESS]);
    let kube_proxy = configured("kube-proxy", "--config", "kube-proxy.yaml");
    let coredns = configured("coredns", "-conf", "Corefile");
    let tasks = parts(state).into_iter().zip([kubelet, kube_proxy, coredns]);
    let task = |(part, what): (Part, Command)| -> Task<'static> {
        (part.daemon.name(), Box::new(move || part.ensure(&what, PATIENCE)))
    };
    beside(tasks.map(task).collect())
}

pub fn kubelet(state: &Path) -> Daemon {
    Daemon::new(state, "kubelet")
}

/// The processes: kubelet, kube-proxy, `CoreDNS`.
pub fn parts(state: &Path) -> Vec<Part> {
    let part = |daemon: Daemon, address: &str, probe| Part { daemon, address: address.into(), probe };
    let dns = format!("{NODE_ADDRESS}:53");
    let asked = dns.clone();
    vec![
        part(kubelet(state), "127.0.0.1:10248", Box::new(|| answers_http("127.0.0.1:10248", "/healthz"))),
        part(
            Daemon::new(state, "kube-proxy"),
            "127.0.0.1:10256",
            Box::new(|| answers_http("127.0.0.1:10256", "/livez")),
        ),
        part(Daemon::new(state, "coredns"), &dns, Box::new(move || connect(&asked).map(drop))),
    ]
}
