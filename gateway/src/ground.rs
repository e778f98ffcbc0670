//! What every room counts with and asks: named by all of them, naming only what rows count of times.
//!
//! | file | is |
//! | --- | --- |
//! | [`account`] | where every row is |
//! | [`at_least_once`] | why rows are promised no more than at least once |
//! | [`metrics`] | all numbers, made once |
//! | [`route`] | which shard the rows of a partition go to |
//! | [`clock`] | the time for delivery |
//! | [`async_sender`] | a channel into threads, for tasks that must not block |

pub mod account;
pub mod async_sender;
pub mod at_least_once;
pub mod clock;
pub mod metrics;
pub mod route;
