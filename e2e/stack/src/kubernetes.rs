//! A real one-node Kubernetes: etcd, API server, controllers and scheduler, a node with containerd and runc, kube-proxy,
//! `CoreDNS`, and the volume provisioner. Everything listens on the pod bridge's address or on loopback.
//!
//! The order of `up`: network → (certificates → etcd → API server) beside (containerd → pause image) → controllers, node,
//! names → node Ready. The order of `down` is in [`teardown`].

pub mod certificates;
pub mod containerd;
pub mod control_plane;
pub mod network;
pub mod node;
pub mod programs;
pub mod teardown;
pub mod volumes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::part::{Part, beside};
use crate::paths::{Paths, render};
use crate::process::{self, Daemon, command, wait};
use crate::say;

pub const NODE_NAME: &str = "sluice-node";

/// The pods' bridge. We make it and not the CNI plugin, so that its address exists before the first pod.
pub const BRIDGE: &str = "sluice0";

/// Address of the bridge, and so of the node, the API server, DNS, Kafka and ClickHouse, whatever interfaces the machine has.
pub const NODE_ADDRESS: &str = "10.244.0.1";

pub const POD_CIDR: &str = "10.244.0.0/24";

/// Addresses of Services; the API server's own is the first.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";

pub const DNS_DOMAIN: &str = "cluster.local";

/// Port of the API server on [`NODE_ADDRESS`].
pub const API_PORT: u16 = 6443;

/// Port of etcd on loopback. The next port is for etcd peers; there are none.
pub const ETCD_PORT: u16 = 2379;

/// Namespace of the Services for Kafka and ClickHouse.
pub const NAMESPACE: &str = "sluice-stack";

const ADDONS: &str = include_str!("../kubernetes/addons.yaml");

/// Longest time until the node is Ready: it took 4 s on an idle machine, 6 s on a busy one.
const NODE_PATIENCE: Duration = Duration::from_mins(2);

/// Longest time until the default service account exists: about a second after the controllers' start.
const SERVICE_ACCOUNT_PATIENCE: Duration = Duration::from_mins(1);

/// The local Kubernetes, running or not.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    state: PathBuf,
    programs: PathBuf,
}

impl Kubernetes {
    pub fn new(paths: &Paths) -> anyhow::Result<Self> {
        Ok(Self { state: paths.kubernetes(), programs: programs::module().built(paths)? })
    }

    pub fn local() -> anyhow::Result<Self> {
        Self::new(&Paths::from_environment()?)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    pub fn containerd_socket(&self) -> PathBuf {
        containerd::socket(&self.state)
    }

    /// kubectl as administrator.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = command(self.programs.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig()).arg("--request-timeout=10s");
        kubectl
    }

    /// Its processes, in the order in which they start.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = vec![containerd::part(&self.state)];
        parts.extend(control_plane::parts(self));
        parts.extend(node::parts(&self.state));
        parts.push(volumes::part(&self.state));
        parts
    }

    /// Starts what does not run, and waits until the node is ready for pods.
    pub fn start(&self, pause: &crate::images::Image) -> anyhow::Result<()> {
        beside(vec![
            ("kubernetes", Box::new(|| control_plane::start(self))),
            ("containerd", Box::new(|| containerd::start(&self.state, pause))),
        ])?;
        say::progress("kubernetes", "API server ready");
        control_plane::start_controllers(self)?;
        node::start(&self.state, &self.programs)?;
        self.apply_addons()?;
        volumes::start(&self.state, &self.kubeconfig())?;
        wait::until(NODE_PATIENCE, || self.node_ready())
            .map_err(|failure| node::kubelet(&self.state).explain(&failure))?;
        self.label_node()?;
        wait::until(SERVICE_ACCOUNT_PATIENCE, || {
            process::output(self.kubectl().args(["-n", "default", "get", "serviceaccount", "default"]))
                .map(drop)
        })
        .context("the default service account")?;
        say::progress("kubernetes", "node ready");
        Ok(())
    }

    fn node_ready(&self) -> anyhow::Result<()> {
        const READY: &str = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        let ready = process::output(self.kubectl().args(["get", "node", NODE_NAME, "-o", READY]))?;
        anyhow::ensure!(ready == "True", "node {NODE_NAME} is not Ready");
        Ok(())
    }

    /// Sets the labels that the node normally has. An interrupted test may have changed them, and then pods do not find their volumes.
    fn label_node(&self) -> anyhow::Result<()> {
        let hostname = format!("kubernetes.io/hostname={NODE_NAME}");
        let mut label = self.kubectl();
        label.args(["label", "--overwrite", "node", NODE_NAME, &hostname, "topology.kubernetes.io/zone-"]);
        process::output(&mut label).map(drop).context("label the node")
    }

    fn apply_addons(&self) -> anyhow::Result<()> {
        let file = self.state.join("addons.yaml");
        crate::paths::put(&file, &addons())?;
        let mut apply = self.kubectl();
        apply.args(["apply", "--server-side", "--force-conflicts", "-f"]).arg(&file);
        process::output(&mut apply).map(drop).context("apply the stack's own objects")
    }

    fn daemon(&self, name: &'static str) -> Daemon {
        Daemon::new(&self.state, name)
    }
}

fn addons() -> String {
    let values =
        [("NAMESPACE", NAMESPACE), ("NODE_ADDRESS", NODE_ADDRESS), ("PROVISIONER", volumes::PROVISIONER)];
    render(ADDONS, &values)
}

/// Values for the templates of Kubernetes' configuration files.
fn template_values<'a>(state: &'a str, socket: &'a str) -> [(&'static str, &'a str); 8] {
    [
        ("STATE", state),
        ("SOCKET", socket),
        ("BRIDGE", BRIDGE),
        ("NODE_ADDRESS", NODE_ADDRESS),
        ("NODE_NAME", NODE_NAME),
        ("POD_CIDR", POD_CIDR),
        ("SERVICE_CIDR", SERVICE_CIDR),
        ("DNS_DOMAIN", DNS_DOMAIN),
    ]
}

/// A template with the values of this cluster.
fn rendered(template: &str, state: &Path) -> String {
    let socket = containerd::socket(state);
    render(template, &template_values(&state.to_string_lossy(), &socket.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addons_leave_no_place_unfilled_and_give_pods_the_stated_names() {
        let text = addons();
        assert!(!text.contains('@'), "{text}");
        for (name, address) in
            [("kafka", crate::kafka::PODS_ADDRESS), ("clickhouse", crate::clickhouse::PODS_URL)]
        {
            assert!(address.contains(&format!("{name}.{NAMESPACE}.svc.{DNS_DOMAIN}:")));
            assert!(text.contains(&format!("{{name: {name}, namespace: {NAMESPACE}}}")), "{text}");
        }
    }

    #[test]
    fn the_nodes_templates_leave_no_place_unfilled() {
        for template in
            [node::KUBELET, node::KUBE_PROXY, node::COREFILE, network::MASQUERADE, containerd::NETWORK]
        {
            let text = rendered(template, Path::new("/s"));
            assert!(!text.contains('@'), "{text}");
        }
    }

    #[test]
    fn the_versions_are_those_of_the_modules() {
        let kubebin = include_str!("../kubernetes/kubebin/go.mod");
        assert!(kubebin.contains(&format!("k8s.io/kubernetes {}\n", programs::VERSION)));
        let helm = include_str!("../helm/go.mod");
        assert!(helm.contains(&format!("helm.sh/helm/v3 {}", crate::helm::VERSION)));
    }
}
