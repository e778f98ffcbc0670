//! OTLP that gateways accept themselves, and what it has in common with the edge.

use crate::{
    repeated::repeated_at,
    trace_pipeline::{
        client_rules,
        edge::{Edge, EdgeAuthentication, EdgeGrpc, EdgeHttp, EdgeService, EdgeTenants, EdgeTls},
    },
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// OTLP that gateways accept themselves, over gRPC and HTTP. A gateway keeps each request in a log on its queue volume, and answers the request once
/// it is on the disk. The volume is the only copy until the rows are inserted.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(client_rules::ACCEPTS)
        .message("source.otlp needs grpc.enabled or http.enabled: set one of them to true"),
    validation = Rule::new(client_rules::PORTS)
        .message("source.otlp.grpc.port and source.otlp.http.port must differ: they are ports of one Service"),
    validation = repeated_at(&["decompressedBytesMax"], Rule::new(client_rules::DECOMPRESSED)
        .message("source.otlp.decompressedBytesMax must not be less than source.otlp.requestBytesMax, which a request without compression may \
                  have: increase it, or lower requestBytesMax"))
)]
pub struct OtlpSource {
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

    /// Maximum size of a request as received: a whole number of Ki or Mi, 64Ki to 64Mi. Default 4Mi.
    #[serde(default = "request_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::request_bytes("requestBytesMax", "4Mi"))]
    pub request_bytes_max: String,

    /// Maximum size of a request after decompression, at least requestBytesMax: a whole number of Ki or Mi, 64Ki to 64Mi. Default 8Mi. Each
    /// worker holds one such request, so that a larger one needs room in gateway.resources.limits.memory.
    #[serde(default = "decompressed_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::request_bytes("decompressedBytesMax", "8Mi"))]
    pub decompressed_bytes_max: String,

    /// Age at which a connection is closed once its requests are answered, so that clients spread over all gateways: a duration such as 90s or
    /// 1m30s, from 10s to 24h. Default 10m.
    #[serde(default = "connection_age_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = client_rules::connection_age())]
    pub connection_age_max: String,

    /// What each tenant may send to one gateway. When it is not set, no tenant has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<EdgeTenants>,

    /// Number of logs on each queue volume, 1 to 32, and at least one for each shard: a worker reads a log, and a log goes to one shard. When it
    /// is not set, one for each worker, rounded up so that each shard has as many. With a smaller number, the logs beyond it are read until they
    /// are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub logs: Option<u32>,

    /// Maximum size of dead letters on each queue volume, out of queue.maxBytes: a whole number of Mi or Gi, 2Mi to 64Gi. Default 64Mi.
    #[serde(default = "dead_letter_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]{0,6}(Mi|Gi)$') && quantity(self).compareTo(quantity('2Mi')) >= 0 \
         && quantity(self).compareTo(quantity('64Gi')) <= 0")
        .message("deadLetterBytesMax is a whole number of Mi or Gi from 2Mi to 64Gi, such as 64Mi"))]
    pub dead_letter_bytes_max: String,

    /// The Service that clients send to, <name>-otlp. Gateways that are ready are behind it.
    #[serde(default)]
    pub service: EdgeService,
}

// gRPC's own default maximum.
fn request_bytes_max() -> String {
    "4Mi".to_owned()
}

fn decompressed_bytes_max() -> String {
    "8Mi".to_owned()
}

fn connection_age_max() -> String {
    "10m".to_owned()
}

fn dead_letter_bytes_max() -> String {
    "64Mi".to_owned()
}

/// Where OTLP is accepted, and how its clients prove who they are: at an edge, or at gateways with source.otlp.
#[derive(Debug, Clone, Copy)]
pub struct Listeners<'a> {
    /// OTLP/gRPC.
    pub grpc: EdgeGrpc,
    /// OTLP/HTTP.
    pub http: EdgeHttp,
    /// TLS of both.
    pub tls: Option<&'a EdgeTls>,
    /// How clients prove who they are.
    pub authentication: Option<&'a EdgeAuthentication>,
    /// The Service that clients send to.
    pub service: &'a EdgeService,
}

impl Listeners<'_> {
    /// Ports of the Service, for OTLP/gRPC and for OTLP/HTTP; `None` if it is off.
    pub fn ports(&self) -> [Option<u32>; 2] {
        [self.grpc.enabled.then_some(self.grpc.port), self.http.enabled.then_some(self.http.port)]
    }
}

impl Edge {
    /// Where it accepts OTLP.
    pub fn listeners(&self) -> Listeners<'_> {
        Listeners {
            grpc: self.grpc,
            http: self.http,
            tls: self.tls.as_ref(),
            authentication: self.authentication.as_ref(),
            service: &self.service,
        }
    }
}

impl OtlpSource {
    /// Where gateways accept OTLP.
    pub fn listeners(&self) -> Listeners<'_> {
        Listeners {
            grpc: self.grpc,
            http: self.http,
            tls: self.tls.as_ref(),
            authentication: self.authentication.as_ref(),
            service: &self.service,
        }
    }
}
