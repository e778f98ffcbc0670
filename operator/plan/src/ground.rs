//! What several folders share. It names no other folder.

pub mod hash;
pub mod labels;
pub mod moment;
pub mod pods;
pub mod quantity;
pub mod refused;
pub mod selector;
pub mod words;
