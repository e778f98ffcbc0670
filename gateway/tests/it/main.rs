//! Messages in, rows out: what the parts of the gateway do together, without a network.

mod encodes;
mod rows;
