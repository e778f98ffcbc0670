//! Shared by all folders; uses nothing of them except the counters of odd times in [`rows`](crate::rows).
//!
//! | file | is |
//! | --- | --- |
//! | [`account`] | counts where every row is |
//! | [`at_least_once`] | the reasons why only "at least once" holds |
//! | [`measure`] | what a tenant's limit counts |
//! | [`metrics`] | all metrics, created once |
//! | [`route`] | the shard of each partition |
//! | [`shard_flags`] | a fact about each shard, for the workers |
//! | [`clock`] | the time for delivery |
//! | [`async_sender`] | a channel to threads, for tasks that must not block |

pub mod account;
pub mod async_sender;
pub mod at_least_once;
pub mod clock;
pub mod measure;
pub mod metrics;
pub mod route;
pub mod shard_flags;
