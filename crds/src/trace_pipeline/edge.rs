//! The edge: OTLP into the pipeline's topic.

use crate::{of_kubernetes::bounded, repeated::repeated_at, texts, trace_pipeline::resources::Cpu};
use crate::{
    security::{BasicUsersSecretRef, BearerTokensSecretRef, CaSecretRef, CertificateSecretRef},
    trace_pipeline::{
        client_rules,
        pod_template::{AnnotationValue, LabelValue, MIN_DOMAINS, OWN_KEYS, TOLERATED_FOR, TOLERATION_VALUE},
        resources::{ResourceRequests, cpu},
    },
};
use k8s_openapi::api::core::v1::{Toleration, TopologySpreadConstraint};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pods that accept OTLP over gRPC and HTTP, write the spans to the pipeline's topic, and answer a request once the brokers have all of it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(client_rules::ACCEPTS)
        .message("edge needs grpc.enabled or http.enabled: set one of them to true, or remove edge"),
    validation = Rule::new(client_rules::PORTS)
        .message("edge.grpc.port and edge.http.port must differ: they are ports of one Service"),
    validation = Rule::new("!has(self.autoscaling) || !has(self.replicas)")
        .message("edge.replicas must not be set beside edge.autoscaling, whose HorizontalPodAutoscaler sets the number: remove one of them"),
    validation = repeated_at(&["decompressedBytesMax"], Rule::new(client_rules::DECOMPRESSED)
        .message("edge.decompressedBytesMax must not be less than edge.requestBytesMax, which a request without compression may have: \
                  increase it, or lower requestBytesMax"))
)]
pub struct Edge {
    /// The topic that spans are written to, as OTLP in protobuf: one of source.kafka.topics. When it is not set, their only one.
    // A rule of the spec compares it with those topics, whose form another rule bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249))]
    pub topic: Option<String>,

    /// OTLP/gRPC.
    #[serde(default)]
    pub grpc: EdgeGrpc,

    /// OTLP/HTTP with protobuf and JSON.
    #[serde(default)]
    pub http: EdgeHttp,

    /// TLS of both. When it is not set, plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EdgeTls>,

    /// How clients prove who they are. When it is not set, they need not: every client that reaches the Service can write spans; see also
    /// networkPolicy.otlpFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<EdgeAuthentication>,

    /// Maximum size of a request as received: a whole number of Ki or Mi, 64Ki to 64Mi. Default 16Mi.
    #[serde(default = "request_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::request_bytes("requestBytesMax", "16Mi"))]
    pub request_bytes_max: String,

    /// Maximum size of a request after decompression, at least requestBytesMax: a whole number of Ki or Mi, 64Ki to 64Mi. Default 32Mi. It
    /// needs room in resources.limits.memory.
    #[serde(default = "decompressed_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::request_bytes("decompressedBytesMax", "32Mi"))]
    pub decompressed_bytes_max: String,

    /// Size up to which spans share a message, before compression: a whole number of Ki or Mi, 4Ki to 16Mi, and not more than
    /// source.kafka.recordBatchBytesMax. Default 256Ki.
    #[serde(default = "message_bytes_target")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Ki|Mi)$') && quantity(self).compareTo(quantity('4Ki')) >= 0 \
         && quantity(self).compareTo(quantity('16Mi')) <= 0")
        .message("messageBytesTarget is a whole number of Ki or Mi from 4Ki to 16Mi, such as 256Ki"))]
    pub message_bytes_target: String,

    /// Age at which a connection is closed once its requests are answered, so that clients spread over all pods: a duration such as 90s or
    /// 1m30s, from 10s to 24h. Default 10m.
    #[serde(default = "connection_age_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::connection_age())]
    pub connection_age_max: String,

    /// What each tenant may send to one pod. When it is not set, no tenant has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<EdgeTenants>,

    /// Number of pods, 1 to 1000, while autoscaling is not set. When it is not set, 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: Option<u32>,

    /// A HorizontalPodAutoscaler that sets the number of pods. When it is not set, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<EdgeAutoscaling>,

    /// Memory and CPU of one pod.
    #[serde(default)]
    pub resources: EdgeResources,

    /// Labels, annotations and placement of the pods. When it is not set, they have only those of the operator, and the scheduler may place
    /// them anywhere. What is set within pods (env, volumes, dnsConfig, hostAliases, security contexts, runtimeClassName) and
    /// imagePullSecrets are those of gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Box<EdgePodTemplate>>,

    /// The Service that clients send to, <name>-edge.
    #[serde(default)]
    pub service: EdgeService,
}

fn request_bytes_max() -> String {
    "16Mi".to_owned()
}

fn decompressed_bytes_max() -> String {
    "32Mi".to_owned()
}

fn message_bytes_target() -> String {
    "256Ki".to_owned()
}

