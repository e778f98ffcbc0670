//! What every step of a reconcile shares. It names none of the steps.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`cache`] | copies of the objects that the operator watches |
//! | [`connections`] | connections that pipelines share |
//! | [`memory`] | what is remembered of a pipeline between two reconciles |
//! | [`responsibility`] | whether this operator looks after a pipeline, where several divide them |
//! | [`clock`], [`server_time`] | this machine's time, and the API server's |
//! | [`status`] | what a pipeline's status says is under way |
//! | [`api_error`], [`error`] | failed requests, and why a reconcile failed |
//! | [`events`], [`metrics`] | handles for Kubernetes events and for Prometheus metrics |

pub mod api_error;
pub mod cache;
pub mod clock;
pub mod connections;
pub mod error;
pub mod events;
pub mod memory;
pub mod metrics;
pub mod responsibility;
pub mod server_time;
pub mod status;

use cache::{AllPipelines, Cache, Pipeline};
use clock::Clock;
use events::Events;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, runtime::reflector::ObjectRef};
use memory::{Key, Memory};
use metrics::Metrics;
use responsibility::Responsibility;
use server_time::ServerTime;
use sluice_plan::{Defaults, Moment};
use std::sync::Arc;

/// What all scopes share.
pub struct Shared {
    /// The API server.
    pub client: Client,
    /// Publishes events.
    pub events: Events,
    /// The operator's metrics.
    pub metrics: Arc<Metrics>,
    /// What the operator brings to every plan.
    pub defaults: Defaults,
    /// What is remembered of each pipeline.
    pub memory: Memory,
    /// Which pipelines this operator looks after.
    pub responsibility: Responsibility,
    /// The pipelines of all scopes.
    pub pipelines: Arc<AllPipelines>,
    /// This machine's clock; tests have another one.
    pub clock: Clock,
    /// The API server's clock.
    pub server_time: ServerTime,
}

/// What a step works with.
pub struct World {
    /// What all scopes share.
    pub shared: Arc<Shared>,
    /// Copies of the objects of this scope.
    pub cache: Cache,
}

impl World {
    /// An event concerns this pipeline: what it waits for may exist now.
    pub fn concerned(&self, pipeline: &ObjectRef<Pipeline>) {
        let namespace = pipeline.namespace.clone().unwrap_or_default();
        self.shared.memory.concerned(&Key { namespace, name: pipeline.name.clone() });
    }

    /// The time by this machine's clock.
    pub fn now(&self) -> Moment {
        (self.shared.clock)()
    }

    /// As [`Self::now`], as Kubernetes writes times.
    pub fn timestamp(&self) -> Timestamp {
        clock::timestamp(self.now())
    }
}
