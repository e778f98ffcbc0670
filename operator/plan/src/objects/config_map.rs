//! A config in a ConfigMap that is named after its content and never changes.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use sluice_gateway_config::{CheckedConfig, parse};

/// The ConfigMap. It is immutable: a pod that restarts reads what it read before, and the kubelet watches nothing.
pub(crate) fn config_map(metadata: ObjectMeta, file: &str, yaml: String) -> ConfigMap {
    ConfigMap {
        metadata,
        data: Some([(file.to_owned(), yaml)].into()),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// A config as text.
pub(crate) fn yaml(config: &CheckedConfig) -> String {
    parse::to_yaml(config.config())
}
