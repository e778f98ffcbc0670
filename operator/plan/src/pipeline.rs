//! The spec of a pipeline: what it is to do, its terms, its config, and who owns its consumer group.

pub mod connections;
pub mod drain_terms;
pub mod edge_config;
pub mod gateway_config;
pub mod group_owner;
mod intent;
mod logins;
pub mod network_peers;
pub mod otlp_config;
mod pod_settings;
pub mod pod_template;
pub mod policy;
mod policy_parsing;
pub mod repeated_endpoints;
pub mod resources;
pub mod responsible;
pub mod rollout_terms;
pub mod schedule;

pub use intent::Intent;

use network_peers::NetworkPeers;
use pod_template::check_labels;
use policy::Policy;
use resources::Sized;
use sluice_crds::{PodMonitoring, TracePipelineSpec};
use sluice_gateway_config::{ByteSize, Duration, Format, InsertFormat, Violations, budget::RequestSizing};

/// The spec of a pipeline, parsed once for a plan. Having one proves that its quantities, durations and terms can be read.
pub(crate) struct Pipeline<'a> {
    pub spec: &'a TracePipelineSpec,
    pub resources: Sized,
    pub grace: Duration,
    /// The largest record batch of Kafka, or the largest request of OTLP.
    pub message_bytes_max: ByteSize,
    /// The requests of `source.otlp`; `None` with `source.kafka`.
    pub requests: Option<RequestSizing>,
    pub format: Format,
    pub insert_concurrency: u32,
    pub insert_format: InsertFormat,
    pub workers: u32,
    pub policy: Policy,
    /// How long a drain may take.
    pub drain: drain_terms::Terms,
    /// `None` without a `PodMonitor`.
    pub pod_monitoring: Option<PodMonitoring>,
    /// `None` without a NetworkPolicy.
    pub network: Option<NetworkPeers>,
}

impl<'a> Pipeline<'a> {
    /// Reads the spec, or lists all that cannot be read in it.
    pub fn of(spec: &'a TracePipelineSpec) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let resources = resources::read(&spec.gateway.resources, &mut found);
        let grace = gateway_config::grace_period(spec, &mut found);
        let message = gateway_config::message_bytes_max(spec, &mut found);
        let otlp = spec.source.otlp.as_ref();
        // What is wrong with them is said of the largest message.
        let requests = otlp.and_then(|otlp| otlp_config::requests(otlp, &mut Violations::default()));
        let policy = Policy::of(spec).map_err(|others| found.extend(others)).ok();
        let drain = drain_terms::Terms::of(spec).map_err(|others| found.extend(others)).ok();
        // Checked here, because the step of a rollout, which reads them again, reports no violations.
        rollout_terms::Terms::of(spec).map_err(|others| found.extend(others)).ok();
        let pod_monitoring = pod_monitoring(spec, &mut found);
        let network = NetworkPeers::of(spec, &mut found);
        let (Some(resources), Some(grace), Some(message_bytes_max), Some(policy), Some(drain)) =
            (resources, grace, message, policy, drain)
        else {
            return Err(found);
        };
        let workers = spec.gateway.workers.unwrap_or(resources.cores);
        let format = gateway_config::format(spec);
        let insert_concurrency = gateway_config::insert_concurrency(spec);
        let insert_format = gateway_config::insert_format(spec);
        found.or(Self {
            spec,
            resources,
            grace,
            message_bytes_max,
            requests,
            format,
            insert_concurrency,
            insert_format,
            workers,
            policy,
            drain,
            pod_monitoring,
            network,
        })
    }
}

/// How a `PodMonitor` is to read the gateways' metrics; `None` where none is asked for.
fn pod_monitoring(spec: &TracePipelineSpec, found: &mut Violations) -> Option<PodMonitoring> {
    let asked = spec.observability.clone().unwrap_or_default().pod_monitor;
    check_labels(&asked.labels, "spec.observability.podMonitor.labels", found);
    Some(asked).filter(|asked| asked.enabled)
}
