//! The HTTP interface for the kubelet, Prometheus and the operator: state and commands.
//!
//! Owner: the admin server's tasks. Uses every other folder; only [`app`](crate::app) uses it, and the [`edge`](crate::edge) its connections.
//!
//! | file | is |
//! | --- | --- |
//! | [`server`] | the HTTP servers: probes, metrics, `drain` and `resume` |
//! | `connections` | connections to it, and to the same of an edge |
//! | [`caller`] | which callers may send commands |
//! | [`pod_uid`] | the UID of the pod that this process runs in |
//! | [`health`] | the state of all parts, as the server reads it |
//! | [`state`] | all that the operator wants to know, as one document |

pub mod server;

pub mod caller;
pub(crate) mod connections;
pub mod pod_uid;

pub mod health;
mod state;
