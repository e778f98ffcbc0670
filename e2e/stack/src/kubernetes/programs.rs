//! The programs of Kubernetes: one multi-call program, compiled from Go modules, with a link for every name.

use std::path::PathBuf;

use crate::gomodule::GoModule;
use crate::paths::Paths;

/// Version of Kubernetes in `e2e/stack/kubernetes/kubebin/go.mod`.
pub const VERSION: &str = "v1.34.4";

const ALIASES: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "coredns",
    "kubectl",
];

pub fn module() -> GoModule {
    // Without these the API server calls itself v0.0.0 and every client's version check fails.
    let link_flags = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion={VERSION} -X {package}.gitMajor=1 -X {package}.gitMinor=34 -X {package}.gitTreeState=clean \
             -X {package}.gitCommit=unknown -X {package}.buildDate=1970-01-01T00:00:00Z"
        )
    });
    GoModule {
        folder: "kubernetes/kubebin",
        link_flags: link_flags.join(" "),
        aliases: ALIASES,
        ..GoModule::named("kubebin", ".", &["go.mod", "go.sum", "main.go", "dns.go"])
    }
}

/// Compiles them unless they are in the cache; returns the folder with the programs.
pub fn build(paths: &Paths) -> anyhow::Result<PathBuf> {
    module().build(paths)
}
