//! Names of objects, labels, annotations and paths in the pod. Each name is defined here once.

use sluice_crds::{NAME_CHARS_MAX, SecretUse, TracePipeline};
use sluice_gateway_config::Violations;
use std::collections::BTreeMap;

/// Annotation of the pod template: the hash of the config that the pod reads.
pub const CONFIG_HASH: &str = "sluice.dev/config-hash";
/// Annotation of pod templates: the version of the Secrets that the pod mounts, so that a new one restarts pods.
pub const SECRETS_VERSION: &str = "sluice.dev/secrets-version";
/// Annotation of pod templates: the hash of the annotations that the spec gives the ServiceAccount, so that other ones replace pods.
pub const SERVICE_ACCOUNT_VERSION: &str = "sluice.dev/service-account-version";
/// Annotation of the StatefulSet while Secrets have changed, but not in a key that gateways use: the former versions, which are kept.
pub const SECRETS_KEPT: &str = "sluice.dev/secrets-kept";
/// Annotation of the StatefulSet: the hash of its spec as planned, by which the plan is recognised as carried out.
pub const PLAN_HASH: &str = "sluice.dev/plan-hash";
/// Annotation of the StatefulSet: the hash of how its gateways reach Kafka, by which a change of that is recognised.
pub const SOURCE_VERSION: &str = "sluice.dev/source-version";
/// Annotation of the StatefulSet: the hash of the pod template that was planned for it, whether or not other fields change.
pub const REVISION: &str = "sluice.dev/revision";
/// Annotation of the StatefulSet while its pods are replaced: the pod template that is gone back to when that fails.
pub const PROVED_TEMPLATE: &str = "sluice.dev/proved-template";
/// Annotation of the StatefulSet while it is back on what ran before: the revision that failed.
pub const FAILED_REVISION: &str = "sluice.dev/failed-revision";
/// Label that the StatefulSet controller puts on each pod: the revision that the pod was made from.
pub const POD_REVISION: &str = "controller-revision-hash";

/// Annotation of a Job that drains a volume: the uid of the claim that it was made for.
pub const CLAIM_UID: &str = "sluice.dev/claim-uid";
/// Annotation of a Job that drains a volume: the version of the StatefulSet's spec when it was made.
pub const WORKLOAD_VERSION: &str = "sluice.dev/workload-version";

/// Finalizer and annotation of a gateway's pod that is empty and gets a new volume: what ran in it then, and the claim that it has.
pub const REPLACES_VOLUME: &str = "sluice.dev/replaces-volume";

/// Annotation of a gateway's pod that a person keeps out of its consumer group: `kubectl sluice drain` writes it, `--resume` takes it away.
pub const KEPT_OUT: &str = "sluice.dev/kept-out";

/// Annotation of a pipeline: the operator that looks after it, where several divide the pipelines of a cluster by their labels.
pub const SIGNATURE: &str = "sluice.dev/operator";
/// Annotation of a pipeline: the label selector of that operator.
pub const OPERATOR_SELECTOR: &str = "sluice.dev/operator-selector";

/// Label of a claim that no gateway uses: `true` when a Job has found the volume empty.
pub const DRAINED: &str = "sluice.dev/drained";
/// Annotation of a claim that was found empty and is to be deleted: what the API server said when it did not let it be.
pub const NOT_DELETED: &str = "sluice.dev/not-deleted";
/// Annotations of what is to stay without an owner, where Argo CD that tracks by label takes it for a part of the Application with the name
/// of the pipeline: it neither prunes it nor deletes it with the Application, and does not count it as a difference from Git.
pub const LEFT_BY_ARGO_CD: [(&str, &str); 2] = [
    ("argocd.argoproj.io/compare-options", "IgnoreExtraneous"),
    ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
];
/// Label: which part of the pipeline an object serves.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Label: the pipeline's name.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Label: who looks after the object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const OPERATOR: &str = "sluice-operator";
/// Field manager of the number of gateways.
pub const SCALER: &str = "sluice-operator/scaler";
/// Label: which program it is.
pub const NAME: &str = "app.kubernetes.io/name";
/// Value of [`NAME`].
pub const PROGRAM: &str = "sluice-gateway";
/// Value of [`COMPONENT`] on gateways.
pub const GATEWAY: &str = "gateway";
/// Value of [`COMPONENT`] on the schema Job.
pub const SCHEMA: &str = "schema";
/// Value of [`COMPONENT`] on Jobs that drain volumes.
pub const DRAIN: &str = "drain";

/// Value of [`COMPONENT`] on what serves the edge.
pub const EDGE: &str = "edge";
/// Value of [`NAME`] on what serves the edge. It is another one than that of gateways, so that nothing that selects gateways, or all of a
/// pipeline that reads, selects pods of the edge.
pub const EDGE_PROGRAM: &str = "sluice-edge";

