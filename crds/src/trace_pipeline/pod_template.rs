//! What the pods of a pipeline get beside what the operator gives them: names for others, places, variables, volumes, name resolution and
//! security contexts.
//!
//! All but the first has Kubernetes' own types, so that what is written for a Deployment can be copied; [`bounded`] is their schema.

use crate::{
    of_kubernetes::{bounded, variables},
    texts,
};
use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, HostAlias, PodDNSConfig, PodSecurityContext, SecurityContext, Toleration,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Keys of labels and annotations that the operator leaves to a person.
pub(crate) const OWN_KEYS: &str =
    "self.all(k, !k.startsWith('app.kubernetes.io/') && !k.startsWith('sluice.dev/'))";
/// `tolerationSeconds` has an effect.
pub(crate) const TOLERATED_FOR: &str =
    "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))";
/// A toleration has a key or the operator Exists.
pub(crate) const TOLERATION_VALUE: &str = "self.all(t, has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')";
/// `minDomains` has an effect.
pub(crate) const MIN_DOMAINS: &str =
    "self.all(c, !has(c.minDomains) || c.whenUnsatisfiable == 'DoNotSchedule')";

/// What pods get beside what the operator sets. A change replaces gateways as rollout says. The pods of Jobs, which make the table and
/// drain volumes, get all of it except pod affinity, pod anti-affinity and topologySpreadConstraints: a Job that had to avoid gateways
/// might be unschedulable, and gateways wait for it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && self.volumes.exists(v, v.name == m.name))")
        .message("each of volumeMounts names one of volumes of podTemplate: the operator mounts config, Secrets and queue itself"),
    validation = Rule::new(
        "!has(self.dnsPolicy) || self.dnsPolicy != 'None' \
         || (has(self.dnsConfig) && has(self.dnsConfig.nameservers) && size(self.dnsConfig.nameservers) > 0)")
        .message("dnsPolicy None needs dnsConfig.nameservers: the pods would resolve no name without them")
)]
pub struct PodTemplate {
    /// More labels of the pods, at most 32. None begins with app.kubernetes.io/ or sluice.dev/: by those the operator, Services and
    /// policies know the pods. Nor is one a label that Kubernetes sets itself, such as job-name or topology.kubernetes.io/zone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("labels of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those, and knows pods by \
                  them"))]
    pub labels: BTreeMap<String, LabelValue>,

    /// More annotations of the pods, at most 32, such as sidecar.istio.io/inject: "false" (a sidecar that never ends keeps the pod of a Job
    /// until the Job's deadline). None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("annotations of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub annotations: BTreeMap<String, AnnotationValue>,

    /// Annotations of the pods' ServiceAccount, at most 32, such as eks.amazonaws.com/role-arn or azure.workload.identity/client-id: the
    /// cloud gives pods an identity by them when it admits the pods. So a change replaces gateways. None begins with app.kubernetes.io/ or
    /// sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("serviceAccountAnnotations of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub service_account_annotations: BTreeMap<String, AnnotationValue>,

    /// Labels that a node must have, at most 32. A volume is bound to the node or zone where it was made: if that no longer matches, its
    /// gateway is unschedulable, and the change is rolled back (see rollout.autoRollback).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, LabelValue>,

