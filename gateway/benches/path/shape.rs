//! The shapes of spans that are measured.

use crate::spans;
use clap::ValueEnum;

/// What the spans look like; the load shapes of `e2e`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Like those of a web shop: 462 bytes a span, 14 resource and 5 to 10 span attributes.
    Rich,
    /// Like those of a load generator: 121 bytes a span, one attribute, one event.
    Loadgen,
}

impl Shape {
    /// The generator's.
    pub fn of_generator(self) -> spans::Shape {
        match self {
            Self::Rich => spans::Shape::Rich,
            Self::Loadgen => spans::Shape::Loadgen,
        }
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rich => "rich",
            Self::Loadgen => "loadgen",
        }
    }
}
