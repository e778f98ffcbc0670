//! Writes to the API server.
//!
//! | module | writes |
//! | --- | --- |
//! | [`finalizer`] | the finalizer of the pipeline |
//! | [`signature`] | which of several operators looks after the pipeline |
//! | [`apply`], [`drift`] | the objects of a plan, if they differ |
//! | [`edge`] | the objects of the edge, and removes them |
//! | [`prune`] | deletes objects that the pipeline no longer wants |
//! | [`resize`] | the memory of OOM-killed gateways |
//! | [`pod_monitor`] | the `PodMonitor` |
//! | [`status`], [`dropped_fields`] | the status |
//! | [`connections`] | the status of connections |
//! | [`events`], [`resize_events`], [`volume_events`] | events |

pub mod apply;
pub mod connections;
pub mod drift;
pub mod dropped_fields;
pub mod edge;
pub mod events;
pub mod finalizer;
pub mod pod_monitor;
pub mod prune;
pub mod resize;
pub mod resize_events;
pub mod signature;
pub mod status;
pub mod volume_events;
