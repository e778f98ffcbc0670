//! Blocks on the queue volume: which are moved there, how they return, and what happens to those that an earlier run has left.
//!
//! Owner: the thread `spool` has the volume's files; the delivery task decides which blocks go there. Blocks come from
//! [delivery](crate::delivery) when memory runs short, and go back to it to be sent. `sluice_spool` defines the format of the files.
//!
//! ```text
//!  delivery --> block_table --spill--> spool --> (files) --> spool, read back while they are sent --> delivery
//!                                         `-- left by an earlier run --> continues with its partition
//!                                                                  `---> only_copy: inserted by delivery's orphans, or dropped
//! ```

pub mod block_frames;
pub mod block_table;
pub mod ready_block;

pub mod spill;

pub mod spool;

pub mod only_copy;

#[cfg(test)]
pub(crate) mod test_volume;
