//! What several folders share, and what names none of them.

pub mod hash;
pub mod moment;
pub mod pods;
pub mod quantity;