    /// Taints of nodes that the pods tolerate, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<Toleration>>")]
    #[x_kube(
        validation = Rule::new(TOLERATED_FOR)
            .message("tolerationSeconds of a toleration needs effect NoExecute: nothing else ends pods that run"),
        validation = Rule::new(TOLERATION_VALUE)
            .message("a toleration with operator Exists has no value, and one without a key has operator Exists, such as {operator: Exists}"),
        merge_strategy = ListMerge::Atomic
    )]
    pub tolerations: Vec<Toleration>,

    /// Which nodes the pods prefer or must have (nodeAffinity), and which pods they are to be near to or far from (podAffinity,
    /// podAntiAffinity; gateways alone). A term about pods names them by its labelSelector; those of this pipeline have
    /// app.kubernetes.io/instance: <name>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::<Affinity>")]
    pub affinity: Option<Affinity>,

    /// How gateways are spread over nodes or zones, at most 32; each topologyKey and whenUnsatisfiable once. One without a labelSelector
    /// counts this pipeline's gateways. When none is set, the scheduler's own defaults, which spread the pods of a StatefulSet over
    /// nodes and zones where it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<TopologySpreadConstraint>>")]
    #[x_kube(
        validation = Rule::new(MIN_DOMAINS)
            .message("minDomains of a topologySpreadConstraint needs whenUnsatisfiable DoNotSchedule"),
        merge_strategy = ListMerge::Map(vec!["topologyKey".into(), "whenUnsatisfiable".into()])
    )]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// PriorityClass of the pods, for preemption. When it is not set, the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::object_name("priorityClassName is the name of a PriorityClass", "system-cluster-critical"))]
    pub priority_class_name: Option<String>,

    /// RuntimeClass of the pods. When it is not set, the nodes' own runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::object_name("runtimeClassName is the name of a RuntimeClass", "gvisor"))]
    pub runtime_class_name: Option<String>,

    /// More variables of the container, at most 32, such as SSL_CERT_FILE or TZ. POD_NAME, NODE_ZONE and names that begin with SLUICE_ are
    /// the operator's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "variables")]
    #[x_kube(
        validation = Rule::new("self.all(e, !(e.name in ['POD_NAME', 'NODE_ZONE']) && !e.name.startsWith('SLUICE_'))")
            .message("env of podTemplate cannot set POD_NAME, NODE_ZONE or a name that begins with SLUICE_: the operator sets those, and a \
                      gateway's name in its consumer group is its POD_NAME"),
        validation = Rule::new("self.all(e, !has(e.valueFrom) || !has(e.value) || e.value == '')")
            .message("a variable of env has value or valueFrom, and not both"),
        merge_strategy = ListMerge::Map(vec!["name".into()])
    )]
    pub env: Vec<EnvVar>,

    /// More volumes of the pods, at most 32, of the kinds that restricted pod security allows: configMap, csi, downwardAPI, emptyDir,
    /// persistentVolumeClaim, projected or secret. All gateways and Jobs mount the same one: a persistentVolumeClaim must allow that. The
    /// names config, queue and those that begin with kafka-, clickhouse- or sluice- are the operator's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<Volume>>")]
    #[x_kube(
        validation = Rule::new(
            "self.all(v, !(v.name in ['config', 'queue']) && !v.name.matches('^(kafka|clickhouse|sluice)-'))")
            .message("volumes of podTemplate cannot be called config or queue, or begin with kafka-, clickhouse- or sluice-: the operator \
                      has volumes of these names"),
        validation = Rule::new(
            "self.all(v, (has(v.configMap) ? 1 : 0) + (has(v.csi) ? 1 : 0) + (has(v.downwardAPI) ? 1 : 0) + (has(v.emptyDir) ? 1 : 0) \
             + (has(v.persistentVolumeClaim) ? 1 : 0) + (has(v.projected) ? 1 : 0) + (has(v.secret) ? 1 : 0) == 1)")
            .message("each of volumes has exactly one of configMap, csi, downwardAPI, emptyDir, persistentVolumeClaim, projected and secret; \
                      other kinds, such as hostPath, are not offered"),
        merge_strategy = ListMerge::Map(vec!["name".into()])
    )]
    pub volumes: Vec<Volume>,

    /// Where those volumes are mounted, at most 32, each mountPath once. Not above, at or below the folders of the operator (/etc/sluice,
    /// /etc/sluice-secrets, /etc/sluice-tokens, /var/lib/sluice) and of the program (/usr/bin, /usr/lib, /lib, /lib64).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<VolumeMount>>")]
    #[x_kube(
        validation = Rule::new("self.all(m, m.mountPath.matches('^(/[.]{0,2}[A-Za-z0-9_-][A-Za-z0-9._-]*)+$'))")
            .message("mountPath of volumeMounts is an absolute path such as /etc/extra, of letters, digits, '.', '_' and '-'"),
        validation = Rule::new(
            "self.all(m, !m.mountPath.matches('^/(etc|var|var/lib|usr)$|^/(etc/sluice(-secrets|-tokens)?|var/lib/sluice|usr/bin|usr/lib|lib|lib64)(/.*)?$'))")
            .message("volumeMounts of podTemplate cannot cover /etc/sluice, /etc/sluice-secrets, /etc/sluice-tokens, /var/lib/sluice, /usr/bin, \
                      /usr/lib, /lib or /lib64: config, Secrets, tokens, queue and program are there"),
        validation = Rule::new("self.all(m, !has(m.subPath) || m.subPath == '' || !has(m.subPathExpr) || m.subPathExpr == '')")
            .message("one of volumeMounts has subPath or subPathExpr, and not both"),
        merge_strategy = ListMerge::Map(vec!["mountPath".into()])
    )]
    pub volume_mounts: Vec<VolumeMount>,

    /// How the pods resolve names. ClusterFirst: by the cluster's name servers. Default: by those of the node. None: by dnsConfig alone.
    /// When it is not set, Kubernetes takes ClusterFirst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DnsPolicy")]
    pub dns_policy: Option<DnsPolicy>,

    /// Name servers (at most 3), search domains and options of the resolver, beside those of dnsPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::<PodDNSConfig>")]
    pub dns_config: Option<PodDNSConfig>,

    /// Entries of /etc/hosts of the pods, at most 32, each address once; for brokers or servers that DNS does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::<Vec<HostAlias>>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["ip".into()]))]
    pub host_aliases: Vec<HostAlias>,

    /// Who sets the user and the groups of the pods. Fixed, also when it is not set: the operator, user and groups 65532.
    /// Assigned: the cluster; the operator names no user and no group, and OpenShift's SCC restricted-v2 assigns them from the range of the
    /// namespace. In a cluster that assigns no fsGroup, set securityContext.fsGroup, or gateways can neither read their Secrets nor write
    /// to their queue volume. Fields of securityContext count in both cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "UserAndGroup")]
    pub user_and_group: Option<UserAndGroup>,

    /// Security context of the pods. A field that is set here takes the place of the operator's: runAsNonRoot true, runAsUser, runAsGroup
    /// and fsGroup 65532, fsGroupChangePolicy OnRootMismatch, seccompProfile RuntimeDefault. With a runAsUser, runAsGroup and fsGroup that
    /// are not set have the same number, so that the files of queue volumes are made accessible to the new user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::<PodSecurityContext>")]
    pub security_context: Option<PodSecurityContext>,

    /// Security context of the container. A field that is set here takes the place of the operator's: allowPrivilegeEscalation false,
    /// readOnlyRootFilesystem true, capabilities.drop ALL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::<SecurityContext>")]
    #[x_kube(validation = Rule::new("!has(self.privileged) || !self.privileged")
        .message("privileged of containerSecurityContext cannot be true: a gateway needs no rights over its node"))]
    pub container_security_context: Option<SecurityContext>,
}

/// How pods resolve names.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsPolicy {
    /// By the cluster's name servers, and those of the node for other names.
    ClusterFirst,
    /// By the name servers of the node.
    Default,
    /// By the name servers of the spec.
    None,
}

/// Who sets the user and the groups of pods.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserAndGroup {
    /// The operator.
    #[default]
    Fixed,
    /// What admits the pods.
    Assigned,
}

/// The value of a label.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LabelValue(
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = [texts::label_value()]))] pub String,
);

/// The value of an annotation. All of them are also in what the StatefulSet remembers of a template during a rollout, as JSON within JSON:
/// 32 of 2048 characters stay below the 256 KiB that Kubernetes allows an object.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnnotationValue(#[schemars(length(max = 2048))] pub String);
