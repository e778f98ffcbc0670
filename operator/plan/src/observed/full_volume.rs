//! Gateways with `source.otlp` whose volume has no room for requests, as they say themselves.

use sluice_gateway_config::VolumeLimit;

/// A volume may be full for this many seconds before that is said: until then, clients send their requests again. Chosen, as for a gateway that is
/// not ready.
pub const FULL_SECONDS: u64 = 60;

/// A gateway that refuses requests because its volume is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullVolumeSeen {
    /// The gateway's number.
    pub ordinal: u32,
    /// The name of its pod.
    pub name: String,
    /// For how long it has refused requests for that.
    pub seconds: u64,
    /// The most bytes that its logs may have; 0 if it does not say.
    pub bytes_max: u64,
    /// What they have no more of.
    pub limit: VolumeLimit,
}
