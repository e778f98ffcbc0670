//! How often a value is appended.
//!
//! Nearly always once. The compiler knows this case from the type: with a plain number, each of a row's values would need a loop.

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
