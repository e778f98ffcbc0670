//! CEL rules about clients of OTLP: of the edge, and of gateways with `source.otlp`. The messages of an object's rules name the object, and
//! stand with it.

use kube::core::Rule;

/// Either gRPC or HTTP is on.
pub(crate) const ACCEPTS: &str = "!has(self.grpc) || !has(self.http) || !has(self.grpc.enabled) || !has(self.http.enabled) || self.grpc.enabled || self.http.enabled";

/// Each has a port of its own.
pub(crate) const PORTS: &str = "!has(self.grpc) || !has(self.http) || !has(self.grpc.port) || !has(self.http.port) || self.grpc.port != self.http.port";

/// A request of the largest size that is received may have no compression.
pub(crate) const DECOMPRESSED: &str = "!has(self.requestBytesMax) || !has(self.decompressedBytesMax) || !isQuantity(self.requestBytesMax) || !isQuantity(self.decompressedBytesMax) \
    || quantity(self.requestBytesMax).compareTo(quantity(self.decompressedBytesMax)) <= 0";

/// The size of a request.
pub(crate) fn request_bytes(field: &str, example: &str) -> Rule {
    let message = format!("{field} is a whole number of Ki or Mi from 64Ki to 64Mi, such as {example}");
    Rule::new(
        "self.matches('^[1-9][0-9]*(Ki|Mi)$') && quantity(self).compareTo(quantity('64Ki')) >= 0 \
         && quantity(self).compareTo(quantity('64Mi')) <= 0",
    )
    .message(message.as_str())
}

/// The age of a connection.
pub(crate) fn connection_age() -> Rule {
    Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('10s') && duration(self) <= duration('24h')",
    )
    .message("connectionAgeMax is a duration from 10s to 24h in whole h, m and s, such as 10m or 1m30s")
}
