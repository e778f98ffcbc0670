//! What the pods run as: an account without rights, and without a token.

use crate::{identity::Identity, names::GATEWAY};
use k8s_openapi::api::core::v1::ServiceAccount;

/// The ServiceAccount.
pub(crate) fn service_account(identity: &Identity) -> ServiceAccount {
    ServiceAccount {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
