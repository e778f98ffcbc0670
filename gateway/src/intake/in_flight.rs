//! Counts a request while it is under way.

use prometheus::IntGauge;

/// Counts from its making to its end.
pub struct InFlight<'a>(&'a IntGauge);

impl<'a> InFlight<'a> {
    pub fn begin(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
