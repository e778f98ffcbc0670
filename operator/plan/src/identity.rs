//! Whose the pods of a pipeline are, and what they run as: names, owner, image, Secrets, and what the spec adds to pods.

pub mod image;
pub mod secrets;
pub mod tokens;

use crate::{
    names::{Names, TokenUse},
    pipeline::pod_template::Added,
};
use image::Image;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use secrets::Mounted;
use sluice_crds::{Edge, ImagePullPolicy, Side, TracePipeline};
use sluice_gateway_config::Violations;
use std::collections::BTreeMap;
use tokens::MountedToken;

/// What the operator brings to every plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The gateway image of pipelines that name none and have not begun with another one.
    pub gateway_image: String,
    /// Pull Secrets of each ServiceAccount of gateways. Kubernetes gives them to pods that name none, so that they are in no pod template.
    pub gateway_image_pull_secrets: Vec<String>,
    /// The operator's version. It stands only in the status, so a new operator with the same image changes no pod.
    pub operator_version: String,
    /// Who may tell gateways to drain; `None` for an operator that runs in no pod, or does not know the labels of its own.
    pub operator_pods: Option<OperatorPods>,
}

/// The pods of the operator, as a NetworkPolicy names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorPods {
    /// Their namespace.
    pub namespace: String,
    /// Labels that they have and no other pod of the namespace.
    pub labels: BTreeMap<String, String>,
}

/// What the gateways and the schema Job of a pipeline have in common: whose they are, and what they run as.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    pub names: Names,
    /// The ServiceAccount that pods run as.
    pub account: String,
    pub owner: OwnerReference,
    pub image: String,
    pub image_pull_policy: &'static str,
    pub secrets: Vec<Mounted>,
    pub tokens: Vec<MountedToken>,
    pub added: Added,
}

impl Identity {
    /// Everything that the spec and the Secrets say; violations when the object does not come from an API server.
    pub(crate) fn of(
        pipeline: &TracePipeline,
        secrets: Vec<Mounted>,
        image: &Image,
    ) -> Result<Self, Violations> {
        let names = Names::of(pipeline)?;
        let mut found = Violations::default();
        let owner = pipeline.controller_owner_ref(&());
        found.add_if(owner.is_none(), "metadata.uid", || {
            "must be set: the owner of objects must exist".into()
        });
        let gateway = &pipeline.spec.gateway;
        let added = Added::of(gateway, &names, &mut found);
        let Some(owner) = owner else { return Err(found) };
        found.or(Self {
            account: names.gateway(),
            names,
            // The pipeline stays until what it owns is gone, when its deletion is asked to wait for that.
            owner: OwnerReference { block_owner_deletion: Some(true), ..owner },
            image: image.runs.clone(),
            image_pull_policy: match gateway.image_pull_policy {
                ImagePullPolicy::Always => "Always",
                ImagePullPolicy::IfNotPresent => "IfNotPresent",
                ImagePullPolicy::Never => "Never",
            },
            secrets,
            tokens: tokens::mounted(&pipeline.spec),
            added,
        })
    }

    /// The same for a Job, which accepts no OTLP: without the Secrets of clients.
    pub(crate) fn of_job(&self) -> Self {
        let secrets = self.secrets.iter().filter(|secret| !secret.of.is_of_clients()).cloned().collect();
        Self { secrets, ..self.clone() }
    }

    /// The same for the edge: its own account, labels and place, the Secrets and tokens of Kafka, and those of its clients.
    pub(crate) fn of_edge(
        &self,
        pipeline: &TracePipeline,
        edge: &Edge,
        clients: Vec<Mounted>,
    ) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let added = Added::of_edge(edge, &pipeline.spec.gateway, &self.names, &mut found);
        let of_kafka = self.secrets.iter().filter(|secret| secret.of.side() == Side::Source).cloned();
        let is_of_kafka =
            |token: &&MountedToken| matches!(token.of, TokenUse::Kafka | TokenUse::KafkaAssertion);
        found.or(Self {
            account: self.names.edge(),
            secrets: of_kafka.chain(clients).collect(),
            tokens: self.tokens.iter().filter(is_of_kafka).cloned().collect(),
            added,
            ..self.clone()
        })
    }
}
