//! From `source.otlp` to the gateways' config; and where OTLP is accepted, which an edge has too.

use crate::names::{OTLP_GRPC_PORT, OTLP_HTTP_PORT, secret_file};
use sluice_crds::{
    EdgeTenants, Listeners, OtlpSource, SecretUse, TracePipelineSpec,
    security::{BASIC_USERS_KEY, BEARER_TOKENS_KEY, CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY},
};
use sluice_gateway_config as contract;
use sluice_gateway_config::{
    ByteSize, Duration, EdgeListen, OtlpLimits, Violations, budget::RequestSizing, edge::ENDPOINTS_WAIT,
    otlp_source::LOGS_MAX,
};
use std::{fmt::Display, str::FromStr};

/// Gateways that accept OTLP, where the spec names no number. Chosen: one may be evicted or replaced while the other accepts spans.
pub const REPLICAS_OF_REQUESTS: u32 = 2;

/// Bytes that requests have on a volume at least. Chosen by the contract: the smallest `queue.maxBytes`.
const LOG_BYTES_MIN: ByteSize = ByteSize::mib(32);

/// What is said of a spec with neither kind of source. A rule of the API server says the same.
pub(crate) const NO_SOURCE: &str = "has neither kafka nor otlp: set one of them";

/// The source, or what of it cannot be read.
pub(crate) fn source(otlp: &OtlpSource, found: &mut Violations) -> Option<contract::OtlpSource> {
    let requests = requests(otlp, found);
    let age: Option<Duration> = read(&otlp.connection_age_max, "connectionAgeMax", found);
    let letters: Option<ByteSize> = read(&otlp.dead_letter_bytes_max, "deadLetterBytesMax", found);
    let of_tenants = otlp.tenants.as_ref().map(|of| tenants(of, "spec.source.otlp.tenants", found));
    let RequestSizing { received_bytes_max, decompressed_bytes_max } = requests?;
    Some(contract::OtlpSource {
        listen: listen(otlp.listeners(), SecretUse::OF_OTLP),
        limits: OtlpLimits {
            request_bytes_max: received_bytes_max,
            decompressed_bytes_max,
            connection_age_max: age?,
        },
        tenants: of_tenants,
        logs: otlp.logs,
        dead_letter_bytes_max: letters?,
    })
}

/// The largest request.
pub(crate) fn requests(otlp: &OtlpSource, found: &mut Violations) -> Option<RequestSizing> {
    let received = read(&otlp.request_bytes_max, "requestBytesMax", found);
    let decompressed = read(&otlp.decompressed_bytes_max, "decompressedBytesMax", found);
    Some(RequestSizing { received_bytes_max: received?, decompressed_bytes_max: decompressed? })
}

fn read<T: FromStr>(text: &str, field: &str, found: &mut Violations) -> Option<T>
where
    T::Err: Display,
{
    read_at(text, format!("spec.source.otlp.{field}"), found)
}

fn read_at<T: FromStr>(text: &str, path: String, found: &mut Violations) -> Option<T>
where
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| found.add(path, error.to_string())).ok()
}

/// Logs on the volume of a gateway with this many workers, as the gateway counts them: each shard gets the same number. `None` with
/// `source.kafka`.
pub(crate) fn logs(spec: &TracePipelineSpec, workers: u32) -> Option<u32> {
    let otlp = spec.source.otlp.as_ref()?;
    let shards = u32::try_from(spec.sink.clickhouse.shards.len().max(1)).unwrap_or(u32::MAX);
    let by_workers = || workers.max(1).div_ceil(shards).saturating_mul(shards);
    Some(otlp.logs.unwrap_or_else(by_workers).clamp(1, LOGS_MAX))
}

/// Milliseconds of the grace period in which the cluster learns that a gateway ends: then it still accepts requests.
pub(crate) fn endpoints_wait_ms(spec: &TracePipelineSpec) -> u64 {
    spec.source.otlp.as_ref().map_or(0, |_| ENDPOINTS_WAIT.as_millis())
}

/// Adds a violation if a volume with this much room for files has no room for requests.
pub(crate) fn check_room(source: &contract::OtlpSource, room: Option<u64>, found: &mut Violations) {
    let letters = source.dead_letter_bytes_max;
    let least = letters.get().saturating_add(LOG_BYTES_MIN.get());
    found.add_if(room.is_some_and(|room| room < least), "spec.queue.size", || {
        format!(
            "a volume of this size has less than {LOG_BYTES_MIN} for requests beside source.otlp.deadLetterBytesMax ({letters}): increase \
             queue.size, or lower deadLetterBytesMax"
        )
    });
}

/// What tenants may send to an edge, or to a gateway. `path` is that of the field.
pub(super) fn tenants(tenants: &EdgeTenants, path: &str, found: &mut Violations) -> contract::Tenants {
    let bytes = tenants.bytes_per_second.as_ref();
    contract::Tenants {
        header: tenants.header.clone(),
        spans_per_second: tenants.spans_per_second.map(u64::from),
        bytes_per_second: bytes.and_then(|text| read_at(text, format!("{path}.bytesPerSecond"), found)),
    }
}

/// The addresses of an OTLP server, and the files that it reads. `uses` are those of its clients' Secrets.
pub(super) fn listen(
    listeners: Listeners<'_>,
    [certificate, authorities, tokens, users]: [SecretUse; 4],
) -> EdgeListen {
    let at = |port: i32| format!("0.0.0.0:{port}");
    EdgeListen {
        grpc: listeners.grpc.enabled.then(|| at(OTLP_GRPC_PORT)),
        http: listeners.http.enabled.then(|| at(OTLP_HTTP_PORT)),
        tls: listeners.tls.map(|tls| contract::ServerTls {
            certificate_file: secret_file(certificate, CERTIFICATE_KEY),
            key_file: secret_file(certificate, PRIVATE_KEY_KEY),
            client_ca_file: tls.client_ca_secret_ref.as_ref().map(|_| secret_file(authorities, CA_KEY)),
        }),
        authentication: listeners.authentication.map(|clients| contract::Authentication {
            bearer_tokens_file: clients
                .bearer_tokens_secret_ref
                .as_ref()
                .map(|_| secret_file(tokens, BEARER_TOKENS_KEY)),
            basic_users_file: clients
                .basic_users_secret_ref
                .as_ref()
                .map(|_| secret_file(users, BASIC_USERS_KEY)),
        }),
    }
}
