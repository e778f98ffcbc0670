//! What the gateway says about itself, and what it is asked.
//!
//! Owner: whoever counts holds the handle for it; a task of its own asks the servers what can be promised; the admin server reads. What
//! is told comes from every room and goes out over HTTP, to Prometheus, the kubelet and the operator.
//!
//! | file | says |
//! | --- | --- |
//! | [`account`] | where every row is |
//! | [`deduplicated`] | how many rows ClickHouse dropped by their tokens |
//! | [`guarantee`] | whether rows are in the table once, or at least once, and why |
//! | [`metrics`] | all numbers, made once |
//! | [`remaining`] | what keeps this gateway from being taken away |
//! | [`health`] | all of it, as the admin server asks |
//! | [`admin`] | the same over HTTP, and takes `drain` and `resume` |
//! | [`caller`] | from whom it takes them |
//! | [`pod_uid`] | in which pod |

pub mod account;
pub mod deduplicated;
pub mod guarantee;

pub mod metrics;

pub mod remaining;

pub mod health;

pub mod admin;

pub mod caller;

pub mod pod_uid;
