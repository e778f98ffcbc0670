//! How often a value is appended.
//!
//! Nearly always once, which the compiler is told: with the count as a number, each of a row's values would go through a loop.

/// A number of times, one at least.
pub(super) trait Times: Copy {
    fn count(self) -> usize;
}

/// One time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Once;

impl Times for Once {
    #[inline]
    fn count(self) -> usize {
        1
    }
}

impl Times for usize {
    #[inline]
    fn count(self) -> usize {
        self
    }
}