fn connection_age_max() -> String {
    "10m".to_owned()
}

/// OTLP/gRPC.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeGrpc {
    /// Whether it is accepted. Default true.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Port of the Service, 1 to 65535. Default 4317. Pods listen at 4317 in any case.
    #[serde(default = "grpc_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
}

impl Default for EdgeGrpc {
    fn default() -> Self {
        Self { enabled: enabled(), port: grpc_port() }
    }
}

fn grpc_port() -> u32 {
    4317
}

/// OTLP/HTTP.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeHttp {
    /// Whether it is accepted. Default true.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Port of the Service, 1 to 65535, other than that of grpc. Default 4318. Pods listen at 4318 in any case.
    #[serde(default = "http_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
}

impl Default for EdgeHttp {
    fn default() -> Self {
        Self { enabled: enabled(), port: http_port() }
    }
}

fn http_port() -> u32 {
    4318
}

fn enabled() -> bool {
    true
}

/// The certificate of the server, and of its clients. Renewed certificates restart no pod.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeTls {
    /// A Secret in the pipeline's namespace with the certificate of the Service's name and its key, such as one of type kubernetes.io/tls or
    /// of cert-manager.
    pub certificate_secret_ref: CertificateSecretRef,

    /// A Secret in the pipeline's namespace with PEM certificates of authorities: a client must show a certificate that one of them has
    /// signed. When it is not set, clients need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca_secret_ref: Option<CaSecretRef>,
}

/// How clients prove who they are: by one of the tokens or one of the users, in the header Authorization. Other content of the Secrets
/// restarts no pod.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.bearerTokensSecretRef) || has(self.basicUsersSecretRef)")
        .message("authentication has bearerTokensSecretRef, basicUsersSecretRef or both: set one, or remove authentication to let every client in")
)]
pub struct EdgeAuthentication {
    /// A Secret in the pipeline's namespace with bearer tokens, one a line. With several, clients can change from one to the next without
    /// a refusal. When it is not set, no token is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_tokens_secret_ref: Option<BearerTokensSecretRef>,

    /// A Secret in the pipeline's namespace with users, one a line, each user:password. When it is not set, no user is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_users_secret_ref: Option<BasicUsersSecretRef>,
}

/// What each tenant may send to one pod. Requests without the header share the limits of one tenant more. A request above a limit is
/// refused with the tenant, the limit, and when to send it again.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.spansPerSecond) || has(self.bytesPerSecond)")
        .message("tenants has spansPerSecond, bytesPerSecond or both: set one, or remove tenants")
)]
pub struct EdgeTenants {
    /// The header (gRPC: the metadata key) with the tenant's name, in lower case, such as x-scope-orgid.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[a-z0-9._-]+$') && !self.startsWith('grpc-') && !self.endsWith('-bin') \
         && !(self in ['authorization', 'content-type', 'content-length', 'content-encoding'])")
        .message("header of tenants is the name of a header in lower case, such as x-scope-orgid; not authorization, content-type, \
                  content-length, content-encoding, and none that begins with grpc- or ends with -bin"))]
    pub header: String,

    /// Spans per second to one pod, 1 to 1000000000. When it is not set, no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub spans_per_second: Option<u32>,

    /// Bytes per second to one pod, after decompression: a whole number of Ki, Mi or Gi. When it is not set, no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}(Ki|Mi|Gi)$')")
        .message("bytesPerSecond is a whole number of Ki, Mi or Gi, such as 10Mi"))]
    pub bytes_per_second: Option<String>,
}

/// A HorizontalPodAutoscaler, which needs metrics-server or another source of resource metrics.
#[derive(KubeSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.minReplicas) || self.minReplicas <= self.maxReplicas")
        .message("minReplicas of edge.autoscaling must not be more than its maxReplicas")
)]
pub struct EdgeAutoscaling {
    /// Minimum number of pods, 1 to 1000. Default 2.
    #[serde(default = "replicas_min")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: u32,

    /// Maximum number of pods, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: u32,

    /// CPU that pods should use on average, in percent of resources.requests.cpu: 1 to 1000. Default 70.
    #[serde(rename = "targetCPUUtilizationPercentage", default = "target_cpu_percent")]
    #[schemars(range(min = 1, max = 1000))]
    pub target_cpu_percent: u32,
}

fn replicas_min() -> u32 {
    2
}

fn target_cpu_percent() -> u32 {
    70
}

/// Memory and CPU of one pod of the edge.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.requests) || !has(self.requests.memory) || (has(self.limits) && has(self.limits.memory) \
         && (!isQuantity(self.requests.memory) || !isQuantity(self.limits.memory) \
         || quantity(self.requests.memory).compareTo(quantity(self.limits.memory)) == 0))")
        .message("requests.memory of the edge must equal its limits.memory, which it divides among fixed buffers when it starts: set both to \
                  the same quantity, or remove requests.memory")
)]
pub struct EdgeResources {
    /// What is reserved. Memory is reserved up to its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceRequests>,

