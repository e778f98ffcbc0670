//! What a request and a connection of an OTLP client may have, at an edge or at a gateway with `source.otlp`.

use crate::{
    checked::in_range,
    units::{ByteSize, Duration},
    violation::Violations,
};
use serde::{Deserialize, Serialize};

/// The largest request, as received and decompressed: the size that OTLP recommends as the limit of a server.
pub const REQUEST_BYTES_MAX: ByteSize = ByteSize::mib(64);

/// The smallest limit of a request. Chosen: one span of average size still passes.
pub const REQUEST_BYTES_MIN: ByteSize = ByteSize::kib(64);

/// The shortest and the longest age of a connection. Chosen: at less than 10 s clients mostly connect; more than a day redistributes nothing.
pub const CONNECTION_AGE: (Duration, Duration) = (Duration::secs(10), Duration::secs(86_400));

/// Limits of an edge. The default of a request is four times gRPC's own default maximum.
pub type EdgeLimits = ClientLimits<16, 32>;

/// Limits of a gateway with `source.otlp`. The default of a request is gRPC's own default maximum: a worker holds a message of a log as a whole,
/// so that requests are smaller than an edge's.
pub type OtlpLimits = ClientLimits<4, 8>;

/// What a request and a connection may have. The parameters are the defaults of the two sizes, in MiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientLimits<const REQUEST_MIB: u64, const DECOMPRESSED_MIB: u64> {
    /// Maximum size of a request when it is received: [`REQUEST_BYTES_MIN`] to [`REQUEST_BYTES_MAX`].
    #[serde(default = "mib::<REQUEST_MIB>")]
    pub request_bytes_max: ByteSize,
    /// Maximum size of a request after decompression: at least `requestBytesMax`, at most [`REQUEST_BYTES_MAX`].
    #[serde(default = "mib::<DECOMPRESSED_MIB>")]
    pub decompressed_bytes_max: ByteSize,
    /// Age at which a connection is closed once its requests are answered, so that clients spread over all pods: [`CONNECTION_AGE`].
    #[serde(default = "connection_age_max")]
    pub connection_age_max: Duration,
}

fn mib<const MIB: u64>() -> ByteSize {
    ByteSize::mib(MIB)
}

fn connection_age_max() -> Duration {
    Duration::secs(600)
}

impl<const REQUEST_MIB: u64, const DECOMPRESSED_MIB: u64> Default
    for ClientLimits<REQUEST_MIB, DECOMPRESSED_MIB>
{
    fn default() -> Self {
        Self {
            request_bytes_max: mib::<REQUEST_MIB>(),
            decompressed_bytes_max: mib::<DECOMPRESSED_MIB>(),
            connection_age_max: connection_age_max(),
        }
    }
}

impl<const REQUEST_MIB: u64, const DECOMPRESSED_MIB: u64> ClientLimits<REQUEST_MIB, DECOMPRESSED_MIB> {
    /// Checks every rule; `prefix` is what comes before `limits` in the path of the field.
    pub(crate) fn check(&self, prefix: &str, found: &mut Violations) {
        let at = |field: &str| format!("{prefix}limits.{field}");
        let (received, decompressed) = (self.request_bytes_max, self.decompressed_bytes_max);
        in_range(found, &at("requestBytesMax"), received, REQUEST_BYTES_MIN, REQUEST_BYTES_MAX);
        let at_decompressed = at("decompressedBytesMax");
        in_range(found, &at_decompressed, decompressed, REQUEST_BYTES_MIN, REQUEST_BYTES_MAX);
        found.add_if(decompressed < received, &at_decompressed, || {
            format!("{decompressed} is less than requestBytesMax ({received}), which a request without compression may have")
        });
        let (youngest, oldest) = CONNECTION_AGE;
        in_range(found, &at("connectionAgeMax"), self.connection_age_max, youngest, oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_set_has_the_default_of_the_one_that_accepts() {
        let text = "{connectionAgeMax: 5m}";
        let edge: EdgeLimits = serde_saphyr::from_str(text).unwrap();
        assert_eq!(edge, EdgeLimits { connection_age_max: Duration::secs(300), ..EdgeLimits::default() });
        assert_eq!(
            (edge.request_bytes_max, edge.decompressed_bytes_max),
            (ByteSize::mib(16), ByteSize::mib(32))
        );
        let otlp: OtlpLimits = serde_saphyr::from_str(text).unwrap();
        assert_eq!(otlp, OtlpLimits { connection_age_max: Duration::secs(300), ..OtlpLimits::default() });
        assert_eq!(
            (otlp.request_bytes_max, otlp.decompressed_bytes_max),
            (ByteSize::mib(4), ByteSize::mib(8))
        );
    }
}
