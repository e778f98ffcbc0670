//! What follows from `spec.edge`: the pods that accept OTLP, or what keeps them from being made.
//!
//! The edge does not decide about gateways, and gateways do not decide about the edge: what is missing for one does not hold the other. It uses
//! the gateways' image and login to Kafka.

use crate::{
    facts::Observed,
    ground::hash,
    identity::{
        Identity, OperatorPods,
        secrets::{Unusable, mounted},
    },
    otlp_service::OtlpService,
    pipeline::{
        edge_config,
        network_peers::NetworkPeers,
        resources::{self, Sized},
    },
};
use sluice_crds::{Edge, EdgeAutoscaling, Side, TracePipeline};
use sluice_gateway_config::{CheckedEdgeConfig, Violations, parse};

/// Pods of an edge whose spec names no number: one may be evicted or replaced while the other accepts spans.
const REPLICAS: u32 = 2;

/// What follows from `spec.edge`.
#[derive(Debug, Clone, PartialEq)]
pub enum EdgePlan {
    /// The spec asks for none.
    None,
    /// A Secret of its clients is missing. What runs keeps running.
    Waiting(EdgeWaiting),
    /// All that it needs is there.
    Ready(Box<ReadyEdge>),
}

/// What keeps an edge from being made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeWaiting {
    /// The reason of the condition `EdgeReady`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// An edge, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyEdge {
    pub(crate) identity: Identity,
    pub(crate) config: CheckedEdgeConfig,
    pub(crate) resources: Sized,
    pub(crate) scale: EdgeScale,
    pub(crate) service: OtlpService,
    pub(crate) operator_pods: Option<OperatorPods>,
    pub(crate) pull_secrets: Vec<String>,
    /// `None` without a NetworkPolicy.
    pub(crate) network: Option<NetworkPeers>,
    /// Pods that may be evicted at the same time; `None` without a budget.
    pub(crate) evicted_max: Option<u32>,
}

/// Who sets the number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeScale {
    /// The operator sets this number.
    Fixed(u32),
    /// A `HorizontalPodAutoscaler`.
    Autoscaled {
        /// The least.
        replicas_min: u32,
        /// The most.
        replicas_max: u32,
        /// CPU that pods should use on average, in percent of what is reserved.
        cpu_percent: u32,
    },
}

impl EdgeScale {
    fn of(edge: &Edge) -> Self {
        match edge.autoscaling {
            Some(EdgeAutoscaling { min_replicas, max_replicas, target_cpu_percent }) => Self::Autoscaled {
                replicas_min: min_replicas,
                replicas_max: max_replicas,
                cpu_percent: target_cpu_percent,
            },
            None => Self::Fixed(edge.replicas.unwrap_or(REPLICAS)),
        }
    }

    /// The number that the operator keeps; `None` if an autoscaler sets it.
    pub fn fixed(self) -> Option<u32> {
        match self {
            Self::Fixed(replicas) => Some(replicas),
            Self::Autoscaled { .. } => None,
        }
    }

    /// The number that the Deployment is made with.
    pub fn first(self) -> u32 {
        match self {
            Self::Fixed(replicas) | Self::Autoscaled { replicas_min: replicas, .. } => replicas,
        }
    }
}

impl EdgePlan {
    /// Reads `spec.edge`, or lists what is wrong with it. `identity` is that of gateways.
    pub(crate) fn of(
        pipeline: &TracePipeline,
        identity: &Identity,
        observed: &Observed,
        (operator_pods, pull_secrets): (Option<&OperatorPods>, &[String]),
    ) -> Result<Self, Violations> {
        let spec = &pipeline.spec;
        let Some(edge) = spec.edge.as_deref() else { return Ok(Self::None) };
        let mut found = Violations::default();
        let sized = resources::read_edge(&edge.resources, &mut found);
        // What is wrong with the peers is said of gateways.
        let network = NetworkPeers::of(spec, &mut Violations::default());
        let Some(sized) = sized else { return Err(found) };
        found.or(())?;
        let config = edge_config::build(&identity.names, spec, edge, &sized)?;
        let service = OtlpService::of_edge(&identity.names, edge.listeners())?;
        let clients = mounted(spec, &observed.secrets, Side::Edge);
        let identity = identity.of_edge(pipeline, edge, clients.clone().unwrap_or_default())?;
        if let Err(Unusable { reason, message }) = clients {
            return Ok(Self::Waiting(EdgeWaiting { reason, message }));
        }
        let budget = spec.pod_disruption_budget.unwrap_or_default();
        Ok(Self::Ready(Box::new(ReadyEdge {
            identity,
            config,
            resources: sized,
            scale: EdgeScale::of(edge),
            service,
            operator_pods: operator_pods.cloned(),
            pull_secrets: pull_secrets.to_vec(),
            network,
            evicted_max: Some(budget.max_unavailable).filter(|_| budget.enabled),
        })))
    }

    /// The edge, if all that it needs is there.
    pub fn ready(&self) -> Option<&ReadyEdge> {
        match self {
            Self::Ready(edge) => Some(edge),
            Self::None | Self::Waiting(_) => None,
        }
    }
}

impl ReadyEdge {
    /// Who sets the number of pods.
    pub fn scale(&self) -> EdgeScale {
        self.scale
    }

    /// The config as the edge reads it.
    pub fn config_yaml(&self) -> String {
        parse::edge_to_yaml(self.config.config())
    }

    pub(crate) fn config_hash(&self) -> String {
        hash::of_text(&self.config_yaml())
    }
}
