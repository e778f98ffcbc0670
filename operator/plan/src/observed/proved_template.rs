//! The pod template for a rollback, as an annotation of the StatefulSet keeps it.

use crate::{
    ground::hash,
    names::{CONFIG_HASH, GATEWAY_CONTAINER, PROVED_TEMPLATE, REVISION, SOURCE_VERSION},
    observed::ProvedSeen,
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PodTemplateSpec};
use serde::{Deserialize, Serialize};

/// A pod template that gateways were ready with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProvedTemplate {
    pub revision: String,
    pub template: PodTemplateSpec,
    /// Of the source that it reads ([`SOURCE_VERSION`]); of older operators it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_version: Option<String>,
}

impl ProvedTemplate {
    /// What the StatefulSet's annotation says; `None` without the annotation, and if it cannot be read.
    pub(crate) fn kept_by(workload: &StatefulSet) -> Option<Self> {
        let annotations = workload.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(PROVED_TEMPLATE)?).ok()
    }

    /// The template that a StatefulSet has now.
    pub(crate) fn of(live: &StatefulSet) -> Option<Self> {
        let template = live.spec.as_ref()?.template.clone();
        let noted = |key| live.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        // An operator that did not name revisions made it; whatever is planned now counts as another one.
        let revision = noted(REVISION).unwrap_or_else(|| hash::of_object(&template));
        Some(Self { revision, template, source_version: noted(SOURCE_VERSION) })
    }

    /// What of it is worth knowing to a decision.
    pub(crate) fn seen(&self) -> ProvedSeen {
        let annotations = self.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        ProvedSeen {
            revision: self.revision.clone(),
            image: image_of(&self.template),
            config_hash: annotations.and_then(|all| all.get(CONFIG_HASH)).cloned(),
        }
    }
}

/// The image of a gateway's pod template.
pub(crate) fn image_of(template: &PodTemplateSpec) -> Option<String> {
    let containers = template.spec.as_ref().map(|spec| &spec.containers);
    containers?.iter().find(|container| container.name == GATEWAY_CONTAINER)?.image.clone()
}
