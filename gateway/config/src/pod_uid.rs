//! How the operator names the pod that it means: an address may be another pod's by the time that a request arrives there, and nobody learns
//! a pod's UID from the network.

/// Header of a request to a gateway: the UID of the pod that is meant, as the API server gave it. A gateway that knows its own UID and is
/// named another one answers 421, whatever it was asked; it takes commands of other pods only with its own.
pub const POD_UID_HEADER: &str = "sluice-pod-uid";
