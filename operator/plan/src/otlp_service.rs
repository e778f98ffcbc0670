//! The Service that OTLP clients send to: that of an edge, or of gateways with `source.otlp`.

use crate::{
    names::{EDGE, GATEWAY, Names},
    pipeline::pod_template::{check_keys, check_labels},
};
use sluice_crds::{EdgeService, Listeners, TracePipelineSpec};
use sluice_gateway_config::Violations;

/// A Service in front of pods that accept OTLP.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OtlpService {
    pub name: String,
    /// Whose pods are behind it.
    pub component: &'static str,
    pub asked: EdgeService,
    /// Its ports, for OTLP/gRPC and for OTLP/HTTP; `None` if it is off.
    pub ports: [Option<u32>; 2],
    pub has_tls: bool,
}

impl OtlpService {
    /// That of an edge, or what is wrong with it.
    pub fn of_edge(names: &Names, listeners: Listeners<'_>) -> Result<Self, Violations> {
        Self::of((names.edge(), EDGE), listeners, "spec.edge.service")
    }

    /// That of gateways, or what is wrong with it; `None` with `source.kafka`.
    pub fn of_gateways(names: &Names, spec: &TracePipelineSpec) -> Result<Option<Self>, Violations> {
        let Some(otlp) = &spec.source.otlp else { return Ok(None) };
        Self::of((names.otlp(), GATEWAY), otlp.listeners(), "spec.source.otlp.service").map(Some)
    }

    fn of(
        (name, component): (String, &'static str),
        listeners: Listeners<'_>,
        at: &str,
    ) -> Result<Self, Violations> {
        let (asked, mut found) = (listeners.service, Violations::default());
        check_labels(&asked.labels, &format!("{at}.labels"), &mut found);
        check_keys(asked.annotations.keys(), &format!("{at}.annotations"), &mut found);
        found.or(Self {
            name,
            component,
            asked: asked.clone(),
            ports: listeners.ports(),
            has_tls: listeners.tls.is_some(),
        })
    }

    /// Where clients within the cluster send to, gRPC first.
    pub fn endpoints(&self, namespace: &str) -> Vec<String> {
        let host = Self::host(&self.name, namespace);
        self.ports.iter().flatten().map(|port| format!("{host}:{port}")).collect()
    }

    /// The name of a Service as clients within the cluster know it.
    pub fn host(name: &str, namespace: &str) -> String {
        format!("{name}.{namespace}.svc")
    }
}
