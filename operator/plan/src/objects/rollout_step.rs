//! How a step of a rollout shapes the StatefulSet, and how it keeps the pod template for a rollback.
//!
//! An annotation of the StatefulSet keeps it. The request that brings the new template writes it, and the one that ends the rollout drops
//! it. So both are always there together, no other object can get lost or pruned, and a settled StatefulSet does not carry it.
//! Kubernetes' ControllerRevisions would need a right and a watch of their own, do not say which one was good, and are limited in number.

use crate::{
    ground::hash,
    names::{FAILED_REVISION, PLAN_HASH, PROVED_TEMPLATE, REVISION, SOURCE_VERSION},
    objects::workload::plan_hash,
    observed::{FailedSeen, proved_template::ProvedTemplate},
    rollout::{Memory, Step, Template},
};
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec};
use std::collections::BTreeMap;

/// The planned StatefulSet as this step wants it.
pub(crate) fn rolled(mut planned: StatefulSet, step: &Step, live: Option<&StatefulSet>) -> StatefulSet {
    let proved = live.and_then(|live| match step.memory {
        Memory::Nothing => None,
        Memory::Kept => ProvedTemplate::kept_by(live),
        Memory::Live => ProvedTemplate::of(live),
    });
    let spec = planned.spec.get_or_insert_default();
    let annotations = planned.metadata.annotations.get_or_insert_default();
    if let (Template::Live, Some(live)) = (step.template, live) {
        stay(spec, annotations, live);
        // A copy may be older than the last step, which it would take back: the server takes it in this version alone.
        planned.metadata.resource_version.clone_from(&live.metadata.resource_version);
        return planned;
    }
    let mut shown = hash::of_object(&spec.template);
    if let (Template::Proved, Some(proved)) = (step.template, &proved) {
        spec.template = proved.template.clone();
        shown.clone_from(&proved.revision);
        annotations.insert(PLAN_HASH.to_owned(), plan_hash(spec));
        annotations.remove(SOURCE_VERSION);
        annotations.extend(proved.source_version.clone().map(|version| (SOURCE_VERSION.to_owned(), version)));
        let failed = FailedSeen {
            revision: step.next.revision.clone(),
            spec: step.next.failed_spec.clone().unwrap_or_default(),
            message: step.next.message.clone(),
        };
        let text = serde_json::to_string(&failed).expect("three texts serialise");
        annotations.insert(FAILED_REVISION.to_owned(), text);
    }
    annotations.insert(REVISION.to_owned(), shown);
    if let Some(proved) = proved {
        let text = serde_json::to_string(&proved)
            .expect("objects of Kubernetes serialise: their maps have string keys");
        annotations.insert(PROVED_TEMPLATE.to_owned(), text);
    }
    // The server reads no value as 0. Without a rollout there is none.
    let partition = i32::try_from(step.partition).ok().filter(|partition| *partition > 0);
    if let (Some(partition), Some(strategy)) = (partition, &mut spec.update_strategy) {
        strategy.rolling_update = Some(RollingUpdateStatefulSetStrategy {
            partition: Some(partition),
            ..RollingUpdateStatefulSetStrategy::default()
        });
    }
    planned
}

/// Everything that belongs to the template is what the StatefulSet has, however far a rollout of it got.
fn stay(spec: &mut StatefulSetSpec, annotations: &mut BTreeMap<String, String>, live: &StatefulSet) {
    if let Some(has) = &live.spec {
        spec.template = has.template.clone();
        spec.update_strategy.clone_from(&has.update_strategy);
    }
    let noted = live.metadata.annotations.as_ref();
    for key in [PLAN_HASH, REVISION, SOURCE_VERSION, FAILED_REVISION, PROVED_TEMPLATE] {
        annotations.remove(key);
        annotations.extend(noted.and_then(|all| all.get(key)).map(|value| (key.to_owned(), value.clone())));
    }
}
