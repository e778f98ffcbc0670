//! Error texts about a kubeconfig that quote nothing of it: the parser's own message quotes the lines around an error, which may hold a
//! token.

use kube::config::{InferConfigError, KubeconfigError};
use std::error::Error as _;

/// Why neither a pod's service account nor a kubeconfig can be used.
pub fn what_is_wrong(error: &InferConfigError) -> String {
    match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(cause) => what_is_wrong_with(cause),
        None => error.to_string(),
    }
}

/// Why a kubeconfig cannot be used.
pub fn what_is_wrong_with(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(_) => "it is not a kubeconfig in YAML".to_owned(),
        cause => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn what_a_kubeconfig_holds_is_not_told() {
        let broken = "users:\n- name: a\n  user:\n    token: s3cr3t\n   oops: x\n";
        let error = Kubeconfig::from_yaml(broken).unwrap_err();
        assert_eq!(what_is_wrong_with(&error), "it is not a kubeconfig in YAML");
    }
}