/// The edge's container.
pub const EDGE_CONTAINER: &str = "edge";
/// The gateway's container.
pub const GATEWAY_CONTAINER: &str = "gateway";
/// The schema Job's container.
pub const SCHEMA_CONTAINER: &str = "schema";
/// The container of a Job that drains a volume.
pub const DRAIN_CONTAINER: &str = "drain";
/// The volume claim of each gateway; a claim is called `queue-<pod>`.
pub const QUEUE_CLAIM: &str = "queue";
/// The admin port's name.
pub const ADMIN_PORT_NAME: &str = "admin";
/// The admin port: `/metrics`, `/livez`, `/readyz`. The contract's default.
pub const ADMIN_PORT: i32 = 9090;
/// The port at which a gateway takes `/drain` and `/resume` from other pods: one above [`ADMIN_PORT`], as the contract says. The pod
/// template does not name it: it would only inform people, and adding it would replace all pods.
pub const CONTROL_PORT: i32 = 9091;
/// The port at which pods of the edge, and gateways with `source.otlp`, accept OTLP/gRPC.
pub const OTLP_GRPC_PORT: i32 = 4317;
/// Its name in the pod and in the Service.
pub const OTLP_GRPC: &str = "otlp-grpc";
/// The port at which they accept OTLP/HTTP.
pub const OTLP_HTTP_PORT: i32 = 4318;
/// Its name in the pod and in the Service.
pub const OTLP_HTTP: &str = "otlp-http";
/// Label that Kubernetes puts on each namespace: its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Folder of the config in the pod.
pub const CONFIG_FOLDER: &str = "/etc/sluice";
/// The config's file name, and its key in the ConfigMap.
pub const CONFIG_FILE: &str = "gateway.yaml";
/// The file name of the edge's config.
pub const EDGE_CONFIG_FILE: &str = "edge.yaml";
/// Below it lies a folder for each use of a Secret.
const SECRETS_FOLDER: &str = "/etc/sluice-secrets";
/// Folder of the tokens of the pods' ServiceAccount, one folder for each use.
const TOKENS_FOLDER: &str = "/etc/sluice-tokens";
/// The file of a token in its folder.
pub(crate) const TOKEN_FILE: &str = "token";

/// The names of one pipeline's objects; having one proves that they are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    namespace: String,
    pipeline: String,
}

impl Names {
    /// Names for a pipeline, or why its own name does not do. The API server's rule says the same; an object that was
    /// stored before the rule was there may still break it.
    pub fn of(pipeline: &TracePipeline) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let name = pipeline.metadata.name.clone().unwrap_or_default();
        let namespace = pipeline.metadata.namespace.clone().unwrap_or_default();
        found.add_if(!is_name(&name), "metadata.name", || {
            format!(
                "{name:?} must consist of a-z, 0-9 and '-', begin with a letter and have at most {NAME_CHARS_MAX} characters"
            )
        });
        found.add_if(namespace.is_empty(), "metadata.namespace", || "must not be empty".into());
        found.or(Self { namespace, pipeline: name })
    }

    /// The pipeline's namespace, which is that of all its objects.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pipeline's name.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// StatefulSet, headless Service, ServiceAccount, PodDisruptionBudget, NetworkPolicy and `PodMonitor` of the gateways.
    pub fn gateway(&self) -> String {
        format!("{}-gateway", self.pipeline)
    }

    /// Deployment, Service, ServiceAccount, PodDisruptionBudget, NetworkPolicy and `HorizontalPodAutoscaler` of the edge.
    pub fn edge(&self) -> String {
        format!("{}-edge", self.pipeline)
    }

    /// The Service of gateways that accept OTLP themselves.
    pub fn otlp(&self) -> String {
        format!("{}-otlp", self.pipeline)
    }

    /// The edge's ConfigMap, by the hash of its content.
    pub fn edge_config_map(&self, hash: &str) -> String {
        format!("{}-edge-config-{hash}", self.pipeline)
    }

    /// What the objects of a component are called that have no other name.
    pub(crate) fn of_component(&self, component: &str) -> String {
        if component == EDGE { self.edge() } else { self.gateway() }
    }

    /// The gateways' ConfigMap, by the hash of its content.
    pub fn config_map(&self, hash: &str) -> String {
        format!("{}-config-{hash}", self.pipeline)
    }

    /// The schema Job and its ConfigMap, by the hash of both.
    pub fn schema(&self, hash: &str) -> String {
        format!("{}-schema-{hash}", self.pipeline)
    }

    /// The claims of the gateways, without the number at the end.
    pub fn claim_prefix(&self) -> String {
        format!("{QUEUE_CLAIM}-{}-", self.gateway())
    }

    /// The Job that drains the volume of this gateway.
    pub fn drain(&self, ordinal: u32) -> String {
        format!("{}-drain-{ordinal}", self.pipeline)
    }

    /// The consumer group unless the spec names one.
    pub fn consumer_group(&self) -> String {
        format!("{}.{}", self.namespace, self.pipeline)
    }

    /// Labels of every object of the pipeline: none is copied from the pipeline's own labels, which belong to the tool that deploys it.
    pub fn labels(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = self.selector(component);
        labels.insert("app.kubernetes.io/part-of".into(), "sluice".into());
        labels.insert(MANAGED_BY.into(), OPERATOR.into());
        labels
    }

    /// Labels that select the pods of a component. They can never change: a StatefulSet's selector is immutable.
    pub fn selector(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = self.selector_of_all();
        labels.insert(COMPONENT.into(), component.into());
        if component == EDGE {
            labels.insert(NAME.into(), EDGE_PROGRAM.into());
        }
        labels
    }

    /// Labels that select gateways and Jobs of the pipeline, and not its edge.
    pub fn selector_of_all(&self) -> BTreeMap<String, String> {
        [(NAME.into(), PROGRAM.into()), (INSTANCE.into(), self.pipeline.clone())].into()
    }

    /// [`Self::selector`] of the gateways as text, for the scale subresource and for lists.
    pub fn selector_text(&self) -> String {
        let labels = self.selector(GATEWAY);
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// `source.kafka.sasl.oauth.serviceAccountToken`
    Kafka,
    /// `source.kafka.sasl.oauth.clientCredentials.clientAssertion`
    KafkaAssertion,
    /// `sink.clickhouse.credentials.serviceAccountToken`
    ClickHouse,
}

