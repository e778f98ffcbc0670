//! Blocks and their memory.
//!
//! Job: holds what one insert sends, from the first row to sealing. Owner: the worker of an open block, delivery of a sealed one; all
//! threads share the pool. Rows come from [`crate::reading::encode`], sealed blocks go to [`crate::delivery`]. Their memory returns to
//! the pool when they are in the table or on the queue volume.
//!
//! | file | answers |
//! | --- | --- |
//! | [`buffers`] | is there memory to read on? |
//! | [`chunks`] | where are a block's frames? |
//! | [`block`] | what is in a block, and which offsets does it cover? |
//! | [`message_rows`] | which message is a row of a block from? |
//! | [`batch`] | when is a block old enough to be sealed? |
//! | [`spool_metadata`] | what does the next run need to know about a block on the queue volume? |

pub mod buffers;
pub mod chunks;

pub mod block;
pub mod message_rows;
pub mod spool_metadata;

pub mod batch;
