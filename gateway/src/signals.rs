//! What the gateway says about itself, and what it is asked.
//!
//! Job: nothing is done differently because of what is here, but that the process is stopped or drained. Owner: whoever counts holds
//! its handle; the admin server and the operator read. Guards and counters come from every room; text goes out over HTTP.
//!
//! | file | says |
//! | --- | --- |
//! | [`account`] | where every row is |
//! | [`guarantee`] | whether rows are in the table once, or at least once, and why |
//! | [`metrics`] | all numbers, made once |
//! | [`remaining`] | what keeps this gateway from being taken away |
//! | [`health`] | all of it, as the admin server asks |
//! | [`admin`] | the same over HTTP, and takes `drain` and `resume` |

pub mod account;
pub mod guarantee;

pub mod metrics;

pub mod remaining;

pub mod health;

pub mod admin;
