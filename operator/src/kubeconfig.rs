//! What is wrong with a kubeconfig, without what it holds: a parser quotes the lines around a mistake, and one of them may be a token.

use kube::config::{InferConfigError, KubeconfigError};
use std::error::Error as _;

/// Why neither a pod's service account nor a kubeconfig helps.
pub fn what_is_wrong(error: &InferConfigError) -> String {
    match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(cause) => what_is_wrong_with(cause),
        None => error.to_string(),
    }
}

/// Why a kubeconfig does not help.
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
