//! Error texts about a kubeconfig that quote nothing of it: the parser's own message quotes the lines around an error, which may hold a
//! token.

use kube::config::KubeconfigError;
use std::error::Error;

/// Why a kubeconfig or a pod's service account cannot be used.
pub fn words(error: &(dyn Error + 'static)) -> String {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref()) {
        Some(KubeconfigError::Parse(_)) => "it is not a kubeconfig in YAML".to_owned(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn nothing_of_a_kubeconfig_is_quoted() {
        let broken = "users:\n- name: a\n  user:\n    token: s3cr3t\n   oops: x\n";
        let error = Kubeconfig::from_yaml(broken).unwrap_err();
        assert_eq!(words(&error), "it is not a kubeconfig in YAML");
    }
}
