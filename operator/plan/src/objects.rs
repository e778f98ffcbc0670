//! The objects of a pipeline, one file per kind. Building cannot fail, because the plan was checked.
//!
//! They are applied in the order of the fields of [`Parts`]: first what pods mount and run as, then what surrounds
//! them, then the schema Job, and the StatefulSet last, once the Job has succeeded.

mod config_map;
mod disruption_budget;
mod drain_job;
mod edge;
mod network_policy;
mod pod;
mod pod_monitor;
mod rollout_step;
mod schema_job;
mod service;
mod service_account;
mod workload;

pub use drain_job::drain_job;
pub use edge::{EdgeParts, edge};
pub use pod_monitor::{PodMonitor, pod_monitor};

use crate::{
    ground::hash,
    identity::{Identity, secrets},
    names::{CONFIG_FILE, CONFIG_HASH, GATEWAY, SCHEMA, SECRETS_VERSION},
    observed::proved_template::ProvedTemplate,
    planned::Plan,
    rollout,
    schema::SchemaPlan,
};
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        batch::v1::Job,
        core::v1::{ConfigMap, Pod, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
};

/// Objects that we want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired;

/// Objects that the API server has confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied;

/// The objects of one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Objects<State> {
    parts: Parts,
    state: PhantomData<State>,
}

/// The objects one by one, in the order in which they are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// What all pods run as; it has no rights and no token.
    pub service_account: ServiceAccount,
    /// The gateways' config.
    pub config_map: ConfigMap,
    /// The headless Service, which gives gateways their names.
    pub service: Service,
    /// What OTLP clients send to; `None` with `source.kafka`.
    pub otlp_service: Option<Service>,
    /// What the pods may be reached at; `None` where the spec leaves that to others.
    pub network_policy: Option<NetworkPolicy>,
    /// How many gateways may be evicted at the same time; `None` where the spec leaves that to others.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// The schema Job's config; `None` without a Job.
    pub schema_config_map: Option<ConfigMap>,
    /// The schema Job; `None` when none is needed, or when one that failed is to be deleted first, to
    /// be run again.
    pub schema_job: Option<Job>,
    /// The gateways, without `replicas`; `None` until the schema is as it must be, and while the StatefulSet is made anew for larger
    /// volumes. What runs then keeps running.
    pub workload: Option<StatefulSet>,
    /// The edge, which is applied beside the others, and also while the pipeline is suspended; `None` without one, or while a Secret of its
    /// clients is missing.
    pub edge: Option<EdgeParts>,
}

impl Parts {
    /// Every object that there is, as it would be sent, in the order in which they are applied.
    pub fn documents(&self) -> Vec<Value> {
        let parts = [
            Some(document(&self.service_account)),
            Some(document(&self.config_map)),
            Some(document(&self.service)),
            self.otlp_service.as_ref().map(document),
            self.network_policy.as_ref().map(document),
            self.disruption_budget.as_ref().map(document),
            self.schema_config_map.as_ref().map(document),
            self.schema_job.as_ref().map(document),
            self.workload.as_ref().map(document),
        ];
        let of_edge = self.edge.iter().flat_map(EdgeParts::documents);
        parts.into_iter().flatten().chain(of_edge).collect()
    }
}

fn document(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("objects of Kubernetes serialise: their maps have string keys")
}

impl Objects<Desired> {
    /// Hands the objects over to be applied.
    pub fn into_parts(self) -> Parts {
        self.parts
    }

    /// With the workload as a step of its rollout wants it: which pods get which template, and what is remembered of the one before.
    /// `live` is the workload that the step was decided on.
    #[must_use]
    pub fn rolled(mut self, step: &rollout::Step, live: Option<&StatefulSet>) -> Self {
        let workload = self.parts.workload.take();
        self.parts.workload = workload.map(|planned| rollout_step::rolled(planned, step, live));
        self
    }
}

impl Objects<Applied> {
    /// Takes what the API server returned for every part.
    pub fn confirm(parts: Parts) -> Self {
        Self { parts, state: PhantomData }
    }
}

impl<State> Objects<State> {
    /// The objects.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
}

/// Builds every object of a plan.
pub fn build(plan: &Plan) -> Objects<Desired> {
    let schema = plan.schema.as_ref().map(schema_objects);
    let (schema_config_map, schema_job) = schema.unzip();
    Objects {
        parts: Parts {
            service_account: service_account::service_account(&plan.identity, GATEWAY, &plan.pull_secrets),
            config_map: gateway_config_map(plan),
            service: service::service(&plan.identity),
            otlp_service: plan.otlp.as_ref().map(|otlp| service::otlp_service(&plan.identity, otlp)),
            network_policy: plan.network.as_ref().map(|peers| {
                let operator = plan.operator_pods.as_ref();
                network_policy::network_policy(&plan.identity, operator, peers, plan.otlp.is_some())
            }),
            disruption_budget: plan.evicted_max.map(|most| {
                disruption_budget::disruption_budget(&plan.identity, GATEWAY, most, plan.stay_unready)
            }),
            schema_config_map,
            schema_job: schema_job.filter(|_| plan.schema_step.has_job()),
            workload: plan.lets_workload_change().then(|| workload::workload(plan)),
            edge: plan.edge.ready().map(edge),
        },
        state: PhantomData,
    }
}