    /// The limits. Memory always has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<EdgeResourceLimits>,
}

/// Limits of one pod of the edge.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeResourceLimits {
    /// CPU limit: cores or thousandths of one, 10m to 256, as a text such as 500m, or a whole number. When it is not set, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cpu::<256>")]
    #[x_kube(validation = Rule::new(
        "string(self) != self || (self.matches('^([1-9][0-9]*m|[0-9]+([.][0-9]{1,3})?)$') \
         && quantity(self).compareTo(quantity('10m')) >= 0 && quantity(self).compareTo(quantity('256')) <= 0)")
        .message("limits.cpu is a number of cores from 10m to 256, such as 500m, \"0.5\" or 2"))]
    pub cpu: Option<Cpu>,

    /// Memory, request and limit: a whole number of Mi or Gi, at least 128Mi. When it is not set, 192Mi. Larger requests
    /// (decompressedBytesMax) and more cores need more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Mi|Gi)$') && quantity(self).compareTo(quantity('128Mi')) >= 0")
        .message("limits.memory is a whole number of Mi or Gi, at least 128Mi, such as 512Mi"))]
    pub memory: Option<String>,
}

/// Memory of an edge whose spec names none.
const MEMORY: &str = "192Mi";

/// CPU that is reserved for an edge whose spec names none: as for a gateway.
const CPU_REQUEST: &str = "500m";

impl EdgeResources {
    /// Memory, request and limit.
    pub fn memory(&self) -> String {
        let limit = self.limits.as_ref().and_then(|limits| limits.memory.clone());
        limit.unwrap_or_else(|| MEMORY.to_owned())
    }

    /// CPU that is reserved.
    pub fn cpu_request(&self) -> String {
        let request = self.requests.as_ref().and_then(|requests| requests.cpu.as_ref());
        request.map_or_else(|| CPU_REQUEST.to_owned(), Cpu::text)
    }

    /// The CPU limit, if there is one.
    pub fn cpu_limit(&self) -> Option<String> {
        self.limits.as_ref().and_then(|limits| limits.cpu.as_ref()).map(Cpu::text)
    }
}

/// Labels, annotations and placement of the pods. A change replaces them, one new pod at a time, and none leaves before the new one is ready.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgePodTemplate {
    /// More labels of the pods, at most 32. None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("labels of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those, and knows pods by \
                  them"))]
    pub labels: BTreeMap<String, LabelValue>,

    /// More annotations of the pods, at most 32. None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("annotations of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub annotations: BTreeMap<String, AnnotationValue>,

    /// Annotations of the pods' ServiceAccount <name>-edge, at most 32, such as eks.amazonaws.com/role-arn: its role needs to write to the
    /// topic, that of gateways needs to read. None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("serviceAccountAnnotations of podTemplate cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub service_account_annotations: BTreeMap<String, AnnotationValue>,

    /// Labels that a node must have, at most 32.
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

    /// How the pods are spread over nodes or zones, at most 32; each topologyKey and whenUnsatisfiable once. One without a labelSelector
    /// counts the edge's pods of this pipeline. When none is set, the scheduler's own defaults.
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
}

/// The Service that clients send to.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')")
        .message("service.loadBalancerClass needs type LoadBalancer: set that, or remove loadBalancerClass")
)]
pub struct EdgeService {
    /// ClusterIP (the default): an address within the cluster. NodePort: also a port of every node. LoadBalancer: also an address outside,
    /// from the cloud.
    #[serde(rename = "type", default)]
    pub kind: EdgeServiceType,

    /// Annotations, at most 32, such as those that a load balancer is configured by. None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("annotations of service cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub annotations: BTreeMap<String, AnnotationValue>,

    /// More labels, at most 32. None begins with app.kubernetes.io/ or sluice.dev/.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(OWN_KEYS)
        .message("labels of service cannot begin with app.kubernetes.io/ or sluice.dev/: the operator sets those"))]
    pub labels: BTreeMap<String, LabelValue>,

    /// The load balancer's class, with type LoadBalancer; Kubernetes lets it be set only when the type becomes LoadBalancer. When it is not
    /// set, the cloud's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')")
        .message("loadBalancerClass is the name of a class such as service.k8s.aws/nlb"))]
    pub load_balancer_class: Option<String>,
}

/// Who reaches a Service.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeServiceType {
    /// Pods of the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Clients that reach a node.
    NodePort,
    /// Clients that reach the load balancer.
    LoadBalancer,
}

impl EdgeServiceType {
    /// Its name in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}
