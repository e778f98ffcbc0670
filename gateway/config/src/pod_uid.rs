//! How the operator names the pod that it means. When a request arrives, its address may already belong to another pod. A client cannot
//! learn a pod's UID from the network.

/// Header of a request to a gateway: the UID of the intended pod, from the API server. A gateway that knows its own UID answers any
/// request with another UID with 421. It accepts commands from other pods only with its own UID.
pub const POD_UID_HEADER: &str = "sluice-pod-uid";
