//! What several folders share. It names none of them.

pub mod hash;
pub mod moment;
pub mod pods;
pub mod quantity;
pub mod selector;
pub mod words;