/// The hash of the StatefulSet that the plan asks for, whether or not it may be applied yet.
pub fn plan_hash(plan: &Plan) -> String {
    workload::plan_hash(&workload::spec(plan))
}

/// The revision of gateways that the plan asks for: the hash of their pod template.
pub fn revision(plan: &Plan) -> String {
    hash::of_object(&workload::spec(plan).template)
}

/// The revision that the plan asks for if its Secrets have the version that this StatefulSet gives to gateways. A client that may not read
/// Secrets compares it with the revision that the StatefulSet has.
pub fn revision_with_secrets_of(plan: &Plan, live: &StatefulSet) -> String {
    let mut template = workload::spec(plan).template;
    let given = live.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref()?.annotations.as_ref());
    let version = given.and_then(|annotations| annotations.get(SECRETS_VERSION));
    let annotations = template.metadata.as_mut().and_then(|metadata| metadata.annotations.as_mut());
    let planned = annotations.and_then(|annotations| annotations.get_mut(SECRETS_VERSION));
    if let (Some(planned), Some(version)) = (planned, version) {
        planned.clone_from(version);
    }
    hash::of_object(&template)
}

/// Names of the configs that pods of a StatefulSet read: those of its template, and of the one for a rollback.
pub fn configs_of(workload: &StatefulSet) -> BTreeSet<String> {
    let live = workload.spec.as_ref().map(|spec| spec.template.clone());
    let kept = ProvedTemplate::kept_by(workload).map(|proved| proved.template);
    let volumes = live.into_iter().chain(kept).filter_map(|template| template.spec?.volumes).flatten();
    volumes.filter_map(|volume| Some(volume.config_map?.name)).collect()
}

/// Names of the configs that these pods mount.
pub fn configs_of_pods<'a>(pods: impl Iterator<Item = &'a Pod>) -> BTreeSet<String> {
    let volumes = pods.filter_map(|pod| pod.spec.as_ref()?.volumes.as_ref()).flatten();
    volumes.filter_map(|volume| Some(volume.config_map.as_ref()?.name.clone())).collect()
}

/// The config that the template of a StatefulSet has now.
pub fn live_config_of(workload: &StatefulSet) -> Option<&str> {
    let volumes = workload.spec.as_ref()?.template.spec.as_ref()?.volumes.as_ref()?;
    let config = volumes.iter().find(|volume| volume.name == pod::CONFIG_VOLUME)?.config_map.as_ref()?;
    Some(config.name.as_str())
}

impl SchemaPlan {
    /// Name of the Job and of its ConfigMap: the hash of all that the Job is and reads.
    pub fn name(&self) -> String {
        let yaml = config_map::yaml(&self.config);
        self.identity.names.schema(&hash::of_text(&(hash::of_object(&schema_job::spec(self, "")) + &yaml)))
    }
}

fn schema_objects(schema: &SchemaPlan) -> (ConfigMap, Job) {
    let name = schema.name();
    let metadata = || schema.identity.metadata(&name, SCHEMA);
    (
        config_map::config_map(metadata(), CONFIG_FILE, config_map::yaml(&schema.config)),
        schema_job::schema_job(metadata(), schema),
    )
}

fn gateway_config_map(plan: &Plan) -> ConfigMap {
    let name = plan.names().config_map(&plan.config_hash());
    config_map::config_map(plan.identity.metadata(&name, GATEWAY), CONFIG_FILE, plan.config_yaml())
}

impl Identity {
    /// Metadata of an object of this pipeline.
    fn metadata(&self, name: &str, component: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.names.namespace().to_owned()),
            labels: Some(self.names.labels(component)),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    /// Labels of a pod: ours, and those that the spec adds. The spec cannot replace ours.
    fn pod_labels(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = self.added.labels.clone();
        labels.extend(self.names.labels(component));
        labels
    }

    /// Annotations of a pod: it is replaced when one of them changes.
    fn pod_annotations(&self, config_hash: Option<String>) -> Option<BTreeMap<String, String>> {
        let config = config_hash.map(|hash| (CONFIG_HASH.to_owned(), hash));
        let secrets = secrets::version(&self.secrets).map(|version| (SECRETS_VERSION.to_owned(), version));
        let mut annotations = self.added.annotations.clone();
        annotations.extend(config.into_iter().chain(secrets));
        (!annotations.is_empty()).then_some(annotations)
    }

    /// What the spec adds to the annotations of a pod.
    fn annotations_added(&self) -> Option<BTreeMap<String, String>> {
        (!self.added.annotations.is_empty()).then(|| self.added.annotations.clone())
    }
}
