//! What the gateway tells the kubelet, Prometheus and the operator over HTTP, and what it is asked.
//!
//! Owner: the admin server's tasks. It names every room, and nothing but [`app`](crate::app) names it.
//!
//! | file | is |
//! | --- | --- |
//! | [`server`] | the HTTP servers: probes, metrics, `drain` and `resume` |
//! | [`caller`] | from whom commands are taken |
//! | [`pod_uid`] | in which pod this process runs |
//! | [`health`] | the state of all rooms, as the server asks for it |
//! | [`remaining`] | what keeps this gateway from being taken away |

pub mod server;

pub mod caller;
pub mod pod_uid;

pub mod health;
pub mod remaining;
