//! What was decided for a pipeline: a plan, or what must come first.

use crate::{
    edge::EdgePlan,
    ground::hash,
    identity::{Identity, OperatorPods, image::Image},
    names::Names,
    otlp_service::OtlpService,
    pipeline::{network_peers::NetworkPeers, resources::Sized},
    schema::{SchemaPlan, SchemaStep},
    volumes::{Growth, Volume},
};
use sluice_crds::{PodMonitoring, TopicStatus};
use sluice_gateway_config::{CheckedConfig, Duration, parse};

/// What follows from a valid spec.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    /// All facts are there.
    Ready(Box<Plan>),
    /// Something outside of the spec must come first; what was applied before stays unchanged.
    Waiting(Waiting),
}

impl Planned {
    /// The plan, once all facts are there.
    pub fn ready(&self) -> Option<&Plan> {
        match self {
            Self::Ready(plan) => Some(plan),
            Self::Waiting(_) => None,
        }
    }
}

/// What must come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The reason of the condition `Ready`.
    pub reason: &'static str,
    /// What is waited for, for people.
    pub message: String,
}

/// A pipeline, decided: checked by the gateway's own rules, and sized. Only [`crate::plan()`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) identity: Identity,
    pub(crate) image: Image,
    pub(crate) topics: Vec<TopicStatus>,
    pub(crate) replicas: u32,
    pub(crate) config: CheckedConfig,
    pub(crate) resources: Sized,
    pub(crate) grace: Duration,
    pub(crate) volume: Option<Volume>,
    pub(crate) schema: Option<SchemaPlan>,
    pub(crate) schema_step: SchemaStep,
    pub(crate) operator_version: String,
    pub(crate) pull_secrets: Vec<String>,
    pub(crate) drain_seconds: u32,
    /// `None` without a NetworkPolicy.
    pub(crate) network: Option<NetworkPeers>,
    /// `None` without a `PodMonitor`.
    pub(crate) pod_monitoring: Option<PodMonitoring>,
    pub(crate) operator_pods: Option<OperatorPods>,
    /// Whether the config or Secrets have brokers or credentials with which Kafka does not answer.
    pub(crate) holds_source: bool,
    /// Gateways that may be evicted at the same time; `None` without a budget.
    pub(crate) evicted_max: Option<u32>,
    /// Gateways that stay unready, and take no place among those.
    pub(crate) stay_unready: u32,
    pub(crate) edge: EdgePlan,
    /// The Service of gateways that accept OTLP; `None` with `source.kafka`.
    pub(crate) otlp: Option<OtlpService>,
    /// Partitions, or logs, that are sent to the table, by which it remembers tokens.
    pub(crate) sent: u32,
}

impl Plan {
    /// Names of the pipeline's objects.
    pub fn names(&self) -> &Names {
        &self.identity.names
    }

    /// Number of gateways. It is not in the StatefulSet that [`crate::objects::build`] makes, since a field manager of its own
    /// writes it.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// The edge.
    pub fn edge(&self) -> &EdgePlan {
        &self.edge
    }

    /// Where gateways accept OTLP, as host:port of their Service; none with `source.kafka`.
    pub fn endpoints(&self) -> Vec<String> {
        self.otlp.as_ref().map_or_else(Vec::new, |service| service.endpoints(self.names().namespace()))
    }

    /// Partitions of all topics; 0 with `source.otlp`.
    pub fn partitions(&self) -> u32 {
        self.topics.iter().fold(0, |sum, topic| topic.partitions.saturating_add(sum))
    }

    /// Topics with their partitions, by name.
    pub fn topics(&self) -> &[TopicStatus] {
        &self.topics
    }

    /// The gateways' config.
    pub fn config(&self) -> &CheckedConfig {
        &self.config
    }

    /// The config as the gateways read it.
    pub fn config_yaml(&self) -> String {
        parse::to_yaml(self.config.config())
    }

    pub fn config_hash(&self) -> String {
        hash::of_text(&self.config_yaml())
    }

    /// The gateways' image.
    pub fn image(&self) -> &str {
        &self.identity.image
    }

    /// The schema Job; `None` when the spec wants none.
    pub fn schema(&self) -> Option<&SchemaPlan> {
        self.schema.as_ref()
    }

    /// What must happen to the schema before gateways are started or changed.
    pub fn schema_step(&self) -> SchemaStep {
        self.schema_step
    }

    /// How the queue volumes grow; `None` without them.
    pub fn growth(&self) -> Option<&Growth> {
        self.volume.as_ref().map(|volume| &volume.growth)
    }

    /// The gateway that is to get a new volume next; `None` when none is, or something else is under way.
    pub fn replaced_next(&self) -> Option<u32> {
        self.volume.as_ref()?.replaced_next
    }

    /// Whether volumes that no gateway uses are deleted once they are drained.
    pub fn deletes_drained_volumes(&self) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.retention.deletes_drained)
    }

    /// Whether gateways that read from Kafka would get brokers or credentials with which Kafka does not answer. They keep their present
    /// ones until it does, since it may never answer.
    pub fn holds_source(&self) -> bool {
        self.holds_source
    }

    /// Whether gateways may be given what is planned: the schema lets them start, and Kafka is there for them.
    pub fn lets_gateways_change(&self) -> bool {
        self.schema_step.lets_gateways_start() && !self.holds_source
    }

    /// Whether only the schema Job keeps gateways from what is planned: those that run can still be added to and removed.
    pub fn waits_for_schema(&self) -> bool {
        let others_hold = self.holds_source || self.growth().is_some_and(Growth::holds_workload);
        !self.schema_step.lets_gateways_start() && !others_hold
    }

    /// Whether the StatefulSet may be applied: gateways may be changed, and it is not about to be recreated.
    pub fn lets_workload_change(&self) -> bool {
        self.lets_gateways_change() && !self.growth().is_some_and(Growth::holds_workload)
    }
}
