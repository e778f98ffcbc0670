//! What the pods run as: an account without rights in Kubernetes, with the annotations by which a cloud knows it.

use crate::identity::Identity;
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// The ServiceAccount. Kubernetes gives its pull Secrets to new pods that name none: a change of them replaces no gateway. They are left out
/// if there are none, so that others (a controller of `OpenShift`) keep the list.
pub(crate) fn service_account(
    identity: &Identity,
    component: &str,
    pull_secrets: &[String],
) -> ServiceAccount {
    let secrets = pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    let annotations = &identity.added.service_account_annotations;
    ServiceAccount {
        metadata: ObjectMeta {
            annotations: (!annotations.is_empty()).then(|| annotations.clone()),
            ..identity.metadata(&identity.account, component)
        },
        automount_service_account_token: Some(false),
        image_pull_secrets: (!pull_secrets.is_empty()).then(|| secrets.collect()),
        ..ServiceAccount::default()
    }
}