/// The volume of a token of the pods' ServiceAccount.
pub(crate) fn token_volume(of: TokenUse) -> &'static str {
    match of {
        TokenUse::Kafka => "kafka-token",
        TokenUse::KafkaAssertion => "kafka-assertion",
        TokenUse::ClickHouse => "clickhouse-pod-token",
    }
}

/// Where that volume is mounted.
pub(crate) fn token_folder(of: TokenUse) -> String {
    format!("{TOKENS_FOLDER}/{}", token_volume(of))
}

/// The file of a token.
pub(crate) fn token_file(of: TokenUse) -> String {
    format!("{}/{TOKEN_FILE}", token_folder(of))
}

/// The volume of a use of a Secret.
pub(crate) fn secret_volume(of: SecretUse) -> &'static str {
    match of {
        SecretUse::KafkaAuthorities => "kafka-ca",
        SecretUse::KafkaCertificate => "kafka-certificate",
        SecretUse::KafkaUser => "kafka-user",
        SecretUse::KafkaClient => "kafka-client",
        SecretUse::KafkaTokenAuthorities => "kafka-token-ca",
        SecretUse::KafkaAws => "kafka-aws",
        SecretUse::ClickHouseAuthorities => "clickhouse-ca",
        SecretUse::ClickHouseCertificate => "clickhouse-certificate",
        SecretUse::ClickHouseUser => "clickhouse-user",
        SecretUse::ClickHouseToken => "clickhouse-token",
        // Names of volumes that begin with sluice- are the operator's: `podTemplate` refuses them.
        SecretUse::EdgeCertificate => "sluice-edge-certificate",
        SecretUse::EdgeClientAuthorities => "sluice-edge-client-ca",
        SecretUse::EdgeBearerTokens => "sluice-edge-tokens",
        SecretUse::EdgeBasicUsers => "sluice-edge-users",
        SecretUse::OtlpCertificate => "sluice-otlp-certificate",
        SecretUse::OtlpClientAuthorities => "sluice-otlp-client-ca",
        SecretUse::OtlpBearerTokens => "sluice-otlp-tokens",
        SecretUse::OtlpBasicUsers => "sluice-otlp-users",
    }
}

/// Where that volume is mounted.
pub(crate) fn secret_folder(of: SecretUse) -> String {
    format!("{SECRETS_FOLDER}/{}", secret_volume(of))
}

/// The file of a value of a Secret, by the key that it has where the spec names none.
pub(crate) fn secret_file(of: SecretUse, key: &str) -> String {
    format!("{}/{key}", secret_folder(of))
}

fn is_name(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.bytes().all(legal)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::hash::HASH_CHARS;

    #[test]
    fn the_longest_names_fit_a_label() {
        let names = Names { namespace: "n".into(), pipeline: "p".repeat(NAME_CHARS_MAX) };
        let hash = "0".repeat(HASH_CHARS);
        // The Job controller puts the Job's name on its pods as a label.
        assert!(names.schema(&hash).len() <= 63);
        assert!(names.config_map(&hash).len() <= 63);
        assert!(names.drain(u32::MAX).len() <= 63);
        // A Service's name is a label of DNS. A pod of the edge has the hash of its ReplicaSet and five characters more.
        assert!(names.edge().len() + 1 + 10 + 1 + 5 <= 253 && names.edge().len() <= 63);
        assert!(names.otlp().len() <= 63);
        // The StatefulSet controller puts its name, a dash and up to ten digits on its pods as a label.
        assert!(names.gateway().len() + 1 + 10 <= 63);
    }

    #[test]
    fn a_name_is_what_a_service_can_be_called() {
        for name in ["a", "prod-traces", "a1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1a", "a.b", "a-", "-a", "A", &"a".repeat(45)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
