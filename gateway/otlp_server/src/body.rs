//! Bodies of requests: read, permitted, decompressed.

pub(crate) mod buffer;
pub(crate) mod decompression;
pub(crate) mod intake;
pub(crate) mod message_head;
