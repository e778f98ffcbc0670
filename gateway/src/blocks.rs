//! Blocks, and the memory that they are in.
//!
//! Job: what one insert will send, from the first row until it is sealed. Owner: a block is its worker's while it is open, and
//! delivery's once it is sealed; the pool is everybody's. Rows come from [`crate::reading::encode`], sealed blocks go to
//! [`crate::delivery`], and their memory comes back to the pool when they are in the table or on the queue volume.
//!
//! | file | answers |
//! | --- | --- |
//! | [`buffers`] | is there memory to read on? |
//! | [`block`] | what is in this block, and which offsets does it cover? |
//! | [`message_rows`] | which message is a row of it from? |
//! | [`batch`] | when is it old enough to be sealed? |
//! | [`spool_metadata`] | what must the next run know of it, if it is on the queue volume by then? |

pub mod buffers;

pub mod block;
pub mod message_rows;
pub mod spool_metadata;

pub mod batch;
