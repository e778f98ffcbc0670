//! The helm program, compiled from its Go module: the chart is installed with the same helm that users have.

use std::path::PathBuf;

use crate::gomodule::GoModule;

/// Version of helm in `e2e/stack/helm/go.mod`.
pub const VERSION: &str = "v3.19.5";

pub fn module() -> GoModule {
    let version = format!("-X helm.sh/helm/v3/internal/version.version={VERSION}");
    // The cluster's version for `helm template` and `helm lint`, which have no cluster.
    let cluster = ["pkg/chartutil.k8sVersion", "pkg/lint/rules.k8sVersion"]
        .map(|name| format!("-X helm.sh/helm/v3/{name}Major=1 -X helm.sh/helm/v3/{name}Minor=34"));
    let link_flags = format!("{version} {}", cluster.join(" "));
    GoModule { link_flags, ..GoModule::named("helm", "helm.sh/helm/v3/cmd/helm", &["go.mod", "go.sum"]) }
}

/// The helm program. Compiles it if it is missing (under a minute with Go's build cache warm), so that tests on another cluster need no
/// local stack for it.
pub fn path() -> anyhow::Result<PathBuf> {
    module().program()
}
